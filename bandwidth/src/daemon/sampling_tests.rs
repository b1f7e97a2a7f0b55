//! Tests of users that are known from samples only. A folder stands for a cgroup, and a test
//! double for the sampler.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::*;
use crate::daemon::counter::{Counter, Reading};
use crate::daemon::residence::Found;
use crate::enforce::cgroup::Version;
use crate::estimate::{Counts, GroupSample};
use crate::samples::shares::Shares;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// A device that reads one MiB more in each pass.
struct Growing(u64);

impl Counter for Growing {
    fn read(&mut self, _: Reading) -> Vec<GroupSample> {
        self.0 += MIB;
        let counts = Some(Counts {
            read_bytes: self.0,
            write_bytes: 0,
        });
        vec![GroupSample { group: 1, counts }]
    }
}

/// All samples are of one cgroup, while there are any; a quarter of the traffic belongs to no
/// user.
struct One {
    path: PathBuf,
    moves: Arc<Mutex<bool>>,
    user: Option<u64>,
    shares: Shares,
}

impl Samples for One {
    fn set_users(&mut self, users: &[UserRef]) {
        let mine = users.iter().find(|user| user.path == self.path);
        self.user = mine.map(|user| user.id);
    }

    fn collect(&mut self, _: f64) -> Vec<PathBuf> {
        let unknown = *self.moves.lock().unwrap() && self.user.is_none();
        unknown.then(|| self.path.clone()).into_iter().collect()
    }

    fn step(&mut self, interval_ms: f64, runs: &[Run]) {
        if *self.moves.lock().unwrap() {
            let user = self.user.unwrap();
            self.shares.charge(user, Some(0), 0.75 * MIB as f64);
        }
        self.shares.charge_unattributed(0, 0.25 * MIB as f64);
        self.shares.step(interval_ms, runs);
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }
}

fn write(path: &Path, name: &str, text: &str) {
    fs::write(path.join(name), text).unwrap();
}

#[test]
fn a_user_is_charged_from_its_first_sample_on_and_stays_while_it_is_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgroup/a/b");
    fs::create_dir_all(&path).unwrap();
    write(&path, "cpu.max", "max 100000\n");
    write(&path, "cpu.stat", "usage_usec 5\nnr_throttled 0\n");
    write(&path, "cgroup.procs", "1\n");
    let file = folder.path().join("bandwidth.toml");
    let text = format!(
        "nodes = [1]\nthreshold_gib_s = 4.0\ncgroups = [\"a\"]\nstate = \"{}\"\n\
         [counter]\nkind = \"text\"\npath = \"/nowhere\"\n",
        folder.path().join("state").display()
    );
    fs::write(&file, text).unwrap();
    let hierarchy = Hierarchy {
        root: folder.path().join("cgroup"),
        version: Version::V2,
    };
    let config = Config::read(&file).unwrap();
    let counter = Box::new(Growing(0));
    let made = Daemon::with_counter(config, &[4e9], hierarchy, counter);
    let (mut daemon, _) = made.unwrap();
    let moves = Arc::new(Mutex::new(false));
    daemon.sampler = Some(Box::new(One {
        path: path.clone(),
        moves: Arc::clone(&moves),
        user: None,
        shares: Shares::of_all(1),
    }));
    let mut at = 0;
    let mut passes = |daemon: &mut Daemon, count: u64| {
        for _ in 0..count {
            at += 1;
            let pass = daemon.pass(at * 50 * MS);
            assert!(pass.trusted, "{pass:?}");
        }
    };
    passes(&mut daemon, 3);
    assert!(daemon.users().is_empty());
    *moves.lock().unwrap() = true;
    passes(&mut daemon, 1);
    let charged = |daemon: &Daemon| {
        let charged: Vec<f64> = daemon
            .users()
            .iter()
            .map(|user| user.charged_bytes)
            .collect();
        charged
            .iter()
            .map(|bytes| bytes / MIB as f64)
            .collect::<Vec<_>>()
    };
    let first = charged(&daemon);
    // There were few samples before, so each sample counts for more than its bytes.
    assert!(
        first.len() == 1 && (0.7..2.0).contains(&first[0]),
        "{first:?}"
    );
    passes(&mut daemon, 100);
    let all = charged(&daemon)[0] - first[0];
    assert!((60.0..120.0).contains(&all), "{all}");
    // A user without memory on the device stays while it has processes.
    let nothing = Found {
        generation: 2,
        residents: Vec::new(),
    };
    daemon.set_users(&nothing);
    assert_eq!(daemon.users().len(), 1);
    write(&path, "cgroup.procs", "");
    daemon.set_users(&nothing);
    assert!(daemon.users().is_empty());
    write(&path, "cgroup.procs", "1\n");
    passes(&mut daemon, 1);
    assert_eq!(daemon.users().len(), 1);
    // It goes when the samples end, too.
    *moves.lock().unwrap() = false;
    passes(&mut daemon, 50);
    daemon.set_users(&nothing);
    assert_eq!(daemon.users().len(), 1);
    passes(&mut daemon, 20);
    daemon.set_users(&nothing);
    assert!(daemon.users().is_empty());
}
