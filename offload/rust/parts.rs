//! Builds the executor and the guest programs with `offload/build.sh`, once for each state of
//! their sources.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{OffloadError, io};

const LANDMARK: &str = "isa/a32.def";

/// The folder with what `offload/build.sh` built.
#[derive(Debug, Clone)]
pub struct Parts {
    pub folder: PathBuf,
}

/// The executor's sources: in a clone above the current folder, or where this was built.
pub(crate) fn source_folder() -> Result<PathBuf, OffloadError> {
    let built_at = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let current = std::env::current_dir().unwrap_or_default();
    current
        .ancestors()
        .map(|folder| folder.join("offload"))
        .chain([built_at.clone()])
        .find(|folder| folder.join(LANDMARK).is_file())
        .ok_or(OffloadError::NoSources(built_at))
}

pub(crate) fn cache_folder() -> Result<PathBuf, OffloadError> {
    std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .map(|base| base.join("dormouse/offload"))
        .ok_or_else(|| {
            OffloadError::Usage("no place for the cache: set HOME or XDG_CACHE_HOME".into())
        })
}

/// Everything below a path that a build depends on, by name and content.
fn digest(path: &Path, into: &mut DefaultHasher) -> Result<(), OffloadError> {
    if !path.is_dir() {
        path.file_name().hash(into);
        fs::read(path).map_err(io("read", path))?.hash(into);
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .map_err(io("read", path))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    entries.iter().try_for_each(|entry| digest(entry, into))
}

impl Parts {
    /// Builds what these sources have not been built to yet.
    ///
    /// # Errors
    /// The cross compiler or the Linux source is not there, or something does not compile.
    pub fn ready() -> Result<Parts, OffloadError> {
        let sources = source_folder()?;
        let mut hasher = DefaultHasher::new();
        for part in ["src", "include", "isa", "target", "guest", "build.sh"] {
            digest(&sources.join(part), &mut hasher)?;
        }
        let folder = cache_folder()?.join(format!("{:016x}", hasher.finish()));
        fs::create_dir_all(&folder).map_err(io("create", &folder))?;
        // One build at a time; released when the file is closed.
        let lock_path = folder.join("lock");
        let lock = fs::File::create(&lock_path).map_err(io("open", &lock_path))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| io("lock", &lock_path)(error.into()))?;
        let done = folder.join("complete");
        if done.exists() {
            return Ok(Parts { folder });
        }
        let script = sources.join("build.sh");
        let said = Command::new(&script)
            .arg(&folder)
            .output()
            .map_err(|source| OffloadError::MissingTool {
                program: script.display().to_string(),
                source,
            })?;
        if !said.status.success() {
            return Err(OffloadError::Build {
                lacking: said.status.code() == Some(3),
                message: String::from_utf8_lossy(&said.stderr).trim().to_owned(),
            });
        }
        fs::write(&done, "").map_err(io("write", done))?;
        Ok(Parts { folder })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
