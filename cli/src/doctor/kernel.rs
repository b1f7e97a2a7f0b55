//! Which features the running kernel lacks, for each capability.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_lab::kernels::{Check as Capability, lacks};
use dormouse_system::Root;

use super::Check;

/// What was found, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub release: String,
    /// The kernel's configuration; none where no file has it.
    pub config: Option<String>,
}

impl Facts {
    /// Reads where distributions keep the configuration; changes nothing.
    pub fn probe(root: &Root) -> Facts {
        let release = dormouse_system::kernel::release(root);
        let files = [
            format!("boot/config-{release}"),
            format!("lib/modules/{release}/config"),
            format!("usr/lib/modules/{release}/config"),
        ];
        let config = files.iter().find_map(|file| root.read(file).ok());
        Facts {
            config: config.or_else(|| unpacked(&root.path("proc/config.gz"))),
            release,
        }
    }
}

/// The configuration that a kernel with `CONFIG_IKCONFIG_PROC` shows.
fn unpacked(path: &Path) -> Option<String> {
    if !path.exists() {
        return None;
    }
    let mut gzip = Command::new("gzip");
    let gzip = gzip.arg("-dc").arg(path).stdin(Stdio::null());
    let mut child = gzip.stdout(Stdio::piped()).spawn().ok()?;
    let mut text = String::new();
    let read = child.stdout.take()?.read_to_string(&mut text);
    let status = child.wait().ok()?;
    (read.is_ok() && status.success()).then_some(text)
}

/// Judges the facts: a check for each capability.
pub fn checks(facts: &Facts) -> Vec<Check> {
    [
        ("sleep", Capability::Sleep),
        ("process", Capability::Process),
        ("sched-ext", Capability::Scheduler),
        ("devices", Capability::Devices),
    ]
    .into_iter()
    .map(|(id, capability)| check(id, capability, facts))
    .collect()
}

/// What the kernel lacks for persisting programs.
pub fn process(facts: &Facts) -> Check {
    check("kernel", Capability::Process, facts)
}

fn check(id: &'static str, capability: Capability, facts: &Facts) -> Check {
    let Some(config) = &facts.config else {
        let found = format!("no file has the configuration of Linux {}", facts.release);
        return Check::not_applicable(id, found);
    };
    match lacks(capability, config) {
        None => Check::ok(id, format!("Linux {} has what it needs", facts.release)),
        Some(missing) => Check::warn(
            id,
            format!("Linux {}: {missing}", facts.release),
            todo(capability),
        ),
    }
}

fn todo(capability: Capability) -> &'static str {
    match capability {
        Capability::Scheduler => {
            "boot a kernel with sched_ext (docs/reference/kernels.md), or use enforce = \"quota\""
        }
        _ => "boot another kernel: docs/reference/kernels.md lists those that work",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    fn root(config: Option<&str>) -> (tempfile::TempDir, Facts) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let release = "proc/sys/kernel/osrelease";
        root.create(release, "6.12.1-test\n").unwrap();
        if let Some(config) = config {
            root.create("boot/config-6.12.1-test", config).unwrap();
        }
        (directory, Facts::probe(&root))
    }

    #[test]
    fn a_feature_that_the_running_kernel_lacks_is_named_with_what_to_do() {
        let (_directory, facts) = root(Some("# CONFIG_SCHED_CLASS_EXT is not set\n"));
        let checks = checks(&facts);
        let check = checks.iter().find(|check| check.id == "sched-ext").unwrap();
        assert_eq!(check.status, Status::Warn);
        assert!(check.found.contains("CONFIG_SCHED_CLASS_EXT"), "{check:?}");
        assert!(!check.todo.is_empty());
    }

    #[test]
    fn without_a_configuration_nothing_is_claimed() {
        let (_directory, facts) = root(None);
        for check in checks(&facts) {
            assert_eq!(check.status, Status::NotApplicable, "{check:?}");
        }
    }
}
