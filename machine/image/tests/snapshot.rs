//! Images that hold the kernel's own snapshot: each field with a wrong value is refused by name,
//! and what user space stores through a mapped head is what a checker reads.

use std::fs::File;

use dormouse_image::check::{self, Geometry, Header, PAGE_BYTES};
use dormouse_image::digest::{Xxh64, xxh64};
use dormouse_image::edit::seal;
use dormouse_image::head::Head;
use dormouse_image::snapshot::{self, Facts, Machine, Mapped};
use dormouse_image::user_pages;
use dormouse_image::{Persistence, Reason, SleepImage, State, UserCheck};

const HEAD_BYTES: u64 = 4 << 20;
const HEAD_BASE: u64 = (4 << 30) + (2 << 20);
const NODE_BASE: u64 = 5 << 30;
/// Not a whole number of groups.
const NODE_BYTES: u64 = (3 * 64 + 5) * PAGE_BYTES;
const IMAGE: u32 = 1 << State::SUSPENDED.0 | 1 << State::RESTORING.0;
const RAM: [(u64, u64); 2] = [(0, 0xa_0000), (0x10_0000, 15 << 20)];

fn machine() -> Machine {
    Machine {
        kernel_digest: 0x11,
        firmware_map_digest: 0x22,
        node_base: NODE_BASE,
        node_bytes: NODE_BYTES,
        present_pages: 4000,
    }
}

fn facts_with(ranges: &[(u64, u64)], head_bytes: u64, serial: u64, machine: Machine) -> Facts {
    let geometry = Geometry::new(HEAD_BASE, head_bytes, head_bytes, ranges).unwrap();
    Facts::new(&geometry.with_device(serial, 3), machine)
}

fn facts() -> Facts {
    facts_with(&RAM, HEAD_BYTES, 0xd0, machine())
}

/// A committed image in a file: three pages of snapshot, all pages of a node with a digest.
struct Asleep {
    _file: tempfile::NamedTempFile,
    head: Head,
    node: Vec<u8>,
    header: Box<Header>,
}

fn asleep() -> Asleep {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(HEAD_BYTES).unwrap();
    let mut head = Head::open(file.path(), HEAD_BYTES, true).unwrap();
    let facts = facts();
    let mut header = facts.new_header(None).unwrap();
    head.commit(&mut header);

    let node: Vec<u8> = (0..NODE_BYTES).map(|at| (at / 97) as u8).collect();
    let words = snapshot::words(NODE_BYTES) as usize;
    let mut bitmap = vec![u64::MAX; words];
    bitmap[1] = 0;
    bitmap[words - 1] = 0b1_0101;
    let mut table = vec![0u64; words];
    for (group, word) in bitmap.iter().enumerate() {
        if *word != 0 {
            table[group] = user_pages::digest(&node[group * user_pages::GROUP_BYTES..], *word);
        }
    }
    let bytes = |words: &[u64]| {
        words
            .iter()
            .flat_map(|one| one.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let mut unused = Xxh64::new();
    head.store(header.cxl_bitmap_offset, &bytes(&bitmap), &mut unused);
    head.store(header.user_table_offset, &bytes(&table), &mut unused);
    let pages: Vec<u8> = (0..3 * PAGE_BYTES).map(|at| (at % 251) as u8).collect();
    let mut hash = Xxh64::new();
    for (number, page) in (0u64..).zip(pages.chunks(PAGE_BYTES as usize)) {
        head.store(header.data_offset + number * PAGE_BYTES, page, &mut hash);
    }
    assert_eq!(hash.finish(), xxh64(&pages));

    header.persistence = Persistence::DEVICE.0;
    header.user_check = UserCheck::ALL.0;
    header.cxl_bitmap_digest = xxh64(&bytes(&bitmap));
    header.user_table_digest = xxh64(&bytes(&table));
    header.request_pages = 3;
    header.saved_pages = 3;
    header.saved_digest = hash.finish();
    header.snapshot.present_pages = 4000 + 192;
    header.snapshot.node_present_pages = 192;
    for state in [State::PREPARED, State::SAVING, State::SUSPENDED] {
        header.state = state.0;
        head.commit(&mut header);
    }
    Asleep {
        _file: file,
        head,
        node,
        header,
    }
}

impl Asleep {
    fn check(&self, header: &Header, facts: &Facts) -> Reason {
        let window = self.head.device().read_words(self.header.data_offset);
        facts
            .check(header, &window, IMAGE)
            .map_or_else(|refusal| refusal.reason, |()| Reason::OK)
    }
}

#[test]
fn a_snapshot_that_was_stored_through_the_head_is_accepted_and_verified() {
    let asleep = asleep();
    let header = asleep.head.header().unwrap();
    assert_eq!(asleep.check(&header, &facts()), Reason::OK);
    let image = SleepImage::open(asleep.head.device().path()).unwrap();
    let verified = image.verify().unwrap();
    assert_eq!(verified.saved_bytes, 3 * PAGE_BYTES);
    let view = image.inspect().unwrap().header.unwrap();
    assert_eq!(view.kind.name(), "snapshot");
    assert_eq!(view.snapshot.unwrap().node_base, NODE_BASE);
}

type Corrupt = fn(&mut Header);

#[test]
fn each_corrupted_field_of_a_snapshot_s_header_is_refused_by_name() {
    let asleep = asleep();
    // A row for each corruption.
    #[rustfmt::skip]
    let fields: &[(&str, Corrupt, Reason)] = &[
        ("magic", |h| h.magic ^= 1, Reason::MAGIC),
        ("version", |h| h.version -= 1, Reason::VERSION),
        ("flags", |h| h.flags = 1, Reason::FLAGS),
        ("room", |h| h.snapshot.room[3] = 1, Reason::FLAGS),
        ("kind", |h| h.kind = 2, Reason::FLAGS),
        ("state", |h| h.state = State::SAVING.0, Reason::INCOMPLETE),
        ("state", |h| h.state = State::CONSUMED.0, Reason::CONSUMED),
        ("persistence", |h| h.persistence = 0, Reason::VOLATILE),
        ("cxl_base", |h| h.cxl_base += PAGE_BYTES, Reason::CXL_SIZE),
        ("cxl_bytes", |h| h.cxl_bytes *= 2, Reason::CXL_SIZE),
        ("reserved_bytes", |h| h.reserved_bytes = 0, Reason::CXL_SIZE),
        ("dram_bytes", |h| h.dram_bytes += 1, Reason::DRAM_SIZE),
        ("memory_map_digest", |h| h.memory_map_digest ^= 1, Reason::MEMORY_MAP),
        ("device_serial", |h| h.device_serial ^= 1, Reason::DEVICE),
        ("dirty_shutdown_count", |h| h.dirty_shutdown_count += 1, Reason::DIRTY_SHUTDOWN),
        ("cxl_bitmap_offset", |h| h.cxl_bitmap_offset += 8, Reason::LAYOUT),
        ("cxl_bitmap_bytes", |h| h.cxl_bitmap_bytes = u64::MAX, Reason::LAYOUT),
        ("cxl_bitmap_digest", |h| h.cxl_bitmap_digest ^= 1, Reason::BITMAP_DIGEST),
        ("user_table_offset", |h| h.user_table_offset = u64::MAX, Reason::LAYOUT),
        ("user_table_digest", |h| h.user_table_digest ^= 1, Reason::BITMAP_DIGEST),
        ("data_offset", |h| h.data_offset = 0, Reason::LAYOUT),
        ("saved_pages", |h| h.saved_pages = 1 << 40, Reason::NO_SPACE),
        ("saved_pages", |h| h.saved_pages = 2, Reason::SAVED_COUNT),
        ("request_pages", |h| h.request_pages = 4, Reason::SAVED_COUNT),
        ("restore_attempts", |h| h.restore_attempts = 8, Reason::ATTEMPTS),
        ("kernel_digest", |h| h.snapshot.kernel_digest ^= 1, Reason::KERNEL),
        ("firmware_map", |h| h.snapshot.firmware_map_digest ^= 1, Reason::MEMORY_MAP),
        ("node_base", |h| h.snapshot.node_base = 0, Reason::CXL_SIZE),
        ("node_bytes", |h| h.snapshot.node_bytes += 1, Reason::CXL_SIZE),
        ("present_pages", |h| h.snapshot.present_pages += 1, Reason::DRAM_SIZE),
        ("node_present_pages", |h| h.snapshot.node_present_pages = u64::MAX, Reason::DRAM_SIZE),
    ];
    for (name, corrupt, expected) in fields {
        let mut header = asleep.header.clone();
        corrupt(&mut header);
        seal(&mut header);
        assert_eq!(asleep.check(&header, &facts()), *expected, "{name}");
    }
}

#[test]
fn a_sealed_header_is_accepted_with_the_one_place_of_its_tags_and_refused_with_any_other() {
    use dormouse_image::snapshot::tag_table_bytes;
    use dormouse_image::sys::{DORMOUSE_ALGORITHM_AES_256_GCM, DORMOUSE_FLAG_ENCRYPTED};

    let asleep = asleep();
    let sealed = || {
        let mut header = asleep.header.clone();
        header.flags = DORMOUSE_FLAG_ENCRYPTED;
        let record = &mut header.encryption;
        record.algorithm = DORMOUSE_ALGORITHM_AES_256_GCM;
        let bytes = header.saved_pages * PAGE_BYTES;
        record.tag_table_offset = header.data_offset + bytes;
        record.tag_table_bytes = tag_table_bytes(bytes);
        header
    };
    let judge = |mut header: Box<Header>| {
        seal(&mut header);
        asleep.check(&header, &facts())
    };
    assert_eq!(judge(sealed()), Reason::OK);
    #[rustfmt::skip]
    let rows: &[(&str, Corrupt, Reason)] = &[
        ("no flag", |h| h.flags = 0, Reason::FLAGS),
        ("another flag", |h| h.flags |= 2, Reason::FLAGS),
        ("firmware's kind", |h| h.kind = 0, Reason::FLAGS),
        ("algorithm", |h| h.encryption.algorithm = 2, Reason::FLAGS),
        ("unused tag bytes", |h| h.encryption.tag[32] = 1, Reason::FLAGS),
        ("table moved", |h| h.encryption.tag_table_offset += 16, Reason::LAYOUT),
        ("table at the end", |h| h.encryption.tag_table_offset = u64::MAX, Reason::LAYOUT),
        ("table longer", |h| h.encryption.tag_table_bytes += 16, Reason::LAYOUT),
        ("no table", |h| h.encryption.tag_table_bytes = 0, Reason::LAYOUT),
        ("no room for the table", |h| {
            h.saved_pages = (h.cxl_bytes - h.data_offset) / PAGE_BYTES;
            h.request_pages = h.saved_pages;
            let bytes = h.saved_pages * PAGE_BYTES;
            h.encryption.tag_table_offset = h.data_offset + bytes;
            h.encryption.tag_table_bytes = tag_table_bytes(bytes);
        }, Reason::NO_SPACE),
    ];
    for (name, corrupt, expected) in rows {
        let mut header = sealed();
        corrupt(&mut header);
        assert_eq!(judge(header), *expected, "{name}");
    }
}

#[test]
fn each_chunk_of_a_sealed_snapshot_has_a_tag_and_nothing_has_one_too() {
    use dormouse_image::snapshot::tag_table_bytes;
    for (bytes, tags) in [
        (0, 1),
        (1, 1),
        (262_144, 1),
        (262_145, 2),
        (u64::MAX, 1 << 46),
    ] {
        assert_eq!(tag_table_bytes(bytes), tags * 16, "{bytes}");
    }
}

#[test]
fn a_machine_that_differs_from_the_one_that_slept_is_named() {
    let asleep = asleep();
    let header = &asleep.header;
    let with = |change: fn(&mut Machine)| {
        let mut machine = machine();
        change(&mut machine);
        facts_with(&RAM, HEAD_BYTES, 0xd0, machine)
    };
    let cases = [
        (with(|m| m.kernel_digest = 0), Reason::KERNEL),
        (with(|m| m.firmware_map_digest = 0), Reason::MEMORY_MAP),
        (with(|m| m.present_pages = 1), Reason::DRAM_SIZE),
        (with(|m| m.node_bytes += PAGE_BYTES), Reason::CXL_SIZE),
        (with(|m| m.node_base = 0), Reason::CXL_SIZE),
        (
            facts_with(&RAM[..1], HEAD_BYTES, 0xd0, machine()),
            Reason::DRAM_SIZE,
        ),
        (
            facts_with(&RAM, HEAD_BYTES, 0xd1, machine()),
            Reason::DEVICE,
        ),
        (
            facts_with(&RAM, 2 * HEAD_BYTES, 0xd0, machine()),
            Reason::CXL_SIZE,
        ),
    ];
    for (facts, expected) in cases {
        assert_eq!(asleep.check(header, &facts), expected);
    }
}

#[test]
fn the_two_ways_to_sleep_refuse_each_other_s_images() {
    let asleep = asleep();
    let geometry = Geometry::new(4 << 30, 128 << 20, 128 << 20, &RAM).unwrap();
    let window = vec![0; 64 << 10];
    let refused = check::image(&asleep.header, &geometry, &window, IMAGE).unwrap_err();
    assert_eq!(refused.reason, Reason::KIND);
    let other = geometry.new_header(None);
    let refused = facts().check(&other, &window, IMAGE).unwrap_err();
    assert_eq!(refused.reason, Reason::KIND);
}

#[test]
fn a_changed_user_page_is_found_and_the_free_ones_are_not_looked_at() {
    let mut asleep = asleep();
    let window = asleep.head.device().read_words(asleep.header.data_offset);
    let compare = |asleep: &Asleep| {
        facts()
            .compare(&asleep.header, &window, Mapped::from_slice(&asleep.node))
            .map_or_else(|refusal| Some(refusal.detail), |()| None)
    };
    assert_eq!(compare(&asleep), None);
    // A page that is free.
    asleep.node[64 * PAGE_BYTES as usize] ^= 1;
    assert_eq!(compare(&asleep), None);
    asleep.node[(2 * 64 + 9) * PAGE_BYTES as usize + 17] ^= 1;
    assert_eq!(compare(&asleep), Some(2));
}

#[test]
fn a_flipped_bit_of_the_snapshot_or_its_table_is_found_by_verify() {
    let asleep = asleep();
    let path = asleep.head.device().path().to_owned();
    let verify = |offset: u64| {
        use std::os::unix::fs::FileExt;
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
        let error = SleepImage::open(&path).unwrap().verify().unwrap_err();
        file.write_all_at(&byte, offset).unwrap();
        error.refusal().unwrap().reason
    };
    assert_eq!(
        verify(asleep.header.data_offset + 5000),
        Reason::SAVED_DIGEST
    );
    assert_eq!(
        verify(asleep.header.user_table_offset),
        Reason::BITMAP_DIGEST
    );
    assert_eq!(
        verify(asleep.header.cxl_bitmap_offset),
        Reason::BITMAP_DIGEST
    );
}

#[test]
fn facts_without_a_layout_make_no_image() {
    let node_base = machine().node_base;
    for (head_bytes, node_base, node_bytes) in [
        (0, node_base, NODE_BYTES),
        (1 << 20, node_base, NODE_BYTES),
        (HEAD_BYTES, node_base, 0),
        (HEAD_BYTES, node_base, 1 << 40), // its bitmaps fill the head
        (HEAD_BYTES, HEAD_BASE, NODE_BYTES), // on top of the head
    ] {
        let machine = Machine {
            node_base,
            node_bytes,
            ..machine()
        };
        let header = facts_with(&RAM, head_bytes, 1, machine).new_header(None);
        assert!(
            header.is_err(),
            "{head_bytes:#x} {node_base:#x} {node_bytes:#x}"
        );
    }
}
