//! Tests of monitoring groups for users, on a made-up resctrl.

use super::*;
use crate::resctrl::tests_support::Machine;

fn groups(machine: &Machine) -> Groups {
    Groups::open(machine.root(), 1, Box::new(machine.clone())).unwrap()
}

fn user<'a>(id: u64, processes: &'a [i32]) -> UserRef<'a> {
    UserRef {
        path: Path::new("/a"),
        id,
        processes,
    }
}

fn step(groups: &mut Groups, users: &[u64]) {
    assert!(groups.collect(50.0).is_empty());
    let run = |&id: &u64| Run {
        id,
        cpu_s: 0.05,
        shares: &[1.0],
    };
    let runs: Vec<Run> = users.iter().map(run).collect();
    groups.step(50.0, &runs);
}

#[test]
fn each_user_is_charged_with_what_its_threads_moved_in_all_domains() {
    let machine = Machine::new(4, 16);
    machine.start(3, &[3, 30, 31]);
    let mut groups = groups(&machine);
    groups.set_users(&[user(7, &[1]), user(8, &[3])]);
    step(&mut groups, &[7, 8]);
    machine.move_bytes(1, 0, 6400);
    machine.move_bytes(3, 1, 100);
    machine.move_bytes(30, 2, 200);
    machine.move_bytes(31, 3, 300);
    // Not watched.
    machine.move_bytes(2, 3, 900);
    step(&mut groups, &[7, 8]);
    let weights = [7, 8].map(|id| groups.shares().weight(id, 0, 0.05));
    assert_eq!(weights, [Some(6400.0), Some(600.0)]);
    assert_eq!(groups.shares().unattributed_weight(0), Some(900.0));
    assert!(groups.shares().are_of_all());
}

#[test]
fn a_process_of_another_control_group_is_counted_below_that_one() {
    let machine = Machine::new(2, 16);
    let batch = machine.control_group("batch");
    machine.put(1, &batch);
    let mut groups = groups(&machine);
    groups.set_users(&[user(7, &[1, 2])]);
    assert!(machine.group_of(1).starts_with(batch.join("mon_groups")));
    assert!(
        machine
            .group_of(2)
            .starts_with(machine.root().join("mon_groups"))
    );
    step(&mut groups, &[7]);
    machine.move_bytes(1, 0, 10);
    machine.move_bytes(2, 1, 20);
    step(&mut groups, &[7]);
    assert_eq!(groups.shares().weight(7, 0, 0.05), Some(30.0));
    assert_eq!(groups.shares().unattributed_weight(0), Some(0.0));
    assert!(groups.notices().is_empty());
}

#[test]
fn the_rmid_of_a_user_that_is_gone_is_used_again_without_its_bytes() {
    let machine = Machine::new(2, 2);
    let mut groups = groups(&machine);
    groups.set_users(&[user(7, &[1])]);
    assert_eq!(machine.free_rmids(), 0);
    machine.move_bytes(1, 0, 5000);
    step(&mut groups, &[7]);
    machine.end(1);
    groups.set_users(&[user(9, &[2])]);
    assert_eq!(machine.free_rmids(), 0);
    step(&mut groups, &[9]);
    machine.move_bytes(2, 0, 70);
    step(&mut groups, &[9]);
    assert_eq!(groups.shares().weight(9, 0, 0.05), Some(70.0));
}

#[test]
fn without_a_free_rmid_cpu_time_attributes_the_traffic_and_the_user_is_named() {
    let machine = Machine::new(2, 2);
    let mut groups = groups(&machine);
    groups.set_users(&[user(7, &[1]), user(8, &[2])]);
    let notices = groups.notices();
    assert!(
        notices.len() == 1 && notices[0].contains("num_rmids"),
        "{notices:?}"
    );
    machine.move_bytes(1, 0, 640);
    step(&mut groups, &[7, 8]);
    assert_eq!(groups.shares().weight(7, 0, 0.05), None);
    // Repeated scans do not repeat it.
    groups.set_users(&[user(7, &[1]), user(8, &[2])]);
    assert!(groups.notices().is_empty());
    // The first one ends, and its RMID is free.
    groups.set_users(&[user(8, &[2])]);
    step(&mut groups, &[8]);
    machine.move_bytes(2, 0, 64);
    step(&mut groups, &[8]);
    assert_eq!(groups.shares().weight(8, 0, 0.05), Some(64.0));
}

#[test]
fn nothing_is_left_of_a_daemon_that_ends_or_was_killed() {
    let machine = Machine::new(2, 16);
    let free = machine.free_rmids();
    let mut first = groups(&machine);
    first.set_users(&[user(7, &[1])]);
    // Killed: nothing is cleaned up.
    std::mem::forget(first);
    assert_eq!(machine.free_rmids(), free - 1);
    let second = groups(&machine);
    assert_eq!(machine.free_rmids(), free);
    assert_eq!(machine.group_of(1), machine.root());
    drop(second);
    let groups = groups(&machine);
    drop(groups);
    assert_eq!(machine.free_rmids(), free);
}

#[test]
fn threads_that_start_later_are_counted_after_the_next_scan() {
    let machine = Machine::new(1, 16);
    let mut groups = groups(&machine);
    groups.set_users(&[user(7, &[1])]);
    step(&mut groups, &[7]);
    machine.start(5, &[5, 6]);
    groups.set_users(&[user(7, &[1, 5])]);
    machine.move_bytes(6, 0, 48);
    step(&mut groups, &[7]);
    assert_eq!(groups.shares().weight(7, 0, 0.05), Some(48.0));
}

#[test]
fn an_rmid_in_limbo_is_used_when_caches_have_let_go_of_it() {
    let machine = Machine::new(2, 2);
    machine.keep_lines();
    let mut groups = groups(&machine);
    groups.set_users(&[user(7, &[1])]);
    machine.end(1);
    groups.set_users(&[user(9, &[2])]);
    let notices = groups.notices();
    assert!(
        notices.len() == 1 && notices[0].contains("num_rmids"),
        "{notices:?}"
    );
    machine.move_bytes(2, 0, 64);
    step(&mut groups, &[9]);
    assert_eq!(
        groups.shares().weight(9, 0, 0.05),
        None,
        "CPU time attributes meanwhile"
    );
    machine.leave_limbo();
    groups.set_users(&[user(9, &[2])]);
    step(&mut groups, &[9]);
    machine.move_bytes(2, 1, 640);
    step(&mut groups, &[9]);
    assert_eq!(groups.shares().weight(9, 0, 0.05), Some(640.0));
    assert!(groups.notices().is_empty());
}

#[test]
fn random_users_that_come_and_go_are_charged_within_a_tenth_of_what_they_moved() {
    let mut random = crate::random::Random::new(0xa3d);
    for round in 0..6 {
        let domains = 1 + round % 3;
        let machine = Machine::new(domains, 9);
        if round % 3 == 0 {
            machine.keep_lines();
        }
        if round % 2 == 0 {
            machine.assign_counters();
        }
        let mut groups = groups(&machine);
        let mut moved: HashMap<u64, (f64, f64)> = HashMap::new();
        let mut alive: Vec<(u64, Vec<i32>)> = Vec::new();
        let mut next = 10;
        for second in 0..15 {
            // Up to six users with one to three threads; one leaves or comes at a time.
            if alive.len() == 6 || second % 5 == 4 && !alive.is_empty() {
                let (id, threads) = alive.remove((random.unit() * alive.len() as f64) as usize);
                machine.end(threads[0]);
                moved.remove(&id);
            } else if second % 2 == 0 {
                let threads = (0..=(random.unit() * 3.0) as i32).map(|at| next + at);
                let threads: Vec<i32> = threads.collect();
                machine.start(next, &threads);
                alive.push((next as u64, threads));
                next += 10;
            }
            if second % 7 == 0 {
                machine.leave_limbo();
            }
            let firsts: Vec<[i32; 1]> = alive.iter().map(|(_, all)| [all[0]]).collect();
            let users = alive.iter().zip(&firsts);
            let users: Vec<UserRef> = users.map(|((id, _), first)| user(*id, first)).collect();
            groups.set_users(&users);
            let ids: Vec<u64> = alive.iter().map(|(id, _)| *id).collect();
            step(&mut groups, &ids);
            for _ in 0..3 {
                let mut now: HashMap<u64, f64> = HashMap::new();
                for (id, threads) in &alive {
                    for &thread in threads {
                        let bytes = (random.unit() * 1e6) as u64;
                        let domain = (random.unit() * domains as f64) as usize;
                        machine.move_bytes(thread, domain, bytes);
                        *now.entry(*id).or_default() += bytes as f64;
                    }
                }
                step(&mut groups, &ids);
                for id in &ids {
                    // Without a group there is no count, and none is claimed.
                    let Some(weight) = groups.shares().weight(*id, 0, 0.05) else {
                        continue;
                    };
                    let sums = moved.entry(*id).or_default();
                    sums.0 += weight;
                    sums.1 += now.get(id).copied().unwrap_or(0.0);
                }
            }
            for (id, (counted, truth)) in &moved {
                assert!(
                    (counted / truth.max(1.0) - 1.0).abs() < 0.1,
                    "{id}: {counted} of {truth}"
                );
            }
        }
    }
}
