//! The sched_ext scheduler (`bpf/dormouse.bpf.c`), in which cgroups have budgets of CPU time.
//!
//! It is in force from [`Ext::load`] until the value is dropped or the process ends for any
//! reason. Then, or when the scheduler fails, the kernel returns to its own scheduler and all
//! limits are gone. Nothing has to be undone, so there is no ledger.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel};

use super::quota;
use crate::allocate::MIN_CPU;

/// The BPF objects: the scheduler, and the smallest possible one.
const OURS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dormouse.o"));
const EMPTY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/empty.o"));
/// `MAX_GROUPS` of `bpf/budget.h`.
const MAX_GROUPS: u32 = 256;
/// The kernel's state of sched_ext.
const KERNEL: &str = "/sys/kernel/sched_ext";
/// A limit begins with the debt of a fraction of this time, so that groups take turns.
pub const TURN_NS: f64 = 5e6;

/// Why the scheduler or a limit is not in force.
#[derive(Debug, thiserror::Error)]
pub enum ExtError {
    /// The kernel was built without sched_ext.
    #[error(
        "this kernel has no sched_ext ({KERNEL} is missing): boot Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT"
    )]
    NoKernel,
    /// The kernel rejected it.
    #[error("the kernel rejects the scheduler: {0}{1}")]
    Refused(libbpf_rs::Error, String),
    /// A BPF map.
    #[error("{what}: {error}")]
    Map {
        what: String,
        error: libbpf_rs::Error,
    },
    /// A cgroup.
    #[error("{path}: {error}")]
    Cgroup {
        path: PathBuf,
        error: std::io::Error,
    },
    /// All groups are in use.
    #[error("all {MAX_GROUPS} groups of the scheduler are in use; limit fewer cgroups")]
    Full,
}

/// Why the kernel ended the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitRecord {
    /// `SCX_EXIT_*`.
    pub kind: i32,
    pub reason: String,
    pub message: String,
}

impl std::fmt::Display for ExitRecord {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}", self.reason)?;
        if !self.message.is_empty() {
            write!(to, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// What a processor does when only tasks without budget are left for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdleCpus {
    /// It is idle: the limit holds.
    #[default]
    Hold,
    /// It continues the last task: CPU time that no other task wants is not taken away.
    Use,
}

/// A group of the scheduler.
#[derive(Debug)]
struct Group {
    number: u32,
    /// Keeps the cgroup's storage, which contains the number.
    _cgroup: File,
}

/// The scheduler while it is loaded.
pub struct Ext {
    // Before the object: the link must go first.
    _link: Link,
    object: Object,
    groups: HashMap<PathBuf, Group>,
    free: Vec<u32>,
    next: u32,
    idle: IdleCpus,
}

/// The name of the active sched_ext scheduler, if there is one.
///
/// # Errors
/// The kernel has no sched_ext.
pub fn in_force() -> Result<Option<String>, ExtError> {
    let read = |name: &str| std::fs::read_to_string(Path::new(KERNEL).join(name));
    let state = read("state").map_err(|_| ExtError::NoKernel)?;
    Ok((state.trim() == "enabled").then(|| {
        let name = read("root/ops").unwrap_or_default();
        name.trim().to_owned()
    }))
}

/// Loads a scheduler and makes the kernel use it.
fn attach(bytes: &[u8], name: &str) -> Result<(Object, Link), ExtError> {
    static SAID: Mutex<String> = Mutex::new(String::new());
    in_force()?;
    // Messages of the loader are shown only with a refusal.
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| {
        if let Ok(mut said) = SAID.lock() {
            said.push_str(&line);
        }
    })));
    let load = || {
        let mut object = ObjectBuilder::default().open_memory(bytes)?.load()?;
        let mut operations = object.maps_mut();
        let link = operations
            .find(|map| map.name() == name)
            .expect("the scheduler was built with this program")
            .attach_struct_ops()?;
        drop(operations);
        Ok((object, link))
    };
    load().map_err(|error| {
        let said = SAID.lock().map(|mut said| std::mem::take(&mut *said));
        ExtError::Refused(error, format!("\n{}", said.unwrap_or_default()))
    })
}

impl Ext {
    /// Loads the scheduler and makes the kernel use it.
    ///
    /// # Errors
    /// The kernel has no sched_ext, another such scheduler is in force, or it refuses ours.
    pub fn load(idle: IdleCpus) -> Result<Self, ExtError> {
        let (object, link) = attach(OURS, "dormouse")?;
        let ext = Self {
            _link: link,
            object,
            groups: HashMap::new(),
            free: Vec::new(),
            next: 1,
            idle,
        };
        ext.settings()?;
        Ok(ext)
    }

    fn map(&self, name: &str) -> Map<'_> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.expect("the scheduler was built with this program")
    }

    fn write(&self, map: &str, key: u32, value: &[u8]) -> Result<(), ExtError> {
        let result = self
            .map(map)
            .update(&key.to_ne_bytes(), value, MapFlags::ANY);
        result.map_err(|error| ExtError::Map {
            what: format!("map {map}"),
            error,
        })
    }

    fn read(&self, map: &str, key: u32) -> Option<Vec<u8>> {
        let value = self.map(map).lookup(&key.to_ne_bytes(), MapFlags::ANY);
        value.ok().flatten()
    }

    /// `struct settings`.
    fn settings(&self) -> Result<(), ExtError> {
        let idle = u32::from(self.idle == IdleCpus::Use);
        let bytes = [self.next.to_ne_bytes(), idle.to_ne_bytes()].concat();
        self.write("settings", 0, &bytes)
    }

    /// `struct limit`.
    fn limit(&self, number: u32, ns_per_ms: u64, debt_ns: u64) -> Result<(), ExtError> {
        let bytes = [ns_per_ms.to_ne_bytes(), debt_ns.to_ne_bytes()].concat();
        self.write("limits", number, &bytes)
    }

    /// Limits the processes of a cgroup (version 2) to this many CPUs.
    ///
    /// # Errors
    /// The cgroup is gone, or too many are limited.
    pub fn set(&mut self, path: &Path, cpu: f64) -> Result<(), ExtError> {
        let number = match self.groups.get(path) {
            Some(group) => group.number,
            None => self.enter(path)?,
        };
        let cpu = cpu.max(MIN_CPU);
        let debt_ns = quota::turn(u64::from(number)) * TURN_NS * cpu;
        self.limit(number, (cpu * 1e6) as u64, debt_ns as u64)
    }

    /// Assigns a number to a cgroup; its tasks find it from now on.
    fn enter(&mut self, path: &Path) -> Result<u32, ExtError> {
        let cgroup = File::open(path).map_err(|error| ExtError::Cgroup {
            path: path.to_owned(),
            error,
        })?;
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.next < MAX_GROUPS => {
                self.next += 1;
                self.settings()?;
                self.next - 1
            }
            None => return Err(ExtError::Full),
        };
        let key = cgroup.as_raw_fd().to_ne_bytes();
        let result = self
            .map("groups")
            .update(&key, &number.to_ne_bytes(), MapFlags::ANY);
        if let Err(error) = result {
            self.free.push(number);
            let what = path.display().to_string();
            return Err(ExtError::Map { what, error });
        }
        let group = Group {
            number,
            _cgroup: cgroup,
        };
        self.groups.insert(path.to_owned(), group);
        Ok(number)
    }

    /// Lifts a cgroup's limit, if it has one. It keeps its number until it is
    /// [forgotten](Self::forget).
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn lift(&mut self, path: &Path) -> Result<(), ExtError> {
        match self.groups.get(path) {
            Some(group) => self.limit(group.number, 0, 0),
            None => Ok(()),
        }
    }

    /// Lifts the limit of a cgroup that is gone or no longer uses the device, and frees its
    /// number.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn forget(&mut self, path: &Path) -> Result<(), ExtError> {
        self.lift(path)?;
        if let Some(group) = self.groups.remove(path) {
            let key = group._cgroup.as_raw_fd().to_ne_bytes();
            // The kernel removed it with the cgroup.
            let _ = self.map("groups").delete(&key);
            self.free.push(group.number);
        }
        Ok(())
    }

    /// A counter that increases while a task of the cgroup waits without budget.
    pub fn held(&self, path: &Path) -> u64 {
        let state = self.groups.get(path);
        let state = state.and_then(|group| self.read("states", group.number));
        // `struct state`: left_ns, used_ns, held.
        let held = state.and_then(|state| state.get(16..24)?.try_into().ok());
        held.map_or(0, u64::from_ne_bytes)
    }

    /// Why the kernel ended the scheduler, if it has.
    pub fn exit_record(&self) -> Option<ExitRecord> {
        ExitRecord::parse(&self.read("record", 0)?)
    }
}

impl ExitRecord {
    /// Parses `struct record` of `bpf/budget.h`; `None` while the scheduler is in force.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let kind = i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|&byte| byte == 0);
            let text = &bytes[..end.unwrap_or(bytes.len())];
            String::from_utf8_lossy(text).into_owned()
        };
        (kind != 0).then(|| Self {
            kind,
            reason: text(&bytes[4..132]),
            message: text(&bytes[132..]),
        })
    }
}

/// The smallest possible scheduler, in force while this value lives: the baseline of measurements.
pub struct Empty {
    _link: Link,
    _object: Object,
}

impl Empty {
    /// # Errors
    /// As [`Ext::load`].
    pub fn load() -> Result<Self, ExtError> {
        let (object, link) = attach(EMPTY, "empty")?;
        Ok(Self {
            _link: link,
            _object: object,
        })
    }
}

#[cfg(test)]
#[path = "ext_tests.rs"]
mod tests;
