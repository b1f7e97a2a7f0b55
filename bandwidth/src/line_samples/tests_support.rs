//! A file that stands for a device with a ring.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::ring::{Line, SIGNATURE};

pub const OFFSET: u64 = 0x1040;
pub const FIRST: u64 = 0x80;
pub const SLOTS: u64 = 16;

pub struct Fake {
    folder: tempfile::TempDir,
    pub file: File,
    pub head: u64,
    slots: u64,
}

impl Fake {
    pub fn new() -> Self {
        Self::with_slots(SLOTS)
    }

    pub fn with_slots(slots: u64) -> Self {
        Self::within(tempfile::tempdir().unwrap(), slots)
    }

    /// Another device in its place.
    pub fn replaced(self) -> Self {
        Self::within(self.folder, self.slots)
    }

    fn within(folder: tempfile::TempDir, slots: u64) -> Self {
        let path = folder.path().join("resource2");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .unwrap();
        file.set_len(OFFSET + FIRST + 8 * slots).unwrap();
        let fake = Self {
            folder,
            file,
            head: 0,
            slots,
        };
        fake.word(0, SIGNATURE);
        fake.word(1, slots);
        fake.word(2, FIRST);
        fake.word(3, 1);
        fake
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("resource2")
    }

    pub fn word(&self, at: u64, value: u64) {
        let bytes = value.to_le_bytes();
        self.file.write_all_at(&bytes, OFFSET + 8 * at).unwrap();
    }

    pub fn write_head(&self, head: u64) {
        self.word(8, head);
    }

    pub fn set_head(&mut self, head: u64) {
        self.head = head;
        self.write_head(head);
    }

    /// Writes a sample into its slot, without counting it.
    pub fn place(&self, number: u64, line: Line) {
        let lap = number / self.slots + 1;
        let word = line.address | u64::from(line.written) | lap << 52;
        let at = OFFSET + FIRST + 8 * (number % self.slots);
        self.file.write_all_at(&word.to_le_bytes(), at).unwrap();
    }

    pub fn push(&mut self, line: Line) {
        self.place(self.head, line);
        self.set_head(self.head + 1);
    }
}
