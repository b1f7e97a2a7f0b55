//! Whole sleeps on a made-up machine: a tree of files in a temporary directory that answers writes
//! as Linux, the module and firmware would, and processes that are numbers.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_report::{Event, Kind};

use crate::hotness::HotRange;
use crate::hotness::saved;
use crate::migrate_back;
use crate::options::Policy;
use crate::options::{Cancel, MigrateBackMode, MigrateBackOptions, SleepOptions, VerifyUserPages};
use crate::owner::{MemoryKind, Owner};
use crate::sleep;
use crate::system::pages::PAGE_BYTES;
use crate::system::state;
use crate::system::tree::Tree;
use crate::target::Machine;
use crate::tests::fake::{FakePages, FakeSampler};

const MODULE: &str = "sys/power/dormouse";
const REDIS: &str = "sys/fs/cgroup/redis";
const MIB: u64 = 1 << 20;

/// How the made-up machine behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    Sleeps,
    FirmwareRefuses,
    LinuxRefuses,
    NeverFreezes,
    /// SIGTERM arrives when caches are dropped.
    SignalOnTheWay,
    /// After migration more is left than fits.
    NoSpaceAtTheEnd,
}

struct FakeMachine {
    directory: tempfile::TempDir,
    tree: Tree,
    pages: FakePages,
    sampler: FakeSampler,
    cancel: Cancel,
    writes: Arc<Mutex<Vec<String>>>,
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn stat(pid: i32, name: &str, start: u64, pages: u64) -> String {
    format!("{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 1 {pages} 1\n")
}

fn add_process(root: &Path, pid: i32, name: &str, pages: u64, group: &str, exec_ms: u64) {
    put(
        root,
        &format!("proc/{pid}/stat"),
        &stat(pid, name, pid as u64, pages),
    );
    put(
        root,
        &format!("proc/{pid}/cgroup"),
        &format!("0::{group}\n"),
    );
    let sched = format!("x\nse.exec_start : {exec_ms}.000001\n");
    put(root, &format!("proc/{pid}/task/{pid}/sched"), &sched);
}

impl FakeMachine {
    fn new(habit: Habit) -> FakeMachine {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
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
            put(root, path, text);
        }
        let meminfo = "Node 0 MemTotal: 1048576 kB\nNode 0 MemFree: 524288 kB\n\
                       Node 0 AnonPages: 102400 kB\nNode 0 Mapped: 0 kB\n\
                       Node 0 FilePages: 51200 kB\nNode 0 Shmem: 0 kB\n";
        put(root, "sys/devices/system/node/node0/meminfo", meminfo);
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
            put(root, &format!("{MODULE}/{name}"), &format!("{text}\n"));
        }
        add_process(root, 1, "init", 10, "/", 5);
        add_process(root, 200, "redis", 5000, "/redis", 10);
        add_process(root, 300, "shell", 1000, "/", 99);

        let cancel = Cancel::default();
        let writes = Arc::new(Mutex::new(Vec::new()));
        let tree = Tree::reacting(root, reaction(habit, cancel.clone(), writes.clone()));
        let pages = FakePages::new(&[(1, 10), (200, 5000), (300, 1000)]);
        FakeMachine {
            directory,
            tree,
            pages,
            sampler: FakeSampler::default(),
            cancel,
            writes,
        }
    }

    fn machine(&self) -> Machine<'_> {
        Machine {
            tree: &self.tree,
            pages: &self.pages,
            sampler: &self.sampler,
        }
    }

    fn options(&self, home: MigrateBackMode) -> SleepOptions {
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

    fn sleep(
        &self,
        home: MigrateBackMode,
    ) -> (Result<crate::SleepReport, crate::SleepError>, Vec<Event>) {
        let mut events = Vec::new();
        let result = sleep::run(&self.machine(), &self.options(home), &mut |event| {
            events.push(event.clone());
        });
        (result, events)
    }

    fn read(&self, path: &str) -> String {
        self.tree.read(path).unwrap()
    }

    fn assert_as_before(&self) {
        assert_eq!(self.pages.count_on(1), 0, "no page stays on the CXL node");
        assert_eq!(self.read(&format!("{REDIS}/cgroup.freeze")), "0");
        assert_eq!(self.read("sys/power/mem_sleep"), "s2idle");
        assert_eq!(
            self.read("sys/devices/system/memory/auto_online_blocks"),
            "online"
        );
        for block in [33, 34] {
            let state = format!("sys/devices/system/memory/memory{block}/state");
            assert_ne!(self.tree.read(&state).unwrap_or_default(), "online_movable");
        }
        assert!(state::load(&self.tree).is_none());
    }
}

fn reaction(
    habit: Habit,
    cancel: Cancel,
    writes: Arc<Mutex<Vec<String>>>,
) -> crate::system::tree::Reaction {
    let resumes = AtomicU64::new(0);
    Box::new(move |tree, path, text| {
        writes.lock().unwrap().push(format!("{path}={text}"));
        let root = tree.path("");
        let module = |name: &str, text: &str| put(&root, &format!("{MODULE}/{name}"), text);
        match (path, text) {
            ("sys/bus/dax/drivers/kmem/new_id", device) => {
                let link = root.join(format!("sys/bus/dax/devices/{device}/driver"));
                std::os::unix::fs::symlink("../../drivers/kmem", link)?;
                for block in [33, 34] {
                    let block = format!("sys/devices/system/memory/memory{block}");
                    put(&root, &format!("{block}/state"), "offline\n");
                    put(&root, &format!("{block}/valid_zones"), "Movable Normal\n");
                }
                put(&root, "sys/devices/system/node/has_memory", "0-1\n");
                let meminfo = "Node 1 MemTotal: 258048 kB\nNode 1 MemFree: 258048 kB\n";
                put(&root, "sys/devices/system/node/node1/meminfo", meminfo);
            }
            ("sys/fs/cgroup/redis/cgroup.freeze", value) => {
                let frozen = if habit == Habit::NeverFreezes {
                    "0"
                } else {
                    value
                };
                let events = format!("populated 1\nfrozen {frozen}\n");
                put(&root, &format!("{REDIS}/cgroup.events"), &events);
            }
            ("proc/sys/vm/drop_caches", _) if habit == Habit::SignalOnTheWay => cancel.set(),
            ("proc/sys/vm/drop_caches", _) if habit == Habit::NoSpaceAtTheEnd => {
                module("estimate", "save_bytes 200000000\nfree_bytes 100000000\n");
            }
            // User pages have moved, or will have when they are counted.
            ("proc/sys/vm/drop_caches", _) => {
                module("estimate", "save_bytes 52428800\nfree_bytes 104857600\n");
            }
            ("sys/power/state", _) => match habit {
                Habit::LinuxRefuses => return Err(std::io::Error::from_raw_os_error(libc::EBUSY)),
                Habit::FirmwareRefuses => {
                    module("last_outcome", "refused");
                    module("last_reason", "memory-map");
                    module("last_detail", "0x42");
                }
                _ => {
                    let count = resumes.fetch_add(1, Ordering::Relaxed) + 1;
                    module("resume_count", &count.to_string());
                    module("last_outcome", "resumed");
                    module("state", "consumed");
                    module("saved_bytes", "52428800");
                    module("restored_bytes", "52428800");
                }
            },
            _ => {}
        }
        Ok(())
    })
}

fn names(events: &[Event], kind: Kind) -> Vec<&str> {
    events
        .iter()
        .filter(|event| event.kind == kind)
        .map(|event| event.name.as_str())
        .collect()
}

#[test]
fn a_sleep_goes_down_comes_up_and_leaves_everything_as_before() {
    let fake = FakeMachine::new(Habit::Sleeps);
    let (result, events) = fake.sleep(MigrateBackMode::Wait);
    let report = result.unwrap();
    assert_eq!(report.outcome, "resumed");
    assert_eq!(
        (report.saved_bytes, report.restored_bytes),
        (50 * MIB, 50 * MIB)
    );
    let home = report.home.unwrap();
    assert!(home.offline && home.left_bytes == 0 && !home.stopped);
    fake.assert_as_before();
    assert_eq!(
        names(&events, Kind::Begin),
        [
            "preflight",
            "node-online",
            "sync",
            "freeze",
            "drop-caches",
            "migrate",
            "drop-caches",
            "space-check",
            "thaw",
            "home",
            "node-offline"
        ]
    );
    let marks: Vec<&str> = names(&events, Kind::Mark)
        .into_iter()
        // Progress, reported ten times a second while it takes so long.
        .filter(|name| !["migrate", "home"].contains(name))
        .collect();
    assert_eq!(marks, ["enter", "resumed"]);
}

#[test]
fn all_pages_are_on_the_cxl_node_when_the_machine_enters_s3() {
    let fake = FakeMachine::new(Habit::Sleeps);
    let (result, _) = fake.sleep(MigrateBackMode::Never);
    assert!(result.unwrap().home.is_none());
    assert_eq!((fake.pages.count_on(0), fake.pages.count_on(1)), (0, 6010));
    let writes = fake.writes.lock().unwrap();
    let at = |wanted: &str| writes.iter().position(|write| write == wanted).unwrap();
    assert!(at(&format!("{REDIS}/cgroup.freeze=1")) < at("proc/sys/vm/drop_caches=3"));
    assert!(at("proc/sys/vm/drop_caches=3") < at("sys/power/state=mem"));
    assert!(at("sys/power/state=mem") < at(&format!("{REDIS}/cgroup.freeze=0")));
}

#[test]
fn what_cannot_move_is_reported_with_its_owner_and_the_machine_sleeps() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.pages.pin(200, 7);
    let maps = "7f0000000000 default anon=5000 N0=1 N1=4999 kernelpagesize_kB=4\n";
    put(fake.directory.path(), "proc/200/numa_maps", maps);
    let report = fake.sleep(MigrateBackMode::Never).0.unwrap();
    let owner = Owner {
        pid: Some(200),
        name: "redis".to_owned(),
        kind: MemoryKind::Pinned,
        bytes: 4096,
    };
    assert_eq!((report.pages_failed, report.not_moved), (1, vec![owner]));
}

#[test]
fn what_does_not_fit_after_migration_is_refused_with_the_owners_of_what_stayed() {
    let fake = FakeMachine::new(Habit::NoSpaceAtTheEnd);
    let meminfo = "Node 0 MemTotal: 1048576 kB\nNode 0 MemFree: 524288 kB\n\
                   Node 0 AnonPages: 102400 kB\nNode 0 Mapped: 0 kB\n";
    let path = "sys/devices/system/node/node0";
    put(fake.directory.path(), &format!("{path}/meminfo"), meminfo);
    let pool = format!("{path}/hugepages/hugepages-2048kB/free_hugepages");
    put(fake.directory.path(), &pool, "40\n");
    let error = fake.sleep(MigrateBackMode::Never).0.unwrap_err();
    assert_eq!(error.reason(), "no-space");
    let owners: Vec<(MemoryKind, u64)> = error.owners().iter().map(|o| (o.kind, o.bytes)).collect();
    assert_eq!(owners, [(MemoryKind::HugetlbPool, 80 * MIB)]);
    assert!(
        error.to_string().contains("free huge pages 80.0 MiB"),
        "{error}"
    );
}

#[test]
fn memory_goes_online_as_movable_with_its_own_struct_pages() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.sleep(MigrateBackMode::Never).0.unwrap();
    assert_eq!(
        fake.read("sys/bus/dax/devices/dax0.0/memmap_on_memory"),
        "1"
    );
    assert_eq!(
        fake.read("sys/devices/system/memory/memory33/state"),
        "online_movable"
    );
    assert_eq!(
        fake.read("sys/devices/system/memory/auto_online_blocks"),
        "online"
    );
}

#[test]
fn home_after_waking_follows_the_order_of_before_the_sleep() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.sleep(MigrateBackMode::Never).0.unwrap();
    fake.pages.forget_moves();
    // Freezing and waking make everybody look recent.
    add_process(fake.directory.path(), 1, "init", 10, "/", 70_000);
    let options = MigrateBackOptions {
        jobs: 1,
        ..MigrateBackOptions::default()
    };
    let report = migrate_back::run(&fake.machine(), &options, &mut |_| {}).unwrap();
    assert!(report.offline);
    assert_eq!(fake.pages.order_of_moves(), [300, 200, 1]);
    assert!(state::load(&fake.tree).is_none());
}

#[test]
fn home_with_a_rate_limit_moves_everything_too() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.sleep(MigrateBackMode::Never).0.unwrap();
    let options = MigrateBackOptions {
        rate_bytes_per_s: Some(1 << 30),
        ..MigrateBackOptions::default()
    };
    migrate_back::run(&fake.machine(), &options, &mut |_| {}).unwrap();
    assert_eq!(fake.pages.count_on(1), 0);
}

#[test]
fn home_without_a_sleep_has_nothing_to_do() {
    let fake = FakeMachine::new(Habit::Sleeps);
    let report =
        migrate_back::run(&fake.machine(), &MigrateBackOptions::default(), &mut |_| {}).unwrap();
    assert!(report.offline);
    assert_eq!(report.home_bytes, 0);
}

#[test]
fn home_lets_user_space_run_again_after_a_sleep_that_was_killed() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.tree
        .write(&format!("{REDIS}/cgroup.freeze"), "1")
        .unwrap();
    let killed = state::State {
        boot_id: "this-boot".into(),
        node: 1,
        frozen: vec!["/redis".into()],
        ..state::State::default()
    };
    state::save(&fake.tree, &killed);
    migrate_back::run(&fake.machine(), &MigrateBackOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(fake.read(&format!("{REDIS}/cgroup.freeze")), "0");
}

#[test]
fn a_dry_run_tells_the_plan_and_writes_nothing() {
    let fake = FakeMachine::new(Habit::Sleeps);
    let options = SleepOptions {
        dry_run: true,
        ..fake.options(MigrateBackMode::Wait)
    };
    let report = sleep::run(&fake.machine(), &options, &mut |_| {}).unwrap();
    let plan = report.plan.unwrap();
    assert_eq!(plan.user_bytes, 100 * MIB);
    assert_eq!(plan.freeze, ["/redis"]);
    assert_eq!(
        plan.not_frozen
            .iter()
            .map(|one| one.pid)
            .collect::<Vec<_>>(),
        [300, 1]
    );
    assert_eq!(plan.home_order, [300, 200, 1]);
    let writes = fake.writes.lock().unwrap();
    assert!(
        writes
            .iter()
            .all(|write| write.starts_with("proc/sys/vm/stat_refresh"))
    );
}

#[test]
fn a_refusal_by_firmware_is_named_and_undone() {
    let fake = FakeMachine::new(Habit::FirmwareRefuses);
    let (result, events) = fake.sleep(MigrateBackMode::Never);
    let error = result.unwrap_err();
    assert_eq!(error.reason(), "memory-map");
    assert!(error.to_string().contains("0x42"));
    fake.assert_as_before();
    assert!(names(&events, Kind::End).contains(&"node-offline"));
}

#[test]
fn a_device_that_refuses_to_suspend_is_undone() {
    let fake = FakeMachine::new(Habit::LinuxRefuses);
    put(
        fake.directory.path(),
        "sys/power/suspend_stats/last_failed_dev",
        "0000:00:1f.2\n",
    );
    let error = fake.sleep(MigrateBackMode::Never).0.unwrap_err();
    assert_eq!(error.reason(), "not-entered");
    assert!(error.to_string().contains("0000:00:1f.2"), "{error}");
    fake.assert_as_before();
}

#[test]
fn user_space_that_does_not_stop_is_named_and_let_go() {
    let fake = FakeMachine::new(Habit::NeverFreezes);
    // mem_sleep was not touched yet.
    put(
        fake.directory.path(),
        "sys/power/mem_sleep",
        "s2idle deep\n",
    );
    let error = fake.sleep(MigrateBackMode::Never).0.unwrap_err();
    assert_eq!(error.reason(), "freeze-timeout");
    assert!(error.to_string().contains("/redis") && error.to_string().contains("redis 200"));
    assert_eq!(fake.read(&format!("{REDIS}/cgroup.freeze")), "0");
    assert!(
        !fake
            .writes
            .lock()
            .unwrap()
            .iter()
            .any(|write| write.starts_with("sys/power/state"))
    );
}

#[test]
fn a_signal_on_the_way_down_undoes_everything() {
    let fake = FakeMachine::new(Habit::SignalOnTheWay);
    let error = fake.sleep(MigrateBackMode::Never).0.unwrap_err();
    assert_eq!(error.reason(), "interrupted");
    assert_eq!(fake.pages.count_on(1), 0);
    assert_eq!(fake.read(&format!("{REDIS}/cgroup.freeze")), "0");
    assert!(
        !fake
            .writes
            .lock()
            .unwrap()
            .iter()
            .any(|write| write.starts_with("sys/power/state"))
    );
}

#[test]
fn too_small_a_cxl_device_is_refused_before_anything_changes() {
    let fake = FakeMachine::new(Habit::Sleeps);
    put(
        fake.directory.path(),
        "sys/bus/dax/devices/dax0.0/size",
        "0\n",
    );
    assert_eq!(
        fake.sleep(MigrateBackMode::Never).0.unwrap_err().reason(),
        "no-node"
    );
    // One block of 128 MiB for 100 MiB of users' pages and 50 MiB of the kernel's.
    put(
        fake.directory.path(),
        "sys/bus/dax/devices/dax0.0/size",
        "134217728\n",
    );
    let estimate = format!("save_bytes {}\nfree_bytes 1048576\n", 200 * MIB);
    put(
        fake.directory.path(),
        &format!("{MODULE}/estimate"),
        &estimate,
    );
    let maps = "7f0000000000 default anon=5000 N0=5000 kernelpagesize_kB=4\n";
    put(fake.directory.path(), "proc/200/numa_maps", maps);
    let (result, events) = fake.sleep(MigrateBackMode::Never);
    let error = result.unwrap_err();
    assert_eq!((error.reason(), error.exit_code()), ("no-space", 1));
    let owners: Vec<&str> = error.owners().iter().map(|o| o.name.as_str()).collect();
    assert_eq!(owners, ["kernel", "redis"], "{error}");
    let (needed, available) = error.space_bytes().unwrap();
    assert_eq!(needed, 150 * MIB);
    assert!(available < 129 * MIB);
    assert_eq!(events.last().unwrap().detail["refused"], "no-space");
    let writes = fake.writes.lock().unwrap();
    assert!(
        writes
            .iter()
            .all(|write| write.starts_with("proc/sys/vm/stat_refresh"))
    );
}

#[test]
fn what_does_not_fit_after_migration_is_refused_and_migrated_back() {
    let fake = FakeMachine::new(Habit::NoSpaceAtTheEnd);
    let error = fake.sleep(MigrateBackMode::Never).0.unwrap_err();
    assert_eq!(error.space_bytes(), Some((200_000_000, 100_000_000)));
    assert_eq!(fake.pages.count_on(1), 0);
    assert_eq!(fake.read(&format!("{REDIS}/cgroup.freeze")), "0");
}

#[test]
fn a_machine_without_the_module_or_with_an_image_is_refused() {
    let fake = FakeMachine::new(Habit::Sleeps);
    put(
        fake.directory.path(),
        &format!("{MODULE}/state"),
        "suspended\n",
    );
    assert_eq!(
        fake.sleep(MigrateBackMode::Never).0.unwrap_err().reason(),
        "image-exists"
    );
    put(fake.directory.path(), &format!("{MODULE}/state"), "empty\n");
    put(fake.directory.path(), &format!("{MODULE}/enabled"), "0\n");
    assert_eq!(
        fake.sleep(MigrateBackMode::Never).0.unwrap_err().reason(),
        "disabled"
    );
    fs::remove_dir_all(fake.directory.path().join(MODULE)).unwrap();
    let error = fake.sleep(MigrateBackMode::Never).0.unwrap_err();
    assert_eq!((error.reason(), error.exit_code()), ("no-module", 3));
}

#[test]
fn a_sleep_that_is_refused_leaves_a_way_home_alone() {
    let fake = FakeMachine::new(Habit::Sleeps);
    put(fake.directory.path(), &format!("{MODULE}/enabled"), "0\n");
    let _home = crate::system::lock::take(&fake.tree, "migrate-back", false).unwrap();
    // Taking the lock would send SIGTERM to its holder: this process.
    assert_eq!(
        fake.sleep(MigrateBackMode::Never).0.unwrap_err().reason(),
        "disabled"
    );
}

#[test]
fn a_device_that_may_forget_is_refused_before_anything_changes_unless_the_risk_is_accepted() {
    let fake = FakeMachine::new(Habit::Sleeps);
    let set =
        |name: &str, text: &str| put(fake.directory.path(), &format!("{MODULE}/{name}"), text);
    set("global_persistent_flush", "absent\n");
    set("persistence", "unknown\n");
    let error = fake.sleep(MigrateBackMode::Never).0.unwrap_err();
    assert_eq!((error.reason(), error.exit_code()), ("volatile", 3));
    assert!(error.is_refusal());
    let text = error.to_string();
    assert!(text.contains("no Global Persistent Flush"), "{text}");
    assert!(text.contains("--accept-volatile"), "{text}");
    assert!(fake.writes.lock().unwrap().is_empty());

    let options = SleepOptions {
        accept_volatile: true,
        verify_user_pages: VerifyUserPages::All,
        ..fake.options(MigrateBackMode::Never)
    };
    let report = sleep::run(&fake.machine(), &options, &mut |_| ()).unwrap();
    assert_eq!(report.persistence, "accepted");
    // The module had the setting before the sleep, and has its own settings again.
    let writes = fake.writes.lock().unwrap();
    let position = |write: &str| {
        let found = writes.iter().position(|one| one == write);
        found.unwrap_or_else(|| panic!("no {write} in {writes:?}"))
    };
    let slept = writes
        .iter()
        .position(|one| one.starts_with("sys/power/state"));
    let slept = slept.expect("it slept");
    for (name, during, after) in [
        ("persistence", "accepted", "unknown"),
        ("verify_user_pages", "all", "sample"),
    ] {
        assert!(position(&format!("{MODULE}/{name}={during}")) < slept);
        assert!(position(&format!("{MODULE}/{name}={after}")) > slept);
    }
}

/// Address of a page of a made-up process.
fn touched(page: u64) -> HotRange {
    let start = 0x10_0000 + page * PAGE_BYTES;
    HotRange {
        start,
        end: start + PAGE_BYTES,
        hotness: 1,
    }
}

fn with_maps(fake: &FakeMachine) {
    for pid in [1, 200, 300] {
        let maps = "100000-110000 rw-p 0 00:00 0\n";
        put(fake.directory.path(), &format!("proc/{pid}/maps"), maps);
    }
}

#[test]
fn pages_that_were_hot_before_the_sleep_migrate_back_first() {
    let mut fake = FakeMachine::new(Habit::Sleeps);
    with_maps(&fake);
    fake.sampler = FakeSampler::with_windows(&[(200, touched(4711))]);
    fake.sleep(MigrateBackMode::Never).0.unwrap();
    assert!(
        !fake.sampler.is_watching(),
        "no watch is left while it sleeps"
    );
    fake.sampler = FakeSampler::default();
    fake.pages.forget_moves();
    let options = MigrateBackOptions {
        jobs: 1,
        rate_bytes_per_s: Some(1 << 30),
        policy: Policy::HotFirst,
        ..MigrateBackOptions::default()
    };
    let mut events = Vec::new();
    let report = migrate_back::run(&fake.machine(), &options, &mut |event| {
        events.push(event.clone())
    });
    let report = report.unwrap();
    assert_eq!(
        fake.pages.order_of_moves(),
        [200, 300, 200, 1],
        "then process order"
    );
    assert_eq!(report.hot_bytes, PAGE_BYTES);
    assert_eq!(report.policy, "hot-first");
    assert_eq!(fake.pages.count_on(1), 0, "the rest comes, too");
    assert!(report.offline && report.warning.is_none());
    assert!(saved::take(&fake.tree).is_empty());
}

#[test]
fn without_damon_pages_migrate_back_in_process_order_with_a_warning() {
    let mut fake = FakeMachine::new(Habit::Sleeps);
    with_maps(&fake);
    fake.sampler = FakeSampler::unavailable();
    let (result, events) = fake.sleep(MigrateBackMode::Wait);
    let home = result.unwrap().home.unwrap();
    assert_eq!((home.policy.as_str(), home.hot_bytes), ("process-order", 0));
    assert!(home.warning.unwrap().contains("DAMON"));
    assert_eq!(
        names(&events, Kind::Mark)
            .iter()
            .filter(|name| **name == "hot-pages-unknown")
            .count(),
        2,
        "on the way down and while they migrate back"
    );
    fake.assert_as_before();
}

#[test]
fn process_order_watches_no_process() {
    let mut fake = FakeMachine::new(Habit::Sleeps);
    with_maps(&fake);
    fake.sampler = FakeSampler::unavailable();
    let options = SleepOptions {
        migrate_back_options: MigrateBackOptions {
            policy: Policy::ProcessOrder,
            ..MigrateBackOptions::default()
        },
        ..fake.options(MigrateBackMode::Wait)
    };
    let mut events = Vec::new();
    let report = sleep::run(&fake.machine(), &options, &mut |event| {
        events.push(event.clone())
    });
    let home = report.unwrap().home.unwrap();
    assert_eq!(
        (home.policy.as_str(), home.warning),
        ("process-order", None)
    );
    assert!(!names(&events, Kind::Mark).contains(&"hot-pages-unknown"));
}
