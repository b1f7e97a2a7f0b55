//! Which mappings of a program have contents that only it has. Pure.

use crate::procfs::MapsLine;

/// How the pages of a mapping are scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Private memory without a file: tracked by write-protection.
    Anonymous,
    /// Private mapping of a file: its private copies are few, and compared.
    PrivateFile,
}

/// A mapping to scan; addresses in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// How.
    pub kind: Kind,
    /// Whether `process_vm_readv` can read it.
    pub readable: bool,
}

/// The kernel's own pages in every program; restored by other means.
const OF_THE_KERNEL: [&str; 5] = [
    "[vvar]",
    "[vvar_vclock]",
    "[vdso]",
    "[vsyscall]",
    "[uprobes]",
];

/// The mappings whose private pages are stored. Not among them are shared mappings (a file keeps its
/// own contents; shared memory without a name is stored by object) and those of the kernel.
pub fn areas(maps: &[MapsLine]) -> Vec<Area> {
    maps.iter()
        .filter(|line| !line.shared && !OF_THE_KERNEL.contains(&line.name.as_str()))
        .map(|line| Area {
            start: line.start,
            end: line.end,
            kind: if line.inode == 0 {
                Kind::Anonymous
            } else {
                Kind::PrivateFile
            },
            readable: line.protection & libc::PROT_READ != 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(start: u64, shared: bool, inode: u64, name: &str) -> MapsLine {
        MapsLine {
            start,
            end: start + 4096,
            protection: libc::PROT_READ,
            shared,
            offset: 0,
            device: (0, 0),
            inode,
            name: name.to_owned(),
        }
    }

    #[test]
    fn what_a_file_or_the_kernel_gives_again_is_left_out() {
        let maps = [
            line(0x1000, false, 7, "/usr/bin/cat"),
            line(0x2000, false, 0, "[heap]"),
            line(0x3000, true, 9, "/var/data"),
            line(0x4000, true, 11, "/memfd:x (deleted)"),
            line(0x5000, false, 0, ""),
            line(0x6000, false, 0, "[anon:glibc: malloc]"),
            line(0x7000, false, 0, "[vvar]"),
            line(0x8000, false, 0, "[vdso]"),
        ];
        let found: Vec<_> = areas(&maps).iter().map(|a| (a.start, a.kind)).collect();
        assert_eq!(
            found,
            [
                (0x1000, Kind::PrivateFile),
                (0x2000, Kind::Anonymous),
                (0x5000, Kind::Anonymous),
                (0x6000, Kind::Anonymous),
            ]
        );
    }
}
