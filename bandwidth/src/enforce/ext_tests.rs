//! Tests of the scheduler without a kernel that has sched_ext.

use object::{Object as _, ObjectSymbol as _};

use super::*;

/// Kernel functions that the schedulers call and that Linux 6.12 and all later releases have.
const STABLE: [&str; 9] = [
    "bpf_iter_scx_dsq_destroy",
    "bpf_iter_scx_dsq_new",
    "bpf_iter_scx_dsq_next",
    "scx_bpf_create_dsq",
    "scx_bpf_dsq_nr_queued",
    "scx_bpf_kick_cpu",
    "scx_bpf_nr_cpu_ids",
    "scx_bpf_pick_idle_cpu",
    "scx_bpf_select_cpu_dfl",
];

/// What changes: for each call, the function that releases have from 6.12, 6.13 and 6.19 on
/// (include/linux/sched/ext.h, kernel/sched/ext.c).
const BY_RELEASE: [[&str; 3]; 8] = [
    [
        "scx_bpf_dispatch",
        "scx_bpf_dsq_insert",
        "scx_bpf_dsq_insert___v2",
    ],
    [
        "scx_bpf_dispatch_vtime",
        "scx_bpf_dsq_insert_vtime",
        "__scx_bpf_dsq_insert_vtime",
    ],
    [
        "scx_bpf_consume",
        "scx_bpf_dsq_move_to_local",
        "scx_bpf_dsq_move_to_local",
    ],
    [
        "scx_bpf_dispatch_from_dsq_set_slice",
        "scx_bpf_dsq_move_set_slice",
        "scx_bpf_dsq_move_set_slice",
    ],
    [
        "scx_bpf_dispatch_from_dsq_set_vtime",
        "scx_bpf_dsq_move_set_vtime",
        "scx_bpf_dsq_move_set_vtime",
    ],
    [
        "scx_bpf_dispatch_vtime_from_dsq",
        "scx_bpf_dsq_move_vtime",
        "scx_bpf_dsq_move_vtime",
    ],
    // Before 6.19 both are written directly.
    ["", "", "scx_bpf_task_set_slice"],
    ["", "", "scx_bpf_task_set_dsq_vtime"],
];

/// As the loader does: the last "___" and what follows is dropped before the kernel is asked.
fn asked_for(name: &str) -> &str {
    name.rsplit_once("___").map_or(name, |(base, _)| base)
}

#[test]
fn one_object_resolves_on_every_kernel_from_6_12_on() {
    let object = object::File::parse(OURS).unwrap();
    let wanted: Vec<(&str, bool)> = object
        .symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| Some((symbol.name().ok()?, symbol.is_weak())))
        .filter(|(name, _)| !name.is_empty())
        .collect();
    for (name, weak) in &wanted {
        let stable = STABLE.contains(&asked_for(name));
        assert!(stable || *weak, "{name} is missing on some kernels");
    }
    let asks_for = |function: &str| wanted.iter().any(|(name, _)| asked_for(name) == function);
    for function in BY_RELEASE.iter().flatten().filter(|name| !name.is_empty()) {
        assert!(asks_for(function), "{function} is not called");
    }
}

#[test]
fn the_record_of_an_end_is_read() {
    let mut bytes = vec![0; 4 + 128 + 256];
    assert_eq!(ExitRecord::parse(&bytes), None);
    bytes[..4].copy_from_slice(&1026i32.to_ne_bytes());
    bytes[4..23].copy_from_slice(b"runnable task stall");
    bytes[132..139].copy_from_slice(b"x[1] is");
    let exit_record = ExitRecord::parse(&bytes).unwrap();
    assert_eq!(exit_record.kind, 1026);
    assert_eq!(exit_record.to_string(), "runnable task stall: x[1] is");
    assert_eq!(ExitRecord::parse(&bytes[..2]), None);
}

#[test]
fn a_kernel_without_sched_ext_is_named_as_the_reason() {
    if in_force().is_err() {
        let said = Ext::load(IdleCpus::Hold).err().unwrap().to_string();
        assert!(said.contains("no sched_ext"), "{said}");
    }
}
