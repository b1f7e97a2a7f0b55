//! The files of a lease: the lock of this node, and one file for each generation. Nothing is read
//! from or left in the page cache, which other nodes do not see.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::LeaseError;
use super::record::{BYTES, Record, boot};

/// Files of so many former generations stay: a challenger that stood still for long must find that
/// the next one exists already.
const KEPT: u64 = 8;

/// A page that the kernel can write from without copying it.
#[repr(align(4096))]
struct Page([u8; BYTES]);

/// The files beside a store.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    /// `NAME.lease`.
    stem: String,
    /// Held for as long as any process has it.
    lock: File,
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> LeaseError {
    let path = path.to_owned();
    move |source| LeaseError::Io {
        path,
        doing,
        source,
    }
}

impl Files {
    /// Makes the lock where it is missing, and takes it.
    ///
    /// # Errors
    /// Another process under this kernel has it, or it cannot be made.
    pub fn open(store: &Path) -> Result<Self, LeaseError> {
        let directory = store.parent().unwrap_or(Path::new("/")).to_owned();
        std::fs::create_dir_all(&directory).map_err(failed(&directory, "make the directory"))?;
        let path = store.with_extension("lease");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed(&path, "open the lease"))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = crate::store::lock::lock_holder(&lock);
                let holder = holder.unwrap_or_else(|| "its process is not visible here".to_owned());
                return Err(LeaseError::Here { path, holder });
            }
            Err(error) => return Err(failed(&path, "lock the lease")(error.into())),
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            stem: name.into_owned(),
            directory,
            lock,
        })
    }

    /// What tells this view of the lock from that through another mount.
    pub fn lock_identity(&self) -> (u64, u64) {
        let metadata = self.lock.metadata();
        metadata.map_or((0, 0), |metadata| (metadata.dev(), metadata.ino()))
    }

    /// Whether a record is of a process that had this very lock. We have it: it has ended.
    pub fn was_ours(&self, record: &Record) -> bool {
        !record.boot.is_empty() && record.boot == boot() && record.lock == self.lock_identity()
    }

    /// The file of a generation.
    pub fn of(&self, generation: u64) -> PathBuf {
        self.directory
            .join(format!("{}-{generation:08}", self.stem))
    }

    fn generations(&self) -> Result<Vec<u64>, LeaseError> {
        let list = "list the directory";
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed(&self.directory, list))? {
            let name = entry.map_err(failed(&self.directory, list))?.file_name();
            let name = name.to_string_lossy();
            let number = name
                .strip_prefix(self.stem.as_str())
                .and_then(|rest| rest.strip_prefix('-'));
            all.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        all.sort_unstable();
        Ok(all)
    }

    /// The newest generation and what its file holds.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, LeaseError> {
        loop {
            let Some(&newest) = self.generations()?.last() else {
                return Ok(None);
            };
            let path = self.of(newest);
            match read(&path) {
                Ok(bytes) => return Ok(Some((newest, bytes))),
                // Removed meanwhile: there is a newer one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&path, "read the lease")(error)),
            }
        }
    }

    /// Makes a generation; false when it exists.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn claim(&self, record: &Record) -> Result<bool, LeaseError> {
        let path = self.of(record.generation);
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match made {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(failed(&path, "claim the lease")(error)),
        }
        // It may have existed, and have been removed as old, while we stood still.
        let all = self.generations()?;
        if all.last().is_some_and(|newest| *newest > record.generation) {
            let _ = std::fs::remove_file(&path);
            return Ok(false);
        }
        self.write(record)?;
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(failed(&self.directory, "sync the directory"))?;
        for old in all
            .into_iter()
            .filter(|old| old + KEPT <= record.generation)
        {
            let _ = std::fs::remove_file(self.of(old));
        }
        Ok(true)
    }

    /// Writes a record into the file of its generation, which exists.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, record: &Record) -> Result<(), LeaseError> {
        let path = self.of(record.generation);
        let mut page = Page([0; BYTES]);
        page.0.copy_from_slice(&record.encode());
        let written = around_cache(|flags| {
            let file = OpenOptions::new()
                .write(true)
                .custom_flags(flags)
                .open(&path)?;
            file.write_all_at(&page.0, 0)?;
            file.sync_data()
        });
        written.map_err(failed(&path, "renew the lease"))
    }
}

/// Around the page cache, where the file system can; elsewhere a file that is opened anew is read
/// anew, as network file systems promise.
fn around_cache<T>(access: impl Fn(i32) -> io::Result<T>) -> io::Result<T> {
    match access(libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => access(0),
        other => other,
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    around_cache(|flags| {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let mut page = Page([0; BYTES]);
        let got = file.read(&mut page.0)?;
        Ok(page.0[..got].to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path) -> Files {
        Files::open(&directory.join("cache.store")).expect("the lock")
    }

    #[test]
    fn a_generation_is_claimed_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = files(directory.path());
        assert!(files.newest().expect("listed").is_none());
        let record = Record::new(1, 1000, files.lock_identity());
        assert!(files.claim(&record).expect("claimed"));
        assert!(!files.claim(&record).expect("not claimed"));
        let (generation, bytes) = files.newest().expect("listed").expect("one");
        assert_eq!((generation, Record::decode(&bytes)), (1, Some(record)));
    }

    #[test]
    fn a_generation_that_was_removed_as_old_cannot_be_claimed_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = files(directory.path());
        for generation in 1..=20 {
            let record = Record::new(generation, 1000, files.lock_identity());
            assert!(files.claim(&record).expect("claimed"));
        }
        assert!(!files.of(5).exists());
        let late = Record::new(5, 1000, files.lock_identity());
        assert!(!files.claim(&late).expect("refused"));
        assert!(!files.of(5).exists());
        assert_eq!(files.newest().expect("listed").expect("one").0, 20);
    }

    #[test]
    fn two_trackers_under_one_kernel_are_told_apart_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = files(directory.path());
        let second = Files::open(&directory.path().join("cache.store"));
        assert!(matches!(second, Err(LeaseError::Here { .. })));
        assert!(first.was_ours(&Record::new(1, 1000, first.lock_identity())));
        drop(first);
        files(directory.path());
    }
}
