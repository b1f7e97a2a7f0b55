//! Sets `DORMOUSE_VERSION`: the version and the commit that the command was built from.
//!
//! The commit comes from the environment (`DORMOUSE_COMMIT`, for packages), from git, or from
//! `commit.txt`, which `git archive` fills in; otherwise it is `unknown`. No time of building, so
//! that the same commit gives the same bytes.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=commit.txt");
    println!("cargo::rerun-if-env-changed=DORMOUSE_COMMIT");
    let commit = std::env::var("DORMOUSE_COMMIT")
        .ok()
        .filter(|set| !set.is_empty())
        .or_else(from_git)
        .or_else(from_archive)
        .unwrap_or_else(|| "unknown".to_owned());
    println!(
        "cargo::rustc-env=DORMOUSE_VERSION={} ({commit})",
        env!("CARGO_PKG_VERSION")
    );
}

/// What git says of this clone; nothing where there is no git, or where the sources lie inside a
/// repository that is not theirs.
fn from_git() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let head = git(&["rev-parse", "--symbolic-full-name", "HEAD"])?;
    for name in ["HEAD", "packed-refs", head.as_str()] {
        let path = git(&["rev-parse", "--git-path", name])?;
        // A file that is not there would make every build run this again.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["show", "--no-patch", "--format=%h %cs", "HEAD"])
}

/// What `git archive` wrote into the file; in a clone it holds only the pattern.
fn from_archive() -> Option<String> {
    let text = std::fs::read_to_string("commit.txt").ok()?;
    let text = text.trim();
    (!text.contains('$') && !text.is_empty()).then(|| text.to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
