//! An image that was changed in any way is refused, with its reason, before a byte of what was
//! changed is handed out.

use dormouse_seal::{
    CHUNK_BYTES, Encryption, KeyId, KeySourceKind, MasterKey, Opener, SealError, Sealed, Sealer,
    TAG_BYTES, authenticated_header,
};
use proptest::prelude::*;

/// What lies on the device, and what the header says.
#[derive(Clone)]
struct Image {
    encryption: Encryption,
    header: Vec<u8>,
    bitmaps: Vec<u8>,
    sealed: Sealed,
    cipher_text: Vec<u8>,
}

fn master() -> MasterKey {
    MasterKey::from_bytes(&[9; 32])
}

fn pages(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 31) >> 3) as u8).collect()
}

fn seal(master: &MasterKey, text: &[u8], counter: u64) -> Image {
    let (header, bitmaps) = (vec![1; 4096], vec![2; 512]);
    let sealer = Sealer::new(master, KeySourceKind::File, &master.id(), counter).unwrap();
    let mut cipher_text = Vec::new();
    let unsigned = sealer.seal_stream(text, &mut cipher_text, 2).unwrap();
    let sealed = unsigned.sealed().clone();
    Image {
        encryption: unsigned.finish(8192, &[&header, &bitmaps]),
        header,
        bitmaps,
        sealed,
        cipher_text,
    }
}

/// What was handed out, even if it ended with a refusal.
fn open(master: &MasterKey, image: &Image) -> (Vec<u8>, Result<(), SealError>) {
    let mut text = Vec::new();
    let parts: &[&[u8]] = &[&image.header, &image.bitmaps];
    let result = Opener::new(master, &image.encryption, parts, &image.sealed)
        .and_then(|opener| opener.open_stream(&image.cipher_text[..], &mut text, 2));
    (text, result)
}

fn refused(image: &Image, text: &[u8]) -> &'static str {
    let (got, result) = open(&master(), image);
    assert!(text.starts_with(&got) && got.len() < text.len().max(1));
    result.expect_err("a changed image is refused").name()
}

#[test]
fn every_length_comes_back_as_it_was() {
    let around = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1];
    // Two threads take 16 chunks at a time.
    let batches = [16 * CHUNK_BYTES, 16 * CHUNK_BYTES + 1, 33 * CHUNK_BYTES - 7];
    for bytes in around.into_iter().chain(batches) {
        let text = pages(bytes);
        let image = seal(&master(), &text, 0);
        assert_eq!(image.cipher_text.len(), bytes);
        assert_eq!(
            image.sealed.table.len() as u64,
            Sealed::table_bytes(bytes as u64)
        );
        let (got, result) = open(&master(), &image);
        result.unwrap();
        assert_eq!(got, text, "{bytes} bytes");
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let text = pages(40 * CHUNK_BYTES + 5);
    let image = seal(&master(), &text, 0);
    let parts: &[&[u8]] = &[&image.header, &image.bitmaps];
    for threads in [0, 1, 3, 64] {
        let opener = Opener::new(&master(), &image.encryption, parts, &image.sealed).unwrap();
        let mut got = Vec::new();
        opener
            .open_stream(&image.cipher_text[..], &mut got, threads)
            .unwrap();
        assert!(got == text, "{threads} threads");
    }
}

#[test]
fn two_images_of_the_same_pages_have_nothing_in_common() {
    let text = vec![0; CHUNK_BYTES];
    let (a, b) = (seal(&master(), &text, 0), seal(&master(), &text, 0));
    assert_ne!(a.encryption.salt, b.encryption.salt);
    let same = a
        .cipher_text
        .iter()
        .zip(&b.cipher_text)
        .filter(|(a, b)| a == b);
    // 1/256 by chance.
    assert!(same.count() < CHUNK_BYTES / 128);
}

#[test]
fn chunks_that_are_swapped_repeated_or_left_out_are_refused() {
    let text = pages(4 * CHUNK_BYTES);
    let image = seal(&master(), &text, 0);
    let (first, rest) = (CHUNK_BYTES, CHUNK_BYTES..2 * CHUNK_BYTES);

    let mut swapped = image.clone();
    let (a, b) = swapped.cipher_text.split_at_mut(first);
    a.swap_with_slice(&mut b[..first]);
    assert_eq!(refused(&swapped, &text), "chunk");
    // With their tags: the table is authentic or it is not.
    swapped.sealed.table.rotate_left(TAG_BYTES);
    assert_eq!(refused(&swapped, &text), "metadata");

    let mut repeated = image.clone();
    repeated.cipher_text.copy_within(rest, 2 * CHUNK_BYTES);
    assert_eq!(refused(&repeated, &text), "chunk");

    let mut left_out = image.clone();
    left_out.cipher_text.drain(..CHUNK_BYTES);
    assert_eq!(refused(&left_out, &text), "truncated");
    left_out.cipher_text.resize(text.len(), 0);
    assert_eq!(refused(&left_out, &text), "chunk");
}

#[test]
fn an_image_that_is_cut_short_or_prolonged_is_refused() {
    let text = pages(3 * CHUNK_BYTES);
    let image = seal(&master(), &text, 0);
    for keep in [0, 1, CHUNK_BYTES, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES - 1] {
        let mut short = image.clone();
        short.cipher_text.truncate(keep);
        assert_eq!(refused(&short, &text), "truncated", "{keep} bytes");
        // A header that agrees with the shorter data.
        short.sealed.bytes = keep as u64;
        let table = Sealed::table_bytes(keep as u64) as usize;
        short.sealed.table.truncate(table);
        assert_eq!(refused(&short, &text), "metadata", "{keep} bytes");
    }
    let mut long = image.clone();
    long.cipher_text.push(0);
    let (_, result) = open(&master(), &long);
    assert_eq!(result.unwrap_err().name(), "longer");
}

#[test]
fn another_key_is_refused_by_name() {
    let image = seal(&master(), &pages(5000), 0);
    let (got, result) = open(&MasterKey::from_bytes(&[8; 32]), &image);
    assert!(got.is_empty());
    assert_eq!(result.unwrap_err().name(), "wrong-key");
}

#[test]
fn parts_of_two_images_do_not_mix() {
    let text = pages(2 * CHUNK_BYTES);
    let (a, b) = (seal(&master(), &text, 0), seal(&master(), &text, 0));
    let mixed = Image {
        cipher_text: b.cipher_text.clone(),
        ..a.clone()
    };
    assert_eq!(refused(&mixed, &text), "chunk");
    let mixed = Image {
        sealed: b.sealed.clone(),
        ..a.clone()
    };
    assert_eq!(refused(&mixed, &text), "metadata");
    let mixed = Image {
        encryption: b.encryption,
        ..a
    };
    assert_eq!(refused(&mixed, &text), "metadata");
}

#[test]
fn an_older_image_is_refused_and_so_is_one_that_claims_to_be_newer() {
    let text = pages(5000);
    let older = seal(&master(), &text, 6);
    let parts: &[&[u8]] = &[&older.header, &older.bitmaps];
    let opener = Opener::new(&master(), &older.encryption, parts, &older.sealed).unwrap();
    opener.check_counter(6).unwrap();
    for machine in [5, 7, 0, u64::MAX] {
        assert_eq!(opener.check_counter(machine).unwrap_err().name(), "older");
    }
    let mut forged = older.clone();
    forged.encryption.counter = 7;
    assert_eq!(refused(&forged, &text), "metadata");
}

#[test]
fn a_part_cannot_be_moved_into_its_neighbour() {
    let image = seal(&master(), &pages(5000), 0);
    let mut moved = image.clone();
    moved.bitmaps.insert(0, moved.header.pop().unwrap());
    assert_eq!(refused(&moved, &pages(5000)), "metadata");
}

#[test]
fn a_record_survives_the_header_and_an_unknown_one_is_refused() {
    let encryption = seal(&master(), &pages(10), 3).encryption;
    let record = encryption.to_record();
    assert_eq!(Encryption::from_record(&record).unwrap(), encryption);

    let refusal = |change: &dyn Fn(&mut dormouse_image::sys::dormouse_encryption)| {
        let mut changed = record;
        change(&mut changed);
        Encryption::from_record(&changed).unwrap_err().name()
    };
    assert_eq!(refusal(&|r| r.algorithm = 2), "algorithm");
    assert_eq!(refusal(&|r| r.algorithm = 0), "algorithm");
    assert_eq!(refusal(&|r| r.key_source = 0), "reserved");
    assert_eq!(refusal(&|r| r.tag[40] = 1), "reserved");
    assert_eq!(refusal(&|r| r.tag_table_bytes = 17), "reserved");
}

#[test]
fn what_a_wake_changes_in_the_header_is_not_authenticated_and_all_else_is() {
    use dormouse_image::edit::{Recipe, read_header};
    let window = Recipe::small().suspended(|_, page| page.fill(1)).unwrap();
    let header = read_header(&window, 0).unwrap();
    let bytes = |header: &dormouse_image::check::Header| {
        dormouse_image::check::header_bytes(&authenticated_header(header)).to_vec()
    };
    let mut restoring = header.clone();
    restoring.state = dormouse_image::State::RESTORING.0;
    restoring.generation += 1;
    restoring.restore_attempts += 1;
    restoring.header_digest ^= 1;
    assert_eq!(bytes(&restoring), bytes(&header));

    let before = bytes(&header);
    let changes: [fn(&mut dormouse_image::check::Header); 8] = [
        |h| h.wake_vector += 1,
        |h| h.saved_digest += 1,
        |h| h.cxl_bitmap_offset += 8,
        |h| h.flags ^= 1,
        |h| h.device_serial += 1,
        |h| h.memory_map_digest += 1,
        |h| h.user_check ^= 1,
        |h| h.request_pages += 1,
    ];
    for change in changes {
        let mut changed = header.clone();
        change(&mut changed);
        assert_ne!(bytes(&changed), before);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_flipped_bit_of_data_or_metadata_is_refused(
        bytes in 1usize..3 * CHUNK_BYTES, place in 0usize..7, at in any::<prop::sample::Index>(),
        bit in 0u32..8,
    ) {
        let text = pages(bytes);
        let mut image = seal(&master(), &text, 5);
        let flip = |data: &mut [u8]| data[at.index(data.len())] ^= 1 << bit;
        match place {
            0 => flip(&mut image.cipher_text),
            1 => flip(&mut image.sealed.table),
            2 => flip(&mut image.header),
            3 => flip(&mut image.bitmaps),
            4 => flip(&mut image.encryption.salt),
            5 => flip(&mut image.encryption.tag),
            _ => {
                let KeyId(id) = &mut image.encryption.key_id;
                flip(id);
            }
        }
        let expected = match place {
            0 => "chunk",
            6 => "wrong-key",
            _ => "metadata",
        };
        prop_assert_eq!(refused(&image, &text), expected);
    }

    #[test]
    fn no_record_of_a_stranger_panics(record in prop::collection::vec(any::<u8>(), 160)) {
        let mut stranger = dormouse_image::sys::dormouse_encryption::default();
        // SAFETY: integers and arrays of bytes, 160 in all, any of which are valid.
        unsafe {
            std::ptr::copy_nonoverlapping(
                record.as_ptr(), (&raw mut stranger).cast::<u8>(), size_of_val(&stranger));
        }
        let _ = Encryption::from_record(&stranger);
    }
}
