//! Memory of a PCI device, mapped from its `resourceN` in sysfs, without a kernel module.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// What reads of a removed device return.
pub const GONE: u64 = u64::MAX;

/// Read-only 64-bit words, little-endian.
#[derive(Debug)]
pub struct Resource {
    path: PathBuf,
    /// Device and inode of the mapped file: a device that returns has another file of the same
    /// name.
    identity: (u64, u64),
    map: NonNull<u8>,
    map_bytes: usize,
    /// Where the words start in the mapping, and where they end in the file.
    skipped: usize,
    end: u64,
}

// SAFETY: the mapping belongs to this value alone and is only read.
unsafe impl Send for Resource {}

impl Resource {
    /// Maps a range of the file.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, is too short, or the range is not aligned.
    pub fn map(path: &Path, offset: u64, bytes: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let facts = file.metadata()?;
        let end = offset.checked_add(bytes).filter(|end| *end <= facts.len());
        let aligned = offset.is_multiple_of(8) && bytes.is_multiple_of(8) && bytes > 0;
        let Some(end) = end.filter(|_| aligned) else {
            let what = format!("it has no room for words in {bytes} bytes from {offset:#x} on");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        let page = rustix::param::page_size() as u64;
        let from = offset / page * page;
        let map_bytes = (end - from) as usize;
        // SAFETY: the kernel chooses the address; no existing mapping is replaced.
        let map = unsafe {
            let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
            mmap(ptr::null_mut(), map_bytes, read, shared, &file, from)?
        };
        Ok(Self {
            path: path.to_owned(),
            identity: identity(&facts),
            map: NonNull::new(map.cast()).expect("a mapping is not at 0"),
            map_bytes,
            skipped: (offset - from) as usize,
            end,
        })
    }

    /// Whether the file is still the device's and still long enough. Otherwise words must not be
    /// read.
    pub fn is_there(&self) -> bool {
        let same = |file: Metadata| identity(&file) == self.identity && file.len() >= self.end;
        fs::metadata(&self.path).is_ok_and(same)
    }

    /// Reads one word in one access.
    pub fn word(&self, at: usize) -> u64 {
        let from = self.skipped + 8 * at;
        assert!(from + 8 <= self.map_bytes);
        // SAFETY: the word is within the map, which lives as long as `self`, and at a multiple of 8
        // bytes.
        let value = unsafe { ptr::read_volatile(self.map.as_ptr().add(from).cast::<u64>()) };
        u64::from_le(value)
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference to it remains.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resource0");
        (folder, path)
    }

    #[test]
    fn words_are_read_where_they_are() {
        let (_folder, path) = bar();
        let bytes: Vec<u8> = (0..1024u64).flat_map(u64::to_le_bytes).collect();
        fs::write(&path, bytes).unwrap();
        let words = Resource::map(&path, 4096 + 64, 16).unwrap();
        assert_eq!([words.word(0), words.word(1)], [520, 521]);
        for (offset, bytes) in [(4, 8), (8, 4), (8, 0), (8192, 8), (u64::MAX - 7, 16)] {
            let said = Resource::map(&path, offset, bytes).unwrap_err().to_string();
            assert!(said.contains("no room"), "{said}");
        }
        assert!(Resource::map(Path::new("/nowhere"), 0, 8).is_err());
    }

    #[test]
    fn a_file_that_is_shorter_gone_or_another_one_is_not_there() {
        let (_folder, path) = bar();
        let make = || fs::write(&path, [0; 64]).unwrap();
        make();
        let words = Resource::map(&path, 8, 56).unwrap();
        assert!(words.is_there());
        fs::remove_file(&path).unwrap();
        assert!(!words.is_there());
        make();
        assert!(!words.is_there(), "another one");
        let words = Resource::map(&path, 8, 56).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(63)
            .unwrap();
        assert!(!words.is_there());
    }
}
