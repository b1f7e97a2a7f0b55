//! A process that writes files all the time, each durable before the next; and the comparison.
//!
//! ```text
//! write number n → slot n % SLOTS:  new → write → fsync → rename over the slot → fsync folder
//! ```
//!
//! A file contains its number, and its contents are a function of seed and number. After any power
//! cut each slot must hold the last durable write or a later one, complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dormouse_guest::protocol::stress::{SLOTS, last_write, mixed};

use crate::error::{Doing, GuestError};

/// From a block to more than the kernel writes at once.
const MIN_WORDS: u64 = 16;
const MAX_WORDS: u64 = 24 << 10;

/// The process: writes for ever; after each durable write it prints how many there are.
pub fn run(folder: &str, seed: &str) -> Result<(), GuestError> {
    let seed: u64 = seed
        .parse()
        .map_err(|_| GuestError::Other(format!("{seed:?} is no seed")))?;
    let folder = Path::new(folder);
    let handle = File::open(folder).doing(format!("open {}", folder.display()))?;
    for number in 0.. {
        write_slot(folder, &handle, seed, number)
            .doing(format!("write file {number} in {}", folder.display()))?;
        writeln!(io::stdout(), "{}", number + 1).doing("report what is durable")?;
        // Now and then an older one is read, from the page cache or from the disk.
        if number % 4 == 3 {
            let slot = mixed(seed, !number) % SLOTS;
            if let Some(complaint) = complaint_about(folder, seed, slot, number + 1) {
                return Err(GuestError::Other(complaint));
            }
        }
    }
    Ok(())
}

fn slot_path(folder: &Path, slot: u64) -> PathBuf {
    folder.join(format!("slot-{slot:03}"))
}

fn write_slot(folder: &Path, handle: &File, seed: u64, number: u64) -> io::Result<()> {
    let new = folder.join("new");
    let mut file = File::create(&new)?;
    file.write_all(&contents(seed, number))?;
    file.sync_all()?;
    fs::rename(&new, slot_path(folder, number % SLOTS))?;
    handle.sync_all()
}

/// The number, then words that follow from seed and number.
fn contents(seed: u64, number: u64) -> Vec<u8> {
    let words = MIN_WORDS + mixed(seed, number) % (MAX_WORDS - MIN_WORDS);
    let start = mixed(!seed, number);
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..words).flat_map(|word| mixed(start, word).to_le_bytes()));
    bytes
}

/// Compares all slots after `durable` writes; sentences about what is wrong.
pub fn verify(folder: &Path, seed: u64, durable: u64) -> Vec<String> {
    (0..SLOTS)
        .filter_map(|slot| complaint_about(folder, seed, slot, durable))
        .collect()
}

fn complaint_about(folder: &Path, seed: u64, slot: u64, durable: u64) -> Option<String> {
    let expected = last_write(durable, slot);
    let path = slot_path(folder, slot);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && expected.is_none() => return None,
        Err(error) => return Some(format!("{}: {error}", path.display())),
    };
    let number = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let is_late = match (number, expected) {
        (Some(number), expected) => {
            number % SLOTS != slot || expected.is_some_and(|least| number < least)
        }
        (None, _) => true,
    };
    if is_late {
        return Some(format!(
            "{} holds write {number:?}, {expected:?} was durable",
            path.display()
        ));
    }
    let right = contents(seed, number.unwrap_or_default());
    if bytes == right {
        return None;
    }
    let at = bytes.iter().zip(&right).position(|(a, b)| a != b);
    Some(format!(
        "{}: {} bytes instead of {}, the first difference at {at:?}",
        path.display(),
        bytes.len(),
        right.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(count: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let handle = File::open(folder.path()).unwrap();
        for number in 0..count {
            write_slot(folder.path(), &handle, 5, number).unwrap();
        }
        folder
    }

    #[test]
    fn what_was_written_verifies_and_so_does_a_later_write() {
        let folder = written(SLOTS + 3);
        assert!(verify(folder.path(), 5, SLOTS + 3).is_empty());
        assert!(verify(folder.path(), 5, SLOTS).is_empty());
    }

    #[test]
    fn a_lost_an_old_and_a_damaged_file_are_found() {
        let folder = written(SLOTS);
        assert_eq!(verify(folder.path(), 5, SLOTS + 1).len(), 1, "old");
        fs::remove_file(slot_path(folder.path(), 9)).unwrap();
        assert_eq!(verify(folder.path(), 5, SLOTS).len(), 1, "lost");
        let path = slot_path(folder.path(), 4);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(verify(folder.path(), 5, SLOTS).len(), 2, "damaged");
        fs::write(&path, b"").unwrap();
        assert_eq!(verify(folder.path(), 5, SLOTS).len(), 2, "empty");
    }
}
