use super::*;

const SPACE: SpaceId = SpaceId(1);

fn records(segment: &Segment) -> Vec<Record<'_>> {
    let sums = (segment.sums.len() as u64 / 8).next_multiple_of(BLOCK_SUMS as u64);
    let reader = segment_records(&segment.head, sums, 1).unwrap();
    reader.map(Result::unwrap).collect()
}

/// The checksums of a run as they lie in the segment.
fn sums_of(segment: &Segment, run: &Run<'_>) -> Vec<u64> {
    let behind = segment.head.len().next_multiple_of(PAGE_BYTES as usize);
    let mut bytes = segment.head.clone();
    bytes.resize(behind, 0);
    bytes.extend_from_slice(&segment.sums);
    let at = run.sums_at as usize;
    let sums = bytes[at..at + run.count as usize * 8].as_chunks::<8>().0;
    sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect()
}

#[test]
fn what_is_written_is_read_again() {
    let short = [1, 2, u64::MAX];
    let long: Vec<u64> = (0..1500).map(|n| n * n).collect();
    let mut writer = SegmentWriter::new(1);
    writer.forget_space(SpaceId(4));
    writer.run(SPACE, 0x0007_ffff_ffff, 1234, 8, &short);
    writer.run(SPACE, 77, 5000, 9, &long[..9]);
    writer.forget(SpaceId(2), 5, 1 << 40);
    writer.run(SPACE, 99, 9000, 9, &long);
    assert_eq!(writer.len(), 5);
    let segment = writer.finish();
    let read = records(&segment);
    assert_eq!(read[0], Record::ForgetSpace(SpaceId(4)));
    let forgotten = Record::Forget {
        space: SpaceId(2),
        page: 5,
        count: 1 << 40,
    };
    assert_eq!(read[3], forgotten);
    for (record, page, frame, written, sums, digests) in [
        (1, 0x0007_ffff_ffff, 1234, 8, &short[..], 0),
        (2, 77, 5000, 9, &long[..9], 1),
        (4, 99, 9000, 9, &long[..], 3),
    ] {
        let Record::Run(run) = &read[record] else {
            panic!("{read:?}")
        };
        assert_eq!(
            (run.space, run.page, run.frame, run.written),
            (SPACE, page, frame, written)
        );
        assert_eq!(sums_of(&segment, run), sums);
        assert_eq!(run.digests.len(), digests * 8);
    }
}

#[test]
fn the_head_of_a_long_run_does_not_grow_with_its_pages() {
    let length = |pages: u64| {
        let mut writer = SegmentWriter::new(1);
        writer.run(SPACE, 0, 3, 1, &vec![7; pages as usize]);
        writer.finish().head.len() as u64
    };
    assert_eq!(length(512), length(8));
    assert_eq!(length(512 * 1000), length(8) + 999 * 8);
}

#[test]
fn a_segment_that_leads_outside_of_itself_is_refused() {
    let read = |head: &[u8], sums: u64| -> Result<usize, FormatError> {
        let mut count = 0;
        for record in segment_records(head, sums, 1)? {
            record?;
            count += 1;
        }
        Ok(count)
    };
    let of = |sums: &[u64]| {
        let mut writer = SegmentWriter::new(1);
        writer.run(SPACE, 3, 7, 1, sums);
        writer.finish().head
    };
    let short = of(&[1, 2]);
    let long = of(&[5; 600]);
    for (good, sums) in [(&short, 0), (&long, 600)] {
        assert_eq!(read(good, sums), Ok(1));
        for length in 0..good.len() {
            assert!(read(&good[..length], sums).is_err(), "cut at {length}");
        }
        assert!(
            read(&[&good[..], &[0]].concat(), sums).is_err(),
            "one byte more"
        );
        assert_eq!(
            segment_records(good, sums, 2).unwrap_err(),
            FormatError::Stranger("a segment")
        );
        for (at, what) in [
            (24, "length"),
            (32, "kind"),
            (47, "address"),
            (55, "number of pages"),
            (60, "frame"),
        ] {
            let mut changed = good.clone();
            changed[at] = 0xff;
            let error = read(&changed, sums).unwrap_err().to_string();
            assert!(error.contains(what), "{at}: {error}");
        }
    }
    let error = read(&long, 599).unwrap_err().to_string();
    assert!(error.contains("segment's sums"), "{error}");
}

proptest::proptest! {
    /// Whatever the bytes are: no panic, no endless loop.
    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in proptest::collection::vec(0u8..8, 0..600),
        records in 0u64..20,
        sums in 0u64..2000,
    ) {
        let mut head = SegmentWriter::new(0).finish().head;
        head[24..32].copy_from_slice(&records.to_le_bytes());
        head.append(&mut bytes);
        if let Ok(reader) = segment_records(&head, sums, 0) {
            for record in reader.flatten() {
                let Record::Run(run) = record else { continue };
                let sums_end = run.sums_at + u64::from(run.count) * 8;
                let behind = (head.len() as u64).next_multiple_of(PAGE_BYTES) + sums * 8;
                proptest::prop_assert!(sums_end <= behind);
            }
        }
    }
}
