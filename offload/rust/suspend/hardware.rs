//! What is attached to the board that real drivers drive: a card and a disk with a pattern that the first program
//! knows (`kernel/devices.c`), a serial line that leads back to itself, a network, and a clock that goes with the
//! machine's time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::error::{OffloadError, io};
use crate::machine::comma;

/// Kernel arguments: its console, and its address in the emulator's network.
pub const ARGUMENTS: &str = "console=ttyAMA0 ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:off";
/// Of card and disk; a card's size is a power of two.
const IMAGE_BYTES: u64 = 16 << 20;
/// What the first program compares, from the beginning on.
const PATTERN_WORDS: u32 = 1 << 18;

/// `word_at()` of `kernel/devices.c`.
fn word_at(index: u32) -> u32 {
    (index + 1).wrapping_mul(0x9e37_79b1)
}

fn image(path: &Path) -> Result<(), OffloadError> {
    let write = || {
        let file = File::create(path)?;
        file.set_len(IMAGE_BYTES)?;
        let mut file = BufWriter::new(file);
        (0..PATTERN_WORDS).try_for_each(|index| file.write_all(&word_at(index).to_le_bytes()))?;
        file.flush()
    };
    write().map_err(io("write", path))
}

/// One FIFO, which the emulator reads and writes.
fn loopback(line: &Path) -> Result<(), OffloadError> {
    mknodat(CWD, line, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .map_err(|error| io("create", line)(error.into()))?;
    ["in", "out"].iter().try_for_each(|end| {
        let end = line.with_extension(end);
        symlink(line, &end).map_err(io("create", end))
    })
}

/// Makes it in a folder; the answer is the emulator's words for it. The board's first serial line is given already.
///
/// # Errors
/// A file cannot be written.
pub fn words(folder: &Path) -> Result<Vec<String>, OffloadError> {
    let [card, disk, line] = ["card", "disk", "line"].map(|name| folder.join(name));
    image(&card)?;
    image(&disk)?;
    loopback(&line)?;
    Ok([
        "-drive",
        &format!("if=sd,format=raw,file={}", comma(&card)),
        "-drive",
        &format!("if=none,id=disk,format=raw,file={}", comma(&disk)),
        "-device",
        "virtio-blk-device,drive=disk",
        "-chardev",
        &format!("pipe,id=line,path={}", comma(&line)),
        "-serial",
        "chardev:line",
        "-nic",
        "user,restrict=on",
        "-rtc",
        "base=2026-01-02T03:04:05,clock=vm",
    ]
    .map(str::to_owned)
    .to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_begins_with_the_pattern_and_is_as_large_as_a_card() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card");
        image(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, IMAGE_BYTES);
        assert_eq!(bytes[..8], [0xb1, 0x79, 0x37, 0x9e, 0x62, 0xf3, 0x6e, 0x3c]);
        assert_eq!(bytes[4 * PATTERN_WORDS as usize..][..4], [0; 4]);
    }
}
