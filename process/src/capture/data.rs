//! Files that belong to a program's state although it need not have them open: a database's.
//!
//! An epoch holds a digest of what the directory looks like: names, types, lengths and times of
//! change, in the order of names. No contents are read.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use crate::state::Data;

/// Describes a directory as it is now, while the program stands still.
///
/// # Errors
/// It cannot be read.
pub fn data(directory: &Path) -> io::Result<Data> {
    let mut walk = Walk::default();
    walk.enter(directory)?;
    pass(walk.newest_ns);
    Ok(Data {
        path: directory.to_string_lossy().into_owned(),
        digest: walk.digest.digest(),
    })
}

#[derive(Default)]
struct Walk {
    digest: Xxh3,
    newest_ns: i64,
}

impl Walk {
    fn enter(&mut self, directory: &Path) -> io::Result<()> {
        let mut names: Vec<_> = fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        names.sort_unstable();
        for name in names {
            let path = directory.join(&name);
            let metadata = fs::symlink_metadata(&path)?;
            // Lengths before contents: no two trees give the same bytes.
            self.digest.update(&(name.len() as u64).to_le_bytes());
            self.digest.update(name.as_bytes());
            self.add(&metadata);
            if metadata.is_symlink() {
                let target = fs::read_link(&path)?;
                let target = target.as_os_str().as_bytes();
                self.digest.update(&(target.len() as u64).to_le_bytes());
                self.digest.update(target);
            } else if metadata.is_dir() {
                self.enter(&path)?;
                // The end of a directory, which no name can look like.
                self.digest.update(&u64::MAX.to_le_bytes());
            }
        }
        Ok(())
    }

    fn add(&mut self, metadata: &Metadata) {
        self.digest.update(&metadata.mode().to_le_bytes());
        if metadata.is_file() {
            let modified_ns = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
            self.newest_ns = self.newest_ns.max(modified_ns);
            self.digest.update(&metadata.len().to_le_bytes());
            self.digest.update(&modified_ns.to_le_bytes());
        }
    }
}

/// Waits until the clock that file systems take their times from has left the time of the newest
/// change, nanoseconds since 1970: another change would otherwise have the same time.
pub fn pass(newest_ns: i64) {
    /// Longer than between two ticks of any kernel.
    const TICK: Duration = Duration::from_millis(20);
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let from = now();
    let end = newest_ns.saturating_add(TICK.as_nanos() as i64);
    // A time in the future is another machine's, or was set.
    if newest_ns > from.saturating_add(TICK.as_nanos() as i64) {
        return;
    }
    while now() <= newest_ns && now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_below_the_directory_is_seen_and_reading_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("base")).expect("made");
        fs::write(at("base/1"), "one").expect("written");
        fs::write(at("wal"), "log").expect("written");
        let digest = || data(directory.path()).expect("readable").digest;
        let mut seen = vec![digest()];
        let mut changed = |what: &str| {
            let now = digest();
            assert!(!seen.contains(&now), "not seen: {what}");
            seen.push(now);
        };
        // The same length.
        fs::write(at("wal"), "lOg").expect("written");
        changed("other contents");
        fs::write(at("base/2"), "").expect("written");
        changed("another file");
        fs::rename(at("base/2"), at("base/3")).expect("renamed");
        changed("another name");
        fs::rename(at("base/3"), at("3")).expect("renamed");
        changed("another directory");
        fs::remove_file(at("3")).expect("removed");
        fs::create_dir(at("3")).expect("made");
        changed("another type");
        std::os::unix::fs::symlink("wal", at("link")).expect("made");
        changed("a link");
        let before = digest();
        fs::read(at("wal")).expect("read");
        assert_eq!(digest(), before, "reading is no change");
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(data(Path::new("/nowhere/at all")).is_err());
    }
}
