//! Files of `/proc` and of cgroups, whole.
//!
//! They report a size of 0, for which the standard library first asks and then probes with reads of 32,
//! 32, 64, … bytes. Here the first read has room for most of these files: a file takes four system
//! calls in place of five to twelve.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

/// A sequence file of the kernel returns at most about a page for a read.
const ROOM: usize = 4096;

/// The bytes of a file of `/proc`.
///
/// # Errors
/// What the kernel reports; [`has_ended`](super::has_ended) tells whether the task has ended.
pub fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::with_capacity(ROOM);
    loop {
        // By the vector's rule this doubles its room.
        bytes.reserve(ROOM / 2);
        match rustix::io::read(&file, spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The text of a file of `/proc`.
///
/// # Errors
/// As [`bytes`]; or it is not UTF-8.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let not_text = |error| io::Error::new(ErrorKind::InvalidData, error);
    String::from_utf8(bytes(path)?).map_err(not_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_whatever_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for length in [0, 1, ROOM - 1, ROOM, ROOM + 1, 10 * ROOM + 7] {
            let expected: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &expected).unwrap();
            assert_eq!(bytes(&path).unwrap(), expected, "{length}");
        }
        // Longer than a page, in records of the kernel.
        let maps = text("/proc/self/smaps").unwrap();
        assert!(maps.len() > ROOM && maps.ends_with('\n'));
        assert_eq!(text("/proc/self/comm").unwrap().lines().count(), 1);
    }

    #[test]
    fn a_task_that_has_ended_and_bytes_that_are_no_text_are_errors() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        child.wait().unwrap();
        assert!(super::super::has_ended(&bytes(status).unwrap_err()));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(text(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
