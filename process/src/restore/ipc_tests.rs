//! Tests of System V objects that are made again.

use super::*;

/// Number and key that no other test uses.
fn ipc(id: i32, key: i32) -> Ipc {
    // SAFETY: no memory involved.
    let own = unsafe { (libc::geteuid(), libc::getegid()) };
    Ipc {
        id,
        key,
        mode: 0o640,
        owner: own,
        creator: own,
    }
}

fn set(id: i32) -> SemaphoreSet {
    SemaphoreSet {
        ipc: ipc(id, 0x0d00_0000 + id),
        values: vec![3, 0, 7],
        used: true,
    }
}

#[test]
fn objects_have_their_numbers_and_contents_and_go_when_the_restore_fails() {
    if fs::write(Kind::Queue.next_id_path(), "-1").is_err() {
        eprintln!("skipped: numbers cannot be chosen here");
        return;
    }
    let queue = MessageQueue {
        ipc: ipc(2_000_003, 0x0d10_0001),
        capacity: 4096,
        messages: vec![(5, b"one".to_vec()), (2, Vec::new())],
        used: true,
    };
    let tree = Tree {
        semaphores: vec![set(2_000_001)],
        queues: vec![queue.clone()],
        ..Tree::empty()
    };
    let mut made = Made::default();
    made.others(&tree).expect("made");
    let segment = ipc(2_000_005, 0);
    let file = made.segment(&segment, 5000, false).expect("made");
    assert_eq!(fs::File::from(file).metadata().expect("known").len(), 5000);
    let found = existing_semaphores(2_000_001)
        .expect("asked")
        .expect("there");
    assert_eq!((found.size, found.ipc.mode), (3, 0o640));
    assert!(existing_segment(segment.id).expect("asked").is_some());
    // SAFETY: no memory involved.
    assert_eq!(unsafe { libc::semctl(2_000_001, 2, libc::GETVAL) }, 7);
    drop(made);
    assert_eq!(existing_semaphores(2_000_001).expect("asked"), None);
    assert_eq!(existing_queue(queue.ipc.id).expect("asked"), None);
    assert_eq!(existing_segment(segment.id).expect("asked"), None);
}

#[test]
fn a_set_that_a_living_process_uses_is_never_replaced() {
    let wanted = ipc(9, 0x77);
    // SAFETY: no memory involved.
    let parent = unsafe { libc::getppid() };
    let there = |key, touched_by| Existing {
        ipc: Ipc {
            key,
            ..wanted.clone()
        },
        size: 1,
        touched_by,
        attached: false,
    };
    let clear = |existing, used| clear(Kind::Semaphores, &wanted, 1, used, existing);
    assert!(clear(Some(there(0x77, vec![parent])), true).is_err());
    assert!(clear(Some(there(0x78, vec![0])), true).is_err());
    assert!(clear(Some(there(0x77, vec![0])), false).expect("left alone"));
    assert!(!clear(None, true).expect("nothing there"));
}
