//! Reads the image in a machine's CXL file, for the faults that damage it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use dormouse_image::edit;

use crate::error::{Doing, LabError};

pub const PAGE_BYTES: u64 = 4096;
/// Where both copies of the header are.
pub const HEADERS_BYTES: usize = 8192;

pub type Header = dormouse_image::sys::dormouse_header;

/// Both copies of the header.
///
/// # Errors
/// The file is too short or cannot be read.
pub fn read_headers(file: &File) -> Result<Vec<u8>, LabError> {
    let mut window = vec![0; HEADERS_BYTES];
    file.read_exact_at(&mut window, 0)
        .doing("read the image's header")?;
    Ok(window)
}

/// The header that counts, and which copy it is.
///
/// # Errors
/// There is none.
pub fn newest_copy(file: &File) -> Result<(usize, Box<Header>), LabError> {
    let window = read_headers(file)?;
    let copy = edit::newest(&window)
        .map_err(|why| LabError::Unexpected(format!("there is no image to damage: {why}")))?;
    let header = edit::read_header(&window, copy).expect("the window has both copies");
    Ok((copy, header))
}

/// A part of the image before its saved pages.
///
/// # Errors
/// The file is too short or cannot be read.
pub fn read_part(file: &File, offset: u64, bytes: u64) -> Result<Vec<u8>, LabError> {
    let mut part = vec![0; bytes as usize];
    file.read_exact_at(&mut part, offset)
        .doing("read a part of the image")?;
    Ok(part)
}

/// Pages that programs occupied: behind the reserved part, where all pages have a digest only
/// those that have one (memory that Linux had not put online counts as occupied too).
///
/// # Errors
/// The file is too short or cannot be read.
pub fn user_pages(file: &File, header: &Header) -> Result<Vec<u64>, LabError> {
    let bitmap = read_part(file, header.cxl_bitmap_offset, header.cxl_bitmap_bytes)?;
    let table = read_part(file, header.user_table_offset, header.user_table_bytes)?;
    let all = header.user_check == dormouse_image::UserCheck::ALL.0;
    let has_digest = |page: u64| {
        let at = (page / dormouse_image::user_pages::GROUP_PAGES * 8) as usize;
        table[at..at + 8].iter().any(|&byte| byte != 0)
    };
    Ok(
        (header.reserved_bytes / PAGE_BYTES..header.cxl_bytes / PAGE_BYTES)
            .filter(|page| bitmap[(page / 8) as usize] >> (page % 8) & 1 == 1)
            .filter(|&page| !all || has_digest(page))
            .collect(),
    )
}
