use super::*;

#[test]
fn reserved_frames_are_never_handed_out() {
    let mut frames = Frames::new(512, 3);
    assert_eq!(frames.free(), 509);
    let mut seen = 0;
    while let Some(run) = frames.take_mixed(100) {
        assert!(run.frame >= 3, "{run:?}");
        seen += run.count;
    }
    assert_eq!((seen, frames.free()), (509, 0));
    assert!(!frames.take(0) && !frames.claim(511) && !frames.claim(512));
}

#[test]
fn a_frame_of_the_durable_epoch_is_kept_until_the_next_one_is_durable() {
    let mut frames = Frames::new(512, 3);
    assert!(frames.take(7));
    frames.commit(false);
    frames.release(7);
    assert!(!frames.is_free(7), "the durable epoch refers to it");
    frames.commit(false);
    assert!(frames.is_free(7));
}

#[test]
fn a_frame_that_a_snapshot_reads_is_kept_until_it_lets_go() {
    let mut frames = Frames::new(512, 3);
    frames.take(7);
    frames.commit(false);
    frames.release(7);
    frames.commit(true);
    assert!(!frames.is_free(7));
    frames.commit(false);
    assert!(!frames.is_free(7), "still held");
    let before = frames.free();
    frames.let_go();
    assert!(frames.is_free(7));
    assert_eq!(frames.free(), before + 1);
}

#[test]
fn a_home_is_given_out_frame_by_frame_only() {
    let mut frames = Frames::new(3 * 512, 3);
    let home = frames.take_home().unwrap();
    assert_eq!(home, 1, "chunk 0 is in use");
    while let Some(run) = frames.take_mixed(512) {
        assert!(run.frame / CHUNK_FRAMES != home);
    }
    assert_eq!(frames.take_contiguous(1), None);
    assert!(frames.take(home * CHUNK_FRAMES + 9));
    assert_eq!(frames.used(home), 1);
    assert_eq!(frames.free_outside_homes(), 0);
    frames.drop_home(home);
    assert_eq!(frames.free_outside_homes(), 511);
}

#[test]
fn frames_side_by_side_may_span_chunks_but_no_home() {
    let mut frames = Frames::new(6 * 512, 3);
    let first = frames.take_contiguous(700).unwrap();
    assert_eq!(first, 3);
    frames.commit(false);
    // Chunk 2 becomes a home: what is left of 1 and 3 and after is not side by side.
    assert_eq!(frames.take_home(), Some(2));
    let next = frames.take_contiguous(600).unwrap();
    assert_eq!(next, 3 * 512);
    assert_eq!(frames.take_contiguous(1000), None);
    assert_eq!(
        frames.take_contiguous(321),
        Some(2136),
        "goes on where it was"
    );
    assert_eq!(frames.take_contiguous(700), None);
    assert_eq!(frames.take_contiguous(600), Some(2457));
    assert_eq!(
        frames.take_contiguous(321),
        Some(703),
        "and from the start again"
    );
}

proptest::proptest! {
    /// Against a plain model: one letter for each frame.
    #[test]
    fn counts_agree_with_a_plain_model(
        steps in proptest::collection::vec((0u8..8, 0u32..1536, 1u32..90), 1..300)
    ) {
        let mut frames = Frames::new(1536, 3);
        let (mut working, mut durable, mut held) = ([false; 1536], [false; 1536], [false; 1536]);
        working[..3].fill(true);
        durable[..3].fill(true);
        for (kind, frame, count) in steps {
            let at = frame as usize;
            let free = |w: &[bool; 1536], d: &[bool; 1536], h: &[bool; 1536], i: usize| {
                !w[i] && !d[i] && !h[i]
            };
            match kind {
                0 => {
                    let expected = free(&working, &durable, &held, at);
                    proptest::prop_assert_eq!(frames.take(frame), expected);
                    working[at] = true;
                    if !expected {
                        // It was taken by something else: the model must not own it twice.
                        working[at] = frames.working.get(frame);
                    }
                }
                1 | 2 => {
                    if let Some(run) = frames.take_mixed(count) {
                        proptest::prop_assert!(run.count >= 1 && run.count <= count);
                        for i in run.frame..run.frame + run.count {
                            proptest::prop_assert!(free(&working, &durable, &held, i as usize));
                            working[i as usize] = true;
                        }
                    } else {
                        proptest::prop_assert_eq!(frames.free(), 0);
                    }
                }
                3 => {
                    if let Some(start) = frames.take_contiguous(u64::from(count)) {
                        for i in start..start + count {
                            proptest::prop_assert!(free(&working, &durable, &held, i as usize));
                            working[i as usize] = true;
                        }
                    } else {
                        let mut longest = 0;
                        let mut length = 0;
                        for i in 0..1536 {
                            length = if free(&working, &durable, &held, i) { length + 1 } else { 0 };
                            longest = longest.max(length);
                        }
                        proptest::prop_assert!(longest < count, "{} side by side", longest);
                    }
                }
                4 | 5 => {
                    for i in frame.max(3)..(frame + count).min(1536) {
                        frames.release(i);
                        working[i as usize] = false;
                    }
                }
                6 => {
                    let hold = count % 2 == 0;
                    frames.commit(hold);
                    for i in 0..1536 {
                        if hold && durable[i] && !working[i] {
                            held[i] = true;
                        }
                        durable[i] = working[i];
                    }
                }
                _ => {
                    frames.let_go();
                    held.fill(false);
                }
            }
            let model = (0..1536).filter(|i| free(&working, &durable, &held, *i)).count();
            proptest::prop_assert_eq!(frames.free(), model as u64);
            proptest::prop_assert_eq!(frames.free_outside_homes(), model as u64);
        }
    }
}
