//! The tools for which a release's kernel headers are made: its compiler, make, binutils and the C
//! library that kbuild's own programs need. They run in a chroot, so that the build machine can be
//! of another release.
//!
//! ```text
//! kernel/   the unpacked kernel packages are mounted here     usr/src ─▶ /kernel/usr/src
//! build/    the module's sources are mounted here
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::context::{Context, Made};
use super::packages::{KernelPackages, Suites, unpack};
use super::{BuildError, Step};
use crate::apt::{Apt, AptError, ArchiveFile, parse};
use crate::cache::Key;

/// Beside the compiler, which the headers name.
const PROGRAMS: [&str; 12] = [
    "base-files",
    "bash",
    "binutils",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "grep",
    "make",
    "mawk",
    "perl-base",
    "sed",
];
/// Folders of `/` that are links into `/usr`.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Mount points.
const FOLDERS: [&str; 5] = ["build", "dev", "kernel", "proc", "tmp"];
/// Links that installation scripts would have made, and the one to the headers.
const LINKS: [(&str, &str); 3] = [
    ("usr/bin/sh", "dash"),
    ("usr/bin/awk", "mawk"),
    ("usr/src", "/kernel/usr/src"),
];
/// Changes whenever this file makes something else from the same packages.
const RECIPE: &str = "1";

/// The packages of the programs that build a module for this kernel: the compiler that its headers
/// name, and what kbuild's own programs need (objtool: libelf).
pub(crate) fn files(apt: &Apt, packages: &KernelPackages) -> Result<Vec<ArchiveFile>, BuildError> {
    let headers = format!("linux-headers-{}", packages.release);
    let of_headers = depends(apt, &headers);
    let starting = |start: &str| of_headers.iter().find(|name| name.starts_with(start));
    let compiler = starting("gcc-")
        .ok_or_else(|| AptError::NoPackage(vec![format!("a compiler for {headers}")]))?;
    let of_kbuild = starting("linux-kbuild-").map(|kbuild| depends(apt, kbuild));
    let of_kbuild = of_kbuild.unwrap_or_default();
    let mut names = vec![compiler.as_str()];
    names.extend(of_kbuild.iter().map(String::as_str));
    names.extend(PROGRAMS);
    Ok(apt.closure(&names)?)
}

/// The first of each alternatives that a package depends on.
fn depends(apt: &Apt, package: &str) -> Vec<String> {
    let record = apt.show(package);
    let field = record.and_then(|record| record.get("Depends").cloned());
    let alternatives = parse::depends(&field.unwrap_or_default()).into_iter();
    alternatives
        .filter_map(|names| names.into_iter().next())
        .collect()
}

/// The change root with these packages.
pub(crate) fn tools(
    context: &Context<'_>,
    files: &[ArchiveFile],
    suites: &Suites,
) -> Result<Made, BuildError> {
    let mut key = Key::new();
    key.text("recipe", RECIPE);
    for file in files {
        key.text(&file.name, &file.sha256);
    }
    context.make(Step::Tools, &key, &suites.name, |running, work| {
        let packages = running.files(files, |missing, folder, percent| {
            suites
                .apt(&context.cache)?
                .download(missing, folder, percent)
        })?;
        let log = running.log()?;
        let link = |path: PathBuf, target: &str| {
            if path.symlink_metadata().is_ok() {
                return Ok(());
            }
            symlink(target, &path).map_err(BuildError::io("link", path))
        };
        for name in MERGED {
            let folder = work.join("usr").join(name);
            fs::create_dir_all(&folder).map_err(BuildError::io("create", folder))?;
            link(work.join(name), &format!("usr/{name}"))?;
        }
        for (count, package) in packages.iter().enumerate() {
            if count % 10 == 0 {
                running.activity(format!("unpacking {count} of {} packages", packages.len()));
            }
            unpack(package, work, &log)?;
        }
        for folder in FOLDERS {
            let path = work.join(folder);
            fs::create_dir_all(&path).map_err(BuildError::io("create", path))?;
        }
        // Some release has an empty one.
        let _ = fs::remove_dir(work.join("usr/src"));
        for (path, target) in LINKS {
            link(work.join(path), target)?;
        }
        Ok(())
    })
}
