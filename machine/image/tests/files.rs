//! Image files as users find them: good, damaged, cut short, foreign, or no image at all.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use dormouse_image::edit::{Recipe, commit, newest, read_header, seal, write_header};
use dormouse_image::{OpenError, Outcome, Reason, SleepImage, State, sys};
use proptest::prelude::*;
use tempfile::NamedTempFile;

fn suspended() -> Vec<u8> {
    Recipe::small()
        .suspended(|frame, page| page.fill(frame as u8))
        .unwrap()
}

/// A file of the window's length; only what is not zero is stored.
fn file_of(window: &[u8]) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(window.len() as u64).unwrap();
    for (index, page) in window.chunks(4096).enumerate() {
        if page.iter().any(|&byte| byte != 0) {
            file.as_file()
                .write_all_at(page, index as u64 * 4096)
                .unwrap();
        }
    }
    file
}

fn flip(file: &File, offset: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

fn refusal(file: &NamedTempFile) -> Reason {
    let error = SleepImage::open(file.path()).unwrap().verify().unwrap_err();
    error.refusal().unwrap_or_else(|| panic!("{error}")).reason
}

#[test]
fn a_suspended_image_verifies_and_shows_what_it_is() {
    let window = suspended();
    let file = file_of(&window);
    let image = SleepImage::open(file.path()).unwrap();
    let verified = image.verify().unwrap();
    assert_eq!(verified.saved_bytes, 76 * 4096);
    assert_eq!(verified.state, State::SUSPENDED);
    assert!(verified.pieces >= 4 && verified.available_bytes > verified.needed_bytes);

    let shown = image.inspect().unwrap();
    assert_eq!(shown.reason, Reason::OK);
    assert_eq!(shown.copies.iter().filter(|copy| copy.valid).count(), 2);
    let header = shown.header.as_ref().unwrap();
    assert_eq!((header.state, header.saved_pages), (State::SUSPENDED, 76));
    assert_eq!(header.last_outcome, Outcome::NONE);
    assert_eq!(header.wake_vector, 0x9_9200);
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(json["header"]["state"], "suspended");
    assert_eq!(json["header"]["device_serial"], "0x1122334455667788");
    assert_eq!(json["header"]["phases"][2]["name"], "save-copy");
    assert_eq!(json["reason"]["name"], "ok");
    assert_eq!(json["mailbox"], serde_json::Value::Null);
}

#[test]
fn progress_ends_at_all_bytes_of_saved_and_user_pages() {
    let window = suspended();
    let mut seen = Vec::new();
    let progress = |done, all| seen.push((done, all));
    SleepImage::from_bytes(&window)
        .verify_with_progress(progress)
        .unwrap();
    assert_eq!(seen.last(), Some(&(84 * 4096, 84 * 4096)));
}

#[test]
fn a_flipped_bit_is_found_wherever_it_matters() {
    let window = suspended();
    let copy = newest(&window).unwrap();
    let header = read_header(&window, copy).unwrap();
    let file = file_of(&window);
    let data = header.data_offset;
    let table = [
        // The older copy counts then; it was written before the image was complete.
        (copy as u64 * 4096 + 300, Reason::INCOMPLETE),
        (header.dram_bitmap_offset, Reason::BITMAP_DIGEST),
        (
            header.dram_bitmap_offset + header.dram_bitmap_bytes - 1,
            Reason::BITMAP_DIGEST,
        ),
        (header.cxl_bitmap_offset, Reason::BITMAP_DIGEST),
        (
            header.cxl_bitmap_offset + header.cxl_bitmap_bytes - 1,
            Reason::BITMAP_DIGEST,
        ),
        (data, Reason::SAVED_DIGEST),
        (data + 4096 * 3 + 17, Reason::SAVED_DIGEST),
    ];
    for (offset, reason) in table {
        flip(file.as_file(), offset);
        assert_eq!(refusal(&file), reason, "bit at {offset:#x}");
        flip(file.as_file(), offset);
        SleepImage::open(file.path()).unwrap().verify().unwrap();
    }
    // An occupied page without a digest is not part of the image.
    flip(file.as_file(), 7 * 4096);
    SleepImage::open(file.path()).unwrap().verify().unwrap();
    // Both copies damaged.
    flip(file.as_file(), 300);
    flip(file.as_file(), 4096 + 300);
    assert_eq!(refusal(&file), Reason::HEADER_DIGEST);
    let shown = SleepImage::open(file.path()).unwrap().inspect().unwrap();
    assert_eq!(
        (shown.reason, shown.selected),
        (Reason::HEADER_DIGEST, None)
    );
    assert_eq!(shown.header.unwrap().state, State::SUSPENDED);
}

#[test]
fn an_image_cut_short_is_refused_at_any_length() {
    let window = suspended();
    let file = file_of(&window);
    let lengths = [
        1,
        8,
        4095,
        4096,
        8192,
        12288,
        20480,
        65536,
        window.len() as u64 - 1,
    ];
    for length in lengths {
        let cut = file_of(&window);
        cut.as_file().set_len(length).unwrap();
        let image = SleepImage::open(cut.path()).unwrap();
        let reason = refusal(&cut);
        assert!(!reason.is_ok(), "{length} bytes");
        if length >= 8192 {
            assert_eq!(reason, Reason::CXL_SIZE, "{length} bytes");
        }
        assert_eq!(image.inspect().unwrap().source_bytes, length);
    }
    file.as_file().set_len(0).unwrap();
    assert_eq!(refusal(&file), Reason::NO_IMAGE);
}

#[test]
fn an_image_of_another_version_is_named_as_such() {
    let mut window = suspended();
    for copy in 0..2 {
        let mut header = read_header(&window, copy).unwrap();
        header.version = sys::DORMOUSE_VERSION + 1;
        seal(&mut header);
        write_header(&mut window, copy, &header);
    }
    let image = SleepImage::from_bytes(&window);
    assert_eq!(
        image.verify().unwrap_err().refusal().unwrap().reason,
        Reason::VERSION
    );
    let shown = image.inspect().unwrap().header.unwrap();
    assert_eq!(shown.version, sys::DORMOUSE_VERSION + 1);
}

#[test]
fn a_lone_header_shows_its_state_and_verifies_as_no_image() {
    let mut window = suspended();
    let mut header = read_header(&window, newest(&window).unwrap()).unwrap();
    header.state = State::CONSUMED.0;
    header.last_outcome = Outcome::RESUMED.0;
    commit(&mut window, &mut header);
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), &window[..4096]).unwrap();
    assert_eq!(refusal(&file), Reason::CONSUMED);
    let shown = SleepImage::open(file.path()).unwrap().inspect().unwrap();
    assert_eq!(shown.header.unwrap().last_outcome, Outcome::RESUMED);
    assert_eq!(shown.copies[1].reason, Reason::NO_IMAGE);
}

#[test]
fn the_mailbox_shows_the_last_answer() {
    let mut window = suspended();
    let mailbox = sys::dormouse_mailbox {
        magic: sys::DORMOUSE_MAILBOX_MAGIC,
        command: sys::DORMOUSE_CMD_SLEEP,
        status: Reason::NO_SPACE.0,
        detail: 0,
        needed_bytes: 99 << 20,
        available_bytes: 98 << 20,
    };
    let fields = [
        mailbox.magic,
        u64::from(mailbox.command) | u64::from(mailbox.status) << 32,
        mailbox.detail,
        mailbox.needed_bytes,
        mailbox.available_bytes,
    ];
    for (place, field) in window[8192..].chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    let shown = SleepImage::from_bytes(&window)
        .inspect()
        .unwrap()
        .mailbox
        .unwrap();
    assert!(shown.valid);
    assert_eq!(
        (shown.command, shown.answer),
        ("sleep", Some(Reason::NO_SPACE))
    );
    assert_eq!(
        (shown.needed_bytes, shown.available_bytes),
        (99 << 20, 98 << 20)
    );
}

#[test]
fn a_header_that_claims_the_impossible_is_refused_without_reading_it() {
    let huge: &[fn(&mut sys::dormouse_header)] = &[
        |h| h.cxl_bytes = 1 << 51,
        |h| h.cxl_bytes = u64::MAX,
        |h| h.cxl_base = u64::MAX,
        |h| h.dram_pages = u64::MAX,
        |h| h.dram_pages = 1 << 40,
        |h| h.dram_pages = 0,
        |h| h.dram_pages = h.cxl_base / 4096 + 1, // memory that ends inside the window
        |h| h.dram_bytes = u64::MAX,
        |h| h.reserved_bytes = u64::MAX,
        |h| h.reserved_bytes = 0,
        |h| h.data_offset = u64::MAX,
        |h| h.dram_bitmap_bytes = u64::MAX,
        |h| h.cxl_bitmap_bytes = 1 << 63,
        |h| h.cxl_bitmap_offset = 1 << 63,
    ];
    let window = suspended();
    for (number, lie) in huge.iter().enumerate() {
        let mut window = window.clone();
        let mut header = read_header(&window, newest(&window).unwrap()).unwrap();
        lie(&mut header);
        commit(&mut window, &mut header);
        assert!(
            SleepImage::from_bytes(&window).verify().is_err(),
            "lie {number}"
        );
    }
}

#[test]
fn bitmaps_larger_than_the_limit_are_not_taken_into_memory() {
    let mut window = suspended();
    let mut header = read_header(&window, newest(&window).unwrap()).unwrap();
    header.cxl_bytes = 1 << 40;
    header.reserved_bytes = 1 << 30;
    header.data_offset = 1 << 30;
    commit(&mut window, &mut header);
    let file = file_of(&window);
    file.as_file().set_len(1 << 40).unwrap(); // a hole
    let error = SleepImage::open(file.path()).unwrap().verify().unwrap_err();
    assert!(
        matches!(error, dormouse_image::VerifyError::TooLarge { .. }),
        "{error}"
    );
}

#[test]
fn what_is_no_file_or_device_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let kind = |path: &str| SleepImage::open(path).map(|_| ()).unwrap_err();
    assert!(matches!(
        kind(folder.path().to_str().unwrap()),
        OpenError::WrongKind { .. }
    ));
    assert!(matches!(kind("/dev/zero"), OpenError::WrongKind { .. }));
    assert!(matches!(kind("/nonexistent/image"), OpenError::Io { .. }));
}

#[test]
fn every_reason_has_a_name_and_a_sentence_of_its_own() {
    let mut names: Vec<&str> = Reason::all().map(Reason::name).collect();
    let mut texts: Vec<&str> = Reason::all().map(Reason::text).collect();
    names.sort_unstable();
    texts.sort_unstable();
    let count = names.len();
    names.dedup();
    texts.dedup();
    assert_eq!((names.len(), texts.len()), (count, count));
    assert_eq!(count, 39);
    assert_eq!(Reason(4000).name(), "unknown");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        let image = SleepImage::from_bytes(&bytes);
        prop_assert!(image.verify().is_err());
        prop_assert!(image.inspect().is_ok());
    }
}

/// Sealed headers with random words in place of fields, over a small window.
fn liars() -> impl Strategy<Value = Vec<(usize, u64)>> {
    let edge = prop_oneof![
        Just(0),
        Just(8),
        Just(4096),
        Just(8192),
        Just(12288),
        Just(u64::MAX),
        Just(1 << 63),
        Just(128 << 20),
        Just(4 << 30),
        any::<u64>(),
        0u64..100_000
    ];
    prop::collection::vec((3usize..28, edge), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_header_makes_reading_panic(lies in liars()) {
        thread_local! {
            static GOOD: std::cell::RefCell<Vec<u8>> = suspended().into();
        }
        GOOD.with_borrow_mut(|window| {
            let copy = newest(window).unwrap();
            let good = read_header(window, copy).unwrap();
            for (word, value) in lies {
                window[copy * 4096 + word * 8..][..8].copy_from_slice(&value.to_le_bytes());
            }
            let mut liar = read_header(window, copy).unwrap();
            (liar.state, liar.flags, liar.generation) = (good.state, 0, good.generation);
            liar.kind %= 2;
            seal(&mut liar);
            write_header(window, copy, &liar);
            let image = SleepImage::from_bytes(window);
            let _ = image.verify();
            assert!(image.inspect().unwrap().selected == Some(copy));
            write_header(window, copy, &good);
        });
    }
}
