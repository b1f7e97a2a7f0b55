//! Idle users are scanned rarely, with bounded error. The real daemon runs on folders that stand
//! for cgroups.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_bandwidth::daemon::config::Config;
use dormouse_bandwidth::daemon::counter::{Counter, Reading};
use dormouse_bandwidth::daemon::idle::{MAX_SCANS, MIN_TURNS, SEARCH_SCANS};
use dormouse_bandwidth::daemon::residence::{Found, Resident};
use dormouse_bandwidth::daemon::{Daemon, User};
use dormouse_bandwidth::enforce::cgroup::{Hierarchy, Version};
use dormouse_bandwidth::estimate::{Counts, GroupSample};
use proptest::prelude::*;

const INTERVAL_S: f64 = 0.05;
/// Bytes per CPU second.
const BYTES_PER_CPU_S: f64 = 4e9;
const SLICE: &str = "all.slice";

/// The device's counter.
struct Device(Arc<AtomicU64>);

impl Counter for Device {
    fn read(&mut self, reading: Reading) -> Vec<GroupSample> {
        let counts = Counts {
            read_bytes: self.0.load(Ordering::Relaxed),
            write_bytes: 0,
        };
        vec![GroupSample {
            group: reading.nodes[0],
            counts: Some(counts),
        }]
    }
}

struct World {
    folder: tempfile::TempDir,
    bytes: Arc<AtomicU64>,
    daemon: Daemon,
    pass: u64,
    /// CPUs of each user, and of a process that is no user.
    runs: Vec<f64>,
    beside: f64,
    used_us: Vec<f64>,
    all_us: f64,
    writes: usize,
}

impl World {
    /// Users with these CPU times. `adds_up`: the kernel adds up the CPU time of all.
    fn new(runs: &[f64], adds_up: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("cgroup");
        for at in 0..runs.len() {
            let path = root.join(SLICE).join(at.to_string());
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cpu.max"), "max 100000\n").unwrap();
            fs::write(path.join("cpu.weight"), "100\n").unwrap();
            fs::write(path.join("cpu.stat"), "usage_usec 0\nnr_throttled 0\n").unwrap();
        }
        if adds_up {
            fs::write(root.join(SLICE).join("cpu.stat"), "usage_usec 0\n").unwrap();
        }
        let file = folder.path().join("bandwidth.toml");
        let text = format!(
            "nodes = [1]\nthreshold_gib_s = 4.0\ncgroups = [\"{SLICE}\"]\nstate = \"{}\"\n\
             [counter]\nkind = \"text\"\npath = \"/nowhere\"\n",
            folder.path().join("state").display()
        );
        fs::write(&file, text).unwrap();
        let config = Config::read(&file).unwrap();
        let threshold = config.thresholds().unwrap();
        let hierarchy = Hierarchy {
            root,
            version: Version::V2,
        };
        let bytes = Arc::new(AtomicU64::new(0));
        let device = Box::new(Device(Arc::clone(&bytes)));
        let (daemon, _) = Daemon::with_counter(config, &threshold, hierarchy, device).unwrap();
        let mut world = Self {
            folder,
            bytes,
            daemon,
            pass: 0,
            runs: runs.to_vec(),
            beside: 0.0,
            used_us: vec![0.0; runs.len()],
            all_us: 0.0,
            writes: 0,
        };
        world.tell();
        world
    }

    fn path(&self, at: usize) -> PathBuf {
        let slice = self.folder.path().join("cgroup").join(SLICE);
        slice.join(at.to_string())
    }

    /// Passes the users to the daemon.
    fn tell(&mut self) {
        let resident = |at| Resident {
            path: self.path(at),
            shares: vec![1.0],
            bytes: 1 << 30,
            processes: Vec::new(),
        };
        let found = Found {
            generation: 1,
            residents: (0..self.runs.len()).map(resident).collect(),
        };
        assert!(self.daemon.set_users(&found).is_empty());
    }

    /// An interval and a pass.
    fn step(&mut self) {
        let mut moved = 0.0;
        self.all_us += self.beside * INTERVAL_S * 1e6;
        for (at, cpu) in self.runs.iter().enumerate() {
            let ran_us = cpu * INTERVAL_S * 1e6;
            self.used_us[at] += ran_us;
            self.all_us += ran_us;
            moved += ran_us / 1e6 * BYTES_PER_CPU_S;
            let text = format!("usage_usec {}\nnr_throttled 0\n", self.used_us[at] as u64);
            fs::write(self.path(at).join("cpu.stat"), text).unwrap();
        }
        let slice = self.folder.path().join("cgroup").join(SLICE);
        if slice.join("cpu.stat").exists() {
            let text = format!("usage_usec {}\n", self.all_us as u64);
            fs::write(slice.join("cpu.stat"), text).unwrap();
        }
        self.bytes.fetch_add(moved as u64, Ordering::Relaxed);
        self.pass += 1;
        let pass = self
            .daemon
            .pass((self.pass as f64 * INTERVAL_S * 1e9) as u64);
        self.writes += pass.writes;
    }

    fn steps(&mut self, count: u64) {
        (0..count).for_each(|_| self.step());
    }

    fn user(&self, at: usize) -> &User {
        let path = self.path(at);
        let mut users = self.daemon.users().iter();
        users.find(|user| user.cgroup.path == path).unwrap()
    }

    /// The number of passes until the daemon sees a user use this many CPUs.
    fn until_seen(&mut self, at: usize, cpu: f64) -> u64 {
        for pass in 1..100 {
            self.step();
            if self.user(at).cpu > cpu {
                return pass;
            }
        }
        panic!("it was never seen");
    }
}

#[test]
fn a_user_that_becomes_active_is_noticed_at_once_if_the_kernel_adds_up() {
    let mut world = World::new(&[0.001; 40], true);
    world.steps(70);
    world.runs[17] = 0.5;
    assert_eq!(world.until_seen(17, 0.2), 1);
    assert!(world.user(17).bandwidth > 0.2 * BYTES_PER_CPU_S);
    // Another user follows.
    world.steps(20);
    world.runs[3] = 0.5;
    assert_eq!(world.until_seen(3, 0.2), 1);
}

#[test]
fn a_small_change_is_noticed_within_a_turn() {
    let mut world = World::new(&[0.001; 12 * MAX_SCANS], true);
    for at in [5, 26, 47, 100] {
        world.steps(30);
        world.runs[at] = 0.015;
        let passes = world.until_seen(at, 0.0015);
        assert!(passes <= 12 + 1, "{passes}");
    }
}

#[test]
fn a_user_that_becomes_active_is_noticed_within_a_short_turn_without_a_sum() {
    let mut world = World::new(&[0.001; 40], false);
    for at in [5, 6, 7, 8, 9] {
        world.steps(30);
        world.runs[at] = 0.5;
        assert!(world.until_seen(at, 0.2) <= MIN_TURNS + 1);
    }
}

#[test]
fn processes_that_come_and_go_do_not_hide_a_user_for_longer() {
    let mut world = World::new(&[0.001; 40], true);
    for at in [5, 6, 7, 8, 9] {
        for pass in 0..60 {
            world.beside = if pass % 5 < 2 { 1.5 } else { 0.2 };
            world.step();
        }
        world.runs[at] = 0.5;
        assert!(world.until_seen(at, 0.2) <= MIN_TURNS + 1);
    }
}

#[test]
fn scans_are_bounded_while_everything_beside_the_users_varies() {
    const USERS: usize = 400;
    const PASSES: usize = 60;
    let mut world = World::new(&[0.001; USERS], true);
    let scans = |world: &World| -> usize {
        let users = world.daemon.users().iter();
        users.map(|user| user.scans as usize).sum()
    };
    world.steps(30);
    let before = scans(&world);
    for pass in 0..PASSES {
        world.beside = 3.0 * (pass * 7919 % 101) as f64 / 101.0;
        world.step();
    }
    let made = scans(&world) - before;
    let bound = PASSES * (2 * MAX_SCANS + SEARCH_SCANS) + 2 * USERS;
    assert!(made <= bound, "{made} scans, bound {bound}");
    world.runs[17] = 0.5;
    let passes = world.until_seen(17, 0.2);
    assert!(passes <= (USERS / (2 * MAX_SCANS)) as u64 + 2, "{passes}");
}

#[test]
fn small_bursts_are_not_limited_while_the_device_is_overloaded() {
    let mut runs = [0.0; 64];
    runs[0] = 3.0;
    let mut world = World::new(&runs, true);
    for pass in 0..200usize {
        // A millisecond in one of sixteen passes.
        for at in 1..64 {
            world.runs[at] = if (at * 5 + pass) % 16 == 0 { 0.02 } else { 0.0 };
        }
        world.step();
        for at in 1..64 {
            assert_eq!(world.user(at).limit, None, "{at} in pass {pass}");
        }
    }
    assert!(world.user(0).limit.is_some());
}

#[test]
fn a_removed_cgroup_is_noticed_within_a_turn() {
    let mut world = World::new(&[0.001; 40], true);
    world.steps(40);
    let path = world.path(39);
    // Its open file is empty; a real one's returns ENODEV.
    fs::write(path.join("cpu.stat"), "").unwrap();
    world.runs.truncate(39);
    world.used_us.truncate(39);
    let is_known = |world: &World| {
        let mut users = world.daemon.users().iter();
        users.any(|user| user.cgroup.path == path)
    };
    let passes = (0..MIN_TURNS).take_while(|_| {
        world.step();
        is_known(&world)
    });
    assert!(passes.count() < MIN_TURNS as usize);
    assert_eq!(world.daemon.users().len(), 39);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]

    /// All traffic is charged, and to the right users, whatever idle users do.
    #[test]
    fn all_is_charged_and_each_with_what_it_moved(
        runs in prop::collection::vec(0.0002..0.0035f64, 8..12), busy in 0.05..0.8f64,
        adds_up in any::<bool>(), told in 20u64..100,
    ) {
        let mut runs = runs;
        runs[0] = busy;
        let mut world = World::new(&runs, adds_up);
        world.steps(40);
        // Idle users are charged up to now.
        world.tell();
        let charged = |world: &World| -> Vec<f64> {
            (0..runs.len()).map(|at| world.user(at).charged_bytes).collect()
        };
        let (before, bytes) = (charged(&world), world.bytes.load(Ordering::Relaxed));
        world.steps(told);
        world.tell();
        world.steps(120 - told);
        world.tell();
        let moved = (world.bytes.load(Ordering::Relaxed) - bytes) as f64;
        let each = charged(&world);
        let all: f64 = each.iter().zip(&before).map(|(now, then)| now - then).sum();
        prop_assert!((all / moved - 1.0).abs() < 0.001, "{}", all / moved);
        for (at, cpu) in runs.iter().enumerate() {
            let truth = cpu * 120.0 * INTERVAL_S * BYTES_PER_CPU_S;
            let found = each[at] - before[at];
            prop_assert!((found / truth - 1.0).abs() < 0.03, "{at}: {}", found / truth);
            let bandwidth = world.user(at).bandwidth;
            let truth = cpu * BYTES_PER_CPU_S;
            prop_assert!((bandwidth / truth - 1.0).abs() < 0.05, "{at}: {}", bandwidth / truth);
        }
    }
}
