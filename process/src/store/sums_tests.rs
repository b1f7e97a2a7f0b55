use std::os::fd::BorrowedFd;

use super::*;
use crate::store::SpaceId;
use crate::store::segment::{Record, SegmentWriter, segment_records};

/// Bytes, of which 4096 are a frame.
struct Bytes(Vec<u8>);

impl Medium for Bytes {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn grow(&self, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn read(&self, offset: u64, bytes: u64) -> &[u8] {
        &self.0[offset as usize..(offset + bytes) as usize]
    }

    fn write(&self, _: u64, _: &[u8]) {
        unreachable!("nothing is written here")
    }

    fn barrier(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

const FRAMES: u64 = 8 * CHUNK_FRAMES as u64;

fn sum_of(frame: u32, generation: u64) -> u64 {
    u64::from(frame) * 1000 + generation
}

/// A medium whose first frames hold a segment with these runs (frame, count, generation), and
/// what was found in it.
fn opened(runs: &[(u32, u32, u64)]) -> (Bytes, Found) {
    let mut writer = SegmentWriter::new(1);
    for (frame, count, generation) in runs {
        let sums: Vec<u64> = (*frame..frame + count)
            .map(|f| sum_of(f, *generation))
            .collect();
        writer.run(SpaceId(1), 0, *frame, 1, &sums);
    }
    let segment = writer.finish();
    let mut bytes = segment.head.clone();
    bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES as usize), 0);
    bytes.extend_from_slice(&segment.sums);
    bytes.resize((FRAMES * PAGE_BYTES) as usize, 0);
    let mut found = Found::new(FRAMES);
    let room = segment.sums.len() as u64 / 8;
    for record in segment_records(&segment.head, room, 1).unwrap() {
        match record.unwrap() {
            Record::Run(run) => found.add(0, &run),
            other => panic!("{other:?}"),
        }
    }
    (Bytes(bytes), found)
}

#[test]
fn the_last_run_of_a_frame_counts() {
    let (medium, found) = opened(&[(600, 2000, 1), (1000, 30, 2), (1010, 3, 3), (1020, 600, 4)]);
    let mut sums = Sums::new(FRAMES, found);
    let expected = |frame: u32| match frame {
        1010..1013 => Some(sum_of(frame, 3)),
        1000..1020 => Some(sum_of(frame, 2)),
        1020..1620 => Some(sum_of(frame, 4)),
        600..2600 => Some(sum_of(frame, 1)),
        _ => None,
    };
    for frame in 0..FRAMES as u32 {
        assert_eq!(sums.get(&medium, frame), expected(frame), "{frame}");
    }
    let before = sums.clone();
    sums.set(&medium, 1500, &[7; 200]);
    let mut copied = Vec::new();
    sums.copy(&medium, 1400, 400, &mut copied);
    let now = |frame: u32| match frame {
        1500..1700 => Some(7),
        _ => expected(frame),
    };
    assert_eq!(copied, (1400..1800).filter_map(now).collect::<Vec<_>>());
    sums.bring_in(&medium);
    for frame in (0..FRAMES as u32).filter(|frame| expected(*frame).is_some()) {
        assert_eq!(sums.get(&Bytes(Vec::new()), frame), now(frame), "{frame}");
        assert_eq!(
            before.get(&medium, frame),
            expected(frame),
            "a clone: {frame}"
        );
    }
}

#[test]
fn damaged_sums_damage_the_pages_under_their_digest_and_no_others() {
    let run = (600, 2000, 1);
    let (mut medium, found) = opened(&[run]);
    let at = |index: usize| PAGE_BYTES as usize + index * 8;
    medium.0[at(700)] ^= 1;
    let mut sums = Sums::new(FRAMES, found);
    let damaged = 600 + 512..600 + 1024;
    for frame in 600..2600 {
        let sum = sums.get(&medium, frame);
        let expected = (!damaged.contains(&frame)).then_some(sum_of(frame, 1));
        assert_eq!(sum, expected, "{frame}");
    }
    // In memory it is still known: no page matches what stands there.
    sums.bring_in(&medium);
    let zeros = checksum(&[0; PAGE_BYTES as usize]);
    for frame in damaged {
        assert_ne!(sums.get(&medium, frame), Some(zeros), "{frame}");
        assert_ne!(sums.get(&medium, frame), None, "{frame}");
    }
}
