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
        sums: 0,
    };
    Root {
        epoch: 9,
        committed_ns: 5,
        cause: Cause::Persist,
        pages: 77,
        last_space: 3,
        description: piece(4, 900),
        segments: vec![
            piece(5, 4096),
            Piece {
                sums: 3,
                ..piece(9, 1)
            },
        ],
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
        (8, &[3], "format version 3"),
        (8, &[0], "format version 0"),
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
    ] {
        let error = Root::decode(&resealed(good.clone(), at, field), identity).unwrap_err();
        assert!(error.to_string().contains(expected), "{at}: {error}");
    }
}

#[test]
fn a_root_of_version_1_has_no_sums_behind_its_segments() {
    let mut root = root();
    let error = Root::decode(&root.encode_as(1, 1), 1).unwrap_err();
    assert!(error.to_string().contains("segment's frame"), "{error}");
    root.segments.pop();
    assert_eq!(Root::decode(&root.encode_as(1, 1), 1), Ok(root));
}
