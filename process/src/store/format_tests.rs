use super::*;

fn superblock() -> Superblock {
    Superblock {
        identity: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        created_ns: 1_700_000_000_000_000_000,
        name: "cache".to_owned(),
    }
}

fn root() -> Root {
    let piece = |frame, bytes| Piece {
        frame,
        bytes,
        checksum: bytes ^ 7,
    };
    Root {
        epoch: 9,
        committed_ns: 5,
        cause: Cause::Persist,
        pages: 77,
        last_space: 3,
        description: piece(4, 900),
        segments: vec![piece(5, 4096), piece(9, 1)],
    }
}

#[test]
fn what_is_written_is_read_again() {
    let superblock = superblock();
    assert_eq!(
        Superblock::decode(&superblock.encode()),
        Ok(superblock.clone())
    );
    let root = root();
    let bytes = root.encode(superblock.identity);
    assert_eq!(bytes.len() as u64, PAGE_BYTES);
    assert_eq!(Root::decode(&bytes, superblock.identity), Ok(root));

    let sums = [1, 2, u64::MAX];
    let records = [
        Record::ForgetSpace(SpaceId(4)),
        Record::Run(Run {
            space: SpaceId(1),
            page: 0x0007_ffff_ffff,
            frame: 1234,
            written: 8,
            checksums: Checksums::Numbers(&sums),
        }),
        Record::Forget {
            space: SpaceId(2),
            page: 5,
            count: 1 << 40,
        },
    ];
    let mut writer = SegmentWriter::new(1);
    records.iter().for_each(|record| writer.push(record));
    assert_eq!(writer.len(), 3);
    let bytes = writer.finish();
    let read: Vec<_> = segment_records(&bytes, 1)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(read[0], records[0]);
    assert_eq!(read[2], records[2]);
    let Record::Run(run) = &read[1] else {
        panic!("{read:?}")
    };
    assert_eq!(
        (run.page, run.frame, run.written),
        (0x0007_ffff_ffff, 1234, 8)
    );
    assert_eq!(
        (0..3).map(|i| run.checksums.get(i)).collect::<Vec<_>>(),
        sums
    );
}

#[test]
fn a_root_with_all_segments_fits_in_its_frame() {
    let mut root = root();
    root.segments = vec![root.description; MAX_SEGMENTS];
    let bytes = root.encode(1);
    assert_eq!(bytes.len() as u64, PAGE_BYTES);
    assert_eq!(Root::decode(&bytes, 1), Ok(root));
}

#[test]
fn every_flipped_bit_of_superblock_and_root_is_noticed() {
    let superblock = superblock();
    for (what, bytes) in [
        ("superblock", superblock.encode()),
        ("root", root().encode(superblock.identity)),
    ] {
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let refused = Superblock::decode(&changed).is_err()
                && Root::decode(&changed, superblock.identity).is_err();
            assert!(refused, "{what}: bit {bit}");
        }
    }
}

/// One field after the other holds something else, under a checksum that is right.
#[test]
fn a_field_out_of_bounds_is_refused_by_name() {
    let resealed = |mut bytes: Vec<u8>, at: usize, field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
        bytes.truncate(PAGE - 8);
        sealed(bytes)
    };
    let good = superblock().encode();
    let identity = superblock().identity;
    for (at, field, expected) in [
        (0, &b"X"[..], "no magic"),
        (8, &[2], "format version 2"),
        (12, &[1], "page size"),
        (40, &[0xff, 0xff, 0xff, 0xff], "the name"),
        (44, &[0xff], "the name"),
    ] {
        let error = Superblock::decode(&resealed(good.clone(), at, field)).unwrap_err();
        assert!(error.to_string().contains(expected), "{at}: {error}");
    }
    let good = root().encode(identity);
    for (at, field, expected) in [
        (8, &[9][..], "format version 9"),
        (12, &[9], "cause"),
        (16, &[9], "another store"),
        (60, &[9], "space number"),
        (68, &[9], "description's frame"),
        (88, &[0xff], "number of segments"),
        (ROOT_HEADER + 5, &[9], "segment's frame"),
    ] {
        let error = Root::decode(&resealed(good.clone(), at, field), identity).unwrap_err();
        assert!(error.to_string().contains(expected), "{at}: {error}");
    }
}

#[test]
fn a_segment_that_leads_outside_of_itself_is_refused() {
    let mut writer = SegmentWriter::new(1);
    writer.push(&Record::Run(Run {
        space: SpaceId(1),
        page: 3,
        frame: 7,
        written: 1,
        checksums: Checksums::Numbers(&[1, 2]),
    }));
    let good = writer.finish();
    let read = |bytes: &[u8]| -> Result<usize, FormatError> {
        let mut count = 0;
        for record in segment_records(bytes, 1)? {
            record?;
            count += 1;
        }
        Ok(count)
    };
    assert_eq!(read(&good), Ok(1));
    for length in 0..good.len() {
        assert!(read(&good[..length]).is_err(), "cut at {length}");
    }
    assert!(read(&[&good[..], &[0]].concat()).is_err(), "one byte more");
    assert_eq!(
        segment_records(&good, 2).unwrap_err(),
        FormatError::Stranger("a segment")
    );
    for (at, what) in [
        (24, "length"),
        (32, "kind"),
        (47, "address"),
        (55, "number of pages"),
        (48, "length"),
        (60, "frame"),
    ] {
        let mut changed = good.clone();
        changed[at] = 0xff;
        let error = read(&changed).unwrap_err().to_string();
        assert!(error.contains(what), "{at}: {error}");
    }
}

proptest::proptest! {
    /// Whatever the bytes are: no panic, no endless loop.
    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in proptest::collection::vec(0u8..8, 0..600),
        records in 0u64..20,
    ) {
        let mut header = SegmentWriter::new(0).finish();
        header[24..32].copy_from_slice(&records.to_le_bytes());
        header.append(&mut bytes);
        if let Ok(reader) = segment_records(&header, 0) {
            let _ = reader.count();
        }
    }
}
