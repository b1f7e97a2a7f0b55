//! Makes the root disk from distribution packages, without root, loop devices or scripts.
//!
//! Packages are unpacked and nothing of them is run: what their installation scripts would have
//! set up and the lab needs (users, the merged `/usr`, a shell) is done here. Our own binaries
//! are not on this disk but on the payload disk, so it stays when only they change.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::run;
use super::context::{Context, Made, Running};
use super::packages::{apt, unpack};
use super::{BuildError, Step, cpio, elf, ext4};
use crate::apt::ArchiveFile;
use crate::cache::Key;

/// What the machine is for, and the tools of a usable shell; dependencies come by themselves.
pub(crate) const PACKAGES: [&str; 17] = [
    "base-files",
    "bash",
    "coreutils",
    "e2fsprogs",
    "findutils",
    "grep",
    "kmod",
    "mawk",
    "mount",
    "numactl",
    "procps",
    "python3",
    "redis-server",
    "sed",
    "stress-ng",
    "tpm2-tools",
    "util-linux",
];

/// Dependencies that only installation scripts and package managers use, by name or prefix.
const NOT_UNPACKED: [&str; 17] = [
    "adduser",
    "debconf",
    "debianutils",
    "dpkg",
    "init-system-helpers",
    "libfile-find-rule-perl",
    "libgdbm",
    "libnumber-compare-perl",
    "libperl",
    "libsemanage",
    "libsepol",
    "libtext-glob-perl",
    "passwd",
    "perl",
    "tar",
    "usr-is-merged",
    "usrmerge",
];

/// Files that nothing reads in an emulated machine.
const PRUNED: [&str; 11] = [
    "usr/share/doc",
    "usr/share/doc-base",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/bug",
    "usr/share/X11",
    "usr/share/bash-completion",
    "usr/lib/systemd",
    "var/cache/debconf",
];

/// Folders of `/` that are links into `/usr`.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// Mount points and folders that the guest expects.
const FOLDERS: [&str; 10] = [
    "dev",
    "mnt",
    "proc",
    "root",
    "run/dormouse",
    "sys",
    "tmp",
    "var/lib/redis",
    "var/log",
    "var/tmp",
];

/// Links that installation scripts would have made, and those to the payload disk.
const LINKS: [(&str, &str); 5] = [
    ("usr/bin/sh", "bash"),
    ("usr/bin/awk", "mawk"),
    ("etc/mtab", "/proc/self/mounts"),
    ("usr/bin/dormouse", "/run/dormouse/bin/dormouse"),
    ("usr/lib/dormouse", "/run/dormouse"),
];

const IMAGE: ext4::Image = ext4::Image {
    label: "dormouse-root",
    uuid: "d0127005-0000-4000-8000-000000000001",
    // Sparse: only what is used takes room.
    size_bytes: 1 << 30,
    journal: true,
};

/// Changes whenever this file makes something else from the same inputs.
const RECIPE: &str = "3";

pub(crate) fn rootfs(context: &Context<'_>, all: &[ArchiveFile]) -> Result<Made, BuildError> {
    let files: Vec<ArchiveFile> = all
        .iter()
        .filter(|file| is_unpacked(&file.name))
        .cloned()
        .collect();
    let own = context.sources.join("lab/rootfs");
    let mut key = Key::new();
    key.text("recipe", RECIPE).tree("own", &own, &|_| true)?;
    for file in &files {
        key.text(&file.name, &file.sha256);
    }
    let detail = format!("{} packages", files.len());
    context.make(Step::RootFs, &key, &detail, |running, work| {
        let packages = running.files(&files, |missing, folder, percent| {
            apt(context)?.download(missing, folder, percent)
        })?;
        let work_root = context.cache.work_folder("rootfs-tree")?;
        let root = work_root.path();
        let log = running.log()?;
        for (count, package) in packages.iter().enumerate() {
            if count % 10 == 0 {
                running.activity(format!("unpacking {count} of {} packages", packages.len()));
            }
            unpack(package, root, &log)?;
        }
        running.activity("setting up");
        set_up(root, &own, &files)?;
        compile_python(running, root);
        let missing = elf::missing_libraries(root)?;
        if !missing.is_empty() {
            return Err(BuildError::Unexpected(format!(
                "the root file system lacks libraries: {}",
                missing.join(", ")
            )));
        }
        let archive = tpm_archive(root)?;
        let path = tpm_tools(work);
        fs::write(&path, archive).map_err(BuildError::io("write", path))?;
        running.activity("writing the image");
        ext4::write(IMAGE, root, &image(work), &log)
    })
}

/// What talks to a TPM before the root disk is mounted: an initramfs with it, as the hook for
/// initramfs-tools copies it.
fn tpm_archive(root: &Path) -> Result<Vec<u8>, BuildError> {
    // The second one is opened at run time.
    const PROGRAMS: [&str; 2] = [
        "usr/bin/tpm2",
        "usr/lib/x86_64-linux-gnu/libtss2-tcti-device.so.0",
    ];
    const LOADER: &str = "ld-linux-x86-64.so.2";
    let mut archive = cpio::Archive::default();
    for folder in [
        "usr",
        "usr/bin",
        "usr/lib",
        "usr/lib/x86_64-linux-gnu",
        "lib64",
    ] {
        archive.folder(folder);
    }
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let mut files = elf::with_libraries(root, &PROGRAMS)?;
    files.push(libraries.join(LOADER));
    for file in files {
        let bytes = fs::read(&file).map_err(BuildError::io("read", &file))?;
        let name = file.strip_prefix(root).unwrap_or(&file);
        archive.file(&name.to_string_lossy(), 0o755, &bytes);
        if file.ends_with(LOADER) {
            archive.file(&format!("lib64/{LOADER}"), 0o755, &bytes);
        }
    }
    Ok(archive.finish())
}

/// The archive of what talks to a TPM, in the step's artefact.
pub(crate) fn tpm_tools(artefact: &Path) -> PathBuf {
    artefact.join("tpm2.cpio")
}

/// The image in the step's artefact.
pub(crate) fn image(artefact: &Path) -> PathBuf {
    artefact.join("rootfs.img")
}

fn is_unpacked(file_name: &str) -> bool {
    !NOT_UNPACKED
        .iter()
        .any(|prefix| file_name.starts_with(prefix))
}

fn set_up(root: &Path, own: &Path, files: &[ArchiveFile]) -> Result<(), BuildError> {
    for name in MERGED {
        let merged = root.join("usr").join(name);
        merge(&root.join(name), &merged).map_err(BuildError::io("merge", &merged))?;
        make_link(&root.join(name), &format!("usr/{name}"))?;
    }
    for pruned in PRUNED {
        let path = root.join(pruned);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(BuildError::io("remove", path))?;
        }
    }
    for folder in FOLDERS {
        let path = root.join(folder);
        fs::create_dir_all(&path).map_err(BuildError::io("create", path))?;
    }
    for open in ["tmp", "var/tmp"] {
        let path = root.join(open);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777))
            .map_err(BuildError::io("open up", path))?;
    }
    for (path, target) in LINKS {
        make_link(&root.join(path), target)?;
    }
    merge_copy(own, root).map_err(BuildError::io("copy", own))?;
    let list: String = files
        .iter()
        .filter_map(ArchiveFile::package)
        .map(|(name, version, _)| format!("{name} {version}\n"))
        .collect();
    let path = root.join("etc/dormouse-packages");
    fs::write(&path, list).map_err(BuildError::io("write", path))
}

fn make_link(path: &Path, target: &str) -> Result<(), BuildError> {
    if path
        .symlink_metadata()
        .is_ok_and(|facts| facts.is_symlink())
    {
        fs::remove_file(path).map_err(BuildError::io("replace", path))?;
    }
    symlink(target, path).map_err(BuildError::io("link", path))
}

/// Moves everything in `from` into `to`, folder by folder, and removes `from`.
///
/// A `from` that is a symbolic link is left: packages of Debian 13 and newer bring merged folders.
fn merge(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    if from.is_symlink() || !from.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() && target.is_dir() {
            merge(&entry.path(), &target)?;
        } else {
            fs::rename(entry.path(), target)?;
        }
    }
    fs::remove_dir(from)
}

fn merge_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            merge_copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Compiles Python's library with the Python that was just unpacked, so that the emulated
/// machine does not do it slowly at each start. Nothing depends on it.
fn compile_python(running: &Running<'_>, root: &Path) {
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
    command
        .arg("--library-path")
        .arg(&libraries)
        .arg(root.join("usr/bin/python3"))
        .args([
            "-m",
            "compileall",
            "-q",
            "--invalidation-mode",
            "unchecked-hash",
        ])
        .args(["-x", "lib2to3/tests", "-p", "/", "-s"])
        .arg(root)
        .args(python_libraries(root))
        .env("PYTHONHOME", root.join("usr"));
    let result = running
        .log()
        .and_then(|log| run(&mut command, "compiling Python's library", &log));
    if let Err(error) = result {
        running.activity(format!("Python's library stays uncompiled: {error}"));
    }
}

/// Python's library folders; their name has the version.
fn python_libraries(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("usr/lib")).into_iter().flatten();
    entries
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(b"python3.")
        })
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_a_release_brings_merged_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::write(root.join("usr/bin/tool"), "tool").unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        let own = root.join("own");
        fs::create_dir_all(&own).unwrap();
        set_up(root, &own, &[]).unwrap();
        assert_eq!(fs::read(root.join("bin/tool")).unwrap(), b"tool");
        assert!(root.join("bin").is_symlink());
    }

    #[test]
    fn what_packages_put_beside_usr_is_found_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("lib/modules-load.d")).unwrap();
        fs::create_dir_all(root.join("usr/lib/modules-load.d")).unwrap();
        fs::write(root.join("lib/modules-load.d/a"), "a").unwrap();
        fs::write(root.join("usr/lib/modules-load.d/b"), "b").unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        let own = root.join("own");
        fs::create_dir_all(&own).unwrap();
        set_up(root, &own, &[]).unwrap();
        for path in ["lib/modules-load.d/a", "usr/lib/modules-load.d/b"] {
            assert!(root.join(path).exists(), "{path}");
        }
        for name in MERGED {
            assert_eq!(
                fs::read_link(root.join(name)).unwrap(),
                Path::new("usr").join(name)
            );
        }
        assert_eq!(
            fs::read_link(root.join("usr/bin/sh")).unwrap(),
            Path::new("bash")
        );
    }

    #[test]
    fn no_wanted_package_is_left_out() {
        for package in PACKAGES {
            assert!(is_unpacked(&format!("{package}_1_amd64.deb")), "{package}");
        }
        assert!(!is_unpacked("perl-base_5.36_amd64.deb"));
    }
}
