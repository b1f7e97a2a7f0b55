//! Corrupts one header field at a time, expects its reason, and puts it back.

use dormouse_image::check::{self, Geometry, HEADER_BYTES, Header};
use dormouse_image::edit::{Recipe, read_header, seal, seal_bitmaps, write_header};
use dormouse_image::{Reason, Refusal, SleepImage, State, sys};

const SUSPENDED: u32 = 1 << State::SUSPENDED.0;
const IMAGE: u32 = SUSPENDED | 1 << State::RESTORING.0;
const PREPARED: u32 = 1 << State::PREPARED.0;

struct Image {
    geometry: Geometry,
    window: Vec<u8>,
    header: Box<Header>,
    metadata: Vec<u64>,
}

impl Image {
    fn new() -> Self {
        let recipe = Recipe::small();
        let window = recipe
            .suspended(|frame, page| page.fill(frame as u8))
            .unwrap();
        let newest = dormouse_image::edit::newest(&window).unwrap();
        let header = read_header(&window, newest).unwrap();
        let mut image = Self {
            geometry: recipe.geometry,
            window,
            header,
            metadata: Vec::new(),
        };
        image.reload();
        image
    }

    fn reload(&mut self) {
        let bytes = &self.window[..self.header.data_offset as usize];
        let words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        self.metadata = words.collect();
    }

    fn check(&self, header: &Header, allowed: u32) -> Result<(), Refusal> {
        check::image(header, &self.geometry, &self.metadata, allowed)
    }

    /// Sets bits of the DRAM bitmap and makes all digests and counts right for it.
    fn with_dram_bits(&self, first: u64, count: u64) -> (Self, Box<Header>) {
        let mut image = Self {
            geometry: self.geometry.clone(),
            window: self.window.clone(),
            header: self.header.clone(),
            metadata: Vec::new(),
        };
        for bit in first..first + count {
            let at = self.header.dram_bitmap_offset + bit / 8;
            image.window[at as usize] |= 1 << (bit % 8);
        }
        image.reload();
        let mut header = self.header.clone();
        seal_bitmaps(&image.window, &mut header);
        header.saved_pages = header.request_pages;
        (image, header)
    }
}

type Corrupt = fn(&mut Header);

/// Each field with a wrong value in an otherwise valid, sealed, suspended image.
// A row for each corruption.
#[rustfmt::skip]
const FIELDS: &[(&str, Corrupt, Reason)] = &[
    ("magic", |h| h.magic ^= 1, Reason::MAGIC),
    ("version", |h| h.version += 1, Reason::VERSION),
    ("header_bytes", |h| h.header_bytes *= 2, Reason::HEADER_SIZE),
    ("generation", |h| h.generation += 7, Reason::OK),
    ("state", |h| h.state = sys::DORMOUSE_STATE_COUNT, Reason::STATE),
    ("state", |h| h.state = u32::MAX, Reason::STATE),
    ("flags", |h| h.flags = 1, Reason::FLAGS),
    ("flags", |h| h.flags = 1 << 31, Reason::FLAGS),
    ("cxl_base", |h| h.cxl_base += 4096, Reason::CXL_SIZE),
    ("cxl_bytes", |h| h.cxl_bytes -= 4096, Reason::CXL_SIZE),
    ("reserved_bytes", |h| h.reserved_bytes *= 2, Reason::CXL_SIZE),
    ("dram_bytes", |h| h.dram_bytes += 4096, Reason::DRAM_SIZE),
    ("dram_pages", |h| h.dram_pages -= 1, Reason::DRAM_SIZE),
    ("memory_map_digest", |h| h.memory_map_digest ^= 1, Reason::MEMORY_MAP),
    ("device_serial", |h| h.device_serial += 1, Reason::DEVICE),
    ("dirty_shutdown_count", |h| h.dirty_shutdown_count += 1, Reason::DIRTY_SHUTDOWN),
    ("dram_bitmap_offset", |h| h.dram_bitmap_offset += 4, Reason::LAYOUT),
    ("dram_bitmap_offset", |h| h.dram_bitmap_offset = 0, Reason::LAYOUT),
    ("dram_bitmap_offset", |h| h.dram_bitmap_offset = h.cxl_bitmap_offset, Reason::LAYOUT),
    ("dram_bitmap_offset", |h| h.dram_bitmap_offset = h.data_offset, Reason::LAYOUT),
    ("dram_bitmap_offset", |h| h.dram_bitmap_offset = u64::MAX - 7, Reason::LAYOUT),
    ("dram_bitmap_offset", |h| h.dram_bitmap_offset += 8, Reason::BITMAP_DIGEST),
    ("dram_bitmap_bytes", |h| h.dram_bitmap_bytes -= 8, Reason::LAYOUT),
    ("dram_bitmap_bytes", |h| h.dram_bitmap_bytes += 4, Reason::LAYOUT),
    ("dram_bitmap_bytes", |h| h.dram_bitmap_bytes += 8, Reason::BITMAP_DIGEST),
    ("dram_bitmap_bytes", |h| h.dram_bitmap_bytes = 0, Reason::LAYOUT),
    ("dram_bitmap_bytes", |h| h.dram_bitmap_bytes = u64::MAX - 7, Reason::LAYOUT),
    ("dram_bitmap_digest", |h| h.dram_bitmap_digest ^= 1 << 40, Reason::BITMAP_DIGEST),
    ("cxl_bitmap_offset", |h| h.cxl_bitmap_offset += 4, Reason::LAYOUT),
    ("cxl_bitmap_offset", |h| h.cxl_bitmap_offset = 8192, Reason::LAYOUT),
    ("cxl_bitmap_offset", |h| h.cxl_bitmap_offset = h.dram_bitmap_offset + 8, Reason::LAYOUT),
    ("cxl_bitmap_offset", |h| h.cxl_bitmap_offset = u64::MAX - 7, Reason::LAYOUT),
    ("cxl_bitmap_bytes", |h| h.cxl_bitmap_bytes -= 8, Reason::LAYOUT),
    ("cxl_bitmap_bytes", |h| h.cxl_bitmap_bytes += 4, Reason::LAYOUT),
    ("cxl_bitmap_bytes", |h| h.cxl_bitmap_bytes = u64::MAX - 7, Reason::LAYOUT),
    ("cxl_bitmap_digest", |h| h.cxl_bitmap_digest ^= 1, Reason::BITMAP_DIGEST),
    ("data_offset", |h| h.data_offset -= 1, Reason::LAYOUT),
    ("data_offset", |h| h.data_offset -= 4096, Reason::LAYOUT),
    ("data_offset", |h| h.data_offset = h.reserved_bytes + 4096, Reason::LAYOUT),
    ("data_offset", |h| h.data_offset = !4095, Reason::LAYOUT),
    ("data_offset", |h| h.data_offset = 0, Reason::LAYOUT),
    ("request_pages", |h| h.request_pages -= 1, Reason::SAVED_COUNT),
    ("saved_pages", |h| h.saved_pages += 1, Reason::SAVED_COUNT),
    ("saved_digest", |h| h.saved_digest ^= 1, Reason::OK), // the copy finds it
    ("restored_pages", |h| h.restored_pages = 1, Reason::OK),
    ("wake_vector", |h| h.wake_vector = 0, Reason::WAKE_VECTOR),
    ("wake_vector", |h| h.wake_vector = 0x10_0000, Reason::WAKE_VECTOR),
    ("wake_vector", |h| h.wake_vector = 0x9_8fff, Reason::WAKE_VECTOR), // page not saved
    ("wake_vector", |h| h.wake_vector = 0xa_0000, Reason::WAKE_VECTOR), // not RAM
    ("wake_vector", |h| h.wake_vector = u64::MAX, Reason::WAKE_VECTOR),
    ("restore_attempts", |h| h.restore_attempts = 7, Reason::OK),
    ("restore_attempts", |h| h.restore_attempts = 8, Reason::ATTEMPTS),
    ("kind", |h| h.kind = 1, Reason::KIND),
    ("kind", |h| h.kind = 2, Reason::FLAGS),
    ("snapshot", |h| h.snapshot.kernel_digest = 1, Reason::FLAGS),
    ("snapshot", |h| h.snapshot.room[7] = 1, Reason::FLAGS),
    ("sleep_count", |h| h.sleep_count += 1, Reason::OK),
    ("resume_count", |h| h.resume_count += 1, Reason::OK),
    ("last_outcome", |h| h.last_outcome = 99, Reason::OK),
    ("last_reason", |h| h.last_reason = 99, Reason::OK),
    ("last_detail", |h| h.last_detail = 99, Reason::OK),
    ("phase", |h| h.phase[2].end_ns = 99, Reason::OK),
    ("persistence", |h| h.persistence = 0, Reason::VOLATILE),
    ("persistence", |h| h.persistence = 2, Reason::OK),
    ("persistence", |h| h.persistence = 3, Reason::OK),
    ("persistence", |h| h.persistence = 4, Reason::VOLATILE),
    ("user_check", |h| h.user_check = 0, Reason::OK),
    ("user_check", |h| h.user_check = 3, Reason::FLAGS),
    ("user_check", |h| h.user_check = u32::MAX, Reason::FLAGS),
    ("user_table_offset", |h| h.user_table_offset += 4, Reason::LAYOUT),
    ("user_table_offset", |h| h.user_table_offset = h.cxl_bitmap_offset, Reason::LAYOUT),
    ("user_table_offset", |h| h.user_table_offset = h.dram_bitmap_offset, Reason::LAYOUT),
    ("user_table_offset", |h| h.user_table_offset = u64::MAX - 7, Reason::LAYOUT),
    ("user_table_offset", |h| h.user_table_offset = h.data_offset, Reason::LAYOUT),
    ("user_table_bytes", |h| h.user_table_bytes -= 8, Reason::LAYOUT),
    ("user_table_bytes", |h| h.user_table_bytes = u64::MAX - 7, Reason::LAYOUT),
    ("user_table_digest", |h| h.user_table_digest ^= 1, Reason::BITMAP_DIGEST),
    ("user_groups", |h| h.user_groups += 1, Reason::OK), // for people
    ("user_pages", |h| h.user_pages = u64::MAX, Reason::OK),
    ("encryption", |h| h.encryption.algorithm = 1, Reason::FLAGS),
    ("encryption", |h| h.encryption.key_id[31] = 1, Reason::FLAGS),
    ("encryption", |h| h.encryption.tag[0] = 1, Reason::FLAGS),
    ("encryption", |h| h.encryption.tag_table_bytes = 1, Reason::FLAGS),
    ("reserved", |h| h.reserved[3407] = 1, Reason::OK),
];

#[test]
fn each_corrupted_field_is_refused_for_its_own_reason() {
    let image = Image::new();
    assert_eq!(image.check(&image.header, SUSPENDED), Ok(()));
    for (name, corrupt, expected) in FIELDS {
        let mut header = image.header.clone();
        corrupt(&mut header);
        let found = image
            .check(&header, IMAGE)
            .map_or_else(|refusal| refusal.reason, |()| Reason::OK);
        assert_eq!(found, *expected, "{name}");
        assert_eq!(
            image.check(&image.header, SUSPENDED),
            Ok(()),
            "put back after {name}"
        );
    }
}

#[test]
fn each_corrupted_field_without_a_new_digest_makes_the_copy_invalid() {
    let image = Image::new();
    for (name, corrupt, _) in FIELDS {
        let mut header = image.header.clone();
        corrupt(&mut header);
        let expected = match *name {
            "magic" => Reason::MAGIC,
            "version" => Reason::VERSION,
            "header_bytes" => Reason::HEADER_SIZE,
            _ => Reason::HEADER_DIGEST,
        };
        assert_eq!(check::header(&header), expected, "{name}");
    }
}

#[test]
fn no_single_flipped_bit_of_a_header_is_accepted() {
    let image = Image::new();
    let mut bytes = *check::header_bytes(&image.header);
    for bit in 0..HEADER_BYTES * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(
            !check::header(&check::header_from(&bytes)).is_ok(),
            "bit {bit}"
        );
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(check::header(&check::header_from(&bytes)), Reason::OK);
}

#[test]
fn sealed_headers_with_unknown_flags_or_states_are_invalid() {
    let image = Image::new();
    for (name, corrupt, expected) in FIELDS {
        // Another kind is valid by itself; only the checker of the other way refuses it.
        let judged = [
            "flags",
            "state",
            "user_check",
            "encryption",
            "kind",
            "snapshot",
        ];
        if judged.contains(name) && !expected.is_ok() && *expected != Reason::KIND {
            let mut header = image.header.clone();
            corrupt(&mut header);
            seal(&mut header);
            assert_eq!(check::header(&header), *expected, "{name}");
        }
    }
}

#[test]
fn a_state_that_the_step_does_not_need_is_refused_with_what_it_means() {
    let image = Image::new();
    let states = [
        State::EMPTY,
        State::PREPARED,
        State::SAVING,
        State::SUSPENDED,
        State::RESTORING,
        State::CONSUMED,
    ];
    use Reason as R;
    let (exists, torn) = (R::IMAGE_EXISTS, R::INCOMPLETE);
    let table = [
        (IMAGE, [R::NO_IMAGE, torn, torn, R::OK, R::OK, R::CONSUMED]),
        (
            PREPARED,
            [R::STATE, R::OK, R::STATE, exists, exists, R::STATE],
        ),
    ];
    let table = table.iter().flat_map(|(allowed, expected)| {
        let pairs = states.iter().zip(expected);
        pairs.map(|(state, expected)| (*state, *allowed, *expected))
    });
    let more = [
        (State::SUSPENDED, 0, exists),
        (State::RESTORING, SUSPENDED, R::STATE),
    ];
    for (state, allowed, expected) in table.chain(more) {
        let mut header = image.header.clone();
        header.state = state.0;
        let found = image.check(&header, allowed);
        assert_eq!(
            found.map_or_else(|r| r.reason, |()| Reason::OK),
            expected,
            "{state:?}"
        );
        if let Err(refusal) = found {
            assert_eq!(refusal.detail, state.0.into());
        }
    }
}

#[test]
fn a_prepared_request_needs_neither_wake_vector_nor_result() {
    let image = Image::new();
    let mut header = image.header.clone();
    header.state = State::PREPARED.0;
    (
        header.wake_vector,
        header.saved_pages,
        header.restore_attempts,
    ) = (0, 0, 99);
    assert_eq!(image.check(&header, PREPARED), Ok(()));
}

#[test]
fn another_memory_map_of_the_same_size_is_told_from_another_size() {
    let image = Image::new();
    let block = u64::from(sys::DORMOUSE_BLOCK_BYTES);
    let own = |ranges: &[(u64, u64)]| {
        let geometry = Geometry::new(4 << 30, block, block, ranges).unwrap();
        let geometry = geometry.with_device(0x1122_3344_5566_7788, 3);
        check::image(&image.header, &geometry, &image.metadata, IMAGE)
            .unwrap_err()
            .reason
    };
    assert_eq!(
        own(&[(0, 0x9_f000), (0xf_f000, 0xf0_1000)]),
        Reason::MEMORY_MAP
    );
    assert_eq!(
        own(&[(0, 0xa_0000), (0x10_0000, 31 << 20)]),
        Reason::DRAM_SIZE
    );
    assert_eq!(
        own(&[(0, 0xa_0000), (0x10_0000, (15 << 20) - 4096)]),
        Reason::DRAM_SIZE
    );
}

/// Pages at and around each edge of the ranges [0, 0xa0) and [0x100, 0x1000).
#[test]
fn a_page_outside_ram_is_named_wherever_it_lies() {
    let image = Image::new();
    let table: &[(u64, u64, Option<u64>)] = &[
        (0, 1, None),
        (0x9f, 1, None),
        (0x9f, 2, Some(0xa0)), // runs over the end of a range
        (0xa0, 1, Some(0xa0)), // first page of the hole
        (0xff, 1, Some(0xff)), // last page of the hole
        (0xa0, 0x60, Some(0xa0)),
        (0x90, 0x100, Some(0xa0)), // spans the hole
        (0xfff, 1, None),
        (0x1000, 1, Some(0x1000)), // behind all memory, beyond dram_pages
        (0xff0, 0x18, Some(0x1000)),
    ];
    // The last two cases need bits behind dram_pages: enlarge the bitmap by a word.
    for &(first, count, outside) in table {
        let mut base = Image::new();
        base.header.dram_bitmap_bytes += 8;
        seal_bitmaps(&base.window, &mut base.header);
        let (changed, header) = base.with_dram_bits(first, count);
        let expected = match outside {
            None => Ok(()),
            Some(detail) => Err(Refusal {
                reason: Reason::OUTSIDE_RAM,
                detail,
            }),
        };
        assert_eq!(
            changed.check(&header, IMAGE),
            expected,
            "pages {first:#x}+{count:#x}"
        );
    }
    assert_eq!(image.check(&image.header, IMAGE), Ok(()));
}

#[test]
fn a_run_across_touching_ranges_is_inside_ram() {
    let block = u64::from(sys::DORMOUSE_BLOCK_BYTES);
    let ranges = [
        (0, 0xa_0000),
        (0x10_0000, 1 << 20),
        (0x20_0000, 1 << 20),
        (0x30_0000, 13 << 20),
    ];
    let mut recipe = Recipe::small();
    recipe.geometry = Geometry::new(4 << 30, block, block, &ranges).unwrap();
    recipe.save = vec![(0x99, 1), (0x100, 0xf00)];
    let window = recipe.suspended(|_, _| ()).unwrap();
    let header = read_header(&window, 0)
        .into_iter()
        .chain(read_header(&window, 1));
    let header = header.max_by_key(|header| header.generation).unwrap();
    let words = window[..header.data_offset as usize].chunks_exact(8);
    let words: Vec<u64> = words
        .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
        .collect();
    assert_eq!(
        check::image(&header, &recipe.geometry, &words, IMAGE),
        Ok(())
    );
}

#[test]
fn an_image_that_does_not_fit_is_refused_with_the_bytes_it_needs() {
    let mut image = Image::new();
    let header = &mut image.header;
    // Occupy all pages but 75; the request has 76.
    let (start, end) = (header.data_offset / 4096, header.cxl_bytes / 4096);
    let bitmap = header.cxl_bitmap_offset as usize;
    for page in start..end {
        image.window[bitmap + page as usize / 8] |= 1 << (page % 8);
    }
    let free = |window: &mut [u8], pages: u64| {
        for page in start..start + pages {
            window[bitmap + page as usize / 8] &= !(1 << (page % 8));
        }
    };
    free(&mut image.window, 75);
    seal_bitmaps(&image.window, header);
    let needed = header.request_pages * 4096;
    assert_eq!(header.request_pages, 76);
    image.reload();
    let refusal = Refusal {
        reason: Reason::NO_SPACE,
        detail: needed,
    };
    assert_eq!(image.check(&image.header, IMAGE), Err(refusal));
    let space = check::space(&image.header, &image.geometry, &image.metadata);
    assert_eq!(space, (Reason::NO_SPACE, needed, 75 * 4096));

    free(&mut image.window, 76);
    let mut header = image.header.clone();
    seal_bitmaps(&image.window, &mut header);
    image.reload();
    assert_eq!(image.check(&header, IMAGE), Ok(()));
    let space = check::space(&header, &image.geometry, &image.metadata);
    assert_eq!(space, (Reason::OK, needed, needed));
}

#[test]
fn space_of_a_header_that_lies_is_none() {
    let image = Image::new();
    let mut header = image.header.clone();
    header.cxl_bitmap_offset = u64::MAX - 7;
    let space = check::space(&header, &image.geometry, &image.metadata);
    assert_eq!(space, (Reason::LAYOUT, 0, 0));
}

#[test]
fn a_checker_without_a_sound_geometry_is_not_ready() {
    let image = Image::new();
    let none = Geometry::new(4 << 30, 0, 0, &[]).unwrap();
    let refusal = check::image(&image.header, &none, &image.metadata, IMAGE).unwrap_err();
    assert_eq!(refusal.reason, Reason::NOT_READY);
}

#[test]
fn the_file_alone_gives_the_same_reasons_as_firmware() {
    let mut image = Image::new();
    assert!(SleepImage::from_bytes(&image.window).verify().is_ok());
    let firmware_only = ["memory_map_digest", "device_serial", "dirty_shutdown_count"];
    // A file does not distinguish these from another machine; another rule may find them.
    let some_reason = [
        "cxl_base",
        "cxl_bytes",
        "reserved_bytes",
        "dram_bytes",
        "dram_pages",
    ];
    for (name, corrupt, expected) in FIELDS {
        let mut header = image.header.clone();
        corrupt(&mut header);
        seal(&mut header);
        for copy in 0..2 {
            write_header(&mut image.window, copy, &header);
        }
        let found = SleepImage::from_bytes(&image.window).verify();
        let found = found.map_or_else(|error| error.refusal().unwrap().reason, |_| Reason::OK);
        match *name {
            name if firmware_only.contains(&name) => assert_eq!(found, Reason::OK, "{name}"),
            name if some_reason.contains(&name) => (),
            "saved_digest" => assert_eq!(found, Reason::SAVED_DIGEST),
            // A file is judged as its kind says; this one is no image of the other kind.
            "kind" => assert!(!found.is_ok(), "{name}"),
            name => assert_eq!(found, *expected, "{name}"),
        }
    }
}
