//! Several devices, paths, interleaved nodes, latency classes, pods, and memory tiering. The real
//! daemon runs on folders that stand for cgroups and for /proc, with simulated counters.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dormouse_bandwidth::allocate::latency_watch::LatencyWatch;
use dormouse_bandwidth::daemon::config::Config;
use dormouse_bandwidth::daemon::counter::{Counter, Reading};
use dormouse_bandwidth::daemon::residence::{Found, Resident};
use dormouse_bandwidth::daemon::status::{Passes, Status};
use dormouse_bandwidth::daemon::{Daemon, Notice, Pass, Probe};
use dormouse_bandwidth::enforce::cgroup::{Hierarchy, Version};
use dormouse_bandwidth::estimate::{Counts, GroupSample};

const GIB: f64 = 1_073_741_824.0;
const INTERVAL_MS: u64 = 50;
const UNLIMITED: &str = "max 100000";
const TIERING: &str = "proc/sys/kernel/numa_balancing_promote_rate_limit_MBps";

/// The counters of all legs; `None`: at fault.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<Vec<Option<f64>>>>);

impl Counter for Counters {
    fn read(&mut self, reading: Reading) -> Vec<GroupSample> {
        let bytes = self.0.lock().unwrap();
        let sample = |(&group, bytes): (&u32, &Option<f64>)| GroupSample {
            group,
            counts: bytes.map(|bytes| Counts {
                read_bytes: bytes as u64,
                write_bytes: 0,
            }),
        };
        reading.nodes.iter().zip(bytes.iter()).map(sample).collect()
    }
}

/// A user: its cgroup, the CPUs that it wants, its shares of memory on the nodes, and the bytes
/// that a CPU second of it moves on each leg.
struct Runs {
    cgroup: PathBuf,
    cpus: f64,
    shares: Vec<f64>,
    moves: Vec<f64>,
    used_us: f64,
}

struct World {
    folder: tempfile::TempDir,
    config: Config,
    counters: Counters,
    daemon: Option<Daemon>,
    users: Vec<Runs>,
    /// Pages that the kernel promotes in a second, if it may; each leg carries a part of them.
    promotes: f64,
    promoted: f64,
    tiering_parts: Vec<f64>,
    /// Totals of the last interval, leg by leg, in GiB/s.
    totals: Vec<f64>,
    pass: u64,
    notices: Vec<Notice>,
}

impl World {
    fn new(devices: &str, legs: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bandwidth.toml");
        let text = format!(
            "cgroups = [\"users\"]\nstate = \"{}\"\n{}",
            folder.path().join("state").display(),
            devices.replace("ROOT", &folder.path().display().to_string()),
        );
        fs::write(&file, text).unwrap();
        let config = Config::read(&file).unwrap();
        let counters = Counters::default();
        counters.0.lock().unwrap().resize(legs, Some(0.0));
        let knob = folder.path().join(TIERING);
        fs::create_dir_all(knob.parent().unwrap()).unwrap();
        fs::write(knob, "65536\n").unwrap();
        let mut world = Self {
            folder,
            config,
            counters,
            daemon: None,
            users: Vec::new(),
            promotes: 0.0,
            promoted: 0.0,
            tiering_parts: vec![0.0; legs],
            totals: vec![0.0; legs],
            pass: 0,
            notices: Vec::new(),
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let hierarchy = Hierarchy {
            root: self.folder.path().join("cgroup"),
            version: Version::V2,
        };
        let thresholds = self.config.thresholds().unwrap();
        let counters = Box::new(self.counters.clone());
        let made = Daemon::with_counter(self.config.clone(), &thresholds, hierarchy, counters);
        self.daemon = Some(made.unwrap().0);
        self.tell();
    }

    fn user(mut self, cgroup: &str, cpus: f64, shares: &[f64], moves: &[f64]) -> Self {
        let path = self.folder.path().join("cgroup/users").join(cgroup);
        fs::create_dir_all(&path).unwrap();
        for (name, text) in [
            ("cpu.max", UNLIMITED),
            ("cpu.weight", "100"),
            ("cpu.stat", "usage_usec 0\nnr_throttled 0"),
            ("cgroup.procs", ""),
        ] {
            fs::write(path.join(name), format!("{text}\n")).unwrap();
        }
        self.users.push(Runs {
            cgroup: path,
            cpus,
            shares: shares.to_vec(),
            moves: moves.iter().map(|gib| gib * GIB).collect(),
            used_us: 0.0,
        });
        self.tell();
        self
    }

    /// Passes the users to the daemon.
    fn tell(&mut self) {
        let resident = |user: &Runs| Resident {
            path: user.cgroup.clone(),
            shares: user.shares.clone(),
            bytes: 1 << 30,
            processes: Vec::new(),
        };
        let found = Found {
            generation: 1,
            residents: self.users.iter().map(resident).collect(),
        };
        self.notices
            .extend(self.daemon.as_mut().unwrap().set_users(&found));
    }

    fn limit(&self, at: usize) -> Option<f64> {
        let text = fs::read_to_string(self.users[at].cgroup.join("cpu.max")).unwrap();
        let (quota, period) = text.trim().split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    }

    /// Users run under their limits, the kernel promotes under its own, and the daemon looks.
    fn step(&mut self) -> Pass {
        let seconds = INTERVAL_MS as f64 / 1000.0;
        let mut moved = vec![0.0; self.totals.len()];
        for at in 0..self.users.len() {
            let limit = self.limit(at).unwrap_or(f64::INFINITY);
            let user = &mut self.users[at];
            let cpu_s = user.cpus.min(limit) * seconds;
            user.used_us += cpu_s * 1e6;
            let text = format!("usage_usec {}\nnr_throttled 0\n", user.used_us as u64);
            fs::write(user.cgroup.join("cpu.stat"), text).unwrap();
            for (sum, moves) in moved.iter_mut().zip(&user.moves) {
                *sum += cpu_s * moves;
            }
        }
        let limit = fs::read_to_string(self.folder.path().join(TIERING)).unwrap();
        let limit_pages_s = limit.trim().parse::<f64>().unwrap() * 256.0;
        let pages = self.promotes.min(limit_pages_s) * seconds;
        self.promoted += pages;
        let text = format!("pgpromote_success {}\n", self.promoted as u64);
        fs::write(self.folder.path().join("proc/vmstat"), text).unwrap();
        for (sum, part) in moved.iter_mut().zip(&self.tiering_parts) {
            *sum += pages * 4096.0 * part;
        }
        for (bytes, moved) in self.counters.0.lock().unwrap().iter_mut().zip(&moved) {
            *bytes = bytes.map(|bytes| bytes + moved);
        }
        self.totals = moved.iter().map(|bytes| bytes / seconds / GIB).collect();
        self.pass += 1;
        let pass = self
            .daemon
            .as_mut()
            .unwrap()
            .pass(self.pass * INTERVAL_MS * 1_000_000);
        self.notices.extend(pass.notices.clone());
        pass
    }

    /// Mean totals of a second, leg by leg, after this many.
    fn settled(&mut self, seconds: u64) -> Vec<f64> {
        (0..(seconds - 1) * 20).for_each(|_| drop(self.step()));
        let mut sums = vec![0.0; self.totals.len()];
        for _ in 0..20 {
            self.step();
            for (sum, total) in sums.iter_mut().zip(&self.totals) {
                *sum += total / 20.0;
            }
        }
        sums
    }

    fn status(&mut self) -> Status {
        let pass = self.step();
        Status::of(self.daemon.as_ref().unwrap(), &pass, &Passes::default())
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn tiering_limit(&self) -> String {
        let text = fs::read_to_string(self.root().join(TIERING)).unwrap();
        text.trim().to_owned()
    }

    fn ends_without_a_trace(mut self) {
        self.daemon.take().unwrap().finish();
        for at in 0..self.users.len() {
            assert_eq!(self.limit(at), None, "{}", self.users[at].cgroup.display());
        }
        assert_eq!(self.tiering_limit(), "65536");
    }
}

fn near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 0.03
}

/// Two devices, each with a node and a threshold of its own.
const TWO: &str = "[[device]]\nname = \"left\"\nnodes = [1]\nthreshold_gib_s = 2.0\n\
    counter = { kind = \"text\", path = \"/l\" }\n\
    [[device]]\nname = \"right\"\nnodes = [2]\nthreshold_gib_s = 4.0\n\
    counter = { kind = \"text\", path = \"/r\" }\n";

#[test]
fn a_users_limit_is_the_minimum_of_its_devices_and_each_device_is_at_its_threshold() {
    // A CPU second moves 8 GiB of memory on the devices: attribution by memory is exact.
    let mut world = World::new(TWO, 2)
        .user("left", 2.0, &[1.0, 0.0], &[8.0, 0.0])
        .user("both", 2.0, &[0.5, 0.5], &[4.0, 4.0])
        .user("right", 2.0, &[0.0, 1.0], &[0.0, 8.0]);
    let totals = world.settled(20);
    assert!(near(totals[0], 2.0) && near(totals[1], 4.0), "{totals:?}");
    // The left one allows it 1 GiB/s there: a quarter of a CPU. The right one would allow half of
    // one; its other user gets what that leaves.
    assert!(near(world.limit(1).unwrap(), 0.25), "{:?}", world.limit(1));
    assert!(
        near(world.limit(2).unwrap(), 3.0 / 8.0),
        "{:?}",
        world.limit(2)
    );
    let status = world.status();
    let bound = |name: &str| {
        let user = status.users.iter().find(|user| user.cgroup.ends_with(name));
        user.unwrap().bound_by.clone().unwrap()
    };
    assert_eq!(
        [bound("/left"), bound("/both"), bound("/right")],
        ["left", "left", "right"]
    );
    // Most of its memory moves to the right one.
    world.users[1].shares = vec![0.1, 0.9];
    world.users[1].moves = vec![0.8 * GIB, 7.2 * GIB];
    world.tell();
    let totals = world.settled(20);
    assert!(near(totals[0], 2.0) && near(totals[1], 4.0), "{totals:?}");
    assert!(
        near(world.limit(1).unwrap(), 2.0 / 7.2),
        "{:?}",
        world.limit(1)
    );
    assert!(
        near(world.limit(0).unwrap(), (2.0 - 0.8 * 2.0 / 7.2) / 8.0),
        "{:?}",
        world.limit(0)
    );
    world.ends_without_a_trace();
}

#[test]
fn a_device_below_its_threshold_limits_nobody() {
    let mut world = World::new(TWO, 2)
        .user("left", 2.0, &[1.0, 0.0], &[4.0, 0.0])
        .user("right", 0.5, &[0.0, 1.0], &[0.0, 4.0]);
    world.settled(5);
    assert!(world.limit(0).is_some());
    assert_eq!(world.limit(1), None);
    world.ends_without_a_trace();
}

#[test]
fn a_device_that_goes_lifts_its_limits_and_not_those_of_others_and_takes_over_when_it_returns() {
    let mut world = World::new(TWO, 2)
        .user("left", 2.0, &[1.0, 0.0], &[8.0, 0.0])
        .user("both", 2.0, &[0.1, 0.9], &[0.8, 7.2])
        .user("right", 2.0, &[0.0, 1.0], &[0.0, 8.0]);
    world.settled(20);
    let before = [0, 1, 2].map(|at| world.limit(at).unwrap());
    let last = world.counters.0.lock().unwrap()[1].take();
    for _ in 0..19 {
        world.step();
    }
    assert!(world.limit(2).is_some(), "limits stay for a second");
    world.settled(5);
    assert_eq!(world.limit(2), None);
    // The other device still limits its users, and now also the one that the first had limited.
    assert!(world.limit(0).is_some() && world.limit(1).unwrap() > 2.0 * before[1]);
    let lifted = Notice::Lifted("right".to_owned());
    assert_eq!(
        world.notices.iter().filter(|one| **one == lifted).count(),
        1
    );
    world.counters.0.lock().unwrap()[1] = last;
    let totals = world.settled(20);
    assert!(near(totals[0], 2.0) && near(totals[1], 4.0), "{totals:?}");
    assert!(world.limit(2).is_some());
    world.ends_without_a_trace();
}

#[test]
fn a_node_that_is_interleaved_over_two_devices_is_limited_by_the_slower_one() {
    let devices = TWO
        .replace("nodes = [1]", "nodes = [3]")
        .replace("nodes = [2]", "nodes = [3]");
    let mut world = World::new(&devices, 2)
        .user("a", 4.0, &[1.0], &[2.0, 2.0])
        .user("b", 4.0, &[1.0], &[2.0, 2.0]);
    let totals = world.settled(20);
    assert!(near(totals[0], 2.0) && near(totals[1], 2.0), "{totals:?}");
    let status = world.status();
    assert!(near(status.total_gib_s, 4.0), "{}", status.total_gib_s);
    for user in &status.users {
        assert!(near(user.gib_s, 2.0), "{user:?}");
        assert_eq!(user.bound_by.as_deref(), Some("left"));
    }
    world.ends_without_a_trace();
}

#[test]
fn a_path_limits_the_users_of_its_processors_and_its_traffic_does_not_count_twice() {
    let devices = "[[device]]\nname = \"whole\"\nnodes = [1]\nthreshold_gib_s = 6.0\n\
        counter = { kind = \"text\", path = \"/w\" }\n\
        [[device]]\nname = \"far\"\nnodes = [1]\ncpus = [4, 5, 6, 7]\nthreshold_gib_s = 1.0\n\
        counter = { kind = \"text\", path = \"/f\" }\n";
    let mut world = World::new(devices, 2)
        .user("near", 2.0, &[1.0], &[4.0, 0.0])
        .user("far", 2.0, &[1.0], &[4.0, 4.0]);
    for (user, cpus) in world.users.iter().zip(["0-3", "4-7"]) {
        fs::write(user.cgroup.join("cpuset.cpus.effective"), cpus).unwrap();
    }
    world.tell();
    let totals = world.settled(20);
    assert!(near(totals[0], 6.0) && near(totals[1], 1.0), "{totals:?}");
    let status = world.status();
    assert!(near(status.total_gib_s, 6.0), "{}", status.total_gib_s);
    assert!(
        near(status.threshold_gib_s, 6.0),
        "{}",
        status.threshold_gib_s
    );
    let sum: f64 = status.users.iter().map(|user| user.gib_s).sum();
    assert!(near(sum, 6.0), "{sum}");
    assert!(near(world.limit(1).unwrap(), 0.25) && near(world.limit(0).unwrap(), 1.25));
    world.ends_without_a_trace();
}

#[test]
fn the_latency_of_a_class_is_kept_while_one_of_its_users_is_active() {
    // Node 0 is this machine's memory, which never answers in a nanosecond.
    let devices = "[[device]]\nnodes = [0]\nthreshold_gib_s = 8.0\n\
        counter = { kind = \"text\", path = \"/w\" }\n\
        [[class]]\nname = \"gold\"\nmax_latency_ns = 1.0\ncgroups = [\"users/gold\"]\n\
        [[class]]\nname = \"bronze\"\nmax_latency_ns = 1000000000.0\ncgroups = [\"users\"]\n";
    let mut world = World::new(devices, 1)
        .user("gold", 0.5, &[1.0], &[4.0])
        .user("bronze", 0.5, &[1.0], &[4.0]);
    let watch = LatencyWatch::new(None, 8.0 * GIB, None);
    let interval = std::time::Duration::from_millis(8);
    let probe = Probe::start(&[0], 16, interval, watch).unwrap();
    world.daemon.as_mut().unwrap().follow(0, probe);
    let threshold = |world: &World| world.daemon.as_ref().unwrap().threshold() / GIB;
    let mut passes = 0;
    while threshold(&world) > 2.0 && passes < 20_000 {
        world.step();
        std::thread::sleep(std::time::Duration::from_millis(1));
        passes += 1;
    }
    assert!(threshold(&world) <= 2.0, "{}", threshold(&world));
    assert!(world.limit(1).is_some(), "others are limited for it");
    assert!(
        !world.daemon.as_ref().unwrap().is_derated(),
        "the class asked for it"
    );
    // It ends: after ten seconds the others' class decides, and nothing is limited.
    world.users[0].cpus = 0.0;
    world.settled(30);
    assert_eq!(threshold(&world), 8.0);
    assert_eq!(world.limit(1), None);
    world.ends_without_a_trace();
}

const UID: &str = "7f1a2b3c-0000-4d5e-8f90-123456789abc";
const OTHER: &str = "00000000-0000-4d5e-8f90-123456789abc";

#[test]
fn the_weight_of_a_pod_is_that_of_its_annotation_or_of_its_cgroup() {
    let devices = "users = \"unit\"\nnodes = [1]\nthreshold_gib_s = 4.0\n\
        [kubernetes]\nannotations = \"ROOT/pods/{uid}/annotations\"\n\
        [counter]\nkind = \"text\"\npath = \"/w\"\n";
    let mut world = World::new(devices, 1)
        .user(&format!("pod{UID}"), 2.0, &[1.0], &[4.0])
        .user(&format!("pod{OTHER}"), 2.0, &[1.0], &[4.0]);
    let folder = world.root().join("pods").join(UID);
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join("annotations"),
        "bandwidth.dormouse/weight=\"3\"\n",
    )
    .unwrap();
    world.tell();
    world.settled(10);
    let status = world.status();
    let pod = |uid: &str| {
        status
            .users
            .iter()
            .find(|user| user.name.ends_with(uid))
            .unwrap()
    };
    assert_eq!((pod(UID).weight, pod(OTHER).weight), (3.0, 1.0));
    assert!(
        near(pod(UID).gib_s, 3.0) && near(pod(OTHER).gib_s, 1.0),
        "{status:?}"
    );
    // An annotation that cannot be used is reported once, and the last one stays.
    fs::write(
        folder.join("annotations"),
        "bandwidth.dormouse/weight=\"-1\"\n",
    )
    .unwrap();
    world.tell();
    world.tell();
    let told = world
        .notices
        .iter()
        .filter(|one| matches!(one, Notice::Annotation(_)));
    assert_eq!(told.count(), 1);
    assert_eq!(world.status().users[0].weight, 3.0);
    // Without the file, the weight of the cgroup counts again.
    fs::remove_dir_all(&folder).unwrap();
    fs::write(world.users[0].cgroup.join("cpu.weight"), "200\n").unwrap();
    world.tell();
    assert_eq!(world.status().users[0].weight, 2.0);
    world.ends_without_a_trace();
}

#[test]
fn units_are_refused_where_the_kernel_does_not_add_up_their_cpu_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bandwidth.toml");
    let text = format!(
        "users = \"unit\"\nnodes = [1]\nthreshold_gib_s = 4.0\ncgroups = [\"a\"]\nstate = \"{}\"\n\
         [counter]\nkind = \"text\"\npath = \"/w\"\n",
        folder.path().join("state").display()
    );
    fs::write(&file, text).unwrap();
    let config = Config::read(&file).unwrap();
    let begin = |version| {
        let hierarchy = Hierarchy {
            root: folder.path().to_owned(),
            version,
        };
        let made = Daemon::with_counter(
            config.clone(),
            &[4.0 * GIB],
            hierarchy,
            Box::new(Counters::default()),
        );
        made.map(|_| ()).map_err(|error| error.to_string())
    };
    let said = begin(Version::V1).unwrap_err();
    assert!(said.contains("cpuacct") && said.contains("users"), "{said}");
    assert!(!folder.path().join("state").exists(), "nothing was begun");
    begin(Version::V2).unwrap();
    fs::write(folder.path().join("cpuacct.usage"), "0\n").unwrap();
    begin(Version::V1).unwrap();
}

/// One device with memory tiering.
const TIERED: &str = "nodes = [1]\nthreshold_gib_s = 2.0\n\
    [tiering]\nroot = \"ROOT\"\n[counter]\nkind = \"text\"\npath = \"/w\"\n";

fn tiered() -> World {
    let mut world = World::new(TIERED, 1).user("a", 2.0, &[1.0], &[4.0]);
    // 3 GiB/s, more than its share.
    world.promotes = 3.0 * 262_144.0;
    world.tiering_parts = vec![1.0];
    world
}

#[test]
fn promotion_is_a_user_of_its_own_and_limited_through_its_own_knob() {
    let mut world = tiered();
    let totals = world.settled(40);
    assert!((totals[0] / 2.0 - 1.0).abs() < 0.05, "{totals:?}");
    let status = world.status();
    let tiering = status.tiering.unwrap();
    assert!((tiering.gib_s - 1.0).abs() < 0.1, "{tiering:?}");
    let limit: f64 = world.tiering_limit().parse().unwrap();
    assert!((limit / 1024.0 - 1.0).abs() < 0.1, "{limit}");
    // The program is not charged with it.
    assert!(
        (status.users[0].gib_s - 1.0).abs() < 0.1,
        "{:?}",
        status.users[0]
    );
    // Without another user its limit goes.
    world.users[0].cpus = 0.0;
    world.promotes = 0.5 * 262_144.0;
    world.settled(20);
    assert_eq!(world.tiering_limit(), "65536");
    world.ends_without_a_trace();
}

#[test]
fn limits_of_promotion_are_undone_at_the_end_and_where_the_counter_fails() {
    let mut world = tiered();
    world.settled(20);
    assert_ne!(world.tiering_limit(), "65536");
    world.counters.0.lock().unwrap()[0] = None;
    world.settled(5);
    assert_eq!(world.tiering_limit(), "65536");
    world.counters.0.lock().unwrap()[0] = Some(1e15);
    world.settled(20);
    assert_ne!(world.tiering_limit(), "65536");
    world.ends_without_a_trace();
}

#[test]
fn tiering_that_is_only_accounted_is_never_limited_and_users_get_the_rest() {
    let accounted = TIERED.replace("[tiering]\n", "[tiering]\nlimit = false\n");
    let mut world = World::new(&accounted, 1).user("a", 2.0, &[1.0], &[4.0]);
    world.promotes = 0.5 * 262_144.0;
    world.tiering_parts = vec![1.0];
    let totals = world.settled(20);
    assert!(near(totals[0], 2.0), "{totals:?}");
    assert_eq!(world.tiering_limit(), "65536");
    let status = world.status();
    assert!(near(status.users[0].gib_s, 1.5), "{:?}", status.users[0]);
    assert!(near(status.tiering.unwrap().gib_s, 0.5));
    world.ends_without_a_trace();
}
