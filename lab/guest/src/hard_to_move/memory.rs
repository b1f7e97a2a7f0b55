//! Memory with a pattern that names its own page, wherever it comes from.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::{Doing, GuestError};
use crate::workload::fill::{PAGE_BYTES, bad_pages_in, write_pages};

pub const PAGE: usize = PAGE_BYTES as usize;
const PIECE_PAGES: usize = 256;

/// A mapping of this process; unmapped when dropped.
pub struct Region {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Region {}

/// Private anonymous memory, readable and writable, is the default.
pub fn anonymous(bytes: usize, further_flags: i32) -> Result<Region, GuestError> {
    map(
        bytes,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | further_flags,
        None,
    )
}

/// Maps a file, or anonymous memory where there is none.
pub fn map(bytes: usize, flags: i32, file: Option<BorrowedFd>) -> Result<Region, GuestError> {
    let fd = file.map_or(-1, |file| file.as_raw_fd());
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses a free place for a new mapping.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error()).doing(format!("map {bytes} bytes"));
    }
    Ok(Region {
        base: base.cast(),
        bytes,
    })
}

impl Region {
    pub fn address(&self) -> u64 {
        self.base as u64
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn pages(&self) -> usize {
        self.bytes / PAGE
    }

    pub fn words(&self) -> &[u64] {
        // SAFETY: mapped, page-aligned and readable as long as self lives.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.bytes / 8) }
    }

    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and writable; self is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast(), self.bytes / 8) }
    }

    pub fn page(&self, page: usize) -> &[u8] {
        let words = PAGE / 8;
        let bytes = &self.words()[page * words..(page + 1) * words];
        // SAFETY: every word is eight bytes.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), PAGE) }
    }

    pub fn fill(&mut self, seed: u64) {
        write_pages(self.words_mut(), seed, 0);
    }

    /// Compares every page.
    pub fn verify(&self, seed: u64) -> Result<(), String> {
        verify_words(self.words(), seed, 0)
    }

    pub fn advise(&self, advice: i32, doing: &str) -> Result<(), GuestError> {
        self.advise_pages(0, self.pages(), advice, doing)
    }

    pub fn advise_pages(
        &self,
        first: usize,
        pages: usize,
        advice: i32,
        doing: &str,
    ) -> Result<(), GuestError> {
        assert!(first + pages <= self.pages(), "inside the mapping");
        // SAFETY: inside the mapping; what an advice does to the contents is the caller's wish.
        let result =
            unsafe { libc::madvise(self.base.add(first * PAGE).cast(), pages * PAGE, advice) };
        ok(result).map(drop).doing(doing)
    }

    /// A line of this mapping in /proc/self/smaps, in bytes.
    pub fn smaps(&self, field: &str) -> Result<u64, GuestError> {
        let text = std::fs::read_to_string("/proc/self/smaps").doing("read smaps")?;
        Ok(smaps_field(&text, self.address(), field))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and nothing borrowed outlives self.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Compares words that begin with page `first_page` of a pattern.
pub fn verify_words(words: &[u64], seed: u64, first_page: usize) -> Result<(), String> {
    match bad_pages_in(words, seed, first_page) {
        (0, _) => Ok(()),
        (bad, first) => Err(format!(
            "{bad} of {} pages differ, the first is page {}",
            words.len() * 8 / PAGE,
            first.unwrap_or_default()
        )),
    }
}

/// A pattern as bytes, for what is written and read and not mapped.
pub fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut words = vec![0u64; bytes / 8];
    write_pages(&mut words, seed, 0);
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Writes the pattern piece by piece: a second copy may be more than the machine has.
pub fn write_pattern(to: &mut impl Write, bytes: usize, seed: u64) -> io::Result<()> {
    let mut words = vec![0u64; PIECE_PAGES * PAGE / 8];
    for first in (0..bytes / PAGE).step_by(PIECE_PAGES) {
        write_pages(&mut words, seed, first);
        let piece: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        to.write_all(&piece[..piece.len().min(bytes - first * PAGE)])?;
    }
    Ok(())
}

/// Compares all that can be read with the pattern.
pub fn verify_pattern(from: &mut impl Read, bytes: usize, seed: u64) -> Result<(), String> {
    let mut piece = vec![0; PIECE_PAGES * PAGE];
    for first in (0..bytes / PAGE).step_by(PIECE_PAGES) {
        let piece = &mut piece[..(PIECE_PAGES * PAGE).min(bytes - first * PAGE)];
        from.read_exact(piece).map_err(|error| error.to_string())?;
        verify_words(&words_of(piece), seed, first)?;
    }
    match from.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err("there is more than was written".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|chunk| u64::from_ne_bytes(chunk.try_into().expect("eight bytes")))
        .collect()
}

/// Compares bytes with the pattern.
pub fn verify_bytes(bytes: &[u8], seed: u64) -> Result<(), String> {
    verify_words(&words_of(bytes), seed, 0)
}

/// A system call's result, -1 with errno or not.
pub fn ok(result: impl Into<i64>) -> io::Result<i64> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

fn smaps_field(text: &str, address: u64, field: &str) -> u64 {
    let start = format!("{address:08x}-");
    let prefix = format!("{field}:");
    text.lines()
        .skip_while(|line| !line.starts_with(&start))
        .find_map(|line| line.strip_prefix(&prefix))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Bytes by a line of a `name value` file such as /proc/vmstat.
pub fn counter(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .find(|(found, _)| found.trim_end_matches(':') == name)
        .and_then(|(_, value)| value.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_keeps_its_pattern_and_shows_a_flipped_bit() {
        let mut region = anonymous(8 * PAGE, 0).unwrap();
        region.fill(3);
        assert_eq!(region.verify(3), Ok(()));
        assert_eq!(region.page(2), &pattern(8 * PAGE, 3)[2 * PAGE..3 * PAGE]);
        region.words_mut()[5 * PAGE / 8] ^= 1;
        let complaint = region.verify(3).unwrap_err();
        assert!(complaint.starts_with("1 of 8 pages"), "{complaint}");
        assert!(complaint.ends_with("page 5"), "{complaint}");
    }

    #[test]
    fn bytes_of_another_seed_differ() {
        let bytes = pattern(2 * PAGE, 3);
        assert_eq!(verify_bytes(&bytes, 3), Ok(()));
        let mut written = Vec::new();
        write_pattern(&mut written, 300 * PAGE, 3).unwrap();
        assert_eq!(written, pattern(300 * PAGE, 3));
        assert_eq!(verify_pattern(&mut &written[..], 300 * PAGE, 3), Ok(()));
        assert!(verify_pattern(&mut &written[..], 299 * PAGE, 3).is_err());
        assert!(verify_bytes(&bytes, 4).is_err());
    }

    #[test]
    fn a_field_of_the_right_mapping_is_read() {
        let text = "7f00000000-7f00001000 rw-p 0 0 0\nAnonHugePages:  2048 kB\n\
                    7f10000000-7f10001000 rw-p 0 0 0\nRss: 4 kB\nAnonHugePages:  4096 kB\n";
        assert_eq!(smaps_field(text, 0x7f_1000_0000, "AnonHugePages"), 4 << 20);
        assert_eq!(smaps_field(text, 0x7f_2000_0000, "AnonHugePages"), 0);
    }
}
