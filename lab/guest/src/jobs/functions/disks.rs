//! Disks: what the lab wrote is there, and what is written now comes back from the medium.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{File, OpenOptions};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use dormouse_guest::protocol::real_devices::{DISK_LABEL, DISK_PATTERN_BYTES};
use xxhash_rust::xxh64::xxh64;

use super::{folder, last, other};
use crate::error::GuestError;

/// The largest block of a disk of the lab's.
const BLOCK: usize = 4096;
/// A disk is read in such pieces.
const PIECE: usize = 128 << 10;

/// Memory that a disk may write to without the page cache between.
struct Aligned {
    bytes: *mut u8,
    layout: Layout,
}

impl Aligned {
    fn new(size: usize) -> Aligned {
        let layout = Layout::from_size_align(size.max(1), BLOCK).expect("a power of two");
        // SAFETY: the layout's size is not 0.
        let bytes = unsafe { alloc_zeroed(layout) };
        assert!(!bytes.is_null(), "no memory for {size} bytes");
        Aligned { bytes, layout }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nothing refers to it any more.
        unsafe { dealloc(self.bytes, self.layout) };
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: that many bytes were allocated and set to 0.
        unsafe { std::slice::from_raw_parts(self.bytes, self.layout.size()) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.bytes, self.layout.size()) }
    }
}

/// The disk with this label; it may have another name after each resume.
fn find(label: &str) -> Result<(PathBuf, File), GuestError> {
    let wanted = format!("{DISK_LABEL}{label}\n");
    let mut seen = Vec::new();
    for entry in folder("/sys/block")? {
        let path = PathBuf::from("/dev").join(last(&entry));
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_NONBLOCK);
        // Drives without a medium, and read-only disks, are none of the lab's.
        let blocks = std::fs::read_to_string(entry.join("size")).unwrap_or_default();
        if blocks.trim() == "0" || last(&entry).starts_with("sr") {
            continue;
        }
        let Ok(file) = options.open(&path) else {
            continue;
        };
        let mut first = Aligned::new(BLOCK);
        match file.read_exact_at(&mut first, 0) {
            Ok(()) if first.starts_with(wanted.as_bytes()) => return Ok((path, file)),
            Ok(()) => {}
            Err(error) => seen.push(format!("{}: {error}", path.display())),
        }
    }
    let seen = seen.join("; ");
    Err(GuestError::Other(format!("no disk has this label; {seen}")))
}

/// Reads the pattern and compares it, and writes and reads a block behind it.
pub fn keeps(label: &str, digest: &str, nonce: &[u8; 16]) -> Result<(), GuestError> {
    let (path, file) = find(label)?;
    let path = path.display();
    let mut pattern = Vec::with_capacity(DISK_PATTERN_BYTES);
    let mut piece = Aligned::new(PIECE);
    while pattern.len() < DISK_PATTERN_BYTES {
        let at = pattern.len() as u64;
        file.read_exact_at(&mut piece, at)
            .map_err(|error| other(&format!("read {path} at {at}"), &error))?;
        pattern.extend_from_slice(&piece);
    }
    let read = format!("{:016x}", xxh64(&pattern, 0));
    if read != digest {
        let what = format!("{path} has digest {read}, not {digest}");
        return Err(GuestError::Other(what));
    }
    let mut block = Aligned::new(BLOCK);
    block
        .chunks_exact_mut(nonce.len())
        .for_each(|chunk| chunk.copy_from_slice(nonce));
    let at = DISK_PATTERN_BYTES as u64;
    file.write_all_at(&block, at)
        .and_then(|()| file.sync_all())
        .map_err(|error| other(&format!("write {path}"), &error))?;
    let mut back = Aligned::new(BLOCK);
    file.read_exact_at(&mut back, at)
        .map_err(|error| other(&format!("read {path} back"), &error))?;
    match back[..] == block[..] {
        true => Ok(()),
        false => Err(GuestError::Other(format!("{path} lost what was written"))),
    }
}
