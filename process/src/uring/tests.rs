//! What is read of the kernel is compared with what is known otherwise.

use std::ffi::CStr;

use super::context::Context;
use super::kernel;
use super::ring::{Counters, Ring, Setup, contents};
use super::setup;
use super::types::{NoType, Types};

/// None: this process may not read the kernel's memory, or the kernel does not count requests.
fn types() -> Option<Types> {
    let types = Types::of_kernel().ok()?;
    let counts = types.place("io_ring_ctx", "nr_req_allocated").is_ok();
    let readable = kernel::current_task().is_ok() && super::usable().is_ok();
    if !counts || !readable {
        eprintln!("skipped: no count of requests, no CAP_BPF, or io_uring is off");
        return None;
    }
    Some(types)
}

#[test]
fn the_name_of_the_running_thread_is_where_the_types_have_it() {
    let Some(types) = types() else { return };
    let place = types.place("task_struct", "comm").expect("a name");
    assert_eq!(place.bits, 128);
    std::thread::Builder::new()
        .name("Zebra crossing".to_owned())
        .spawn(move || {
            let task = kernel::current_task().expect("the task");
            let mut name = [0u8; 16];
            kernel::read(task + place.byte() as u64, &mut name).expect("readable");
            let name = CStr::from_bytes_until_nul(&name).expect("a string");
            assert_eq!(name.to_bytes(), b"Zebra crossing");
        })
        .expect("a thread")
        .join()
        .expect("the same name");
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    if types().is_none() {
        return;
    }
    let mut bytes = [0u8; 8];
    for address in [0, 1, u64::MAX - 7] {
        assert!(kernel::read(address, &mut bytes).is_err(), "{address:#x}");
    }
    let task = kernel::current_task().expect("the task");
    let mut long = vec![0u8; kernel::PIECE_BYTES + 1];
    assert!(kernel::read(task, &mut long).is_err());
}

#[test]
fn fields_and_structures_that_are_not_there_are_named() {
    let Some(types) = types() else { return };
    let missing = types.place("io_ring_ctx", "nonsense").expect_err("missing");
    assert_eq!(missing, NoType::Field("io_ring_ctx", "nonsense"));
    let missing = types.place("no_such_thing", "flags").expect_err("missing");
    assert_eq!(missing, NoType::Structure("no_such_thing"));
}

#[test]
fn a_ring_reaches_the_counters_that_another_one_had() {
    if types().is_none() {
        return;
    }
    let plain = Setup {
        flags: 0,
        sq_entries: 8,
        cq_entries: 16,
    };
    let wide = Setup {
        flags: setup::SQE128 | setup::CQE32 | setup::NO_SQARRAY,
        sq_entries: 1,
        cq_entries: 2,
    };
    for setup in [plain, wide] {
        for (taken, completed, unread, skips) in [
            (0, 0, 0, false),
            (1, 1, 1, false),
            (1000, 1000, 2, false),
            (7, 500, 1, false),
            (500, 7, 2, true),
            (7, 7, 0, true),
            (0, 3, 0, false),
        ] {
            let ring = Ring::new(setup).expect("a ring");
            let to = Counters {
                taken,
                completed,
                unread,
                skips,
            };
            ring.advance(to).expect("reached");
            let context = Context::of(ring.as_fd()).expect("known");
            assert_eq!(
                (context.taken, context.completed, context.skips),
                (taken, completed, skips)
            );
            assert_eq!((context.under_way, &*context.extras), (0, &[][..]));
            let sizes = (context.sq_entries, context.cq_entries);
            assert_eq!(sizes, (setup.sq_entries, setup.cq_entries));
            // Its descriptor and its two mappings.
            assert_eq!(context.holders, 3);
            let [queues, entries] = contents(ring.as_fd(), context.bytes).expect("contents");
            let [sq_head, sq_tail, cq_head, cq_tail] = context.words(&queues).expect("words");
            assert_eq!((sq_head, sq_tail, cq_tail), (taken, taken, completed));
            assert_eq!(cq_tail - cq_head, unread);
            ring.write(&queues, &entries).expect("the same sizes");
        }
    }
}

#[test]
fn counters_that_no_new_ring_reaches_are_named() {
    let counters = |taken, completed, unread, skips| Counters {
        taken,
        completed,
        unread,
        skips,
    };
    assert!(counters(5, 4, 0, false).reachable().is_err());
    assert!(counters(5, 4, 0, true).reachable().is_ok());
    assert!(counters(0, 2, 3, false).reachable().is_err());
    // One has begun again with 0.
    assert!(counters(u32::MAX, 2, 0, false).reachable().is_err());
    assert!(counters(2, u32::MAX, 0, true).reachable().is_err());
}
