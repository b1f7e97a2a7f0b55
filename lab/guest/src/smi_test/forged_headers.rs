//! The requests: an honest one, and one for each forged field that firmware must refuse.

use dormouse_image::{Persistence, State, edit, sys};

use super::iomem::MemoryMap;
use crate::error::GuestError;

const PAGE_BYTES: u64 = 4096;

/// One forgery, and the reasons for which it may be refused.
pub struct Case {
    pub name: &'static str,
    pub meaning: &'static str,
    pub forge: fn(&mut Request, &MemoryMap),
    pub expected: &'static [&'static str],
}

/// Where a page lies above all that the bitmap covers, the bitmap's size is forged too.
const OUTSIDE: &[&str] = &["outside-ram", "dram-size", "memory-map"];

pub const CASES: &[Case] = &[
    case(
        "honest-check",
        "nothing forged, and only asked to check: accepted",
        honest_check,
        &["ok"],
    ),
    case(
        "no-wake-vector",
        "nothing forged, but the system does not sleep",
        honest,
        &["wake-vector"],
    ),
    case("smram", "save a page of SMRAM", smram, OUTSIDE),
    case(
        "firmware-memory",
        "save a page that firmware keeps for itself",
        firmware,
        OUTSIDE,
    ),
    case(
        "legacy-hole",
        "save a page between 640 KiB and 1 MiB",
        legacy_hole,
        OUTSIDE,
    ),
    case(
        "beyond-ram",
        "save a page above all RAM",
        beyond_ram,
        OUTSIDE,
    ),
    case(
        "bitmap-outside",
        "the bitmap lies behind the reserved part",
        bitmap_outside,
        &["layout"],
    ),
    case(
        "bitmap-wraps",
        "the bitmap's offset wraps around",
        bitmap_wraps,
        &["layout"],
    ),
    case(
        "bitmap-over-header",
        "the bitmap lies on the header",
        bitmap_over_header,
        &["layout"],
    ),
    case(
        "bitmaps-overlap",
        "both bitmaps lie at one place",
        bitmaps_overlap,
        &["layout"],
    ),
    case(
        "data-outside",
        "saved pages begin behind the reserved part",
        data_outside,
        &["layout"],
    ),
    case(
        "bitmap-digest",
        "the bitmap is not what its digest says",
        digest,
        &["bitmap-digest"],
    ),
    case(
        "header-digest",
        "both headers are damaged",
        header_digest,
        &["header-digest"],
    ),
    case(
        "page-count",
        "more pages are announced than marked",
        page_count,
        &["saved-count"],
    ),
    case(
        "cxl-base",
        "the CXL window is elsewhere",
        cxl_base,
        &["cxl-size"],
    ),
    case("device", "another CXL device", device, &["device"]),
    case(
        "volatile",
        "no source states that the device keeps its contents",
        volatile,
        &["volatile"],
    ),
    case(
        "encrypted",
        "a header that only a later version can read: the older one counts",
        encrypted,
        &["state"],
    ),
    case(
        "table-overlaps",
        "the digests of user pages lie over a bitmap",
        table_overlaps,
        &["layout"],
    ),
    case(
        "table-digest",
        "the digests of user pages are not what theirs says",
        table_digest,
        &["bitmap-digest"],
    ),
    case("no-space", "no CXL page is free", no_space, &["no-space"]),
    case(
        "wrong-state",
        "nothing was prepared",
        wrong_state,
        &["state"],
    ),
    case(
        "image-exists",
        "a suspended image is waiting",
        image_exists,
        &["image-exists"],
    ),
    case(
        "unknown-command",
        "a command that there is not",
        unknown_command,
        &["command"],
    ),
    case(
        "mailbox-magic",
        "the mailbox is none",
        mailbox_magic,
        &["command"],
    ),
];

const fn case(
    name: &'static str,
    meaning: &'static str,
    forge: fn(&mut Request, &MemoryMap),
    expected: &'static [&'static str],
) -> Case {
    Case {
        name,
        meaning,
        forge,
        expected,
    }
}

/// A request to sleep, as bytes of the window; valid until it is forged.
pub struct Request {
    window: Vec<u8>,
    header: Box<sys::dormouse_header>,
    command: u32,
    magic: u64,
    /// Bitmap digests and page count are made right for what the bitmaps hold.
    seal_bitmaps: bool,
    damage_headers: bool,
}

impl Request {
    /// Asks for one page of RAM to be saved, with all CXL memory free.
    pub fn honest(
        window: Vec<u8>,
        header: &sys::dormouse_header,
        map: &MemoryMap,
    ) -> Result<Request, GuestError> {
        let mut request = Request {
            window,
            header: Box::new(*header),
            command: sys::DORMOUSE_CMD_SLEEP,
            magic: sys::DORMOUSE_MAILBOX_MAGIC,
            seal_bitmaps: true,
            damage_headers: false,
        };
        request.header.state = State::PREPARED.0;
        request.header.persistence = Persistence::ACCEPTED.0;
        request.fill_bitmap(header.dram_bitmap_offset, header.dram_bitmap_bytes, 0);
        request.fill_bitmap(header.cxl_bitmap_offset, header.cxl_bitmap_bytes, 0);
        let page = map
            .ram_page()
            .ok_or_else(|| GuestError::Other("there is no RAM below 4 GiB".into()))?;
        request.mark(page);
        Ok(request)
    }

    /// The window with this request in it.
    pub fn into_window(mut self) -> Vec<u8> {
        if self.seal_bitmaps {
            edit::seal_bitmaps(&self.window, &mut self.header);
        }
        edit::commit(&mut self.window, &mut self.header);
        if self.damage_headers {
            for copy in 0..2 {
                self.window[copy * 4096 + 2000] ^= 1;
            }
        }
        let mailbox = &mut self.window[sys::DORMOUSE_MAILBOX_OFFSET as usize..];
        let status = u64::from(sys::DORMOUSE_STATUS_PENDING) << 32;
        let words = [self.magic, u64::from(self.command) | status, 0, 0, 0];
        for (slot, word) in mailbox.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        self.window
    }

    fn fill_bitmap(&mut self, offset: u64, bytes: u64, value: u8) {
        self.window[offset as usize..][..bytes as usize].fill(value);
    }

    /// Asks for a page frame to be saved; makes the bitmap larger where it does not cover it.
    fn mark(&mut self, page: u64) {
        if page >= self.header.dram_pages {
            self.header.dram_pages = page + 1;
            self.header.dram_bitmap_bytes = (page / 64 + 1) * 8;
            let end = self.header.dram_bitmap_offset + self.header.dram_bitmap_bytes;
            self.move_cxl_bitmap(end.next_multiple_of(PAGE_BYTES));
        }
        let at = self.header.dram_bitmap_offset + page / 8;
        self.window[at as usize] |= 1 << (page % 8);
    }

    /// Makes room for a larger bitmap before it.
    fn move_cxl_bitmap(&mut self, offset: u64) {
        if offset > self.header.cxl_bitmap_offset {
            self.header.cxl_bitmap_offset = offset;
            let table = (offset + self.header.cxl_bitmap_bytes).next_multiple_of(PAGE_BYTES);
            self.header.user_table_offset = table;
            let end = table + self.header.user_table_bytes;
            self.header.data_offset = end.next_multiple_of(PAGE_BYTES);
            self.window.resize(self.header.data_offset as usize, 0);
            self.fill_bitmap(offset, self.header.cxl_bitmap_bytes, 0);
        }
    }

    /// The digests are right for where the bitmaps were before a forgery moved them.
    fn seal_now(&mut self) {
        edit::seal_bitmaps(&self.window, &mut self.header);
        self.seal_bitmaps = false;
    }
}

fn honest_check(request: &mut Request, _: &MemoryMap) {
    request.command = sys::DORMOUSE_CMD_CHECK;
}

fn honest(_: &mut Request, _: &MemoryMap) {}

fn smram(request: &mut Request, map: &MemoryMap) {
    request.mark(map.smram_page().unwrap_or(0xa0));
}

fn firmware(request: &mut Request, map: &MemoryMap) {
    request.mark(map.firmware_page().unwrap_or(0xf0));
}

fn legacy_hole(request: &mut Request, _: &MemoryMap) {
    request.mark(0xc0);
}

fn beyond_ram(request: &mut Request, _: &MemoryMap) {
    request.mark(request.header.dram_pages + 100);
}

fn bitmap_outside(request: &mut Request, _: &MemoryMap) {
    request.seal_now();
    request.header.dram_bitmap_offset = request.header.reserved_bytes;
}

fn bitmap_wraps(request: &mut Request, _: &MemoryMap) {
    request.seal_now();
    request.header.dram_bitmap_offset = 0u64.wrapping_sub(PAGE_BYTES);
}

fn bitmap_over_header(request: &mut Request, _: &MemoryMap) {
    request.seal_now();
    request.header.dram_bitmap_offset = 0;
}

fn bitmaps_overlap(request: &mut Request, _: &MemoryMap) {
    request.seal_now();
    request.header.cxl_bitmap_offset = request.header.dram_bitmap_offset;
}

fn data_outside(request: &mut Request, _: &MemoryMap) {
    request.header.data_offset = request.header.reserved_bytes + PAGE_BYTES;
}

fn digest(request: &mut Request, _: &MemoryMap) {
    request.seal_now();
    request.header.dram_bitmap_digest ^= 1;
}

fn header_digest(request: &mut Request, _: &MemoryMap) {
    request.damage_headers = true;
}

fn page_count(request: &mut Request, _: &MemoryMap) {
    request.seal_now();
    request.header.request_pages += 1;
}

fn cxl_base(request: &mut Request, _: &MemoryMap) {
    request.header.cxl_base += 1 << 30;
}

fn device(request: &mut Request, _: &MemoryMap) {
    request.header.device_serial ^= 1;
}

fn volatile(request: &mut Request, _: &MemoryMap) {
    request.header.persistence = Persistence::UNKNOWN.0;
}

fn encrypted(request: &mut Request, _: &MemoryMap) {
    request.header.flags = sys::DORMOUSE_FLAG_ENCRYPTED;
    request.header.encryption.algorithm = 1;
}

fn table_overlaps(request: &mut Request, _: &MemoryMap) {
    request.header.user_table_offset = request.header.cxl_bitmap_offset;
}

fn table_digest(request: &mut Request, _: &MemoryMap) {
    request.header.user_check = sys::DORMOUSE_USER_CHECK_ALL;
    request.header.user_table_digest ^= 1;
}

fn no_space(request: &mut Request, _: &MemoryMap) {
    let (offset, bytes) = (
        request.header.cxl_bitmap_offset,
        request.header.cxl_bitmap_bytes,
    );
    request.fill_bitmap(offset, bytes, 0xff);
}

fn wrong_state(request: &mut Request, _: &MemoryMap) {
    request.header.state = State::EMPTY.0;
}

fn image_exists(request: &mut Request, _: &MemoryMap) {
    request.header.state = State::SUSPENDED.0;
}

fn unknown_command(request: &mut Request, _: &MemoryMap) {
    request.command = 99;
}

fn mailbox_magic(request: &mut Request, _: &MemoryMap) {
    request.magic ^= 1;
}
