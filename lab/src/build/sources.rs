//! Finds this project's own sources, from which firmware, module and guest binaries are built.

use std::path::{Path, PathBuf};

use super::BuildError;

/// A file that only the project's root has.
const LANDMARK: &str = "machine/image/include/dormouse_image.h";

/// The root of the project's sources: `DORMOUSE_SOURCE`, or the clone that the current folder is
/// in, or where this binary was built.
pub fn source_root() -> Result<PathBuf, BuildError> {
    let is_root = |path: &Path| path.join(LANDMARK).is_file();
    if let Some(set) = std::env::var_os("DORMOUSE_SOURCE") {
        let set = PathBuf::from(set);
        return if is_root(&set) {
            Ok(set)
        } else {
            Err(BuildError::NoSources(set))
        };
    }
    let built_at = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf);
    let current = std::env::current_dir().unwrap_or_default();
    current
        .ancestors()
        .map(Path::to_path_buf)
        .chain(built_at.clone())
        .find(|path| is_root(path))
        .ok_or_else(|| BuildError::NoSources(built_at.unwrap_or_default()))
}
