//! The cache of everything built or fetched: one folder for each artefact, named by the hash of
//! its inputs, complete or absent.
//!
//! ```text
//! ~/.cache/dormouse/
//!   lock                      held by the one build that is running
//!   artefacts/KIND/KEY/       what a step made; `inputs` in it says from what
//!   downloads/                packages and source packages, as the archive has them
//!   apt/                      private package lists
//!   logs/                     what the programs of the last build printed
//!   temporary/                unfinished work; renamed into artefacts/ when complete
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use thiserror::Error;

/// How many artefacts of a kind stay, whatever their age.
const KEPT_OF_EACH_KIND: usize = 3;
/// How long an artefact stays after it was last used, whatever their number.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// Name of the file in an artefact that lists its inputs; its time stamp is the last use.
const INPUTS: &str = "inputs";

/// Why the cache cannot be used.
#[derive(Debug, Error)]
pub enum CacheError {
    /// Neither XDG_CACHE_HOME nor HOME says where a cache may be.
    #[error("no place for the cache: set HOME or XDG_CACHE_HOME")]
    NoHome,
    /// A file of the cache could not be read or written.
    #[error("{action} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

fn failed(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CacheError {
    let path = path.into();
    move |source| CacheError::Io {
        action,
        path,
        source,
    }
}

/// Hexadecimal SHA-256 of a file's contents.
pub fn sha256_of_file(path: &Path) -> Result<String, CacheError> {
    let mut file = File::open(path).map_err(failed("open", path))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(failed("read", path))? {
            0 => return Ok(hex(&digest.finalize())),
            count => digest.update(&buffer[..count]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The inputs of an artefact, one a line; their hash names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Key {
    lines: String,
}

impl Key {
    /// A key without inputs.
    pub fn new() -> Self {
        Key::default()
    }

    /// A setting, a version, another artefact's key.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        // Quoted, so that no value can look like the next line.
        self.lines.push_str(&format!("{name} = {value:?}\n"));
        self
    }

    /// The contents of one file.
    pub fn file(&mut self, name: &str, path: &Path) -> Result<&mut Self, CacheError> {
        let digest = sha256_of_file(path)?;
        Ok(self.text(name, &digest))
    }

    /// The names, contents and execute bits of all files below `folder` that `wanted` accepts
    /// (by their path in the folder), in an order that does not depend on the file system.
    pub fn tree(
        &mut self,
        name: &str,
        folder: &Path,
        wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<&mut Self, CacheError> {
        let mut files = Vec::new();
        collect_files(folder, folder, &mut files)?;
        files.sort();
        for relative in files.iter().filter(|relative| wanted(relative)) {
            let path = folder.join(relative);
            let mode = fs::metadata(&path)
                .map_err(failed("read", &path))?
                .permissions()
                .mode();
            let kind = if mode & 0o111 != 0 { "program" } else { "file" };
            let digest = sha256_of_file(&path)?;
            self.text(
                &format!("{name}/{}", relative.display()),
                &format!("{kind} {digest}"),
            );
        }
        Ok(self)
    }

    /// An installed program: another size or date is another program.
    pub fn program(&mut self, path: &Path) -> Result<&mut Self, CacheError> {
        let real = path.canonicalize().map_err(failed("find", path))?;
        let facts = fs::metadata(&real).map_err(failed("read", &real))?;
        let value = format!("{} {} {}", real.display(), facts.size(), facts.mtime());
        Ok(self.text("program", &value))
    }

    /// The artefact's name in the cache.
    pub fn digest(&self) -> String {
        hex(&Sha256::digest(self.lines.as_bytes())[..16])
    }
}

fn collect_files(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), CacheError> {
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let entry = entry.map_err(failed("read", folder))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(failed("read", &path))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if kind.is_dir() {
            collect_files(root, &path, files)?;
        } else if kind.is_file() {
            files.push(path.strip_prefix(root).unwrap_or(&path).to_path_buf());
        }
    }
    Ok(())
}

/// Where artefacts, downloads and package lists are kept.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// Held while a build runs; released when dropped, also by a crash.
#[derive(Debug)]
pub struct CacheLock {
    _file: File,
}

impl Cache {
    /// The user's cache: `$XDG_CACHE_HOME/dormouse` or `~/.cache/dormouse`.
    pub fn open() -> Result<Self, CacheError> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
            .ok_or(CacheError::NoHome)?;
        Cache::at(&base.join("dormouse"))
    }

    /// A cache of its own inside this one, with its own lock.
    pub fn part(&self, name: &str) -> Result<Self, CacheError> {
        Cache::at(&self.root.join(name))
    }

    /// A cache in a folder of the caller's choice.
    pub fn at(root: &Path) -> Result<Self, CacheError> {
        let cache = Cache {
            root: root.to_path_buf(),
        };
        for folder in ["artefacts", "downloads", "apt", "logs", "temporary"] {
            cache.folder(folder)?;
        }
        Ok(cache)
    }

    /// Where a folder of the cache is, whether or not it exists yet.
    pub fn state_folder(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A folder of the cache, created when it is missing.
    pub fn folder(&self, name: &str) -> Result<PathBuf, CacheError> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(failed("create", &path))?;
        Ok(path)
    }

    /// Waits until no other build uses the cache; `waiting` is called if it has to wait.
    ///
    /// Unfinished work of a build that died is removed.
    pub fn lock(&self, waiting: impl FnOnce()) -> Result<CacheLock, CacheError> {
        use rustix::fs::{FlockOperation, flock};
        let path = self.root.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed("open", &path))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            waiting();
            flock(&file, FlockOperation::LockExclusive)
                .map_err(|error| failed("lock", &path)(error.into()))?;
        }
        let temporary = self.folder("temporary")?;
        for entry in fs::read_dir(&temporary)
            .map_err(failed("read", &temporary))?
            .flatten()
        {
            remove(&entry.path())?;
        }
        Ok(CacheLock { _file: file })
    }

    fn entry(&self, kind: &str, key: &Key) -> PathBuf {
        self.root.join("artefacts").join(kind).join(key.digest())
    }

    /// The artefact made from these inputs, if it is there; counts as a use.
    pub fn artefact(&self, kind: &str, key: &Key) -> Option<PathBuf> {
        let path = self.entry(kind, key);
        let stamp = File::options().append(true).open(path.join(INPUTS)).ok()?;
        // A stamp that cannot be written only means an earlier removal.
        let _ = stamp.set_modified(SystemTime::now());
        Some(path)
    }

    /// Makes an artefact: `fill` works in an empty folder, which becomes the artefact only if it
    /// succeeds.
    pub fn make<E: From<CacheError>>(
        &self,
        kind: &str,
        key: &Key,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let work = self.work_folder(kind)?;
        fill(&work.path)?;
        let inputs = work.path.join(INPUTS);
        fs::write(&inputs, &key.lines).map_err(failed("write", &inputs))?;
        let path = self.entry(kind, key);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed("create", parent))?;
        }
        remove(&path)?;
        fs::rename(&work.path, &path).map_err(failed("complete", &path))?;
        Ok(path)
    }

    /// An empty folder for unfinished work, removed when dropped.
    pub fn work_folder(&self, name: &str) -> Result<WorkFolder, CacheError> {
        let path = self.folder("temporary")?.join(name);
        remove(&path)?;
        fs::create_dir_all(&path).map_err(failed("create", &path))?;
        Ok(WorkFolder { path })
    }

    /// Removes artefacts that were not used for long; call it with the lock held.
    pub fn collect_garbage(&self, now: SystemTime) -> Result<(), CacheError> {
        let artefacts = self.folder("artefacts")?;
        for kind in fs::read_dir(&artefacts)
            .map_err(failed("read", &artefacts))?
            .flatten()
        {
            let mut entries: Vec<(SystemTime, PathBuf)> = fs::read_dir(kind.path())
                .map_err(failed("read", kind.path()))?
                .flatten()
                .map(|entry| {
                    let used = fs::metadata(entry.path().join(INPUTS))
                        .and_then(|facts| facts.modified())
                        .unwrap_or(SystemTime::UNIX_EPOCH);
                    (used, entry.path())
                })
                .collect();
            entries.sort();
            entries.reverse();
            for (used, path) in entries.into_iter().skip(KEPT_OF_EACH_KIND) {
                if now.duration_since(used).is_ok_and(|age| age > KEPT_FOR) {
                    remove(&path)?;
                }
            }
        }
        Ok(())
    }
}

/// A folder for unfinished work.
#[derive(Debug)]
pub struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // What stays is removed by the next build that takes the lock.
        let _ = remove(&self.path);
    }
}

fn remove(path: &Path) -> Result<(), CacheError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(facts) if facts.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
