//! Loads kernel modules from a list of files, in its order.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::PAYLOAD;

/// Loads what `directory/load-order` names, one file name a line. Returns a complaint for each
/// module that could not be loaded: a machine without one is still worth running and asking.
pub fn load_all(directory: &Path) -> Vec<String> {
    let list = directory.join("load-order");
    let text = match std::fs::read_to_string(&list) {
        Ok(text) => text,
        Err(error) => return vec![format!("{}: {error}", list.display())],
    };
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| {
            let (file, parameters) = line.split_once(' ').unwrap_or((line, ""));
            load(&directory.join(Path::new(file).file_name()?), parameters)
        })
        .collect()
}

/// Loads one module; None when it is loaded.
pub fn load(path: &Path, parameters: &str) -> Option<String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return Some(format!("module {}: {error}", path.display())),
    };
    let parameters = std::ffi::CString::new(parameters).ok()?;
    match rustix::system::finit_module(&file, &parameters, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => None,
        Err(error) => Some(format!("module {}: {error}", path.display())),
    }
}

/// Modules that nothing needs but what loads them.
pub fn more_modules() -> PathBuf {
    Path::new(PAYLOAD).join("more-modules")
}
