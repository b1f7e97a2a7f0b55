//! Checks of the way to sleep on stock firmware.

use dormouse_machine::persistence::Persistence;
use dormouse_machine::snapshot::{Readiness, Sealing, Source};
use dormouse_report::format::bytes;

use super::Check;

/// Of the firmware's way: nothing there is encrypted, and nothing can be done about it.
pub fn firmware_text() -> Check {
    Check::ok(
        "plain-text",
        "all memory lies in plain text on the device while the machine sleeps: guard the device as you \
         guard the memory (docs/explanation/threat-model.md)",
    )
}

/// All checks of the snapshot's way.
pub fn checks(found: &Readiness) -> Vec<Check> {
    vec![
        hibernation(found),
        module(found.has_module),
        head(found),
        initramfs(found),
        persistence(found),
        plain_text(found),
    ]
}

fn hibernation(found: &Readiness) -> Check {
    const ID: &str = "hibernation";
    match (&found.hibernation, found.has_device) {
        (Ok(()), true) => Check::ok(ID, "allowed, and /dev/snapshot is there"),
        (Ok(()), false) => Check::missing(
            ID,
            "allowed, but there is no /dev/snapshot",
            "boot a kernel with CONFIG_HIBERNATION_SNAPSHOT_DEV",
        ),
        (Err(why), _) => Check::missing(ID, format!("not allowed: {}", why.found), why.next),
    }
}

fn module(is_loaded: bool) -> Check {
    const ID: &str = "module";
    if is_loaded {
        Check::ok(ID, "dormouse_snapshot is loaded")
    } else {
        Check::missing(
            ID,
            "dormouse_snapshot is not loaded",
            "install dormouse-dkms, then: modprobe dormouse_snapshot",
        )
    }
}

fn head(found: &Readiness) -> Check {
    const ID: &str = "head-and-node";
    match &found.setup {
        Ok(setup) if matches!(setup.state.as_str(), "suspended" | "restoring") => Check::missing(
            ID,
            format!(
                "{} holds an image in state {} that was not resumed",
                setup.head.name, setup.state
            ),
            "see `dormouse image inspect`; reboot to drop it",
        ),
        Ok(setup) => Check::ok(
            ID,
            format!(
                "{} takes the kernel's snapshot (room for {}), {} programs' pages ({}) as node {}; \
                 resumed {} times",
                setup.head.name,
                bytes(setup.room_bytes),
                setup.node.name,
                bytes(setup.node.bytes),
                setup.node.node,
                setup.resume_count
            ),
        ),
        Err(why) => Check::missing(ID, why, "dormouse setup-device --head DAX --node DAX"),
    }
}

fn initramfs(found: &Readiness) -> Check {
    const ID: &str = "initramfs";
    match &found.initramfs {
        Ok(()) => Check::ok(ID, "looked for an image at this boot"),
        Err(why) => Check::missing(
            ID,
            why,
            "make it anew (update-initramfs -u, or dracut -f) and reboot once",
        ),
    }
}

fn persistence(found: &Readiness) -> Check {
    const ID: &str = "persistence";
    let Some(verdict) = &found.persistence else {
        return Check::not_applicable(ID, "needs both devices");
    };
    let reasons = verdict.reasons.join("; ");
    if verdict.persistence == Persistence::UNKNOWN {
        Check::missing(
            ID,
            reasons,
            "sleep is refused: the platform must state (ACPI NFIT, CEDT) that it flushes when power \
             goes; or take the risk with `dormouse sleep --accept-volatile`",
        )
    } else {
        Check::ok(ID, reasons)
    }
}

fn plain_text(found: &Readiness) -> Check {
    const ID: &str = "plain-text";
    let source = match &found.sealing {
        Sealing::PlainText => {
            return Check::warn(
                ID,
                "all memory lies in plain text on the devices while the machine sleeps, and whoever \
                 can write them can change the kernel",
                "dormouse setup-device --head DAX --node DAX --seal tpm (or passphrase, key-file)",
            );
        }
        Sealing::Unreadable(why) => {
            return Check::missing(
                ID,
                why,
                "correct it, or: dormouse setup-device … --seal KEY",
            );
        }
        Sealing::Sealed {
            source,
            has_counter,
        } => {
            let key = match source {
                Source::Passphrase => "a passphrase",
                Source::KeyFile => "a key file, of which the initramfs holds a copy",
                Source::Tpm => "the TPM",
            };
            if *has_counter {
                format!("{key}, older images are refused")
            } else {
                format!("{key}, an older image that is put back is not noticed")
            }
        }
    };
    Check::ok(
        ID,
        format!(
            "the kernel's part is sealed with {source}; programs' pages stay in plain text on the node \
             (docs/explanation/threat-model.md)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;
    use dormouse_machine::node::DaxDevice;
    use dormouse_machine::persistence::Verdict;
    use dormouse_machine::snapshot::{Forbidden, Setup};

    fn device(name: &str) -> DaxDevice {
        DaxDevice::for_tests(name, 4 << 30)
    }

    fn ready() -> Readiness {
        Readiness {
            hibernation: Ok(()),
            has_device: true,
            has_module: true,
            setup: Ok(Setup::for_tests(device("dax0.0"), device("dax1.0"))),
            initramfs: Ok(()),
            persistence: Some(Verdict {
                persistence: Persistence::DEVICE,
                reasons: vec!["stated".to_owned()],
            }),
            sealing: Sealing::Sealed {
                source: Source::Tpm,
                has_counter: true,
            },
        }
    }

    fn status(found: &Readiness, id: &str) -> Status {
        let all = checks(found);
        all.iter().find(|check| check.id == id).unwrap().status
    }

    #[test]
    fn a_machine_that_can_sleep_by_the_snapshot_has_nothing_to_do() {
        for check in checks(&ready()) {
            assert_eq!(check.status, Status::Ok, "{check:?}");
        }
    }

    #[test]
    fn each_lack_of_the_snapshot_s_way_is_found_by_itself() {
        type Change = fn(&mut Readiness);
        let changes: [(&str, Status, Change); 8] = [
            ("hibernation", Status::Missing, |f| {
                f.hibernation = Err(Forbidden {
                    found: "mem".into(),
                    next: "",
                });
            }),
            ("hibernation", Status::Missing, |f| f.has_device = false),
            ("module", Status::Missing, |f| f.has_module = false),
            ("head-and-node", Status::Missing, |f| {
                f.setup = Err("no head".into());
            }),
            ("initramfs", Status::Missing, |f| {
                f.initramfs = Err("nobody".into());
            }),
            ("persistence", Status::Missing, |f| {
                f.persistence.as_mut().unwrap().persistence = Persistence::UNKNOWN;
            }),
            ("plain-text", Status::Warn, |f| {
                f.sealing = Sealing::PlainText;
            }),
            ("plain-text", Status::Missing, |f| {
                f.sealing = Sealing::Unreadable("bad".into());
            }),
        ];
        for (id, expected, change) in changes {
            let mut found = ready();
            change(&mut found);
            assert_eq!(status(&found, id), expected, "{id}");
            let others = checks(&found).into_iter().filter(|check| check.id != id);
            for check in others {
                assert_eq!(check.status, Status::Ok, "{id}: {check:?}");
            }
        }
    }

    #[test]
    fn what_stays_in_plain_text_is_said_whatever_is_sealed() {
        for sealing in [
            Sealing::PlainText,
            Sealing::Sealed {
                source: Source::KeyFile,
                has_counter: false,
            },
        ] {
            let found = Readiness { sealing, ..ready() };
            assert!(plain_text(&found).found.contains("plain text"));
        }
        assert!(firmware_text().found.contains("plain text"));
    }
}
