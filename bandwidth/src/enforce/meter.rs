//! Repeated readings of a cgroup's CPU time through files that stay open.
//!
//! Opening a cgroup's file costs several times as much as reading it. An open file returns ENODEV
//! when its cgroup is gone, even if there is a new one of the same name.
//!
//! In version 1, CPU time is in the cpuacct hierarchy. If that is mounted with the cpu controller,
//! as systemd does, it is in the same folder. If it is a separate hierarchy, it is used if a
//! cgroup of the same name has the same processes there; otherwise each task's `schedstat` is
//! read.
//!
//! Where [`Bulk`] can read a cgroup, its files are read only to open it, and when that fails.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::EnforceError;
use super::bulk::{Bulk, Location};
use super::cgroup::{Cgroup, Hierarchy, Usage, Version};

/// Longer than any `cpu.stat`.
const MAX_BYTES: usize = 2048;
/// Maximum number of open files of a cgroup.
const FILES: u64 = 2;
/// Minimum number of file descriptors for other purposes.
const SPARE_FILES: u64 = 256;

/// The number of cgroups whose files may stay open.
pub fn max_open() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = most.unwrap_or(u64::MAX).saturating_sub(SPARE_FILES);
    usize::try_from(files / FILES).unwrap_or(usize::MAX)
}

/// A file that is read repeatedly from its beginning.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    /// `None`: it is opened for each reading, because there are more cgroups than file
    /// descriptors.
    file: Option<File>,
}

impl Source {
    fn open(path: PathBuf, keep: bool) -> std::io::Result<Self> {
        let file = File::open(&path)?;
        Ok(Self {
            path,
            file: keep.then_some(file),
        })
    }

    fn read<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], EnforceError> {
        let bytes = match &self.file {
            Some(file) => file.read_at(buffer, 0),
            None => File::open(&self.path).and_then(|file| file.read_at(buffer, 0)),
        };
        let bytes = bytes.map_err(EnforceError::file(&self.path))?;
        Ok(&buffer[..bytes])
    }

    /// Nanoseconds, as in `cpuacct.usage`.
    fn nanoseconds(&self) -> Result<u64, EnforceError> {
        let mut buffer = [0; 32];
        let text = self.read(&mut buffer)?;
        number(text).ok_or_else(|| self.unknown(text))
    }

    fn unknown(&self, text: &[u8]) -> EnforceError {
        EnforceError::Text {
            path: self.path.clone(),
            text: String::from_utf8_lossy(text).into_owned(),
        }
    }
}

enum CpuTime {
    /// In microseconds in `cpu.stat`.
    Stat,
    /// In nanoseconds in `cpuacct.usage`.
    Accounted(Source),
    /// Task by task.
    Tasks,
}

/// The open files of one cgroup.
pub struct Meter {
    cgroup: Cgroup,
    stat: Source,
    time: CpuTime,
    /// Where a [`Bulk`] finds it.
    location: Option<Location>,
    /// What a [`Bulk`] read.
    fresh: Option<Usage>,
}

/// The CPU time of a cgroup and all below it.
#[derive(Debug)]
pub struct Total {
    source: Source,
    version: Version,
}

impl Total {
    /// Of a cgroup, relative to the hierarchy's root; `None` where the kernel does not add it up.
    pub fn open(hierarchy: &Hierarchy, below: &Path, accounting: Option<&Path>) -> Option<Self> {
        let open = |root: &Path, name| Source::open(root.join(below).join(name), true).ok();
        let source = match hierarchy.version {
            Version::V2 => open(&hierarchy.root, "cpu.stat"),
            Version::V1 => open(&hierarchy.root, "cpuacct.usage")
                .or_else(|| accounting.and_then(|root| open(root, "cpuacct.usage"))),
        };
        let total = Self {
            source: source?,
            version: hierarchy.version,
        };
        total.cpu_ns().map(|_| total)
    }

    /// Since it was created; `None` when it cannot be read.
    pub fn cpu_ns(&self) -> Option<u64> {
        match self.version {
            Version::V1 => self.source.nanoseconds().ok(),
            Version::V2 => {
                let mut buffer = [0; MAX_BYTES];
                let text = self.source.read(&mut buffer).ok()?;
                value(text, b"usage_usec ").map(|us| us * 1000)
            }
        }
    }
}

/// The hierarchy with the cpuacct controller of version 1, if it is separate.
pub fn accounting_root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (root, kind, options) = (words.next()?, words.next()?, words.next()?);
        let mut options = options.split(',');
        let found = kind == "cgroup" && options.any(|name| name == "cpuacct");
        found.then(|| PathBuf::from(root))
    })
}

impl Meter {
    /// Opens a cgroup's files; `keep`: leaves them open.
    ///
    /// # Errors
    /// They do not exist, or the cgroup is gone.
    pub fn open(
        cgroup: &Cgroup,
        hierarchy: &Hierarchy,
        accounting: Option<&Path>,
        keep: bool,
    ) -> Result<Self, EnforceError> {
        let path = cgroup.path.join("cpu.stat");
        let stat = Source::open(path.clone(), keep).map_err(EnforceError::file(path))?;
        let time = match cgroup.version {
            Version::V2 => CpuTime::Stat,
            Version::V1 => accounted(cgroup, hierarchy, accounting, keep),
        };
        Ok(Self {
            cgroup: cgroup.clone(),
            stat,
            time,
            location: None,
            fresh: None,
        })
    }

    /// Finds it for [`Bulk::read`], if that gives what its files say.
    pub fn locate(&mut self, bulk: &mut Bulk) {
        self.location = self.find(bulk);
    }

    fn find(&mut self, bulk: &mut Bulk) -> Option<Location> {
        let cgroup = bulk.locate(&self.cgroup.path).ok()?;
        let location = match &self.time {
            CpuTime::Stat => Location::of_total(cgroup),
            CpuTime::Accounted(source) => {
                let accounted = bulk.locate(source.path.parent()?).ok()?;
                Location::of_accounted(accounted, cgroup)
            }
            CpuTime::Tasks => None,
        }?;
        // Its files can still be read: it is the cgroup that was found by its name.
        let before = self.usage(None).ok()?;
        bulk.read(&[(0, location, true)], |_, usage| self.provide(usage));
        let found = self.fresh.take()?;
        let after = self.usage(None).ok()?;
        let is_between = before.cpu_ns <= found.cpu_ns && found.cpu_ns <= after.cpu_ns;
        let is_as_often = (before.nr_throttled..=after.nr_throttled).contains(&found.nr_throttled);
        (is_between && is_as_often).then_some(location)
    }

    /// What [`Bulk::read`] needs to read it; `before` as for [`Meter::usage`].
    pub fn wanted(&self, before: Option<Usage>) -> Option<(Location, bool)> {
        let is_known = before.is_some() && matches!(self.time, CpuTime::Accounted(_));
        Some((self.location?, !is_known))
    }

    /// What a [`Bulk`] has just read, for the next call of [`Meter::usage`].
    pub fn provide(&mut self, mut usage: Usage) {
        if matches!(self.time, CpuTime::Stat) {
            // As precise as `cpu.stat`.
            usage.cpu_ns -= usage.cpu_ns % 1000;
        }
        self.fresh = Some(usage);
    }

    /// Whether its CPU time is part of a [`Total`].
    pub fn is_accounted(&self) -> bool {
        !matches!(self.time, CpuTime::Tasks)
    }

    /// The usage since the cgroup was created. `before`: the last usage of a cgroup that is not
    /// limited; its throttling need not be read again.
    ///
    /// # Errors
    /// It cannot be read, or the cgroup is gone.
    pub fn usage(&mut self, before: Option<Usage>) -> Result<Usage, EnforceError> {
        if let Some(fresh) = self.fresh.take() {
            let known = before.filter(|_| matches!(self.time, CpuTime::Accounted(_)));
            let nr_throttled = known.map_or(fresh.nr_throttled, |known| known.nr_throttled);
            return Ok(Usage {
                nr_throttled,
                ..fresh
            });
        }
        if let (Some(before), CpuTime::Accounted(source)) = (before, &self.time) {
            return Ok(Usage {
                cpu_ns: source.nanoseconds()?,
                ..before
            });
        }
        let mut buffer = [0; MAX_BYTES];
        let text = self.stat.read(&mut buffer)?;
        let unknown = || self.stat.unknown(text);
        let nr_throttled = value(text, b"nr_throttled ").ok_or_else(unknown)?;
        let cpu_ns = match &self.time {
            CpuTime::Stat => value(text, b"usage_usec ").ok_or_else(unknown)? * 1000,
            CpuTime::Accounted(source) => source.nanoseconds()?,
            CpuTime::Tasks => self.cgroup.usage()?.cpu_ns,
        };
        Ok(Usage {
            cpu_ns,
            nr_throttled,
        })
    }
}

fn accounted(
    cgroup: &Cgroup,
    hierarchy: &Hierarchy,
    accounting: Option<&Path>,
    keep: bool,
) -> CpuTime {
    if let Ok(source) = Source::open(cgroup.path.join("cpuacct.usage"), keep) {
        return CpuTime::Accounted(source);
    }
    let open = || {
        let below = cgroup.path.strip_prefix(&hierarchy.root).ok()?;
        let other = Cgroup::new(accounting?.join(below), Version::V1);
        let mut processes = [cgroup, &other].map(|one| one.processes().unwrap_or_default());
        processes.iter_mut().for_each(|list| list.sort_unstable());
        let source = Source::open(other.path.join("cpuacct.usage"), keep).ok()?;
        (processes[0] == processes[1]).then_some(CpuTime::Accounted(source))
    };
    open().unwrap_or(CpuTime::Tasks)
}

/// The number in the line that begins like this.
fn value(text: &[u8], name: &[u8]) -> Option<u64> {
    let mut lines = text.split(|byte| *byte == b'\n');
    number(lines.find_map(|line| line.strip_prefix(name))?)
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforce::cgroup::cpu_hierarchy;

    fn hierarchy(root: &Path, version: Version) -> Hierarchy {
        Hierarchy {
            root: root.to_owned(),
            version,
        }
    }

    #[test]
    fn version_2_has_it_all_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let cgroup = Cgroup::new(root.join("a"), Version::V2);
        let open = || Meter::open(&cgroup, &hierarchy(root, Version::V2), None, true);
        assert!(open().is_err_and(|error| error.is_gone()));
        fs::create_dir(&cgroup.path).unwrap();
        let stat = cgroup.path.join("cpu.stat");
        fs::write(
            &stat,
            "usage_usec 70\nuser_usec 1\nnr_periods 5\nnr_throttled 3\n",
        )
        .unwrap();
        let mut meter = open().unwrap();
        let expected = Usage {
            cpu_ns: 70_000,
            nr_throttled: 3,
        };
        assert_eq!(meter.usage(None).unwrap(), expected);
        fs::write(&stat, "").unwrap();
        assert!(meter.usage(None).is_err());
    }

    #[test]
    fn version_1_is_accounted_where_the_same_processes_are() {
        let folder = tempfile::tempdir().unwrap();
        let (cpu, acct) = (folder.path().join("cpu"), folder.path().join("cpuacct"));
        for root in [&cpu, &acct] {
            fs::create_dir_all(root.join("a")).unwrap();
            fs::write(root.join("a/cgroup.procs"), "").unwrap();
        }
        fs::write(cpu.join("a/cpu.stat"), "nr_throttled 2\n").unwrap();
        fs::write(cpu.join("a/tasks"), "").unwrap();
        fs::write(acct.join("a/cpuacct.usage"), "123456\n").unwrap();
        let cgroup = Cgroup::new(cpu.join("a"), Version::V1);
        let hierarchy = hierarchy(&cpu, Version::V1);
        let used = |acct| {
            let mut meter = Meter::open(&cgroup, &hierarchy, acct, false).unwrap();
            meter.usage(None).unwrap().cpu_ns
        };
        assert_eq!(used(Some(acct.as_path())), 123_456);
        assert_eq!(used(None), 0, "no task has run");
        fs::write(acct.join("a/cgroup.procs"), "1\n").unwrap();
        assert_eq!(used(Some(acct.as_path())), 0, "others are there");
        fs::write(cpu.join("a/cpuacct.usage"), "7\n").unwrap();
        assert_eq!(used(None), 7, "both controllers are mounted there");
    }

    #[test]
    fn a_meter_and_the_cgroup_say_the_same_of_a_real_one() {
        let Ok(hierarchy) = cpu_hierarchy() else {
            eprintln!("left out: there is no hierarchy with the cpu controller");
            return;
        };
        let name = format!("dormouse-meter-{}", std::process::id());
        let cgroup = Cgroup::new(hierarchy.root.join(name), hierarchy.version);
        if fs::create_dir(&cgroup.path).is_err() {
            eprintln!("left out: no cgroup can be made here");
            return;
        }
        let mut open = Meter::open(&cgroup, &hierarchy, accounting_root().as_deref(), true);
        let said = open.as_mut().ok().map(|meter| meter.usage(None));
        fs::remove_dir(&cgroup.path).unwrap();
        match said {
            Some(said) => {
                assert_eq!(said.unwrap(), Usage::default());
                assert!(open.unwrap().usage(None).unwrap_err().is_gone());
            }
            // Version 2, and the parent does not delegate the controller.
            None => assert!(open.is_err_and(|error| error.is_gone())),
        }
    }
}
