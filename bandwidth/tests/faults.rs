//! Fault injection: whatever fails, no task stays throttled without a daemon, and the reason is
//! reported. The real daemon runs on folders that stand for cgroups, with simulated counters.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dormouse_bandwidth::daemon::config::Config;
use dormouse_bandwidth::daemon::counter::{Counter, Reading};
use dormouse_bandwidth::daemon::residence::{Found, Resident};
use dormouse_bandwidth::daemon::{Daemon, Notice, Pass};
use dormouse_bandwidth::enforce::cgroup::{Hierarchy, Version};
use dormouse_bandwidth::enforce::ledger::Undone;
use dormouse_bandwidth::estimate::{Counts, Fault, GroupSample};

const GIB: f64 = 1_073_741_824.0;
const INTERVAL_MS: u64 = 50;
/// Bytes per CPU second.
const BYTES_PER_CPU_S: f64 = 4e9;
const UNLIMITED: &str = "max 100000";

/// Removes a cgroup's folder. Open files of a real one return ENODEV from then on; these are
/// empty.
fn vanish(path: &Path) {
    fs::write(path.join("cpu.stat"), "").unwrap();
    fs::remove_dir_all(path).unwrap();
}

type Act = Box<dyn FnMut() + Send>;

/// The device's counter, and actions that happen while it is read: between the daemon's readings
/// of cgroups and its writes.
#[derive(Clone)]
struct Device {
    bytes: Arc<Mutex<Option<u64>>>,
    meanwhile: Arc<Mutex<Option<Act>>>,
}

impl Counter for Device {
    fn read(&mut self, reading: Reading) -> Vec<GroupSample> {
        if let Some(mut act) = self.meanwhile.lock().unwrap().take() {
            act();
        }
        let counts = self.bytes.lock().unwrap().map(|read_bytes| Counts {
            read_bytes,
            write_bytes: 0,
        });
        let group = reading.nodes[0];
        vec![GroupSample { group, counts }]
    }
}

struct World {
    folder: tempfile::TempDir,
    device: Device,
    daemon: Option<Daemon>,
    pass: u64,
    /// In CPUs.
    runs: [f64; 2],
    used_us: [f64; 2],
    notices: Vec<Notice>,
}

const NAMES: [&str; 2] = ["a", "b"];

impl World {
    /// Two users with a total demand of twice the threshold.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let device = Device {
            bytes: Arc::new(Mutex::new(Some(0))),
            meanwhile: Arc::default(),
        };
        let mut world = Self {
            folder,
            device,
            daemon: None,
            pass: 0,
            runs: [1.0, 1.0],
            used_us: [0.0; 2],
            notices: Vec::new(),
        };
        for name in NAMES {
            let path = world.cgroup(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cpu.max"), format!("{UNLIMITED}\n")).unwrap();
            fs::write(path.join("cpu.weight"), "100\n").unwrap();
            fs::write(path.join("cgroup.procs"), "").unwrap();
        }
        world.write_usage();
        world.start().unwrap();
        world
    }

    fn cgroup(&self, name: &str) -> PathBuf {
        self.folder.path().join("cgroup").join(name)
    }

    fn ledger(&self) -> PathBuf {
        self.folder.path().join("state/ledger")
    }

    fn start(&mut self) -> Result<Vec<Undone>, String> {
        let file = self.folder.path().join("bandwidth.toml");
        let text = format!(
            "nodes = [1]\nthreshold_gib_s = 4.0\ncgroups = [\"a\", \"b\"]\nmost_gib_s = 20.0\n\
             state = \"{}\"\n[counter]\nkind = \"text\"\npath = \"/nowhere\"\n",
            self.ledger().parent().unwrap().display()
        );
        fs::write(&file, text).unwrap();
        let config = Config::read(&file).unwrap();
        let hierarchy = Hierarchy {
            root: self.folder.path().join("cgroup"),
            version: Version::V2,
        };
        let device = Box::new(self.device.clone());
        let made = Daemon::with_counter(config, &[4.0 * GIB], hierarchy, device);
        let (mut daemon, undone) = made.map_err(|error| error.to_string())?;
        self.notices.extend(daemon.set_users(&self.found()));
        self.daemon = Some(daemon);
        Ok(undone)
    }

    fn found(&self) -> Found {
        let resident = |name: &&str| Resident {
            path: self.cgroup(name),
            shares: vec![1.0],
            bytes: 1 << 30,
            processes: Vec::new(),
        };
        Found {
            generation: 1,
            residents: NAMES.iter().map(resident).collect(),
        }
    }

    fn write_usage(&self) {
        for (name, used_us) in NAMES.iter().zip(self.used_us) {
            let path = self.cgroup(name);
            if path.is_dir() {
                let text = format!("usage_usec {}\nnr_throttled 0\n", used_us as u64);
                fs::write(path.join("cpu.stat"), text).unwrap();
            }
        }
    }

    /// The CPU time of users under their limits in an interval; returns the traffic.
    fn run(&mut self) -> u64 {
        let mut moved = 0.0;
        for (at, name) in NAMES.iter().enumerate() {
            let limit = self.limit(name).and_then(|text| {
                let (quota, period) = text.split_once(' ')?;
                Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
            });
            let cpus = limit.map_or(self.runs[at], |limit| limit.min(self.runs[at]));
            let us = cpus * INTERVAL_MS as f64 * 1000.0;
            if self.cgroup(name).is_dir() {
                self.used_us[at] += us;
                moved += us / 1e6 * BYTES_PER_CPU_S;
            }
        }
        self.write_usage();
        moved as u64
    }

    /// A pass in which the counter shows the traffic and this much more.
    fn step(&mut self, more: i64) -> Pass {
        let moved = self.run();
        {
            let mut bytes = self.device.bytes.lock().unwrap();
            *bytes = bytes.map(|before| before.wrapping_add(moved).wrapping_add_signed(more));
        }
        self.look()
    }

    fn look(&mut self) -> Pass {
        self.pass += 1;
        let now_ns = self.pass * INTERVAL_MS * 1_000_000;
        let pass = self.daemon.as_mut().unwrap().pass(now_ns);
        self.notices.extend(pass.notices.clone());
        pass
    }

    fn steps(&mut self, count: usize) -> &mut Self {
        for _ in 0..count {
            self.step(0);
        }
        self
    }

    /// Runs until both users are limited.
    fn limited(mut self) -> Self {
        self.steps(40);
        for name in NAMES {
            assert_ne!(self.limit(name).unwrap(), UNLIMITED, "{name}");
        }
        self.notices.clear();
        self
    }

    fn limit(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.cgroup(name).join("cpu.max")).ok()?;
        Some(text.trim().to_owned())
    }

    fn told(&self, notices: &Notice) -> bool {
        self.notices.contains(notices)
    }

    /// Checks that no task is throttled, whether the daemon ends normally now or was killed.
    fn nothing_failed(&self) {
        let failed = |notice: &Notice| matches!(notice, Notice::Failed(..));
        assert!(!self.notices.iter().any(failed), "{:?}", self.notices);
    }

    /// Ends the daemon: everything is undone.
    fn ends_without_a_trace(&mut self) {
        let undone = self.finish();
        let failed = |one: &Undone| matches!(one, Undone::Failed(..));
        assert!(!undone.iter().any(failed), "{undone:?}");
        self.check_that_no_task_is_throttled();
    }

    fn check_that_no_task_is_throttled(&self) {
        for name in NAMES {
            let limit = self.limit(name);
            assert!(
                limit.is_none_or(|limit| limit == UNLIMITED),
                "{name}: {:?}",
                self.limit(name)
            );
        }
    }

    fn finish(&mut self) -> Vec<Undone> {
        self.daemon.take().unwrap().finish()
    }

    /// A killed daemon. The lock goes with the process; here, with the file.
    fn kill(&mut self) {
        std::mem::forget(self.daemon.take());
        let copy = fs::read(self.ledger()).unwrap();
        fs::remove_file(self.ledger()).unwrap();
        fs::write(self.ledger(), copy).unwrap();
    }
}

#[test]
fn a_counter_that_stops_lifts_all_limits_and_says_so() {
    let mut world = World::new().limited();
    for _ in 0..60 {
        world.run();
        world.look();
    }
    assert!(
        world.told(&Notice::Fault(1, Fault::Stopped)),
        "{:?}",
        world.notices
    );
    // Limits followed its wrong bandwidth until the fault was detected.
    world.check_that_no_task_is_throttled();
    // It counts again, and limits return.
    world.notices.clear();
    world.steps(40);
    assert!(world.told(&Notice::Recovered(1)));
    assert_ne!(world.limit("a").unwrap(), UNLIMITED);
    world.finish();
    world.check_that_no_task_is_throttled();
}

#[test]
fn a_counter_that_jumps_back_once_changes_no_limit_and_is_reported() {
    let mut world = World::new().limited();
    let before = NAMES.map(|name| world.limit(name));
    world.step(-3_000_000_000);
    assert!(
        world.told(&Notice::Fault(1, Fault::JumpedBack)),
        "{:?}",
        world.notices
    );
    assert_eq!(NAMES.map(|name| world.limit(name)), before);
    world.steps(3);
    assert!(
        world.told(&Notice::Recovered(1)) && !world.told(&Notice::Lifted("device0".to_owned()))
    );
    world.finish();
    world.check_that_no_task_is_throttled();
}

#[test]
fn a_counter_that_keeps_jumping_back_lifts_all_limits() {
    let mut world = World::new().limited();
    for _ in 0..25 {
        world.step(-3_000_000_000);
    }
    assert!(
        world.told(&Notice::Lifted("device0".to_owned())),
        "{:?}",
        world.notices
    );
    world.check_that_no_task_is_throttled();
}

#[test]
fn a_counter_that_wraps_changes_nothing() {
    let world = World::new();
    *world.device.bytes.lock().unwrap() = Some(u64::MAX - 8_000_000_000);
    let mut world = world.limited();
    let mut worst: f64 = 0.0;
    let mut wrapped = false;
    for _ in 0..60 {
        let pass = world.step(0);
        worst = worst.max((pass.total / (4.0 * GIB) - 1.0).abs());
        wrapped |= world
            .device
            .bytes
            .lock()
            .unwrap()
            .is_some_and(|bytes| bytes < 1 << 40);
    }
    assert!(wrapped && world.notices.is_empty(), "{:?}", world.notices);
    assert!(worst < 0.1, "{worst}");
}

#[test]
fn an_implausible_counter_is_rejected_and_limits_do_not_outlive_it() {
    let mut world = World::new().limited();
    let before = world.limit("a");
    let total = world.step(1 << 42).total;
    assert!(
        world.told(&Notice::Fault(1, Fault::Implausible)),
        "{:?}",
        world.notices
    );
    assert!(total < 6.0 * GIB, "{total}");
    assert_eq!(world.limit("a"), before, "one lie is no reason");
    for _ in 0..25 {
        world.step(1 << 42);
    }
    assert!(world.told(&Notice::Lifted("device0".to_owned())));
    world.check_that_no_task_is_throttled();
}

#[test]
fn a_counter_that_vanishes_lifts_all_limits_and_says_so() {
    let mut world = World::new().limited();
    let bytes = world.device.bytes.lock().unwrap().take();
    for _ in 0..10 {
        world.step(0);
    }
    assert!(world.told(&Notice::Fault(1, Fault::Unreadable)));
    assert_ne!(
        world.limit("a").unwrap(),
        UNLIMITED,
        "it may come back soon"
    );
    for _ in 0..15 {
        world.step(0);
    }
    assert!(world.told(&Notice::Lifted("device0".to_owned())));
    world.check_that_no_task_is_throttled();
    *world.device.bytes.lock().unwrap() = bytes;
    world.steps(40);
    assert_ne!(world.limit("a").unwrap(), UNLIMITED);
}

#[test]
fn a_cgroup_that_vanishes_between_passes_is_forgotten_and_the_other_goes_on() {
    let mut world = World::new().limited();
    vanish(&world.cgroup("a"));
    world.steps(20);
    assert!(
        world.told(&Notice::Gone(world.cgroup("a"))),
        "{:?}",
        world.notices
    );
    world.nothing_failed();
    assert_eq!(world.daemon.as_ref().unwrap().users().len(), 1);
    world.ends_without_a_trace();
}

#[test]
fn a_task_that_exits_between_read_and_write_is_not_written_to() {
    // It vanishes with its cgroup, after its CPU time was read and before its first limit is set.
    let mut world = World::new();
    world.steps(1);
    let path = world.cgroup("a");
    let gone = path.clone();
    let act: Act = Box::new(move || vanish(&path));
    *world.device.meanwhile.lock().unwrap() = Some(act);
    world.steps(30);
    assert!(!gone.exists(), "nothing is created where it was");
    world.nothing_failed();
    world.ends_without_a_trace();
}

#[test]
fn a_limited_task_that_exits_between_read_and_write_leaves_nothing_behind() {
    let mut world = World::new().limited();
    let path = world.cgroup("a");
    let gone = path.clone();
    let act: Act = Box::new(move || vanish(&path));
    *world.device.meanwhile.lock().unwrap() = Some(act);
    world.runs = [0.2, 3.0];
    world.steps(30);
    assert!(!gone.exists());
    assert!(world.told(&Notice::Gone(gone)), "{:?}", world.notices);
    world.finish();
    world.check_that_no_task_is_throttled();
}

#[test]
fn a_limit_that_cannot_be_restored_is_reported_and_tried_again() {
    let mut world = World::new().limited();
    let (max, aside) = (
        world.cgroup("a").join("cpu.max"),
        world.folder.path().join("max"),
    );
    fs::rename(&max, &aside).unwrap();
    // It can neither be read nor written, although the cgroup exists.
    fs::create_dir(&max).unwrap();
    world.runs = [0.1, 0.1];
    world.steps(40);
    let path = world.cgroup("a");
    let failed = |notices: &Notice| matches!(notices, Notice::Failed(of, _) if *of == path);
    assert!(world.notices.iter().any(failed), "{:?}", world.notices);
    fs::remove_dir(&max).unwrap();
    fs::rename(&aside, &max).unwrap();
    world.steps(5);
    world.check_that_no_task_is_throttled();
    world.finish();
}

#[test]
fn a_limit_that_another_program_sets_is_reported_and_left_alone() {
    let mut world = World::new().limited();
    fs::write(world.cgroup("a").join("cpu.max"), "7000 100000\n").unwrap();
    // The load changes, so that limits are written again.
    world.runs = [1.0, 0.3];
    world.steps(40);
    world.runs = [1.0, 1.0];
    world.steps(40);
    let told = world.told(&Notice::Foreign(world.cgroup("a")));
    let undone = world.finish();
    assert_eq!(world.limit("a").unwrap(), "7000 100000");
    assert_eq!(world.limit("b").unwrap(), UNLIMITED);
    let left = |one: &Undone| matches!(one, Undone::LeftAlone(..));
    assert!(
        told || undone.iter().any(left),
        "{:?} {undone:?}",
        world.notices
    );
}

#[test]
fn a_daemon_that_is_killed_is_cleaned_up_after_by_the_next_one() {
    let mut world = World::new().limited();
    world.kill();
    assert_ne!(world.limit("a").unwrap(), UNLIMITED);
    let undone = world.start().unwrap();
    assert_eq!(undone.len(), 2);
    assert!(
        undone.iter().all(|one| matches!(one, Undone::Restored(..))),
        "{undone:?}"
    );
    world.check_that_no_task_is_throttled();
}

#[test]
fn a_damaged_ledger_is_named_and_nothing_is_touched() {
    let mut world = World::new().limited();
    world.kill();
    let before = NAMES.map(|name| world.limit(name));
    let mut text = fs::read(world.ledger()).unwrap();
    text[60] ^= 1;
    fs::write(world.ledger(), &text).unwrap();
    let refused = world.start().unwrap_err();
    assert!(
        refused.contains("damaged") && refused.contains("ledger"),
        "{refused}"
    );
    assert_eq!(NAMES.map(|name| world.limit(name)), before);
    assert_eq!(
        fs::read(world.ledger()).unwrap(),
        text,
        "it is kept for whoever looks at it"
    );
}

#[test]
fn a_cgroup_without_its_files_is_gone_for_us() {
    let mut world = World::new().limited();
    let missing: &Path = &world.cgroup("b").join("cpu.stat");
    fs::write(missing, "").unwrap();
    world.look();
    let daemon = world.daemon.as_ref().unwrap();
    assert_eq!(daemon.users().len(), 1);
    assert_eq!(
        world.limit("b").unwrap(),
        UNLIMITED,
        "no daemon watches it: it is given back"
    );
}
