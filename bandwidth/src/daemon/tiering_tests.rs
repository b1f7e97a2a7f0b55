//! Tests of the kernel's tiering traffic on folders that stand for /proc and /sys.

use super::*;
use crate::enforce::ledger::{Undone, Wait};

const PAGE: f64 = 4096.0;
const SECOND_NS: u64 = 1_000_000_000;

/// A machine with two CXL nodes and a scheme that promotes.
pub struct Kernel {
    folder: tempfile::TempDir,
}

impl Kernel {
    pub fn new() -> Self {
        let kernel = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        kernel.write(PROMOTE_LIMIT, "65536");
        kernel.count(0, 0);
        for (node, used) in [(1, 300), (2, 100)] {
            kernel.write(
                &format!("sys/devices/system/node/node{node}/meminfo"),
                &format!("Node {node} MemTotal: 999 kB\nNode {node} MemUsed: {used} kB"),
            );
        }
        let scheme = format!("{KDAMONDS}/0/contexts/0/schemes/0");
        kernel.write(&format!("{KDAMONDS}/nr_kdamonds"), "1");
        kernel.write(&format!("{KDAMONDS}/0/state"), "on");
        kernel.write(&format!("{KDAMONDS}/0/contexts/nr_contexts"), "1");
        kernel.write(&format!("{KDAMONDS}/0/contexts/0/schemes/nr_schemes"), "1");
        kernel.write(&format!("{scheme}/action"), "migrate_hot");
        kernel.write(&format!("{scheme}/quotas/bytes"), "0");
        kernel.write(&format!("{scheme}/quotas/reset_interval_ms"), "0");
        kernel.write(&format!("{scheme}/stats/sz_applied"), "0");
        kernel
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        let text = fs::read_to_string(self.root().join(path)).unwrap();
        text.trim().to_owned()
    }

    pub fn count(&self, promoted: u64, demoted: u64) {
        let text = format!(
            "nr_free_pages 77\npgpromote_success {promoted}\npgdemote_kswapd {demoted}\npgdemote_direct 0"
        );
        self.write("proc/vmstat", &text);
    }

    fn applied(&self, bytes: u64) {
        self.write(
            &format!("{KDAMONDS}/0/contexts/0/schemes/0/stats/sz_applied"),
            &bytes.to_string(),
        );
        self.write(&format!("{KDAMONDS}/0/state"), "on");
    }

    fn quota(&self, name: &str) -> String {
        self.read(&format!("{KDAMONDS}/0/contexts/0/schemes/0/quotas/{name}"))
    }

    fn tiering(&self) -> Tiering {
        Tiering::new(TieringConfig {
            weight: 1.0,
            limit: true,
            root: self.root().to_owned(),
        })
    }

    fn ledger(&self) -> (Ledger, Vec<Undone>) {
        Ledger::open(&self.root().join("state/ledger"), Wait::Briefly).unwrap()
    }
}

#[test]
fn promotion_demotion_and_damon_are_counted_and_divided_by_used_memory() {
    let kernel = Kernel::new();
    let mut tiering = kernel.tiering();
    tiering.read(1, 0.0, &[1, 2]);
    assert_eq!(tiering.bytes, 0.0);
    kernel.count(100, 20);
    kernel.applied(4 << 20);
    tiering.read(1 + SECOND_NS, 1000.0, &[1, 2]);
    let expected = 120.0 * PAGE + f64::from(4 << 20);
    assert!((tiering.bytes - expected).abs() < 1.0, "{}", tiering.bytes);
    let on = [0, 1].map(|node| tiering.bytes_on(node));
    assert!(
        (on[0] - 0.75 * expected).abs() < 1.0 && (on[1] - 0.25 * expected).abs() < 1.0,
        "{on:?}"
    );
    assert_eq!(
        kernel.read(&format!("{KDAMONDS}/0/state")),
        "update_schemes_stats"
    );
}

#[test]
fn what_was_moved_before_the_start_and_counts_that_begin_anew_are_no_traffic() {
    let kernel = Kernel::new();
    kernel.count(1_000_000, 5);
    let mut tiering = kernel.tiering();
    tiering.read(1, 0.0, &[1]);
    kernel.count(3, 0);
    tiering.read(2, 50.0, &[1]);
    assert_eq!(tiering.bytes, 0.0);
    fs::remove_file(kernel.root().join("proc/vmstat")).unwrap();
    tiering.read(3, 50.0, &[1]);
    assert_eq!(tiering.bytes, 0.0);
}

#[test]
fn both_knobs_are_limited_and_restored() {
    let kernel = Kernel::new();
    let (mut ledger, _) = kernel.ledger();
    let mut tiering = kernel.tiering();
    tiering.read(1, 0.0, &[1, 2]);
    // 256 MiB a second of each, in a GiB/s.
    kernel.count(65_536, 0);
    kernel.applied(256 << 20);
    tiering.read(1 + SECOND_NS, 1000.0, &[1, 2]);
    assert!(tiering.set(&mut ledger, SECOND_NS, Some(0.25)).unwrap());
    assert_eq!(kernel.read(PROMOTE_LIMIT), "128");
    assert_eq!(kernel.quota("bytes"), (128 << 20).to_string());
    assert_eq!(kernel.quota("reset_interval_ms"), "1000");
    // Neither a small change nor one within a second is written.
    assert!(
        !tiering
            .set(&mut ledger, 3 * SECOND_NS, Some(0.255))
            .unwrap()
    );
    assert!(!tiering.set(&mut ledger, SECOND_NS + 1, Some(0.5)).unwrap());
    kernel.write(&format!("{KDAMONDS}/0/state"), "on");
    assert!(tiering.set(&mut ledger, 3 * SECOND_NS, None).unwrap());
    assert_eq!(kernel.read(PROMOTE_LIMIT), "65536");
    assert_eq!(
        (kernel.quota("bytes"), kernel.quota("reset_interval_ms")),
        ("0".into(), "0".into())
    );
    assert_eq!(tiering.limit(), None);
}

#[test]
fn after_a_kill_the_next_start_restores_the_knobs() {
    let kernel = Kernel::new();
    let (mut ledger, _) = kernel.ledger();
    let mut tiering = kernel.tiering();
    tiering.read(1, 0.0, &[1]);
    tiering.set(&mut ledger, 1, Some(0.1)).unwrap();
    assert_ne!(kernel.read(PROMOTE_LIMIT), "65536");
    // Killed: the lock goes, and nothing else happens.
    ledger.die();
    let (_, undone) = kernel.ledger();
    assert_eq!(undone.len(), 3, "{undone:?}");
    assert!(
        undone.iter().all(|one| matches!(one, Undone::Reset(..))),
        "{undone:?}"
    );
    assert_eq!(kernel.read(PROMOTE_LIMIT), "65536");
    assert_eq!(
        (kernel.quota("bytes"), kernel.quota("reset_interval_ms")),
        ("0".into(), "0".into())
    );
}

#[test]
fn a_machine_without_tiering_has_no_traffic_and_no_knob_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ledger, _) = Ledger::open(&folder.path().join("state/ledger"), Wait::Briefly).unwrap();
    let mut tiering = Tiering::new(TieringConfig {
        weight: 1.0,
        limit: true,
        root: folder.path().to_owned(),
    });
    tiering.read(1, 0.0, &[1]);
    tiering.read(2, 50.0, &[1]);
    assert_eq!(tiering.bandwidth(), 0.0);
    tiering.set(&mut ledger, 2, Some(0.1)).unwrap();
    assert!(!folder.path().join("proc").exists());
}

#[test]
fn demotion_has_no_knob_and_the_others_get_what_it_leaves() {
    let kernel = Kernel::new();
    let (mut ledger, _) = kernel.ledger();
    fs::remove_dir_all(kernel.root().join(KDAMONDS)).unwrap();
    let mut tiering = kernel.tiering();
    tiering.read(1, 0.0, &[1]);
    // 192 MiB a second.
    kernel.count(65_536, 49_152);
    tiering.read(1 + SECOND_NS, 1000.0, &[1]);
    tiering.set(&mut ledger, SECOND_NS, Some(0.25)).unwrap();
    assert_eq!(kernel.read(PROMOTE_LIMIT), "64");
}
