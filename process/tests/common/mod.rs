//! Small real programs to freeze, capture and restore: compiled from `tests/programs` on demand.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

#[allow(dead_code)]
/// Compiles a C program into `directory`.
///
/// # Panics
/// The compiler is missing or does not like it.
pub fn compile(directory: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name);
    let program = directory.join(source.file_stem().expect("a file name"));
    let cxx = source
        .extension()
        .is_some_and(|extension| extension == "cpp");
    let status = Command::new(if cxx { "g++" } else { "gcc" })
        .args(["-O2", "-g", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .expect("a C compiler (apt-get install gcc g++)");
    assert!(status.success(), "{} does not compile", source.display());
    program
}

/// Waits for a state.
///
/// # Panics
/// It does not come.
#[allow(dead_code)]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < limit, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A child that is killed when it goes out of scope.
pub struct Killed(pub Child);

impl Killed {
    /// Its process number.
    #[allow(dead_code)]
    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
