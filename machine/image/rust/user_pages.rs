//! Digests of the pages that stay on the device: one for each group of 64.

use std::io;

use crate::check::{Header, PAGE_BYTES, Refusal};
use crate::names::{Reason, UserCheck};
use crate::source::SleepImage;
use crate::sys;

/// Pages of a group: those of one word of the CXL bitmap.
pub const GROUP_PAGES: u64 = sys::DORMOUSE_GROUP_PAGES as u64;
/// Bytes of a group of pages.
pub const GROUP_BYTES: usize = (GROUP_PAGES * PAGE_BYTES) as usize;

/// The pages that a group's digest covers, of the pages that are occupied.
pub fn covered(user_check: u32, word: u64) -> u64 {
    // SAFETY: takes any numbers.
    unsafe { sys::dormouse_user_pages(user_check, word) }
}

/// Digest of the pages whose bit is set in `pages`.
///
/// # Panics
/// When `group` ends before the last of them.
pub fn digest(group: &[u8], pages: u64) -> u64 {
    let needed = (64 - pages.leading_zeros()) as usize * PAGE_BYTES as usize;
    assert!(group.len() >= needed, "a group with all its pages");
    // SAFETY: reads the pages whose bit is set, which are there.
    unsafe { sys::dormouse_group_digest(group.as_ptr().cast(), pages) }
}

/// Compares the pages that have a digest. `window`: the image up to data_offset, checked.
pub(crate) fn compare(
    image: &SleepImage<'_>,
    header: &Header,
    window: &[u64],
    mut progress: impl FnMut(u64),
) -> io::Result<Result<(), Refusal>> {
    if header.user_check == UserCheck::NONE.0 {
        return Ok(Ok(()));
    }
    let words = |offset: u64| &window[offset as usize / 8..];
    let bitmap = words(header.cxl_bitmap_offset);
    let table = words(header.user_table_offset);
    let pages = header.cxl_bytes / PAGE_BYTES;
    let mut buffer = vec![0; GROUP_BYTES];
    for group in 0..pages.div_ceil(GROUP_PAGES) {
        let (word, expected) = (bitmap[group as usize], table[group as usize]);
        if expected == 0 {
            continue;
        }
        let first = group * GROUP_PAGES;
        let there = (pages - first).min(GROUP_PAGES);
        let inside = u64::MAX >> (GROUP_PAGES - there);
        let part = &mut buffer[..(there * PAGE_BYTES) as usize];
        image.read_at(first * PAGE_BYTES, part)?;
        let covered = covered(header.user_check, word & inside);
        if digest(part, covered) != expected {
            return Ok(Err(Refusal {
                reason: Reason::USER_DIGEST,
                detail: group,
            }));
        }
        progress(u64::from(covered.count_ones()) * PAGE_BYTES);
    }
    Ok(Ok(()))
}
