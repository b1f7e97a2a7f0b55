//! Stores on a machine: where they lie, their lock, opening, listing, removing.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::engine::{Engine, EngineError, Found, Pages, Placement};
use super::error::{FormatError, StoreError, io_error};
use super::format::{Cause, MAX_NAME, RESERVED_FRAMES, Root, Superblock};
pub use super::lock::Access;
use super::lock::lock;
use super::medium::{MappedFile, Medium, MediumKind, allocate, fill_holes};
use super::snapshot::StoredEpoch;
use super::{PAGE_BYTES, SpaceId};

/// A store's size when it is made.
const FIRST_BYTES: u64 = 16 << 20;
/// Default maximum size of a store: what the file system has.
pub const NO_LIMIT: u64 = 1 << 40;

/// A store that is open, and locked for as long.
#[derive(Debug)]
pub struct Store {
    engine: Engine<MappedFile>,
    superblock: Superblock,
    path: PathBuf,
    limit: u64,
    passed_over: Vec<String>,
    _lock: File,
}

/// Where the store of a program is: a file in a directory, or the file or device itself.
///
/// # Errors
/// The name cannot be a file's name.
pub fn path_of(place: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty()
        || name.len() > MAX_NAME
        || name.starts_with(['.', '-'])
        || !name.chars().all(good)
    {
        return Err(StoreError::Name {
            name: name.to_owned(),
        });
    }
    let itself = std::fs::metadata(place).is_ok_and(|metadata| !metadata.is_dir());
    Ok(if itself {
        place.to_owned()
    } else {
        place.join(format!("{name}.store"))
    })
}

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

pub(super) fn format_error(path: &Path, error: FormatError) -> StoreError {
    let path = path.to_owned();
    match error {
        FormatError::Version(found) => StoreError::Version {
            path,
            found,
            known: super::format::VERSION,
        },
        FormatError::Magic(_) => StoreError::Foreign {
            path,
            reason: error.to_string(),
        },
        other => StoreError::Damaged {
            path,
            reason: other.to_string(),
        },
    }
}

pub(super) fn open_file(path: &Path, writable: bool) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.read(true).write(writable);
    options.open(path).map_err(|error| {
        let user = rustix::process::geteuid().as_raw();
        let owner = std::fs::metadata(path).map_or(user, |metadata| metadata.uid());
        if error.kind() == io::ErrorKind::PermissionDenied && owner != user {
            let path = path.to_owned();
            return StoreError::OtherUser { path, owner, user };
        }
        io_error(path, "open it", error)
    })
}

fn random_identity() -> u128 {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(16) => u128::from_le_bytes(bytes),
        // Never seen; still different from every other store's.
        _ => u128::from(now_ns()) << 64 | u128::from(std::process::id()),
    }
}

/// Makes an empty store, complete or not at all.
fn create(path: &Path, name: &str) -> Result<(), StoreError> {
    let superblock = Superblock {
        identity: random_identity(),
        created_ns: now_ns(),
        name: name.to_owned(),
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| io_error(directory, "make the directory", error))?;
    let temporary = path.with_extension(format!("store.new-{}", std::process::id()));
    let doing = "make it";
    let made = (|| {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            // The store holds a program's memory: only its user may read it.
            .mode(0o600)
            .open(&temporary)?;
        allocate(&file, 0, FIRST_BYTES)?;
        file.write_all_at(&superblock.encode(), 0)?;
        file.sync_all()?;
        // A hard link does not replace a store that another process has made meanwhile.
        std::fs::hard_link(&temporary, path)?;
        File::open(directory)?.sync_all()
    })();
    let _ = std::fs::remove_file(&temporary);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull => StoreError::Full {
                path: path.to_owned(),
                needed: FIRST_BYTES,
                limit: 0,
            },
            _ => io_error(path, doing, error),
        }),
    }
}

/// A device has no name to be renamed to: the superblock goes last.
fn create_on_device(file: &mut File, path: &Path, name: &str) -> Result<(), StoreError> {
    let medium = MappedFile::map(
        file.try_clone()
            .map_err(|e| io_error(path, "open it again", e))?,
        path,
        0,
        true,
    )?;
    let superblock = Superblock {
        identity: random_identity(),
        created_ns: now_ns(),
        name: name.to_owned(),
    };
    let zeros = vec![0; (u64::from(RESERVED_FRAMES) * PAGE_BYTES) as usize];
    medium.write(0, &zeros);
    let done = medium.barrier().and_then(|()| {
        medium.write(0, &superblock.encode());
        medium.barrier()
    });
    done.and_then(|()| file.flush())
        .map_err(|error| io_error(path, "make it", error))
}

impl Store {
    /// Opens, locks and reads a store. It may grow to `limit` bytes.
    ///
    /// # Errors
    /// It is missing, in use, of another version, damaged, read-only or not a store.
    pub fn open(
        path: &Path,
        name: &str,
        access: Access,
        limit: Option<u64>,
    ) -> Result<Self, StoreError> {
        let writable = access != Access::Read;
        let mut file = match open_file(path, writable) {
            Err(StoreError::Missing { .. }) if access == Access::Create => {
                create(path, name)?;
                open_file(path, writable)?
            }
            other => other?,
        };
        lock(&file, path, access)?;
        let kind = file
            .metadata()
            .map_err(|error| io_error(path, "read its metadata", error))?
            .file_type();
        let device = kind.is_char_device() || kind.is_block_device();
        // Without room for them a restore is possible all the same.
        if writable
            && !device
            && let Err(error) = fill_holes(&file)
        {
            tracing::warn!(
                store = %path.display(),
                "it has holes, and its file system no room to fill them ({error}): make room, or a persist may fail"
            );
        }
        let limit = limit.unwrap_or(NO_LIMIT);
        let map = |file: &File| {
            let again = file.try_clone();
            let again = again.map_err(|error| io_error(path, "open it again", error))?;
            MappedFile::map(again, path, if writable { limit } else { 0 }, writable)
        };
        let mut medium = map(&file)?;
        if device && access == Access::Create && is_blank(&medium) {
            create_on_device(&mut file, path, name)?;
            medium = map(&file)?;
        }
        if medium.bytes() < u64::from(RESERVED_FRAMES) * PAGE_BYTES {
            return Err(StoreError::Foreign {
                path: path.to_owned(),
                reason: format!("{} bytes are too few", medium.bytes()),
            });
        }
        let superblock = Superblock::decode(medium.read(0, PAGE_BYTES))
            .map_err(|error| format_error(path, error))?;
        if superblock.name != name {
            return Err(StoreError::OtherName {
                path: path.to_owned(),
                holds: superblock.name,
                wanted: name.to_owned(),
            });
        }
        let limit = limit.min(medium.limit());
        let (engine, Found { passed_over, .. }) =
            Engine::open(Arc::new(medium), superblock.identity, limit);
        for reason in &passed_over {
            tracing::warn!(store = %path.display(), "passed over {reason}");
        }
        Ok(Self {
            engine,
            superblock,
            path: path.to_owned(),
            limit,
            passed_over,
            _lock: file,
        })
    }

    /// What was passed over on the way to the newest complete epoch, and why.
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.superblock.name
    }

    /// How writes become durable here.
    pub fn kind(&self) -> MediumKind {
        self.medium().kind()
    }

    /// The mapped file, for copies straight into frames that were placed.
    pub fn medium(&self) -> &Arc<MappedFile> {
        self.engine.medium()
    }

    /// The newest complete epoch's root, if there is something to restore.
    pub fn root(&self) -> Option<&Root> {
        self.engine.root()
    }

    /// The index and the frames.
    pub fn engine(&self) -> &Engine<MappedFile> {
        &self.engine
    }

    /// The newest complete epoch, to restore from; see [`Engine::snapshot`].
    pub fn snapshot(&self) -> Option<StoredEpoch<MappedFile>> {
        self.engine.snapshot(self.path.display().to_string())
    }

    /// See [`Engine::uncommitted`].
    pub fn uncommitted(&self, description: &[u8]) -> StoredEpoch<MappedFile> {
        let label = self.path.display().to_string();
        self.engine.uncommitted(label, description)
    }

    fn explain(&self, error: EngineError) -> StoreError {
        let path = self.path.clone();
        match error {
            EngineError::Full { needed } => StoreError::Full {
                path,
                needed,
                limit: self.limit.min(self.medium().bytes() + needed),
            },
            EngineError::Io(source) => StoreError::Io {
                path,
                doing: "write to it",
                source,
            },
        }
    }

    /// See [`Engine::reserve`].
    ///
    /// # Errors
    /// No room, or the medium failed.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), StoreError> {
        let result = self.engine.reserve(bytes);
        result.map_err(|error| self.explain(error))
    }

    /// See [`Engine::place`].
    ///
    /// # Errors
    /// No room, or the medium failed; what is in `out` is to be abandoned then.
    pub fn place(&mut self, pages: Pages, out: &mut Vec<Placement>) -> Result<(), StoreError> {
        let result = self.engine.place(pages, out);
        result.map_err(|error| self.explain(error))
    }

    /// See [`Engine::stored`].
    pub fn stored(&mut self, placement: &Placement, checksums: &[u64]) {
        self.engine.stored(placement, checksums);
    }

    /// See [`Engine::abandon`].
    pub fn abandon(&mut self, placement: &Placement) {
        self.engine.abandon(placement);
    }

    /// See [`Engine::forget`].
    pub fn forget(&mut self, space: SpaceId, page: u64, count: u64) {
        self.engine.forget(space, page, count);
    }

    /// See [`Engine::forget_space`].
    pub fn forget_space(&mut self, space: SpaceId) {
        self.engine.forget_space(space);
    }

    /// See [`Engine::commit`].
    ///
    /// # Errors
    /// No room, or the medium failed; the former epoch is still the newest one.
    pub fn commit(
        &mut self,
        description: &[u8],
        cause: Cause,
        last_space: u32,
    ) -> Result<u64, StoreError> {
        let result = self.engine.commit(description, cause, last_space, now_ns());
        result.map_err(|error| self.explain(error))
    }

    /// The program has ended: there is nothing to restore any more.
    ///
    /// # Errors
    /// The medium failed.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        let result = self.engine.clear(now_ns());
        result.map(drop).map_err(|error| self.explain(error))
    }

    /// Removes it: the file, or what a device holds.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&mut self) -> Result<(), StoreError> {
        if self.kind() == MediumKind::DaxDevice || is_block(&self.path) {
            let zeros = vec![0; (u64::from(RESERVED_FRAMES) * PAGE_BYTES) as usize];
            self.medium().write(0, &zeros);
            return self
                .medium()
                .barrier()
                .map_err(|error| io_error(&self.path, "clear it", error));
        }
        std::fs::remove_file(&self.path)
            .map_err(|error| io_error(&self.path, "remove it", error))?;
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| io_error(directory, "sync the directory", error))
    }
}

fn is_block(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

fn is_blank(medium: &MappedFile) -> bool {
    medium.bytes() >= PAGE_BYTES && medium.read(0, PAGE_BYTES).iter().all(|byte| *byte == 0)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
