//! Whether programs can be persisted on this machine, and restored after a power loss.

use std::path::{Path, PathBuf};

use dormouse_process::track::self_test;
use dormouse_process::vma_flags::VmaFlags;
use dormouse_report::format::bytes;
use dormouse_system::{Root, proc};

use super::{Check, kernel};

/// Number, name, and what cannot be persisted or restored without it.
type Capability = (u32, &'static str, &'static str);

/// Without these there is no persist at all.
const NEEDED: [Capability; 2] = [
    (
        19,
        "CAP_SYS_PTRACE",
        "freezing a program and reading its memory",
    ),
    (
        40,
        "CAP_CHECKPOINT_RESTORE",
        "mapped files, and PIDs at a restore",
    ),
];
/// Without one of these, some programs are refused by name.
const SOMETIMES: [Capability; 5] = [
    (6, "CAP_SETGID", "programs of other groups"),
    (7, "CAP_SETUID", "programs of other users"),
    (12, "CAP_NET_ADMIN", "established TCP connections"),
    (13, "CAP_NET_RAW", "unread datagrams"),
    (21, "CAP_SYS_ADMIN", "clocks that go on, namespaces"),
];
/// Where the store is by default (`dormouse process run --store`).
const STORE: &str = "/var/lib/dormouse/process";
/// Of the Yama module: nobody may trace, whatever its capabilities.
const NO_PTRACE: &str = "3";
const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// The file system that the store lies on, or will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// As the user says.
    pub wanted: PathBuf,
    /// That directory, or the nearest one above it that exists.
    pub existing: PathBuf,
    pub writable: bool,
    /// Its contents are in DRAM alone.
    pub volatile: bool,
    pub free_bytes: u64,
}

impl Store {
    /// Asks the file system; none where not even that answers.
    fn probe(wanted: &Path) -> Option<Store> {
        let existing = wanted.ancestors().find(|path| path.exists())?;
        let about = rustix::fs::statvfs(existing).ok()?;
        let kind = rustix::fs::statfs(existing).ok()?.f_type;
        Some(Store {
            wanted: wanted.to_owned(),
            existing: existing.to_owned(),
            writable: rustix::fs::access(existing, rustix::fs::Access::WRITE_OK).is_ok(),
            volatile: [TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind),
            free_bytes: about.f_bavail * about.f_frsize,
        })
    }
}

/// What was found, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub kernel: kernel::Facts,
    /// Why the kernel's tracking of writes is not used, where it is not.
    pub not_tracked: Option<String>,
    /// Why flags of mappings are not read while a large program stands still, where they are not.
    pub no_flags: Option<String>,
    /// Of [`NEEDED`] and [`SOMETIMES`], by number: those that are not effective.
    pub missing_capabilities: Vec<u32>,
    /// Of the Yama module; empty without it.
    pub ptrace_scope: String,
    /// A seccomp filter confines this process, as in a container.
    pub confined: bool,
    pub store: Option<Store>,
}

impl Facts {
    /// Reads /proc and /sys, asks the file system of the store, and tries the tracking of writes on
    /// memory of its own; changes nothing.
    pub fn probe(root: &Root) -> Facts {
        let own = proc::own_status(root).unwrap_or_default();
        let store = std::env::var_os("DORMOUSE_STORE").map_or_else(|| STORE.into(), PathBuf::from);
        let status = root.read("proc/self/status").unwrap_or_default();
        Facts {
            kernel: kernel::Facts::probe(root),
            not_tracked: self_test::run().err().map(|error| error.to_string()),
            no_flags: VmaFlags::load().err().map(|error| error.to_string()),
            missing_capabilities: NEEDED
                .iter()
                .chain(&SOMETIMES)
                .filter_map(|&(number, ..)| (!own.has_capability(number)).then_some(number))
                .collect(),
            ptrace_scope: root
                .read("proc/sys/kernel/yama/ptrace_scope")
                .map(|text| text.trim().to_owned())
                .unwrap_or_default(),
            confined: status
                .lines()
                .any(|line| line.split_whitespace().eq(["Seccomp:", "2"])),
            store: Store::probe(&store),
        }
    }
}

/// Judges the facts.
pub fn checks(facts: &Facts) -> Vec<Check> {
    let mut all = vec![
        kernel::process(&facts.kernel),
        needed(facts),
        sometimes(facts),
        ptrace(&facts.ptrace_scope),
        tracking(facts.not_tracked.as_deref()),
        advice(facts.no_flags.as_deref()),
        store(facts.store.as_ref()),
    ];
    if facts.confined {
        all.push(Check::warn(
            "seccomp",
            "a seccomp filter confines this process",
            "docs/howto/containers.md lists the system calls that the filter has to allow",
        ));
    }
    all
}

fn lacking(facts: &Facts, of: &[Capability]) -> Vec<String> {
    of.iter()
        .filter(|(number, ..)| facts.missing_capabilities.contains(number))
        .map(|(_, name, purpose)| format!("{name} ({purpose})"))
        .collect()
}

fn needed(facts: &Facts) -> Check {
    const ID: &str = "privileges";
    let lacking = lacking(facts, &NEEDED);
    if lacking.is_empty() {
        return Check::ok(ID, "may freeze programs and give them their PIDs back");
    }
    let todo = "run it as root, or give the command these capabilities";
    Check::missing(ID, format!("without {}", lacking.join(", ")), todo)
}

fn sometimes(facts: &Facts) -> Check {
    const ID: &str = "more-privileges";
    let lacking = lacking(facts, &SOMETIMES);
    if lacking.is_empty() {
        return Check::ok(
            ID,
            "other users' programs, connections and namespaces as well",
        );
    }
    let todo = "programs that need them are refused by name; as root nothing is missing";
    Check::warn(ID, format!("without {}", lacking.join(", ")), todo)
}

fn ptrace(scope: &str) -> Check {
    const ID: &str = "ptrace";
    if scope == NO_PTRACE {
        let todo = "boot with sysctl kernel.yama.ptrace_scope=1; the value 3 stays until then";
        return Check::missing(ID, "kernel.yama.ptrace_scope=3 forbids all tracing", todo);
    }
    Check::ok(ID, "a tracker with the privileges above may trace")
}

fn tracking(why_not: Option<&str>) -> Check {
    const ID: &str = "write-tracking";
    match why_not {
        None => Check::ok(ID, "the kernel reports which pages a program has written"),
        Some(why) => Check::warn(
            ID,
            format!("not used: {why}"),
            "persists work, but compare all memory; docs/reference/kernels.md lists what is needed",
        ),
    }
}

fn advice(why_not: Option<&str>) -> Check {
    const ID: &str = "advice";
    match why_not {
        None => Check::ok(
            ID,
            "madvise and mlock of large programs are read while they are stopped",
        ),
        Some(why) => Check::warn(
            ID,
            format!("of large programs it is read before they are stopped: {why}"),
            "what a program of more than 64 MiB advises right before a persist may be missing after a restore; the \
             kernel needs CONFIG_DEBUG_INFO_BTF, the command CAP_BPF and CAP_PERFMON",
        ),
    }
}

fn store(store: Option<&Store>) -> Check {
    const ID: &str = "store";
    let todo = "name another directory: --store or DORMOUSE_STORE";
    let Some(store) = store else {
        return Check::missing(ID, "its file system does not answer", todo);
    };
    let place = store.wanted.display();
    if !store.writable {
        let found = format!("{place}: {} is not writable", store.existing.display());
        return Check::missing(ID, found, todo);
    }
    let free = bytes(store.free_bytes);
    if store.volatile {
        let found = format!("{place}: in DRAM, which does not survive a power loss; {free} free");
        return Check::warn(ID, found, todo);
    }
    Check::ok(ID, format!("{place}: {free} free"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    fn good() -> Facts {
        Facts {
            store: Some(Store {
                wanted: "/var/lib/dormouse/process".into(),
                existing: "/var/lib".into(),
                writable: true,
                volatile: false,
                free_bytes: 1 << 30,
            }),
            ..Facts::default()
        }
    }

    fn of(facts: &Facts, id: &str) -> Check {
        checks(facts)
            .into_iter()
            .find(|check| check.id == id)
            .unwrap()
    }

    #[test]
    fn each_lack_is_found_by_itself() {
        let store = |change: fn(&mut Store)| {
            let mut facts = good();
            facts.store.as_mut().map(change).unwrap();
            facts
        };
        let cases = [
            (
                "privileges",
                Status::Missing,
                Facts {
                    missing_capabilities: vec![40],
                    ..good()
                },
            ),
            (
                "more-privileges",
                Status::Warn,
                Facts {
                    missing_capabilities: vec![12],
                    ..good()
                },
            ),
            (
                "ptrace",
                Status::Missing,
                Facts {
                    ptrace_scope: "3".into(),
                    ..good()
                },
            ),
            (
                "write-tracking",
                Status::Warn,
                Facts {
                    not_tracked: Some("x".into()),
                    ..good()
                },
            ),
            (
                "advice",
                Status::Warn,
                Facts {
                    no_flags: Some("x".into()),
                    ..good()
                },
            ),
            (
                "seccomp",
                Status::Warn,
                Facts {
                    confined: true,
                    ..good()
                },
            ),
            (
                "store",
                Status::Missing,
                Facts {
                    store: None,
                    ..good()
                },
            ),
            (
                "store",
                Status::Missing,
                store(|store| store.writable = false),
            ),
            ("store", Status::Warn, store(|store| store.volatile = true)),
        ];
        for (id, expected, facts) in cases {
            for check in checks(&facts).iter().filter(|check| check.id != "kernel") {
                let wanted = if check.id == id { expected } else { Status::Ok };
                assert_eq!(check.status, wanted, "{id}: {check:?}");
                assert_eq!(
                    check.todo.is_empty(),
                    check.status == Status::Ok,
                    "{check:?}"
                );
            }
            assert_eq!(of(&facts, id).status, expected);
        }
    }

    #[test]
    fn a_missing_capability_is_named_with_what_it_is_for() {
        let facts = Facts {
            missing_capabilities: vec![19, 12],
            ..good()
        };
        assert!(
            of(&facts, "privileges")
                .found
                .contains("CAP_SYS_PTRACE (freezing")
        );
        assert!(
            of(&facts, "more-privileges")
                .found
                .contains("CAP_NET_ADMIN (established TCP")
        );
    }

    #[test]
    fn a_store_that_is_not_made_yet_is_judged_by_the_directory_above_it() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::probe(&directory.path().join("not/made/yet")).unwrap();
        assert_eq!(store.existing, directory.path());
        assert!(store.writable);
    }

    #[test]
    fn the_capabilities_of_a_confined_process_are_read_below_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let status = "Name:\tx\nCapEff:\t0000000000080000\nSeccomp:\t2\n";
        root.create("proc/self/status", status).unwrap();
        let facts = Facts::probe(&root);
        assert!(facts.confined);
        assert_eq!(facts.missing_capabilities, [40, 6, 7, 12, 13, 21]);
    }
}
