//! Whether the devices of this machine can suspend and resume in graph order: by the module
//! dormouse_dpm, or by a kernel that has it built in.

use dormouse_system::Root;
use dormouse_system::settings::chosen;

use super::{Check, kernel};

/// The versions that the module knows (devices/kernel/module/check.c), major and minor.
const KNOWN: [(u32, u32); 3] = [(6, 12), (7, 2), (7, 3)];
/// What the module is made of.
const OPTIONS: [&str; 5] = [
    "CONFIG_LIVEPATCH",
    "CONFIG_KALLSYMS_ALL",
    "CONFIG_KPROBES",
    "CONFIG_PM_SLEEP",
    "CONFIG_DEBUG_INFO_BTF",
];
const MODULE: &str = "dormouse_dpm";

/// What was found, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    kernel: kernel::Facts,
    /// Of /sys/power/pm_graph; none where there is none.
    order: Option<String>,
    loaded: bool,
    /// The kernel's own types, by which the module checks its functions.
    types: bool,
    /// Of the lockdown module: `none`, `integrity` or `confidentiality`.
    lockdown: Option<String>,
    /// Unsigned modules are refused.
    signatures_enforced: bool,
    installed: bool,
}

impl Facts {
    /// Reads sysfs and the folders of modules; changes nothing.
    pub fn probe(root: &Root) -> Facts {
        let kernel = kernel::Facts::probe(root);
        let is_there = |path: &str| root.exists(path);
        let enforced = root.read("sys/module/module/parameters/sig_enforce");
        let choice = |path: &str| root.read(path).ok().map(|text| chosen(&text).to_owned());
        Facts {
            order: choice("sys/power/pm_graph"),
            loaded: is_there("sys/module/dormouse_dpm"),
            types: is_there("sys/kernel/btf/vmlinux"),
            lockdown: choice("sys/kernel/security/lockdown"),
            signatures_enforced: enforced.is_ok_and(|text| text.trim() == "Y"),
            installed: is_installed(root, &kernel.release),
            kernel,
        }
    }
}

/// Where DKMS and distributions put a module.
fn is_installed(root: &Root, release: &str) -> bool {
    let folders = ["updates/dkms", "updates", "extra"];
    let suffixes = ["ko", "ko.xz", "ko.zst", "ko.gz"];
    folders.iter().any(|folder| {
        suffixes.iter().any(|suffix| {
            let path = format!("lib/modules/{release}/{folder}/{MODULE}.{suffix}");
            root.exists(&path)
        })
    })
}

/// Judges the facts.
pub fn checks(facts: &Facts) -> Vec<Check> {
    if let Some(order) = &facts.order {
        let how = match facts.loaded {
            true => "the module is loaded",
            false => "built into this kernel",
        };
        return vec![Check::ok("order", format!("{order} ({how})"))];
    }
    vec![
        version(&facts.kernel.release),
        options(&facts.kernel),
        types(facts.types),
        signatures(facts),
        module(facts.installed),
    ]
}

fn version(release: &str) -> Check {
    let found = format!("Linux {release}");
    let known = dormouse_system::kernel::version_in(release);
    if known.is_some_and(|version| KNOWN.contains(&version)) {
        return Check::ok("version", found);
    }
    let names: Vec<String> = KNOWN.iter().map(|(a, b)| format!("{a}.{b}")).collect();
    Check::missing(
        "version",
        format!("{found}: its device phases are not known to the module"),
        format!("boot one of Linux {}", names.join(", ")),
    )
}

fn options(kernel: &kernel::Facts) -> Check {
    let Some(config) = &kernel.config else {
        let found = "no file has the kernel's configuration";
        return Check::not_applicable("options", found);
    };
    let has = |option: &&str| config.lines().any(|line| line == format!("{option}=y"));
    let lacking: Vec<&str> = OPTIONS.into_iter().filter(|option| !has(option)).collect();
    match lacking.is_empty() {
        true => Check::ok("options", "livepatch, kallsyms, kprobes, types"),
        false => Check::missing(
            "options",
            format!("built without {}", lacking.join(", ")),
            "boot a kernel with these options, as Debian's are",
        ),
    }
}

fn types(are_there: bool) -> Check {
    match are_there {
        true => Check::ok("types", "/sys/kernel/btf/vmlinux"),
        false => Check::missing(
            "types",
            "no /sys/kernel/btf/vmlinux: the module cannot check the kernel's functions",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

fn signatures(facts: &Facts) -> Check {
    const TODO: &str = "sign the module with a key that this machine trusts (DKMS does, with the key \
                        that mokutil has enrolled), or switch Secure Boot off";
    match facts.lockdown.as_deref() {
        Some(mode) if mode != "none" => {
            let found = format!("lockdown is {mode}: only signed modules are loaded");
            Check::warn("signatures", found, TODO)
        }
        _ if facts.signatures_enforced => {
            let found = "the kernel loads only signed modules (sig_enforce)";
            Check::warn("signatures", found, TODO)
        }
        _ => Check::ok("signatures", "not required"),
    }
}

fn module(is_installed: bool) -> Check {
    match is_installed {
        true => Check::ok(
            "module",
            "installed; `dormouse devices apply --order graph` loads it",
        ),
        false => Check::missing(
            "module",
            "dormouse_dpm is not installed for this kernel",
            "install dormouse-dpm-dkms and the kernel's headers",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    const RELEASE: &str = "6.12.117+deb12-cloud-amd64";

    fn ready() -> Facts {
        Facts {
            kernel: kernel::Facts {
                release: RELEASE.into(),
                config: Some(OPTIONS.map(|option| format!("{option}=y\n")).concat()),
            },
            types: true,
            installed: true,
            ..Facts::default()
        }
    }

    fn status(facts: &Facts, id: &str) -> Status {
        let checks = checks(facts);
        let check = checks.iter().find(|check| check.id == id);
        check.unwrap_or_else(|| panic!("no {id}")).status
    }

    #[test]
    fn a_known_kernel_with_the_module_is_ready() {
        for check in checks(&ready()) {
            assert_eq!(check.status, Status::Ok, "{check:?}");
        }
    }

    #[test]
    fn the_versions_are_those_that_the_module_and_dkms_know() {
        let check = include_str!("../../../devices/kernel/module/check.c");
        let version = |(major, minor): (u32, u32)| format!("KERNEL_VERSION({major}, {minor}, 0)");
        let known = |(major, minor)| KNOWN.contains(&(major, minor));
        // Each range of the module begins with a version that is known here, and ends before one
        // that is not.
        for one in KNOWN {
            let (major, minor) = one;
            if !known((major, minor.wrapping_sub(1))) {
                let from = format!("{{ {},", version(one));
                assert!(check.contains(&from), "{from}");
            }
            if !known((major, minor + 1)) {
                let below = format!("{} }},", version((major, minor + 1)));
                assert!(check.contains(&below), "{below}");
            }
        }
        let dkms = include_str!("../../../devices/kernel/module/dkms.conf");
        assert!(dkms.contains(r#"BUILD_EXCLUSIVE_KERNEL="^(6\.12|7\.[23])[.]""#));
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut facts = ready();
        facts.kernel.release = "6.15.2-x".into();
        facts.kernel.config = Some("CONFIG_KPROBES=y\n".into());
        facts.types = false;
        facts.installed = false;
        for id in ["version", "options", "types", "module"] {
            assert_eq!(status(&facts, id), Status::Missing, "{id}");
        }
        let text = format!("{:?}", checks(&facts));
        assert!(text.contains("CONFIG_LIVEPATCH") && !text.contains("without CONFIG_KPROBES"));
    }

    #[test]
    fn lockdown_and_enforced_signatures_are_reported() {
        let mut facts = ready();
        facts.lockdown = Some("integrity".into());
        assert_eq!(status(&facts, "signatures"), Status::Warn);
        facts.lockdown = Some("none".into());
        assert_eq!(status(&facts, "signatures"), Status::Ok);
        facts.signatures_enforced = true;
        assert_eq!(status(&facts, "signatures"), Status::Warn);
    }

    #[test]
    fn facts_come_from_the_files_that_the_kernel_and_dkms_have() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/sys/kernel/osrelease", format!("{RELEASE}\n")),
            (
                "sys/kernel/security/lockdown",
                "none [integrity] confidentiality\n".into(),
            ),
            ("sys/module/module/parameters/sig_enforce", "N\n".into()),
            (
                &format!("lib/modules/{RELEASE}/updates/dkms/dormouse_dpm.ko.xz"),
                String::new(),
            ),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let facts = Facts::probe(&Root::at(root.path()));
        assert!(facts.installed && !facts.loaded && !facts.signatures_enforced);
        assert_eq!(facts.lockdown.as_deref(), Some("integrity"));
        assert_eq!(facts.order, None);
    }

    #[test]
    fn where_the_switch_is_there_nothing_else_matters() {
        let facts = Facts {
            order: Some("graph".into()),
            ..Facts::default()
        };
        let checks = checks(&facts);
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].status, Status::Ok);
    }
}
