//! A made-up machine that sleeps: a tree of files in a temporary directory that answers writes as
//! Linux, the module and firmware would, and processes that are numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_report::{Event, Kind};
use dormouse_system::Root;
use dormouse_system::root::Reaction;

use crate::options::{Cancel, MigrateBackMode, MigrateBackOptions, Policy, SleepOptions};
use crate::system::state;
use crate::target::Machine;
use crate::tests::fake::{FakePages, FakeSampler};
use crate::{SleepError, sleep};

pub const MODULE: &str = "sys/power/dormouse";
pub const REDIS: &str = "sys/fs/cgroup/redis";
pub const MIB: u64 = 1 << 20;

/// How the made-up machine behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    Sleeps,
    FirmwareRefuses,
    LinuxRefuses,
    NeverFreezes,
    /// SIGTERM arrives when caches are dropped.
    SignalOnTheWay,
    /// After migration more is left than fits.
    NoSpaceAtTheEnd,
}

pub struct FakeMachine {
    _directory: tempfile::TempDir,
    pub root: Root,
    pub pages: FakePages,
    pub sampler: FakeSampler,
    pub cancel: Cancel,
    pub writes: Arc<Mutex<Vec<String>>>,
}

fn stat(pid: i32, name: &str, start: u64, pages: u64) -> String {
    format!("{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 1 {pages} 1\n")
}

/// Adds a process that last ran at `exec_ms`.
pub fn add_process(root: &Root, pid: i32, name: &str, pages: u64, group: &str, exec_ms: u64) {
    let sched = format!("x\nse.exec_start : {exec_ms}.000001\n");
    for (file, text) in [
        ("stat", stat(pid, name, pid as u64, pages)),
        ("cgroup", format!("0::{group}\n")),
        (&format!("task/{pid}/sched"), sched),
    ] {
        root.create(&format!("proc/{pid}/{file}"), &text).unwrap();
    }
}

impl FakeMachine {
    pub fn new(habit: Habit) -> FakeMachine {
        let directory = tempfile::tempdir().unwrap();
        let cancel = Cancel::default();
        let writes = Arc::new(Mutex::new(Vec::new()));
        let reaction = reaction(habit, cancel.clone(), writes.clone());
        let root = Root::reacting(directory.path(), reaction);
        for (path, text) in [
            ("proc/sys/kernel/random/boot_id", "this-boot\n"),
            ("proc/sys/vm/drop_caches", "0\n"),
            ("proc/sys/vm/stat_refresh", ""),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/power/state", "freeze mem disk\n"),
            ("sys/power/mem_sleep", "[s2idle] deep\n"),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/redis/cgroup.freeze", "0\n"),
            ("sys/fs/cgroup/redis/cgroup.procs", "200\n"),
            (
                "sys/fs/cgroup/redis/cgroup.events",
                "populated 1\nfrozen 0\n",
            ),
            ("sys/bus/dax/devices/dax0.0/target_node", "1\n"),
            ("sys/bus/dax/devices/dax0.0/resource", "0x108000000\n"),
            ("sys/bus/dax/devices/dax0.0/size", "268435456\n"),
            ("sys/bus/dax/devices/dax0.0/memmap_on_memory", "0\n"),
            ("sys/bus/dax/drivers/kmem/new_id", ""),
            ("sys/bus/dax/drivers/kmem/bind", ""),
            ("sys/devices/system/memory/block_size_bytes", "8000000\n"),
            ("sys/devices/system/memory/auto_online_blocks", "online\n"),
            ("sys/devices/system/node/has_memory", "0\n"),
            ("sys/devices/system/node/has_cpu", "0\n"),
        ] {
            root.create(path, text).unwrap();
        }
        let meminfo = "Node 0 MemTotal: 1048576 kB\nNode 0 MemFree: 524288 kB\n\
                       Node 0 AnonPages: 102400 kB\nNode 0 Mapped: 0 kB\n\
                       Node 0 FilePages: 51200 kB\nNode 0 Shmem: 0 kB\n";
        root.create("sys/devices/system/node/node0/meminfo", meminfo)
            .unwrap();
        for (name, text) in [
            ("enabled", "1"),
            ("state", "empty"),
            ("last_outcome", "none"),
            ("last_reason", "ok"),
            ("last_detail", "0"),
            ("resume_count", "0"),
            ("saved_bytes", "0"),
            ("restored_bytes", "0"),
            ("cxl_base", "0x100000000"),
            ("cxl_bytes", "402653184"),
            ("global_persistent_flush", "armed"),
            ("dirty_shutdowns_counted", "1"),
            ("persistence", "firmware"),
            ("verify_user_pages", "sample"),
            ("phases", ""),
            ("estimate", "save_bytes 157286400\nfree_bytes 104857600\n"),
        ] {
            root.create(&format!("{MODULE}/{name}"), &format!("{text}\n"))
                .unwrap();
        }
        add_process(&root, 1, "init", 10, "/", 5);
        add_process(&root, 200, "redis", 5000, "/redis", 10);
        add_process(&root, 300, "shell", 1000, "/", 99);

        let pages = FakePages::new(&[(1, 10), (200, 5000), (300, 1000)]);
        FakeMachine {
            _directory: directory,
            root,
            pages,
            sampler: FakeSampler::default(),
            cancel,
            writes,
        }
    }

    pub fn machine(&self) -> Machine<'_> {
        Machine {
            root: &self.root,
            pages: &self.pages,
            sampler: &self.sampler,
        }
    }

    pub fn options(&self, home: MigrateBackMode) -> SleepOptions {
        SleepOptions {
            home,
            migrate_back_options: MigrateBackOptions {
                policy: Policy::HotFirst,
                ..MigrateBackOptions::default()
            },
            freeze_timeout: Duration::from_millis(30),
            cancel: self.cancel.clone(),
            ..SleepOptions::default()
        }
    }

    pub fn sleep(
        &self,
        home: MigrateBackMode,
    ) -> (Result<crate::SleepReport, crate::SleepError>, Vec<Event>) {
        let mut events = Vec::new();
        let result = sleep::run(&self.machine(), &self.options(home), &mut |event| {
            events.push(event.clone());
        });
        (result, events)
    }

    /// The error of a sleep that must not succeed.
    pub fn refusal(&self) -> SleepError {
        self.sleep(MigrateBackMode::Never).0.unwrap_err()
    }

    pub fn read(&self, path: &str) -> String {
        self.root.read(path).unwrap()
    }

    pub fn put(&self, path: &str, text: &str) {
        self.root.create(path, text).unwrap();
    }

    /// What the module reports.
    pub fn put_module(&self, name: &str, text: &str) {
        self.put(&format!("{MODULE}/{name}"), text);
    }

    /// Where the first write is that begins so; none if there was none.
    pub fn position_of_write(&self, begin: &str) -> Option<usize> {
        let writes = self.writes.lock().unwrap();
        writes.iter().position(|write| write.starts_with(begin))
    }

    /// Nothing but the kernel's counters was written.
    pub fn assert_nothing_changed(&self) {
        for write in self.writes.lock().unwrap().iter() {
            assert!(write.starts_with("proc/sys/vm/stat_refresh"), "{write}");
        }
    }

    pub fn assert_as_before(&self) {
        assert_eq!(self.pages.count_on(1), 0, "no page stays on the CXL node");
        assert_eq!(self.read(&format!("{REDIS}/cgroup.freeze")), "0");
        assert_eq!(self.read("sys/power/mem_sleep"), "s2idle");
        assert_eq!(
            self.read("sys/devices/system/memory/auto_online_blocks"),
            "online"
        );
        for block in [33, 34] {
            let state = format!("sys/devices/system/memory/memory{block}/state");
            assert_ne!(self.root.read(&state).unwrap_or_default(), "online_movable");
        }
        assert!(state::load(&self.root).is_none());
    }
}

fn reaction(habit: Habit, cancel: Cancel, writes: Arc<Mutex<Vec<String>>>) -> Reaction {
    let resumes = AtomicU64::new(0);
    Box::new(move |root, path, text| {
        writes.lock().unwrap().push(format!("{path}={text}"));
        let module = |name: &str, text: &str| root.create(&format!("{MODULE}/{name}"), text);
        match (path, text) {
            ("sys/bus/dax/drivers/kmem/new_id", device) => {
                let link = root.path(&format!("sys/bus/dax/devices/{device}/driver"));
                std::os::unix::fs::symlink("../../drivers/kmem", link)?;
                for block in [33, 34] {
                    let block = format!("sys/devices/system/memory/memory{block}");
                    root.create(&format!("{block}/state"), "offline\n")?;
                    root.create(&format!("{block}/valid_zones"), "Movable Normal\n")?;
                }
                root.create("sys/devices/system/node/has_memory", "0-1\n")?;
                let meminfo = "Node 1 MemTotal: 258048 kB\nNode 1 MemFree: 258048 kB\n";
                root.create("sys/devices/system/node/node1/meminfo", meminfo)?;
            }
            ("sys/fs/cgroup/redis/cgroup.freeze", value) => {
                let frozen = if habit == Habit::NeverFreezes {
                    "0"
                } else {
                    value
                };
                let events = format!("populated 1\nfrozen {frozen}\n");
                root.create(&format!("{REDIS}/cgroup.events"), &events)?;
            }
            ("proc/sys/vm/drop_caches", _) if habit == Habit::SignalOnTheWay => cancel.set(),
            ("proc/sys/vm/drop_caches", _) if habit == Habit::NoSpaceAtTheEnd => {
                module("estimate", "save_bytes 200000000\nfree_bytes 100000000\n")?;
            }
            // User pages have moved, or will have when they are counted.
            ("proc/sys/vm/drop_caches", _) => {
                module("estimate", "save_bytes 52428800\nfree_bytes 104857600\n")?;
            }
            ("sys/power/state", _) => match habit {
                Habit::LinuxRefuses => return Err(std::io::Error::from_raw_os_error(libc::EBUSY)),
                Habit::FirmwareRefuses => {
                    module("last_outcome", "refused")?;
                    module("last_reason", "memory-map")?;
                    module("last_detail", "0x42")?;
                }
                _ => {
                    let count = resumes.fetch_add(1, Ordering::Relaxed) + 1;
                    module("resume_count", &count.to_string())?;
                    module("last_outcome", "resumed")?;
                    module("state", "consumed")?;
                    module("saved_bytes", "52428800")?;
                    module("restored_bytes", "52428800")?;
                }
            },
            _ => {}
        }
        Ok(())
    })
}

/// The names of the events of a kind, in their order.
pub fn names(events: &[Event], kind: Kind) -> Vec<&str> {
    events
        .iter()
        .filter(|event| event.kind == kind)
        .map(|event| event.name.as_str())
        .collect()
}
