//! Making and changing images, for tests and tools: what the kernel and firmware write, done
//! on bytes in memory, including images that lie.

use crate::check::{self, Geometry, HEADER_BYTES, HEADER_COPIES, Header, PAGE_BYTES};
use crate::digest::{Xxh64, xxh64};
use crate::names::{Persistence, Reason, State, UserCheck};
use crate::plan::{Bitmap, Plan, set_range};
use crate::sys;
use crate::user_pages::{self, GROUP_BYTES};

/// Header copy `copy` of a window, None when the window is too short.
///
/// # Panics
/// When `copy` is not 0 or 1.
pub fn read_header(window: &[u8], copy: usize) -> Option<Box<Header>> {
    assert!(copy < HEADER_COPIES);
    let bytes = window.get(copy * HEADER_BYTES..)?.first_chunk()?;
    Some(check::header_from(bytes))
}

/// Puts `header` as it is, sealed or not, into copy `copy`.
///
/// # Panics
/// When the window is too short.
pub fn write_header(window: &mut [u8], copy: usize, header: &Header) {
    assert!(copy < HEADER_COPIES);
    window[copy * HEADER_BYTES..][..HEADER_BYTES].copy_from_slice(check::header_bytes(header));
}

/// Index of the valid copy that counts.
///
/// # Errors
/// Why neither is valid.
///
/// # Panics
/// When the window is too short.
pub fn newest(window: &[u8]) -> Result<usize, Reason> {
    check::select(&copies_of(window))
}

/// Makes the digest of a changed header right again.
pub fn seal(header: &mut Header) {
    let bytes = check::header_bytes(header);
    header.header_digest = xxh64(&bytes[..HEADER_BYTES - 8]);
}

/// Makes both bitmap digests and the request right again for what the window holds.
///
/// # Panics
/// When the header's bitmaps do not lie in the window.
pub fn seal_bitmaps(window: &[u8], header: &mut Header) {
    let part = |offset: u64, bytes: u64| &window[offset as usize..][..bytes as usize];
    let dram = part(header.dram_bitmap_offset, header.dram_bitmap_bytes);
    let cxl = part(header.cxl_bitmap_offset, header.cxl_bitmap_bytes);
    header.request_pages = dram.iter().map(|byte| u64::from(byte.count_ones())).sum();
    header.dram_bitmap_digest = xxh64(dram);
    header.cxl_bitmap_digest = xxh64(cxl);
}

/// Makes the table of user pages' digests, and the digest of it, right for what the window holds:
/// all occupied pages of the groups behind `data_offset`.
///
/// # Panics
/// When the header's parts do not lie in the window.
pub fn seal_user_pages(window: &mut [u8], header: &mut Header) {
    let word = |window: &[u8], at: u64| {
        u64::from_le_bytes(*window[at as usize..].first_chunk().expect("eight bytes"))
    };
    (header.user_groups, header.user_pages) = (0, 0);
    for group in 0..header.cxl_bytes.div_ceil(GROUP_BYTES as u64) {
        let word = word(window, header.cxl_bitmap_offset + group * 8);
        let pages = user_pages::covered(header.user_check, word);
        // The group in which the image's own parts end has no digest: they change.
        let is_user = group * GROUP_BYTES as u64 >= header.data_offset;
        let mut digest = 0;
        if is_user && pages != 0 {
            digest = user_pages::digest(&window[group as usize * GROUP_BYTES..], pages);
            header.user_groups += 1;
            header.user_pages += u64::from(pages.count_ones());
        }
        let at = (header.user_table_offset + group * 8) as usize;
        window[at..at + 8].copy_from_slice(&digest.to_le_bytes());
    }
    let table = &window[header.user_table_offset as usize..][..header.user_table_bytes as usize];
    header.user_table_digest = xxh64(table);
}

/// Commits as firmware and kernel do: over the copy that does not count.
///
/// # Panics
/// When the window is too short.
pub fn commit(window: &mut [u8], header: &mut Header) {
    let mut copies = copies_of(window);
    // SAFETY: two copies, and a header that is none of them.
    unsafe { sys::dormouse_header_commit(copies.as_mut_ptr(), header) };
    for (index, copy) in copies.iter().enumerate() {
        write_header(window, index, copy);
    }
}

fn copies_of(window: &[u8]) -> check::HeaderCopies {
    let copy = |index| *read_header(window, index).expect("a window with room for both headers");
    Box::new([copy(0), copy(1)])
}

/// What a suspended image is made of; page numbers and counts.
#[derive(Clone)]
pub struct Recipe {
    /// Memory layout of the machine.
    pub geometry: Geometry,
    /// Runs of DRAM pages to save: first page and count.
    pub save: Vec<(u64, u64)>,
    /// Runs of CXL pages that user data occupies.
    pub occupied: Vec<(u64, u64)>,
    /// Physical address of the wake vector.
    pub wake_vector: u64,
    /// The user pages that get a digest.
    pub user_check: UserCheck,
}

impl Recipe {
    /// A small machine: 16 MiB of DRAM with a hole, a CXL window of one reserved block.
    pub fn small() -> Self {
        let ranges = [(0, 0xa_0000), (0x10_0000, 15 << 20)];
        let block = sys::DORMOUSE_BLOCK_BYTES.into();
        let geometry = Geometry::new(4 << 30, block, block, &ranges).expect("two ranges");
        Self {
            geometry: geometry.with_device(0x1122_3344_5566_7788, 3),
            save: vec![(1, 2), (0x99, 1), (0x100, 70), (0x400, 3)],
            occupied: vec![(7, 1), (10, 59), (190, 3)],
            wake_vector: 0x9_9200,
            user_check: UserCheck::ALL,
        }
    }

    /// The window of a machine that went to sleep with this: bitmaps, saved pages filled by
    /// `page(frame, bytes)`, history of the header's states.
    ///
    /// # Errors
    /// Why the geometry has no layout, or `no-space`.
    ///
    /// # Panics
    /// When runs lie outside their bitmaps.
    pub fn suspended(&self, mut page: impl FnMut(u64, &mut [u8])) -> Result<Vec<u8>, Reason> {
        let mut header = self.geometry.new_header(None);
        if header.data_offset == 0 {
            return Err(self.geometry.check());
        }
        let mut window = vec![0; self.geometry.0.cxl_bytes as usize];
        commit(&mut window, &mut header);

        let mut dram = vec![0; header.dram_bitmap_bytes as usize / 8];
        let mut cxl = vec![0; header.cxl_bitmap_bytes as usize / 8];
        self.save
            .iter()
            .for_each(|&(first, count)| set_range(&mut dram, first, count));
        self.occupied
            .iter()
            .for_each(|&(first, count)| set_range(&mut cxl, first, count));
        put_words(&mut window, header.dram_bitmap_offset, &dram);
        put_words(&mut window, header.cxl_bitmap_offset, &cxl);
        seal_bitmaps(&window, &mut header);
        for &(first, count) in &self.occupied {
            for page_number in first..first + count {
                let at = (page_number * PAGE_BYTES) as usize;
                window[at..][..8].copy_from_slice(&page_number.to_le_bytes());
            }
        }
        header.persistence = Persistence::DEVICE.0;
        header.user_check = self.user_check.0;
        seal_user_pages(&mut window, &mut header);
        header.state = State::PREPARED.0;
        commit(&mut window, &mut header);
        header.state = State::SAVING.0;
        commit(&mut window, &mut header);

        let mut hash = Xxh64::new();
        let plan = Plan::new(
            Bitmap::new(&dram, header.dram_pages),
            Bitmap::new(&cxl, header.cxl_bytes / PAGE_BYTES),
            header.data_offset / PAGE_BYTES,
        );
        for copy in plan {
            let copy = copy.map_err(|_| Reason::NO_SPACE)?;
            for index in 0..copy.pages {
                let at = ((copy.cxl_page + index) * PAGE_BYTES) as usize;
                let saved = &mut window[at..][..PAGE_BYTES as usize];
                page(copy.dram_page + index, saved);
                hash.update(saved);
            }
        }
        header.saved_pages = header.request_pages;
        header.saved_digest = hash.finish();
        header.wake_vector = self.wake_vector;
        header.sleep_count += 1;
        header.state = State::SUSPENDED.0;
        commit(&mut window, &mut header);
        Ok(window)
    }
}

fn put_words(window: &mut [u8], offset: u64, words: &[u64]) {
    for (to, word) in window[offset as usize..].chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}
