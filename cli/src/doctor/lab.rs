//! Checks whether the emulated machine can be built and run here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dormouse_report::format::bytes;
use dormouse_system::kernel::version_in;
use dormouse_system::{Root, memory};

use super::Check;
use super::programs::{find_program, free_bytes, search_path};

const SETUP: &str = "run scripts/setup.sh (or `make setup`)";
const OLDEST_QEMU: (u32, u32) = (7, 2);
/// A first build leaves under 1 GB in the cache; a change of kernel keeps the old parts beside.
const CACHE_BYTES: u64 = 2 << 30;
/// The machine of `make demo` is 1 GiB of DRAM; its CXL memory is a file in the page cache.
const MEMORY_BYTES: u64 = 2 << 30;

/// Programs that the build of the lab runs, and the packages they come from.
const BUILD_PROGRAMS: [(&str, &str); 12] = [
    ("cargo", "rustup"),
    ("gcc", "build-essential"),
    ("make", "build-essential"),
    ("nasm", "nasm"),
    ("iasl", "acpica-tools"),
    ("pkg-config", "pkg-config"),
    ("python3", "python3"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
    ("mke2fs", "e2fsprogs"),
    ("fakeroot", "fakeroot"),
    ("qemu-img", "qemu-utils"),
];

/// What was found, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// None: not installed.
    pub qemu: Option<Qemu>,
    pub kvm: Kvm,
    /// Programs that are not installed, with their packages.
    pub missing_programs: Vec<(&'static str, &'static str)>,
    pub has_apt: bool,
    /// Where the cache is; None: neither HOME nor XDG_CACHE_HOME is set.
    pub cache: Option<Cache>,
    pub available_memory_bytes: Option<u64>,
    pub cpus: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    pub version: Option<(u32, u32)>,
    /// Has the machine q35 with System Management Mode.
    pub has_q35_smm: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kvm {
    Absent,
    /// There, but not for this user, or without System Management Mode.
    Unusable,
    Works,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    pub path: PathBuf,
    pub writable: bool,
    pub free_bytes: Option<u64>,
}

impl Facts {
    /// Reads this machine's state; starts QEMU twice, for its version and its machines.
    pub fn probe() -> Facts {
        let search = search_path();
        let has = |name: &str| find_program(name, &search).is_some();
        Facts {
            qemu: find_program(dormouse_lab::emulator::qemu::PROGRAM, &search)
                .map(|path| probe_qemu(&path)),
            kvm: probe_kvm(),
            missing_programs: BUILD_PROGRAMS
                .into_iter()
                .filter(|(name, _)| !has(name))
                .collect(),
            has_apt: has("apt-get"),
            cache: cache_path().map(|path| probe_cache(&path)),
            available_memory_bytes: memory::read(&Root::host()).get("MemAvailable").copied(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

fn cache_path() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    base.map(|base| base.join("dormouse"))
}

fn probe_cache(path: &Path) -> Cache {
    let existing = path.ancestors().find(|parent| parent.exists());
    let writable = existing
        .is_some_and(|parent| rustix::fs::access(parent, rustix::fs::Access::WRITE_OK).is_ok());
    Cache {
        path: path.to_owned(),
        writable,
        free_bytes: free_bytes(path),
    }
}

fn probe_qemu(path: &Path) -> Qemu {
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(path);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let output = command
            .output()
            .map(|output| output.stdout)
            .unwrap_or_default();
        String::from_utf8_lossy(&output).into_owned()
    };
    let machines = ask(&["-machine", "help"]);
    // Every q35 has the property smm; a QEMU built without it has no such machine.
    let has_q35_smm = machines.lines().any(|line| line.starts_with("q35 "));
    Qemu {
        version: version_in(&ask(&["-version"])),
        has_q35_smm,
    }
}

fn probe_kvm() -> Kvm {
    use dormouse_lab::emulator::accelerator::{Accelerator, probe};
    match (Path::new("/dev/kvm").exists(), probe()) {
        (_, Accelerator::Kvm) => Kvm::Works,
        (true, Accelerator::Tcg) => Kvm::Unusable,
        (false, Accelerator::Tcg) => Kvm::Absent,
    }
}

/// Judges the facts.
pub fn checks(facts: &Facts) -> Vec<Check> {
    vec![
        qemu(facts.qemu.as_ref()),
        kvm(facts.kvm),
        programs(&facts.missing_programs),
        apt(facts.has_apt),
        cache(facts.cache.as_ref()),
        memory(facts.available_memory_bytes),
        cpus(facts.cpus),
    ]
}

fn qemu(qemu: Option<&Qemu>) -> Check {
    const ID: &str = "qemu";
    match qemu {
        None => Check::missing(ID, "qemu-system-x86_64 is not installed", SETUP),
        Some(Qemu {
            has_q35_smm: false, ..
        }) => Check::missing(
            ID,
            "this QEMU has no machine q35",
            "install the distribution's package qemu-system-x86",
        ),
        Some(Qemu { version: None, .. }) => Check::warn(
            ID,
            "QEMU does not report its version",
            "7.2 and newer are known to work",
        ),
        Some(Qemu {
            version: Some(version),
            ..
        }) if *version < OLDEST_QEMU => Check::warn(
            ID,
            format!(
                "QEMU {}.{}, older than what is known to work",
                version.0, version.1
            ),
            "install QEMU 7.2 or newer",
        ),
        Some(Qemu {
            version: Some((major, minor)),
            ..
        }) => Check::ok(ID, format!("QEMU {major}.{minor} with q35")),
    }
}

fn kvm(kvm: Kvm) -> Check {
    const ID: &str = "kvm";
    match kvm {
        Kvm::Works => Check::ok(ID, "KVM with System Management Mode"),
        Kvm::Absent => Check::ok(ID, "no /dev/kvm: the machine is emulated (TCG), slower"),
        Kvm::Unusable => Check::ok(
            ID,
            "/dev/kvm has no System Management Mode, or this user may not open it: emulated (TCG), slower",
        ),
    }
}

fn programs(missing: &[(&str, &str)]) -> Check {
    const ID: &str = "build-programs";
    if missing.is_empty() {
        return Check::ok(ID, format!("all {} are installed", BUILD_PROGRAMS.len()));
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    Check::missing(
        ID,
        format!("not installed: {}", names.join(", ")),
        format!("{SETUP}; packages: {}", packages.join(" ")),
    )
}

fn apt(has_apt: bool) -> Check {
    const ID: &str = "apt";
    if has_apt {
        Check::ok(
            ID,
            "kernel, firmware sources and disk come from this system's own archive",
        )
    } else {
        Check::missing(
            ID,
            "apt-get is not installed",
            "use Debian 12 or newer: kernel, firmware sources and disk come from its archive",
        )
    }
}

fn cache(cache: Option<&Cache>) -> Check {
    const ID: &str = "cache";
    let Some(cache) = cache else {
        return Check::missing(ID, "no place for a cache", "set HOME or XDG_CACHE_HOME");
    };
    let path = cache.path.display();
    if !cache.writable {
        return Check::missing(
            ID,
            format!("{path} cannot be written"),
            "correct its permissions, or set XDG_CACHE_HOME to another directory",
        );
    }
    match cache.free_bytes {
        Some(free) if free < CACHE_BYTES => Check::warn(
            ID,
            format!("{path}: {} free", bytes(free)),
            format!(
                "have {} free, or set XDG_CACHE_HOME to a larger disk",
                bytes(CACHE_BYTES)
            ),
        ),
        Some(free) => Check::ok(ID, format!("{path}: {} free", bytes(free))),
        None => Check::ok(ID, path.to_string()),
    }
}

fn memory(available: Option<u64>) -> Check {
    const ID: &str = "memory";
    match available {
        Some(available) if available < MEMORY_BYTES => Check::warn(
            ID,
            format!("{} available", bytes(available)),
            "end other programs, or give the machine less with `dormouse lab … --dram`",
        ),
        Some(available) => Check::ok(ID, format!("{} available", bytes(available))),
        None => Check::not_applicable(ID, "/proc/meminfo does not report it"),
    }
}

fn cpus(cpus: usize) -> Check {
    const ID: &str = "cpus";
    if cpus < 2 {
        Check::warn(
            ID,
            "one CPU for an emulated machine with two",
            "expect long run times",
        )
    } else {
        Check::ok(ID, format!("{cpus} CPUs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    fn good() -> Facts {
        Facts {
            qemu: Some(Qemu {
                version: Some((7, 2)),
                has_q35_smm: true,
            }),
            kvm: Kvm::Absent,
            missing_programs: Vec::new(),
            has_apt: true,
            cache: Some(Cache {
                path: "/home/x/.cache/dormouse".into(),
                writable: true,
                free_bytes: Some(50 << 30),
            }),
            available_memory_bytes: Some(8 << 30),
            cpus: 2,
        }
    }

    fn status(facts: &Facts, id: &str) -> Status {
        checks(facts)
            .into_iter()
            .find(|check| check.id == id)
            .unwrap()
            .status
    }

    #[test]
    fn a_good_machine_has_nothing_to_do() {
        assert!(
            checks(&good())
                .iter()
                .all(|c| c.status == Status::Ok && c.todo.is_empty())
        );
    }

    #[test]
    fn each_lack_is_missing_or_a_warning_and_says_what_to_do() {
        use Status::{Missing, Warn};
        type Change = fn(&mut Facts);
        let changes: [(&str, Status, Change); 10] = [
            ("qemu", Missing, |f| f.qemu = None),
            ("qemu", Missing, |f| {
                f.qemu.as_mut().unwrap().has_q35_smm = false
            }),
            ("qemu", Warn, |f| {
                f.qemu.as_mut().unwrap().version = Some((5, 2))
            }),
            ("qemu", Warn, |f| f.qemu.as_mut().unwrap().version = None),
            ("build-programs", Missing, |f| {
                f.missing_programs = vec![("nasm", "nasm")]
            }),
            ("apt", Missing, |f| f.has_apt = false),
            ("cache", Missing, |f| f.cache = None),
            ("cache", Missing, |f| {
                f.cache.as_mut().unwrap().writable = false
            }),
            ("cache", Warn, |f| {
                f.cache.as_mut().unwrap().free_bytes = Some(1 << 30)
            }),
            ("memory", Warn, |f| f.available_memory_bytes = Some(1 << 20)),
        ];
        for (id, expected, change) in changes {
            let mut facts = good();
            change(&mut facts);
            assert_eq!(status(&facts, id), expected, "{facts:?}");
            let todo = checks(&facts)
                .into_iter()
                .find(|check| check.id == id)
                .unwrap()
                .todo;
            assert!(!todo.is_empty(), "{id}");
        }
    }

    #[test]
    fn no_hardware_virtualisation_is_no_fault() {
        for kvm in [Kvm::Absent, Kvm::Unusable, Kvm::Works] {
            assert_eq!(status(&Facts { kvm, ..good() }, "kvm"), Status::Ok);
        }
    }

    #[test]
    fn missing_packages_are_named_once() {
        let missing = vec![("gcc", "build-essential"), ("make", "build-essential")];
        let check = programs(&missing);
        assert_eq!(check.todo.matches("build-essential").count(), 1);
    }
}
