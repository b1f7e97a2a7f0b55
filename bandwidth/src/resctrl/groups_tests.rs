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
