//! Writes cpio archives ("newc") that the kernel unpacks as its first file system.
//!
//! ```text
//! per file: "070701" ino mode uid gid nlink mtime filesize devmajor devminor
//!           rdevmajor rdevminor namesize check     (8 hexadecimal digits each)
//!           name NUL, padded to 4 bytes; contents, padded to 4 bytes
//! last:     an entry named TRAILER!!!
//! ```
//! Written here and not by the tool: device nodes need no root this way, and the same contents
//! always give the same bytes.

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive that is being written.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    pub fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER | 0o755, (0, 0), &[]);
    }

    pub fn file(&mut self, path: &str, permissions: u32, contents: &[u8]) {
        self.entry(path, FILE | permissions, (0, 0), contents);
    }

    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER_DEVICE | 0o600, (major, minor), &[]);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.entries += 1;
        let trailer = mode == 0;
        let inode = if trailer { 0 } else { self.entries };
        let length = u32::try_from(contents.len()).expect("no file of 4 GiB fits in a flash image");
        let fields = [
            inode,
            mode,
            0,
            0,
            1,
            0,
            length,
            0,
            0,
            device.0,
            device.1,
            path.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn sample() -> Vec<u8> {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.character_device("dev/console", 5, 1);
        archive.file("init", 0o755, b"#!\n12");
        archive.finish()
    }

    #[test]
    fn an_archive_has_the_layout_that_the_kernel_documents() {
        let bytes = sample();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        let field = |index: usize| {
            let at = 6 + 8 * index;
            u32::from_str_radix(std::str::from_utf8(&bytes[at..at + 8]).unwrap(), 16).unwrap()
        };
        assert_eq!(field(1), 0o040_755);
        assert_eq!(field(11), 4);
        assert_eq!(&bytes[110..114], b"dev\0");
    }

    #[test]
    fn the_cpio_tool_unpacks_what_we_write() {
        let Ok(mut child) = Command::new("cpio")
            .args(["-itv", "--quiet", "--numeric-uid-gid"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            eprintln!("cpio is not installed: nothing to compare with");
            return;
        };
        child.stdin.take().unwrap().write_all(&sample()).unwrap();
        let output = child.wait_with_output().unwrap();
        let listing = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Vec<&str>> = listing
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines.len(), 3, "{listing}");
        assert_eq!((lines[0][0], lines[0].last()), ("drwxr-xr-x", Some(&"dev")));
        assert!(
            lines[1][0].starts_with("crw") && listing.contains("5,   1"),
            "{listing}"
        );
        assert_eq!((lines[2][0], lines[2][4]), ("-rwxr-xr-x", "5"));
    }
}
