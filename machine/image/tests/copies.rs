//! The two header copies under power loss: what counts is always a header that was whole.

use dormouse_image::check::{self, HEADER_BYTES, Header};
use dormouse_image::edit::{Recipe, commit, newest, read_header, seal, write_header};
use dormouse_image::{Persistence, Reason, State, sys};

const COPIES_BYTES: usize = 2 * HEADER_BYTES;

fn fresh() -> (Vec<u8>, Box<Header>) {
    (
        vec![0; COPIES_BYTES],
        Recipe::small().geometry.new_header(None),
    )
}

/// The same with both copies, of which the newer one has this state.
fn committed(state: State) -> (Vec<u8>, Box<Header>) {
    let (mut window, mut header) = fresh();
    commit(&mut window, &mut header);
    header.state = state.0;
    commit(&mut window, &mut header);
    (window, header)
}

fn current(window: &[u8]) -> Box<Header> {
    read_header(window, newest(window).unwrap()).unwrap()
}

#[test]
fn zeros_are_no_image_and_not_a_bad_one() {
    assert_eq!(newest(&[0; COPIES_BYTES]), Err(Reason::NO_IMAGE));
}

#[test]
fn without_a_valid_copy_the_better_looking_one_gives_the_reason() {
    let (mut window, mut header) = fresh();
    window[100] = 1;
    assert_eq!(newest(&window), Err(Reason::MAGIC));
    header.version += 1;
    seal(&mut header);
    write_header(&mut window, 1, &header);
    assert_eq!(newest(&window), Err(Reason::VERSION));
    header.version -= 1;
    header.generation += 1;
    write_header(&mut window, 0, &header);
    assert_eq!(newest(&window), Err(Reason::HEADER_DIGEST));
}

#[test]
fn a_commit_never_touches_the_copy_that_counts() {
    let (mut window, mut header) = fresh();
    commit(&mut window, &mut header);
    let images = [
        State::PREPARED,
        State::SAVING,
        State::SUSPENDED,
        State::RESTORING,
    ];
    for state in images.iter().cycle().take(9) {
        let before = window.clone();
        let counted = newest(&window).unwrap();
        header.state = state.0;
        commit(&mut window, &mut header);
        let kept = counted * HEADER_BYTES..(counted + 1) * HEADER_BYTES;
        assert_eq!(window[kept.clone()], before[kept]);
        assert_eq!(newest(&window), Ok(1 - counted));
        assert_eq!(current(&window).state, state.0);
    }
}

#[test]
fn a_header_after_which_nothing_is_resumed_stands_in_both_copies() {
    for state in [State::EMPTY, State::CONSUMED] {
        let (mut window, mut header) = fresh();
        commit(&mut window, &mut header);
        header.state = State::SUSPENDED.0;
        commit(&mut window, &mut header);
        header.state = State::RESTORING.0;
        commit(&mut window, &mut header);
        header.state = state.0;
        commit(&mut window, &mut header);
        for copy in 0..2 {
            let mut damaged = window.clone();
            damaged[copy * HEADER_BYTES + 77] ^= 4;
            assert_eq!(current(&damaged).state, state.0, "copy {copy} damaged");
        }
    }
}

#[test]
fn a_request_to_save_holds_nothing_of_an_earlier_image() {
    let (_, mut header) = fresh();
    let zeros = vec![0u8; header.dram_bitmap_bytes.max(header.cxl_bitmap_bytes) as usize];
    let request = |header: &mut Header| {
        // SAFETY: both bitmaps have the bytes that the header counts.
        unsafe {
            sys::dormouse_header_request(
                header,
                zeros.as_ptr().cast(),
                zeros.as_ptr().cast(),
                7,
                Persistence::FIRMWARE.0,
            );
        }
    };
    request(&mut header);
    let clean = header.clone();
    assert_eq!((header.state, header.request_pages), (State::PREPARED.0, 7));

    header.state = State::CONSUMED.0;
    header.saved_pages = 1;
    header.saved_digest = 2;
    header.restored_pages = 3;
    header.wake_vector = 4;
    header.restore_attempts = 5;
    header.phase[0].begin_ns = 6;
    request(&mut header);
    assert_eq!(
        format!("{header:?}"),
        format!("{clean:?}"),
        "as the first request"
    );
}

#[test]
fn a_commit_torn_at_any_byte_multiple_of_8_leaves_the_older_header() {
    let (mut window, mut header) = committed(State::SUSPENDED);
    let before = window.clone();
    header.state = State::RESTORING.0;
    header.restore_attempts = 1;
    header.reserved.fill(0xa5);
    commit(&mut window, &mut header);
    let at = newest(&window).unwrap() * HEADER_BYTES;
    let (old, new) = (&before[at..][..HEADER_BYTES], &window[at..][..HEADER_BYTES]);

    for step in [8, 64] {
        for cut in (0..=HEADER_BYTES).step_by(step) {
            // Lines may also arrive in another order: the end first.
            for end_first in [false, true] {
                let mut torn = before.clone();
                let place = &mut torn[at..][..HEADER_BYTES];
                let (arrived, missing) = if end_first {
                    (cut..HEADER_BYTES, 0..cut)
                } else {
                    (0..cut, cut..HEADER_BYTES)
                };
                place[arrived.clone()].copy_from_slice(&new[arrived.clone()]);
                place[missing.clone()].copy_from_slice(&old[missing]);
                // The magic does not change: all but the first 8 bytes is all.
                let whole = place == new;
                let expected = if whole {
                    State::RESTORING
                } else {
                    State::SUSPENDED
                };
                let counted = current(&torn);
                assert_eq!(
                    State(counted.state),
                    expected,
                    "cut {cut}, end first: {end_first}"
                );
                assert_eq!(check::header(&counted), Reason::OK);
            }
        }
    }
}

#[test]
fn a_consume_torn_in_either_copy_is_never_both_resumable_and_consumed() {
    let (mut window, mut header) = committed(State::RESTORING);
    let before = window.clone();
    header.state = State::CONSUMED.0;
    commit(&mut window, &mut header);
    let first = 1 - newest(&before).unwrap();

    for cut in (0..HEADER_BYTES).step_by(64) {
        // While the first copy is written the image may be restored again: the OS has not
        // run. While the second is, it is consumed.
        let mut torn = before.clone();
        let at = first * HEADER_BYTES;
        torn[at..at + cut].copy_from_slice(&window[at..at + cut]);
        assert_eq!(current(&torn).state, State::RESTORING.0);

        let mut torn = window.clone();
        let at = (1 - first) * HEADER_BYTES;
        torn[at + cut..at + HEADER_BYTES].copy_from_slice(&before[at + cut..at + HEADER_BYTES]);
        assert_eq!(current(&torn).state, State::CONSUMED.0);
    }
}

#[test]
fn the_newer_copy_counts_even_when_the_counter_wraps() {
    let (mut window, mut header) = fresh();
    header.state = State::PREPARED.0;
    for (older, newer) in [(1, 2), (u64::MAX, 0), (u64::MAX - 1, u64::MAX)] {
        for newer_copy in 0..2 {
            header.generation = older;
            seal(&mut header);
            write_header(&mut window, 1 - newer_copy, &header);
            header.generation = newer;
            seal(&mut header);
            write_header(&mut window, newer_copy, &header);
            assert_eq!(newest(&window), Ok(newer_copy), "{older} {newer}");
        }
    }
    // Whatever generation a liar wrote, the next commit counts.
    for generation in [0, 1, 1 << 63, (1 << 63) - 1, u64::MAX] {
        header.generation = generation;
        seal(&mut header);
        write_header(&mut window, 0, &header);
        let mut next = header.clone();
        next.state = State::SAVING.0;
        commit(&mut window, &mut next);
        assert_eq!(
            current(&window).state,
            State::SAVING.0,
            "after {generation:#x}"
        );
    }
}

#[test]
fn a_fresh_header_keeps_history_and_nothing_else() {
    let geometry = Recipe::small().geometry;
    let mut old = geometry.new_header(None);
    (old.sleep_count, old.resume_count, old.generation) = (5, 4, 77);
    (old.last_outcome, old.last_reason, old.last_detail) = (2, 20, 9);
    (
        old.state,
        old.wake_vector,
        old.saved_pages,
        old.restore_attempts,
    ) = (3, 0x1000, 9, 3);
    old.phase[1].end_ns = 5;
    let new = geometry.new_header(Some(&old));
    let mut expected = geometry.new_header(None);
    (
        expected.sleep_count,
        expected.resume_count,
        expected.generation,
    ) = (5, 4, 77);
    (
        expected.last_outcome,
        expected.last_reason,
        expected.last_detail,
    ) = (2, 20, 9);
    assert_eq!(check::header_bytes(&new), check::header_bytes(&expected));
    assert_eq!(new.state, sys::DORMOUSE_STATE_EMPTY);
    assert_eq!(new.dram_pages, 0x1000);
    assert_eq!(new.dram_bytes, 0xa_0000 + (15 << 20));
}
