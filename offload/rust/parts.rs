//! Builds the executor and the guest programs with `offload/build.sh`, once for each state of
//! their sources.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{OffloadError, io};

const LANDMARK: &str = "isa/a32.def";

/// The folder with what `offload/build.sh` built.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The folder.
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

/// What a folder's parts are, by name and content.
pub(crate) fn state_of(folder: &Path, parts: &[&str]) -> Result<String, OffloadError> {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        digest(&folder.join(part), &mut hasher)?;
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// Runs a build script, one at a time in `folder`, unless it has already built this state of its
/// sources there.
pub(crate) fn build(
    script: &Path,
    arguments: &[&OsStr],
    folder: &Path,
    state: &str,
) -> Result<(), OffloadError> {
    fs::create_dir_all(folder).map_err(io("create", folder))?;
    // Released when the file is closed.
    let lock_path = folder.join("lock");
    let lock = fs::File::create(&lock_path).map_err(io("open", &lock_path))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|error| io("lock", &lock_path)(error.into()))?;
    let done = folder.join("complete");
    // Not there: nothing was built yet.
    if fs::read_to_string(&done).is_ok_and(|built| built == state) {
        return Ok(());
    }
    let output = Command::new(script)
        .args(arguments)
        .output()
        .map_err(|source| OffloadError::MissingTool {
            program: script.display().to_string(),
            source,
        })?;
    if !output.status.success() {
        return Err(OffloadError::Build {
            lacking: output.status.code() == Some(3),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    fs::write(&done, state).map_err(io("write", done))
}

impl Parts {
    /// Builds what these sources have not been built to yet.
    ///
    /// # Errors
    /// The cross compiler or the Linux source is not there, or something does not compile.
    pub fn ready() -> Result<Parts, OffloadError> {
        let sources = source_folder()?;
        let state = state_of(
            &sources,
            &[
                "src",
                "include",
                "isa",
                "target",
                "model",
                "guest",
                "build.sh",
                "linux-source.sh",
            ],
        )?;
        let folder = cache_folder()?.join(&state);
        let arguments = [folder.as_os_str()];
        build(&sources.join("build.sh"), &arguments, &folder, &state)?;
        Ok(Parts { folder })
    }

    /// Path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
