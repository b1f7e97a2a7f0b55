//! Builds the executor and the guest programs with `offload/build.sh`, once for each state of
//! their sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::error::{OffloadError, io};

const LANDMARK: &str = "isa/a32.def";

/// The folder with what `offload/build.sh` built.
#[derive(Debug, Clone)]
pub struct Parts {
    pub folder: PathBuf,
}

/// The executor's sources: in a clone above the current folder, or where this was built.
fn source_folder() -> Result<PathBuf, OffloadError> {
    let built_at = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let current = std::env::current_dir().unwrap_or_default();
    current
        .ancestors()
        .map(|folder| folder.join("offload"))
        .chain([built_at.clone()])
        .find(|folder| folder.join(LANDMARK).is_file())
        .ok_or(OffloadError::NoSources(built_at))
}

fn cache_folder() -> Result<PathBuf, OffloadError> {
    std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .map(|base| base.join("dormouse/offload"))
        .ok_or_else(|| {
            OffloadError::Usage("no place for the cache: set HOME or XDG_CACHE_HOME".into())
        })
}

/// When the newest file below a folder was changed.
fn newest(folder: &Path) -> Result<SystemTime, OffloadError> {
    let mut latest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(folder).map_err(io("read", folder))?.flatten() {
        let path = entry.path();
        let facts = entry.metadata().map_err(io("read", &path))?;
        let time = if facts.is_dir() {
            newest(&path)?
        } else {
            facts.modified().map_err(io("read", &path))?
        };
        latest = latest.max(time);
    }
    Ok(latest)
}

impl Parts {
    /// Builds what is older than its sources.
    ///
    /// # Errors
    /// The cross compiler or the Linux source is not there, or something does not compile.
    pub fn ready() -> Result<Parts, OffloadError> {
        let sources = source_folder()?;
        let folder = cache_folder()?;
        fs::create_dir_all(&folder).map_err(io("create", &folder))?;
        // One build at a time; released when the file is closed.
        let lock_path = folder.join("lock");
        let lock = fs::File::create(&lock_path).map_err(io("open", &lock_path))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| io("lock", &lock_path)(error.into()))?;
        let mut changed = SystemTime::UNIX_EPOCH;
        for part in ["src", "include", "isa", "target", "guest"] {
            changed = changed.max(newest(&sources.join(part))?);
        }
        let done = folder.join("complete");
        let built = fs::metadata(&done).and_then(|facts| facts.modified());
        if built.is_ok_and(|built| built > changed) {
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
