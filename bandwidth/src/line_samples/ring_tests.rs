//! Tests of the ring's reader: it validates everything and counts what it missed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use proptest::prelude::*;

use super::super::tests_support::{FIRST, Fake, OFFSET, SLOTS};
use super::*;

fn line(number: u64) -> Line {
    Line {
        address: 0x1_0000_0000 + number * 64,
        written: number.is_multiple_of(3),
    }
}

fn read(ring: &mut Ring) -> Vec<Line> {
    let mut lines = Vec::new();
    ring.drain(|line| lines.push(line));
    lines
}

fn lines(numbers: std::ops::Range<u64>) -> Vec<Line> {
    numbers.map(line).collect()
}

fn begun() -> (Fake, Ring) {
    let mut fake = Fake::new();
    // Samples from before the reader are skipped.
    fake.push(line(99));
    let ring = Ring::open(&fake.path(), OFFSET).unwrap();
    (fake, ring)
}

#[test]
fn each_sample_is_read_once_and_around_the_end() {
    let (mut fake, mut ring) = begun();
    assert_eq!(read(&mut ring), []);
    let mut number = 0;
    for count in [1, 0, SLOTS, SLOTS - 1, 3 * SLOTS / 2, 5] {
        let (from, to) = (number, number + count.min(SLOTS));
        for number in from..to {
            fake.push(line(number));
        }
        assert_eq!(read(&mut ring), lines(from..to));
        number = to;
    }
    assert_eq!(ring.trouble(), Trouble::default());
}

#[test]
fn overwritten_samples_are_counted() {
    let (mut fake, mut ring) = begun();
    for number in 0..SLOTS + 10 {
        fake.push(line(number));
    }
    assert_eq!(read(&mut ring), lines(10..SLOTS + 10));
    assert_eq!(ring.trouble().lost, 10);
    // Overwritten during the reading: the device is ahead of its head.
    fake.push(line(0));
    fake.push(line(1));
    let head = fake.head;
    fake.place(head - 2 + SLOTS, line(2));
    assert_eq!(read(&mut ring), [line(1)]);
    assert_eq!(ring.trouble().lost, 11);
}

#[test]
fn a_sample_that_is_not_written_yet_is_waited_for_once() {
    let (mut fake, mut ring) = begun();
    fake.push(line(0));
    let awaited = fake.head;
    fake.set_head(awaited + 1);
    assert_eq!(read(&mut ring), [line(0)]);
    fake.place(awaited, line(1));
    assert_eq!(read(&mut ring), [line(1)]);
    assert_eq!(ring.trouble(), Trouble::default());
    // A sample that is never written does not block the next ones.
    let missing = fake.head;
    fake.set_head(missing + 1);
    fake.push(line(3));
    assert_eq!(read(&mut ring), []);
    assert_eq!(read(&mut ring), [line(3)]);
    assert_eq!(ring.trouble().damaged, 1);
}

#[test]
fn a_head_that_jumps_back_begins_anew_and_one_that_jumps_ahead_is_bounded() {
    let (mut fake, mut ring) = begun();
    fake.push(line(0));
    assert_eq!(read(&mut ring), [line(0)]);
    fake.set_head(0);
    assert_eq!(read(&mut ring), []);
    assert_eq!(ring.trouble().back, 1);
    fake.push(line(7));
    assert_eq!(read(&mut ring), [line(7)]);
    let far = (1 << 60) + 5 * SLOTS;
    fake.set_head(far);
    // No slot matches the head, and the reading still ends.
    assert_eq!(read(&mut ring), []);
    assert_eq!(read(&mut ring), []);
    let trouble = ring.trouble();
    assert!(
        trouble.lost > 1 << 59 && trouble.damaged <= SLOTS,
        "{trouble:?}"
    );
    fake.set_head(far);
    fake.push(line(8));
    assert_eq!(read(&mut ring), [line(8)]);
}

#[test]
fn a_device_that_is_gone_says_nothing() {
    let (mut fake, mut ring) = begun();
    fake.push(line(0));
    let head = fake.head;
    fake.set_head(u64::MAX);
    assert_eq!(read(&mut ring), []);
    fake.set_head(head);
    assert_eq!(read(&mut ring), [line(0)]);
    let file = OpenOptions::new().write(true).open(fake.path()).unwrap();
    file.set_len(OFFSET).unwrap();
    assert_eq!(read(&mut ring), []);
    assert_eq!(ring.trouble().gone, 2);
}

#[test]
fn a_device_that_was_gone_is_mapped_again_with_what_it_is_then() {
    let (mut fake, mut ring) = begun();
    fake.push(line(0));
    std::fs::remove_file(fake.path()).unwrap();
    assert_eq!(read(&mut ring), []);
    assert!(ring.is_gone() && ring.map_again().is_err());
    let mut back = fake.replaced();
    assert_eq!(read(&mut ring), [], "that is another one");
    back.word(3, 5);
    back.push(line(7));
    ring.map_again().unwrap();
    back.push(line(8));
    assert_eq!(
        read(&mut ring),
        [line(8)],
        "what was there before is not read"
    );
    assert_eq!((ring.is_gone(), ring.lines()), (false, 5));
    assert_eq!(ring.trouble().gone, 2);
}

#[test]
fn no_more_is_read_at_once_than_there_is_time_for() {
    let mut fake = Fake::with_slots(4 * MAX_READ);
    let mut ring = Ring::open(&fake.path(), OFFSET).unwrap();
    for number in 0..MAX_READ + 9 {
        fake.place(number, line(number));
    }
    fake.set_head(MAX_READ + 9);
    assert_eq!(read(&mut ring), lines(9..MAX_READ + 9), "the newest");
    assert_eq!(ring.trouble().lost, 9);
}

#[test]
fn an_invalid_ring_is_rejected() {
    let fake = Fake::new();
    let refused = |offset: u64, why: &str| {
        let said = Ring::open(&fake.path(), offset).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    };
    refused(OFFSET + 4, "no room");
    refused(u64::MAX - 7, "no room");
    refused(OFFSET + 8, "no ring");
    for (word, value) in [
        (1, 0),
        (1, 3),
        (1, 1 << 40),
        (2, 4),
        (2, 8),
        (2, 1 << 20),
        (3, 0),
        (3, u64::MAX),
        (2, u64::MAX - 7),
    ] {
        fake.word(word, value);
        refused(OFFSET, "is invalid");
        fake.word(1, SLOTS);
        fake.word(2, FIRST);
        fake.word(3, 1);
    }
    assert!(Ring::open(&PathBuf::from("/nowhere"), 0).is_err());
    Ring::open(&fake.path(), OFFSET).unwrap();
}

proptest! {
    #[test]
    fn no_content_confuses_it(words in prop::collection::vec(any::<u64>(), 1..40)) {
        let (fake, mut ring) = begun();
        for (at, word) in words.iter().enumerate() {
            let slot = OFFSET + FIRST + 8 * (at as u64 % SLOTS);
            fake.file.write_all_at(&word.to_le_bytes(), slot).unwrap();
            fake.write_head(*word);
            let mut read = 0;
            ring.drain(|line| {
                assert_eq!(line.address & !ADDRESS, 0);
                read += 1;
            });
            prop_assert!(read <= SLOTS);
        }
    }
}
