use std::sync::mpsc::{Receiver, Sender, channel};

use super::cut::cut;
use super::*;
use crate::system::pages::{HUGE_PAGE_BYTES, Run};
use crate::tests::fake::FakePages;
use proptest::prelude::*;

fn settings<'a>(cancel: &'a Cancel, from_nodes: &'a [u32]) -> Settings<'a> {
    Settings {
        jobs: 3,
        from_nodes,
        is_full: &|_| true,
        whole_up_to_bytes: 8 * PAGE_BYTES,
        batch_bytes: 16 * PAGE_BYTES,
        ask_first: false,
        bucket: None,
        cancel,
    }
}

fn task(pid: i32, pages: u64) -> Task {
    Task {
        pid,
        bytes: pages * PAGE_BYTES,
        to_node: 1,
    }
}

/// Moves the tasks with the usual settings.
fn moved(pages: &FakePages, tasks: Vec<Task>) -> Outcome {
    let cancel = Cancel::default();
    run(pages, tasks, &settings(&cancel, &[0]), &mut |_| {})
}

#[test]
fn small_and_large_processes_all_move() {
    let pages = FakePages::new(&[(1, 4), (2, 100), (3, 1000)]);
    let tasks = vec![task(3, 1000), task(2, 100), task(1, 4)];
    let outcome = moved(&pages, tasks);
    assert_eq!(pages.count_on(0), 0);
    assert_eq!(outcome.moved_bytes, 1100 * PAGE_BYTES);
    assert_eq!((outcome.failed_pages, outcome.processes), (0, 3));
}

#[test]
fn one_page_that_cannot_move_does_not_hold_back_the_others() {
    let pages = FakePages::new(&[(2, 300)]);
    pages.pin(2, 7);
    let outcome = moved(&pages, vec![task(2, 300)]);
    assert_eq!((outcome.failed_pages, outcome.failed_pids), (1, vec![2]));
    assert_eq!(pages.count_on(0), 1);
}

#[test]
fn a_huge_page_without_contiguous_memory_does_not_stop_anybody_else() {
    for whole_up_to_bytes in [0, 1000 * PAGE_BYTES] {
        let pages = FakePages::new(&[(2, 300), (3, 300)]);
        pages.no_contiguous_memory(2, 7);
        let cancel = Cancel::default();
        let settings = Settings {
            is_full: &|_| false,
            whole_up_to_bytes,
            ..settings(&cancel, &[0])
        };
        let tasks = vec![task(2, 300), task(3, 300)];
        let outcome = run(&pages, tasks, &settings, &mut |_| {});
        assert!(!outcome.full);
        assert_eq!((outcome.failed_pages, outcome.failed_pids), (1, vec![2]));
        assert_eq!(pages.count_on(0), 1);
    }
}

#[test]
fn a_page_that_another_worker_holds_is_no_failure() {
    for whole_up_to_bytes in [0, 1000 * PAGE_BYTES] {
        let pages = FakePages::new(&[(2, 300)]);
        pages.busy(2, 7, ROUNDS + 1);
        let cancel = Cancel::default();
        let settings = Settings {
            whole_up_to_bytes,
            ..settings(&cancel, &[0])
        };
        let outcome = run(&pages, vec![task(2, 300)], &settings, &mut |_| {});
        assert_eq!((outcome.failed_pages, outcome.failed_pids), (0, vec![]));
        assert_eq!((pages.count_on(0), outcome.processes), (0, 1));
    }
}

#[test]
fn a_process_that_has_ended_is_no_failure() {
    let pages = FakePages::new(&[(2, 300)]);
    let tasks = vec![task(99, 300), task(98, 1), task(2, 300)];
    let outcome = moved(&pages, tasks);
    assert_eq!((outcome.failed_pages, pages.count_on(0)), (0, 0));
}

#[test]
fn a_full_node_stops_the_work_and_is_reported() {
    let pages = FakePages::new(&[(2, 300)]).with_capacity(1, 50);
    let outcome = moved(&pages, vec![task(2, 300)]);
    assert!(outcome.full);
    assert_eq!(outcome.failed_pids, [2]);
    assert!(pages.count_on(1) <= 50);
}

#[test]
fn a_forbidden_node_falls_back_to_moving_the_process_whole() {
    let pages = FakePages::new(&[(2, 300)]);
    pages.forbid_move_pages();
    let outcome = moved(&pages, vec![task(2, 300)]);
    assert_eq!((outcome.failed_pages, pages.count_on(0)), (0, 0));
}

#[test]
fn after_cancel_nothing_more_moves() {
    let pages = FakePages::new(&[(2, 300)]);
    let cancel = Cancel::default();
    cancel.set();
    let outcome = run(
        &pages,
        vec![task(2, 300)],
        &settings(&cancel, &[0]),
        &mut |_| {},
    );
    assert!(outcome.canceled);
    assert_eq!(pages.count_on(0), 300);
}

#[test]
fn one_worker_keeps_the_order_of_processes() {
    let pages = FakePages::new(&[(5, 40), (6, 40), (7, 40)]);
    let cancel = Cancel::default();
    let settings = Settings {
        jobs: 1,
        ask_first: true,
        ..settings(&cancel, &[0])
    };
    run(
        &pages,
        vec![task(6, 40), task(5, 40), task(7, 40)],
        &settings,
        &mut |_| {},
    );
    assert_eq!(pages.order_of_moves(), [6, 5, 7]);
}

#[test]
fn pages_that_are_home_already_cost_no_tokens() {
    let pages = FakePages::new(&[(2, 300)]);
    pages.put(2, 0..290, 1);
    let cancel = Cancel::default();
    let bucket = TokenBucket::new(1, 10 * PAGE_BYTES, monotonic_ns());
    let settings = Settings {
        ask_first: true,
        bucket: Some(bucket),
        ..settings(&cancel, &[0])
    };
    let outcome = run(&pages, vec![task(2, 300)], &settings, &mut |_| {});
    assert_eq!(outcome.moved_bytes, 10 * PAGE_BYTES);
}

/// The second half of the scan comes when a page of the first has moved.
struct SlowScan<'a> {
    inner: &'a FakePages,
    moves: Sender<()>,
    moved: Mutex<Receiver<()>>,
}

impl Pages for SlowScan<'_> {
    fn scan(&self, pid: i32, found: &mut dyn FnMut(Run)) -> io::Result<()> {
        self.inner.scan(pid, &mut |run| {
            let middle = run.start + (run.end - run.start) / 2;
            found(Run { end: middle, ..run });
            let moved = self.moved.lock().unwrap();
            moved.recv().expect("the test holds the other end");
            found(Run {
                start: middle,
                ..run
            });
        })
    }

    fn nodes(&self, pid: i32, pages: &[u64], status: &mut [i32]) -> io::Result<()> {
        self.inner.nodes(pid, pages, status)
    }

    fn move_to(&self, pid: i32, pages: &[u64], node: u32, status: &mut [i32]) -> io::Result<u64> {
        let moved = self.inner.move_to(pid, pages, node, status);
        self.moves.send(()).expect("the test holds the other end");
        moved
    }

    fn move_all(&self, pid: i32, from: &[u32], to: u32) -> io::Result<u64> {
        self.inner.move_all(pid, from, to)
    }
}

/// Without it, this never ends.
#[test]
fn pages_move_while_their_process_is_still_being_scanned() {
    let pages = FakePages::new(&[(1, 64)]);
    let (moves, moved) = channel();
    let slow = SlowScan {
        inner: &pages,
        moves,
        moved: Mutex::new(moved),
    };
    let cancel = Cancel::default();
    let outcome = run(
        &slow,
        vec![task(1, 64)],
        &settings(&cancel, &[0]),
        &mut |_| (),
    );
    assert_eq!(outcome.moved_bytes, 64 * PAGE_BYTES);
}

proptest! {
    #[test]
    fn batches_cover_every_run_once_and_in_order(
        lengths in prop::collection::vec((1u64..40, 0u64..5, any::<bool>()), 0..30),
        batch_pages in 1u64..64,
    ) {
        let mut runs = Vec::new();
        let mut at = 0;
        for (length, gap, huge) in lengths {
            let unit = if huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
            at = (at + gap * PAGE_BYTES).next_multiple_of(unit);
            runs.push(Run { start: at, end: at + length * unit, huge });
            at += length * unit;
        }
        let batches = cut(&task(1, 0), &runs, batch_pages * PAGE_BYTES);
        let cover: Vec<(u64, u64)> = batches
            .iter()
            .flat_map(|batch| &batch.pages)
            .map(|page| (page.address, page.address + page.bytes))
            .collect();
        prop_assert!(cover.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        let covered: u64 = cover.iter().map(|(start, end)| end - start).sum();
        let wanted: u64 = runs.iter().map(|run| run.end - run.start).sum();
        prop_assert_eq!(covered, wanted);
        for batch in &batches {
            let bytes: u64 = batch.pages.iter().map(|page| page.bytes).sum();
            prop_assert!(bytes < batch_pages * PAGE_BYTES + HUGE_PAGE_BYTES);
        }
    }
}
