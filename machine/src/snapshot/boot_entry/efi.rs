//! Variables of UEFI firmware through efivarfs: the boot entries, which one comes next, and what our own
//! entry leaves for the system that sleeps.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};

use dormouse_system::Root;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

pub(crate) const FOLDER: &str = "sys/firmware/efi/efivars";
/// UEFI's own variables.
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Ours.
const OURS: &str = "a1fcb496-48d1-4ab4-80ef-90ba6a7f9d8a";
/// What the entry leaves.
const MARK: &str = "DormouseWake";
/// Kept without power, for firmware and for the system.
const ATTRIBUTES: [u8; 4] = 7u32.to_le_bytes();

fn path(name: &str, guid: &str) -> String {
    format!("{FOLDER}/{name}-{guid}")
}

/// A variable's value; none where there is no such variable.
fn read(root: &Root, path: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(root.path(path)).ok()?;
    // The attributes come first.
    bytes.get(ATTRIBUTES.len()..).map(<[u8]>::to_vec)
}

/// The kernel protects variables that it does not know from `rm`.
fn unprotect(root: &Root, path: &str) {
    let Ok(file) = fs::File::open(root.path(path)) else {
        return;
    };
    if let Ok(flags) = ioctl_getflags(&file) {
        let _ = ioctl_setflags(&file, flags - IFlags::IMMUTABLE);
    }
}

fn write(root: &Root, path: &str, value: &[u8]) -> io::Result<()> {
    unprotect(root, path);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(root.path(path))?;
    // In one call: each is a variable of its own.
    file.write_all(&[&ATTRIBUTES[..], value].concat())
}

fn remove(root: &Root, path: &str) -> io::Result<()> {
    unprotect(root, path);
    match fs::remove_file(root.path(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn numbers(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|two| u16::from_le_bytes([two[0], two[1]]))
        .collect()
}

/// Whether firmware's variables can be read here.
pub(crate) fn is_there(root: &Root) -> bool {
    root.exists(&path("BootCurrent", GLOBAL)) || !root.list(FOLDER).is_empty()
}

/// Whether firmware starts signed programs only.
pub(crate) fn is_secure_boot(root: &Root) -> bool {
    read(root, &path("SecureBoot", GLOBAL)).is_some_and(|value| value == [1])
}

/// The entries that firmware tries one after the other.
pub(crate) fn boot_order(root: &Root) -> Vec<u16> {
    numbers(&read(root, &path("BootOrder", GLOBAL)).unwrap_or_default())
}

/// The entry that started this system.
pub(crate) fn boot_current(root: &Root) -> Option<u16> {
    let value = read(root, &path("BootCurrent", GLOBAL))?;
    numbers(&value).first().copied()
}

/// The entry for the next boot only.
pub(crate) fn boot_next(root: &Root) -> Option<u16> {
    let value = read(root, &path("BootNext", GLOBAL))?;
    numbers(&value).first().copied()
}

/// Sets it.
///
/// # Errors
/// Firmware's, as the kernel reports it.
pub(crate) fn set_boot_next(root: &Root, number: u16) -> io::Result<()> {
    write(root, &path("BootNext", GLOBAL), &number.to_le_bytes())
}

/// Takes it back, where it is this one.
///
/// # Errors
/// As above.
pub(crate) fn clear_boot_next(root: &Root, number: u16) -> io::Result<()> {
    if boot_next(root) == Some(number) {
        remove(root, &path("BootNext", GLOBAL))?;
    }
    Ok(())
}

/// Entries that start this file of an EFI system partition, given with backslashes.
pub(crate) fn entries_of(root: &Root, file: &str) -> Vec<u16> {
    let wanted: Vec<u8> = file.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let starts_it = |name: &String| {
        let number = number_of(name)?;
        let value = read(root, &format!("{FOLDER}/{name}"))?;
        let found = value.windows(wanted.len()).any(|part| part == wanted);
        found.then_some(number)
    };
    let mut found: Vec<u16> = root.list(FOLDER).iter().filter_map(starts_it).collect();
    found.sort_unstable();
    found
}

/// `Boot0007-GUID`
fn number_of(name: &str) -> Option<u16> {
    let digits = name.strip_prefix("Boot")?.strip_suffix(GLOBAL)?;
    let digits = digits.strip_suffix('-')?;
    (digits.len() == 4)
        .then(|| u16::from_str_radix(digits, 16).ok())
        .flatten()
}

/// What our entry left.
pub(crate) fn mark(root: &Root) -> Option<String> {
    let value = read(root, &path(MARK, OURS))?;
    Some(String::from_utf8_lossy(&value).into_owned())
}

/// Leaves it. Firmware's memory wears: nothing is written where it is the same already.
///
/// # Errors
/// Firmware's.
pub(crate) fn set_mark(root: &Root, text: &str) -> io::Result<()> {
    if mark(root).as_deref() == Some(text) {
        return Ok(());
    }
    write(root, &path(MARK, OURS), text.as_bytes())
}

/// Removes it.
///
/// # Errors
/// Firmware's.
pub(crate) fn remove_mark(root: &Root) -> io::Result<()> {
    remove(root, &path(MARK, OURS))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Puts a variable of UEFI's own into a made-up machine.
    pub(crate) fn put(root: &Root, name: &str, value: &[u8]) {
        let path = root.path(&path(name, GLOBAL));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, [&ATTRIBUTES[..], value].concat()).unwrap();
    }

    /// An entry as efibootmgr makes it, as far as it is looked at.
    pub(crate) fn entry(file: &str) -> Vec<u8> {
        let file = file.encode_utf16().flat_map(u16::to_le_bytes);
        [1, 0, 0, 0].into_iter().chain(file).chain([0, 0]).collect()
    }

    #[test]
    fn the_next_boot_is_set_and_only_our_own_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        put(&root, "BootOrder", &[3, 0, 0, 0]);
        assert_eq!(boot_order(&root), [3, 0]);
        assert_eq!(boot_next(&root), None);
        set_boot_next(&root, 0x0107).unwrap();
        assert_eq!(boot_next(&root), Some(0x0107));
        clear_boot_next(&root, 3).unwrap();
        assert_eq!(boot_next(&root), Some(0x0107));
        clear_boot_next(&root, 0x0107).unwrap();
        assert_eq!(boot_next(&root), None);
    }

    #[test]
    fn entries_are_found_by_the_file_that_they_start() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let file = r"\EFI\dormouse\wake.efi";
        put(&root, "Boot0003", &entry(r"\EFI\debian\shimx64.efi"));
        put(&root, "Boot000A", &entry(file));
        put(&root, "BootOrder", &entry(file));
        assert_eq!(entries_of(&root, file), [0xa]);
    }

    #[test]
    fn a_mark_comes_back_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        put(&root, "BootOrder", &[]);
        assert_eq!(mark(&root), None);
        set_mark(&root, "seal none\n").unwrap();
        set_mark(&root, "seal none\n").unwrap();
        assert_eq!(mark(&root).as_deref(), Some("seal none\n"));
        remove_mark(&root).unwrap();
        remove_mark(&root).unwrap();
        assert_eq!(mark(&root), None);
    }
}
