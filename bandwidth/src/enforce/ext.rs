//! Our sched_ext scheduler (`bpf/dormouse.bpf.c`), in which cgroups have budgets of CPU time.
//!
//! The kernel schedules with it from [`Ext::load`] until the value is dropped or this process ends,
//! however it ends; then, or when the scheduler itself goes wrong, the kernel's own takes over and
//! nobody is limited any more. So nothing has to be undone, and there is no ledger.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel};

use super::quota;
use crate::allocate::LEAST_CPU;

/// The schedulers, for the kernel's virtual machine: ours, and the least that there can be.
const OURS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dormouse.o"));
const EMPTY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/empty.o"));
/// `MOST_GROUPS` of `bpf/budget.h`.
const MOST_GROUPS: u32 = 256;
/// Where the kernel tells of schedulers.
const KERNEL: &str = "/sys/kernel/sched_ext";
/// Limits begin with the debt of a part of this time, so that groups take turns.
pub const TURN_NS: f64 = 5e6;

/// Why there is no scheduler, or no limit.
#[derive(Debug, thiserror::Error)]
pub enum ExtError {
    /// The kernel was built without.
    #[error("this kernel has no sched_ext ({KERNEL} is missing): 6.12 or newer, built with it")]
    NoKernel,
    /// The kernel refuses it.
    #[error("the kernel refuses the scheduler: {0}{1}")]
    Refused(libbpf_rs::Error, String),
    /// Talking to it.
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
    /// As many as there can be are limited.
    #[error("{MOST_GROUPS} cgroups are limited already")]
    Full,
}

/// Why the kernel ended the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `SCX_EXIT_*`.
    pub kind: i32,
    pub reason: String,
    pub message: String,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}", self.reason)?;
        if !self.message.is_empty() {
            write!(to, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// What a processor does that has nobody else to run than who has used up its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// It is idle: the limit holds.
    #[default]
    Hold,
    /// It goes on with whoever ran there last: CPU time that nobody else wants is not taken away.
    Use,
}

/// A group of the scheduler.
#[derive(Debug)]
struct Group {
    number: u32,
    /// Keeps the cgroup's storage, which knows the number.
    _cgroup: File,
}

/// The scheduler while it is loaded.
pub struct Ext {
    // Before the object: who is scheduled by it has to leave it first.
    _link: Link,
    object: Object,
    groups: HashMap<PathBuf, Group>,
    free: Vec<u32>,
    next: u32,
    idle: Idle,
}

/// Whether this kernel has sched_ext, and which scheduler is in force.
///
/// # Errors
/// It has none.
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
    // What the loader says is told with a refusal only.
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
    pub fn load(idle: Idle) -> Result<Self, ExtError> {
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
        let idle = u32::from(self.idle == Idle::Use);
        let bytes = [self.next.to_ne_bytes(), idle.to_ne_bytes()].concat();
        self.write("settings", 0, &bytes)
    }

    /// `struct limit`.
    fn limit(&self, number: u32, ns_per_ms: u64, debt_ns: u64) -> Result<(), ExtError> {
        let bytes = [ns_per_ms.to_ne_bytes(), debt_ns.to_ne_bytes()].concat();
        self.write("limits", number, &bytes)
    }

    /// Limits the processes of a cgroup (of version 2) to so many CPUs.
    ///
    /// # Errors
    /// The cgroup is gone, or too many are limited.
    pub fn set(&mut self, path: &Path, cpu: f64) -> Result<(), ExtError> {
        let number = match self.groups.get(path) {
            Some(group) => group.number,
            None => self.enter(path)?,
        };
        let cpu = cpu.max(LEAST_CPU);
        let debt_ns = quota::turn(u64::from(number)) * TURN_NS * cpu;
        self.limit(number, (cpu * 1e6) as u64, debt_ns as u64)
    }

    /// A number for a cgroup, which its tasks find from now on.
    fn enter(&mut self, path: &Path) -> Result<u32, ExtError> {
        let cgroup = File::open(path).map_err(|error| ExtError::Cgroup {
            path: path.to_owned(),
            error,
        })?;
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.next < MOST_GROUPS => {
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

    /// Lets a cgroup have what CPU time it wants; nothing if it was not limited. It keeps its
    /// number until it is [`forgotten`](Self::forget).
    ///
    /// # Errors
    /// The scheduler cannot be told.
    pub fn lift(&mut self, path: &Path) -> Result<(), ExtError> {
        match self.groups.get(path) {
            Some(group) => self.limit(group.number, 0, 0),
            None => Ok(()),
        }
    }

    /// The same for a cgroup that is gone or uses the device no more: its number is free.
    ///
    /// # Errors
    /// The scheduler cannot be told.
    pub fn forget(&mut self, path: &Path) -> Result<(), ExtError> {
        self.lift(path)?;
        if let Some(group) = self.groups.remove(path) {
            let key = group._cgroup.as_raw_fd().to_ne_bytes();
            // A cgroup that is gone took it along.
            let _ = self.map("groups").delete(&key);
            self.free.push(group.number);
        }
        Ok(())
    }

    /// Grows as long as a task of the cgroup waits because the budget was used up.
    pub fn held(&self, path: &Path) -> u64 {
        let state = self.groups.get(path);
        let state = state.and_then(|group| self.read("states", group.number));
        // `struct state`: left_ns, used_ns, held.
        let held = state.and_then(|state| state.get(16..24)?.try_into().ok());
        held.map_or(0, u64::from_ne_bytes)
    }

    /// Why the kernel ended the scheduler, if it did.
    pub fn ended(&self) -> Option<Ended> {
        Ended::parse(&self.read("record", 0)?)
    }
}

impl Ended {
    /// `struct record` of `bpf/budget.h`; nothing while the scheduler is in force.
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

/// The least scheduler that there can be, in force while this lives: to measure against.
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

/// What the calls of one of a scheduler's programs took.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Cost {
    /// The first 15 characters of it.
    pub name: String,
    pub runs: u64,
    pub mean_ns: f64,
}

/// The kernel's run-time statistics of BPF programs, on while this lives. They cost a little
/// themselves.
pub struct Statistics {
    _on: OwnedFd,
}

impl Statistics {
    /// # Errors
    /// The kernel refuses.
    pub fn switch_on() -> Result<Self, std::io::Error> {
        // SAFETY: takes a number; gives a descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(std::io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the descriptor is new, and nobody else has it.
        let _on = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { _on })
    }

    /// Of all programs whose names begin so and that ran since they were loaded.
    pub fn of(&self, prefix: &str) -> Vec<Cost> {
        let programs = libbpf_rs::query::ProgInfoIter::default();
        let cost = |program: libbpf_rs::query::ProgramInfo| Cost {
            name: program.name.to_string_lossy().into_owned(),
            runs: program.run_cnt,
            mean_ns: program.run_time_ns as f64 / program.run_cnt.max(1) as f64,
        };
        let mut costs: Vec<Cost> = programs.map(cost).collect();
        costs.retain(|cost| cost.name.starts_with(prefix) && cost.runs > 0);
        costs
    }
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSymbol as _};

    use super::*;

    /// Kernel functions that the schedulers call and that Linux 6.12 and all later releases have.
    const STABLE: [&str; 9] = [
        "bpf_iter_scx_dsq_destroy",
        "bpf_iter_scx_dsq_new",
        "bpf_iter_scx_dsq_next",
        "scx_bpf_create_dsq",
        "scx_bpf_dsq_nr_queued",
        "scx_bpf_kick_cpu",
        "scx_bpf_nr_cpu_ids",
        "scx_bpf_pick_idle_cpu",
        "scx_bpf_select_cpu_dfl",
    ];

    /// What changes: for each call, the function that releases have from 6.12, 6.13 and 6.19 on
    /// (include/linux/sched/ext.h, kernel/sched/ext.c).
    const BY_RELEASE: [[&str; 3]; 8] = [
        [
            "scx_bpf_dispatch",
            "scx_bpf_dsq_insert",
            "scx_bpf_dsq_insert___v2",
        ],
        [
            "scx_bpf_dispatch_vtime",
            "scx_bpf_dsq_insert_vtime",
            "__scx_bpf_dsq_insert_vtime",
        ],
        [
            "scx_bpf_consume",
            "scx_bpf_dsq_move_to_local",
            "scx_bpf_dsq_move_to_local",
        ],
        [
            "scx_bpf_dispatch_from_dsq_set_slice",
            "scx_bpf_dsq_move_set_slice",
            "scx_bpf_dsq_move_set_slice",
        ],
        [
            "scx_bpf_dispatch_from_dsq_set_vtime",
            "scx_bpf_dsq_move_set_vtime",
            "scx_bpf_dsq_move_set_vtime",
        ],
        [
            "scx_bpf_dispatch_vtime_from_dsq",
            "scx_bpf_dsq_move_vtime",
            "scx_bpf_dsq_move_vtime",
        ],
        // Before 6.19 both are written directly.
        ["", "", "scx_bpf_task_set_slice"],
        ["", "", "scx_bpf_task_set_dsq_vtime"],
    ];

    /// As the loader does: the last "___" and what follows is dropped before the kernel is asked.
    fn asked_for(name: &str) -> &str {
        name.rsplit_once("___").map_or(name, |(base, _)| base)
    }

    #[test]
    fn one_object_resolves_on_every_kernel_from_6_12_on() {
        let object = object::File::parse(OURS).unwrap();
        let wanted: Vec<(&str, bool)> = object
            .symbols()
            .filter(|symbol| symbol.is_undefined())
            .filter_map(|symbol| Some((symbol.name().ok()?, symbol.is_weak())))
            .filter(|(name, _)| !name.is_empty())
            .collect();
        for (name, weak) in &wanted {
            let stable = STABLE.contains(&asked_for(name));
            assert!(stable || *weak, "{name} is missing on some kernels");
        }
        let asks_for = |function: &str| wanted.iter().any(|(name, _)| asked_for(name) == function);
        for function in BY_RELEASE.iter().flatten().filter(|name| !name.is_empty()) {
            assert!(asks_for(function), "{function} is not called");
        }
    }

    #[test]
    fn the_record_of_an_end_is_read() {
        let mut bytes = vec![0; 4 + 128 + 256];
        assert_eq!(Ended::parse(&bytes), None);
        bytes[..4].copy_from_slice(&1026i32.to_ne_bytes());
        bytes[4..23].copy_from_slice(b"runnable task stall");
        bytes[132..139].copy_from_slice(b"x[1] is");
        let ended = Ended::parse(&bytes).unwrap();
        assert_eq!(ended.kind, 1026);
        assert_eq!(ended.to_string(), "runnable task stall: x[1] is");
        assert_eq!(Ended::parse(&bytes[..2]), None);
    }

    #[test]
    fn where_the_kernel_has_no_sched_ext_that_is_what_is_said() {
        if in_force().is_err() {
            let said = Ext::load(Idle::Hold).err().unwrap().to_string();
            assert!(said.contains("no sched_ext"), "{said}");
        }
    }
}
