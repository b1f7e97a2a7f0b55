//! Tests of charging samples to users, with this kernel's page faults and without a PMU.

use super::*;
use crate::perf::tests_support::fresh;

const TEXT: &str = "12:cpuset:/\n4:cpu,cpuacct:/a.slice/b:c\n0::/user.slice\n";

#[test]
fn a_processes_cgroup_is_that_of_the_hierarchy() {
    assert_eq!(cgroup_of(TEXT, Version::V1), Some("/a.slice/b:c"));
    assert_eq!(cgroup_of(TEXT, Version::V2), Some("/user.slice"));
    assert_eq!(cgroup_of("0::/x\n", Version::V1), None);
    assert_eq!(cgroup_of("", Version::V2), None);
}

fn wanted(kind: SampleKind) -> Wanted {
    Wanted {
        kind: Some(kind),
        events: Vec::new(),
        period: None,
        units: false,
    }
}

fn page_faults(nodes: &[u32]) -> Option<Sampler> {
    let hierarchy = Hierarchy {
        root: PathBuf::from("/nowhere"),
        version: Version::V2,
    };
    Sampler::open(&wanted(SampleKind::PageFaults), nodes, hierarchy)
        .map_err(|error| eprintln!("left out: {error}"))
        .ok()
}

fn look(sampler: &mut Sampler, interval_ms: f64, runs: &[Run]) {
    assert!(sampler.collect(interval_ms).is_empty());
    sampler.step(interval_ms, runs);
}

/// Touches new pages while one of two users has our process, and returns their weights.
fn weights(sampler: &mut Sampler, me: u64) -> [Option<f64>; 2] {
    let process = [std::process::id() as i32];
    let other = [1];
    let (first, second) = if me == 1 {
        (&process, &other)
    } else {
        (&other, &process)
    };
    let user_ref = |path, id, processes| UserRef {
        path: Path::new(path),
        id,
        processes,
    };
    sampler.set_users(&[
        user_ref("/a", 1, &first[..]),
        user_ref("/b", 2, &second[..]),
    ]);
    let run = |id| Run {
        id,
        cpu_s: 0.05,
        shares: &[1.0],
    };
    // Faults of other programs may fill the rings, and some of ours are lost.
    for _ in 0..10 {
        let mut memory = fresh(200);
        memory.touch(0..200);
        look(sampler, 50.0, &[run(1), run(2)]);
    }
    [1, 2].map(|id| sampler.shares.weight(id, 0, 0.05))
}

#[test]
fn real_samples_are_charged_to_the_user_whose_process_it_was() {
    let Some(mut sampler) = page_faults(&[0]) else {
        return;
    };
    let [mine, other] = weights(&mut sampler, 1).map(Option::unwrap);
    assert!(
        mine > 20.0 * other.max(1.0),
        "{mine} {other} {:?}",
        sampler.tally
    );
    // From now on the same process belongs to the other user.
    for _ in 0..100 {
        look(&mut sampler, 100.0, &[]);
    }
    let [other, mine] = weights(&mut sampler, 2).map(Option::unwrap);
    assert!(
        mine > 20.0 * other.max(1.0),
        "{mine} {other} {:?}",
        sampler.tally
    );
}

#[test]
fn samples_of_other_nodes_are_ignored() {
    let Some(mut sampler) = page_faults(&[77]) else {
        return;
    };
    assert_eq!(weights(&mut sampler, 1), [None, None]);
    assert!(sampler.tally.accesses >= 200, "{:?}", sampler.tally);
}

#[test]
fn a_process_that_ended_after_its_sample_belongs_to_no_user() {
    let Some(mut sampler) = page_faults(&[0]) else {
        return;
    };
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    look(&mut sampler, 50.0, &[]);
    assert!(sampler.tally.accesses > 0);
    assert_eq!(sampler.user_of(child.id() as i32), None);
}

#[test]
fn a_stores_line_is_read_and_written() {
    let Some(mut sampler) = page_faults(&[0]) else {
        return;
    };
    sampler.processes.extend([(7, Some(1)), (8, Some(2))]);
    for (pid, op) in [(7, Op::Load), (8, Op::Store)] {
        let access = Access {
            pid,
            op,
            address: None,
        };
        sampler.charge(access, 64.0, Place::Event);
        // Located on the device only if the address says so.
        sampler.charge(access, 64.0, Place::Address);
    }
    let run = |id| Run {
        id,
        cpu_s: 1.0,
        shares: &[1.0],
    };
    sampler.shares.step(50.0, &[run(1), run(2)]);
    let [load, store] = [1, 2].map(|id| sampler.shares.weight(id, 0, 1.0).unwrap());
    assert_eq!((load, store), (64.0, 128.0));
}

#[test]
fn samples_of_unwatched_processes_are_not_charged_to_watched_ones() {
    let Some(mut sampler) = page_faults(&[0]) else {
        return;
    };
    sampler.processes.extend([(7, Some(1)), (8, None)]);
    for pid in [7, 8, 8, 8] {
        let access = Access {
            pid,
            op: Op::Load,
            address: None,
        };
        sampler.charge(access, 64.0, Place::Event);
    }
    let run = Run {
        id: 1,
        cpu_s: 1.0,
        shares: &[1.0],
    };
    sampler.shares.step(50.0, &[run]);
    let watched = sampler.shares.weight(1, 0, 1.0);
    let others = sampler.shares.unattributed_weight(0);
    assert_eq!((watched, others), (Some(64.0), Some(192.0)));
}

#[test]
fn a_machine_without_that_pmu_says_so() {
    let hierarchy = Hierarchy {
        root: PathBuf::new(),
        version: Version::V2,
    };
    if Path::new(DEVICES).join("ibs_op").exists() {
        eprintln!("left out: this machine has it");
        return;
    }
    let error = Sampler::open(&wanted(SampleKind::Ibs), &[0], hierarchy).err();
    assert!(error.unwrap().to_string().contains("ibs"));
}
