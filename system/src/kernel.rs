//! The running kernel and the processor: release, boot ID, model.

use crate::Root;

/// The kernel's release, such as `6.12.57+deb13-amd64`; empty if `/proc` does not show it.
pub fn release(root: &Root) -> String {
    root.read("proc/sys/kernel/osrelease").unwrap_or_default()
}

/// Major and minor version of a kernel release or of what a program prints with `--version`:
/// `6.12.57+deb13-amd64` is (6, 12).
pub fn version_in(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .find_map(|word| {
            let mut numbers = word.split('.');
            Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
        })
}

/// The random ID of this boot. A state file that names another one is out of date.
pub fn boot_id(root: &Root) -> String {
    root.read("proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
}

/// The processor's model name from `/proc/cpuinfo`; `unknown` if there is none.
pub fn processor(root: &Root) -> String {
    let text = root.read("proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, name)| name)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_releases_and_in_what_programs_print() {
        for (text, version) in [
            (
                "QEMU emulator version 7.2.19 (Debian 1:7.2+dfsg-7)",
                Some((7, 2)),
            ),
            ("6.12.57+deb12-cloud-amd64", Some((6, 12))),
            ("6.18-rc1", Some((6, 18))),
            ("", None),
            ("no numbers", None),
        ] {
            assert_eq!(version_in(text), version, "{text}");
        }
    }

    #[test]
    fn a_machine_is_described_by_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(
            (release(&root), processor(&root)),
            (String::new(), "unknown".into())
        );
        root.create("proc/sys/kernel/osrelease", "6.12.57\n")
            .unwrap();
        root.create("proc/sys/kernel/random/boot_id", "a-b\n")
            .unwrap();
        root.create("proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU @ 2\n")
            .unwrap();
        assert_eq!(release(&root), "6.12.57");
        assert_eq!(boot_id(&root), "a-b");
        assert_eq!(processor(&root), "A CPU @ 2");
    }
}
