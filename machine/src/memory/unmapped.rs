//! Memory in DRAM that belongs to users but that no process maps: files in tmpfs, System V
//! segments, memfds, the free part of the hugetlb pool, compressed swap. It does not migrate;
//! firmware saves it with the kernel's pages.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;

use dormouse_system::Root;
use dormouse_system::memory::of_node;
use dormouse_system::mounts::{self, Mount};

use crate::owner::{MemoryKind, Owner};
use crate::processes::Process;

/// Less shared memory than this is not attributed: that would take a scan of every process.
const MIN_BYTES: u64 = 1 << 20;

/// All of it, as far as it can be seen from outside; about, where memory is shared.
pub fn read(root: &Root, processes: &[Process], dram_nodes: &[u32]) -> Vec<Owner> {
    let shmem_bytes: u64 = dram_nodes
        .iter()
        .filter_map(|node| of_node(root, *node).get("Shmem").copied())
        .sum();
    let mut owners = Vec::new();
    if shmem_bytes >= MIN_BYTES {
        let mut objects = tmpfs(root);
        objects.extend(sysv(root));
        objects.extend(open_files(root, processes));
        owners = share(&objects, &mapped(root, processes), shmem_bytes);
    }
    owners.extend(hugetlb_pool(root, dram_nodes));
    owners.extend(zram(root));
    owners
}

/// Something that holds shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    owner: Owner,
    files: Files,
}

/// Which mapped files are a part of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Files {
    /// Those below a mount point.
    Below(String),
    /// This one.
    Only(FileId),
    /// None: no process maps it.
    None,
}

/// A shared file that is mapped, and about how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MappedFile {
    path: String,
    bytes: u64,
}

/// Device and inode number: file systems count their inodes each for itself.
type FileId = (u64, u64);

type MappedFiles = BTreeMap<FileId, MappedFile>;

impl Object {
    fn holds(&self, id: FileId, file: &MappedFile) -> bool {
        match &self.files {
            Files::Below(prefix) => file.path.starts_with(prefix),
            Files::Only(own) => *own == id,
            Files::None => false,
        }
    }
}

/// The unmapped part of each object; together never more than the nodes have.
fn share(objects: &[Object], mapped: &MappedFiles, limit_bytes: u64) -> Vec<Owner> {
    let mut owners: Vec<Owner> = objects
        .iter()
        .map(|object| {
            let mapped_bytes: u64 = mapped
                .iter()
                .filter(|(id, file)| object.holds(**id, file))
                .map(|(_, file)| file.bytes)
                .sum();
            Owner {
                bytes: object.owner.bytes.saturating_sub(mapped_bytes),
                ..object.owner.clone()
            }
        })
        .collect();
    owners.sort_by_key(|owner| std::cmp::Reverse(owner.bytes));
    let mut rest = limit_bytes;
    for owner in &mut owners {
        owner.bytes = owner.bytes.min(rest);
        rest -= owner.bytes;
    }
    owners.retain(|owner| owner.bytes > 0);
    owners
}

/// Parses /proc/PID/maps: the mapped files of file systems without a device (major number 0), with
/// the bytes of their mappings.
fn parse_maps(text: &str) -> MappedFiles {
    let mut files = MappedFiles::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(device), Some(inode)) = (words.next(), words.nth(2), words.next())
        else {
            continue;
        };
        let bound = |text: &str| u64::from_str_radix(text, 16).ok();
        let bytes = range
            .split_once('-')
            .and_then(|(start, end)| bound(end)?.checked_sub(bound(start)?));
        let minor = device
            .strip_prefix("00:")
            .and_then(|minor| u32::from_str_radix(minor, 16).ok());
        let (Some(bytes), Some(minor), Ok(inode)) = (bytes, minor, inode.parse::<u64>()) else {
            continue;
        };
        if inode == 0 {
            continue;
        }
        // White space inside of a name is kept, only its end is not needed.
        let path = line.find('/').map_or("", |at| line[at..].trim_end());
        let id = (rustix::fs::makedev(0, minor), inode);
        let file = files.entry(id).or_insert_with(|| MappedFile {
            path: path.to_owned(),
            bytes: 0,
        });
        file.bytes = file.bytes.saturating_add(bytes);
    }
    files
}

/// The shared files that processes map, each as the one that maps most of it does. Looks at
/// mappings only: walking page tables would take time with each gigabyte.
fn mapped(root: &Root, processes: &[Process]) -> MappedFiles {
    let mut all = MappedFiles::new();
    for process in processes {
        let maps = root
            .read(&format!("proc/{}/maps", process.pid))
            .unwrap_or_default();
        for (id, file) in parse_maps(&maps) {
            let most = all.entry(id).or_insert_with(|| file.clone());
            most.bytes = most.bytes.max(file.bytes);
        }
    }
    for (id, file) in &mut all {
        // A file may have holes.
        let facts = std::fs::metadata(root.path(&file.path));
        if let Ok(facts) = facts
            && (facts.dev(), facts.ino()) == *id
        {
            file.bytes = file.bytes.min(facts.blocks() * 512);
        }
    }
    all
}

/// The mount points of tmpfs, each once.
fn tmpfs_points(mounts: Vec<Mount>) -> BTreeSet<String> {
    mounts
        .into_iter()
        .filter(|mount| mount.kind == "tmpfs")
        .map(|mount| mount.point)
        .collect()
}

fn tmpfs(root: &Root) -> Vec<Object> {
    tmpfs_points(mounts::read(root).unwrap_or_default())
        .into_iter()
        .filter_map(|point| {
            let facts = rustix::fs::statvfs(root.path(&point)).ok()?;
            let bytes = facts.f_blocks.saturating_sub(facts.f_bfree) * facts.f_frsize;
            Some(Object {
                files: Files::Below(format!("{}/", point.trim_end_matches('/'))),
                owner: Owner::without_process(point, MemoryKind::Tmpfs, bytes),
            })
        })
        .collect()
}

/// Parses /proc/sysvipc/shm: segments that no process has attached.
fn parse_sysv(text: &str) -> Vec<Owner> {
    let mut lines = text.lines();
    let Some(header) = lines.next() else {
        return Vec::new();
    };
    let names: Vec<&str> = header.split_ascii_whitespace().collect();
    let at = |name: &str| names.iter().position(|found| *found == name);
    let (Some(id), Some(attached), Some(rss), Some(creator)) =
        (at("shmid"), at("nattch"), at("rss"), at("cpid"))
    else {
        return Vec::new();
    };
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let id = words.get(id)?;
            if *words.get(attached)? != "0" {
                return None;
            }
            Some(Owner {
                pid: words.get(creator)?.parse().ok(),
                name: format!("segment {id}"),
                kind: MemoryKind::SysvShm,
                bytes: words.get(rss)?.parse().ok()?,
            })
        })
        .collect()
}

fn sysv(root: &Root) -> Vec<Object> {
    let text = root.read("proc/sysvipc/shm").unwrap_or_default();
    let object = |owner| Object {
        owner,
        files: Files::None,
    };
    parse_sysv(&text).into_iter().map(object).collect()
}

/// memfds that a process holds open, each once.
fn open_files(root: &Root, processes: &[Process]) -> Vec<Object> {
    let mut seen = BTreeSet::new();
    let mut objects = Vec::new();
    for process in processes {
        let folder = format!("proc/{}/fd", process.pid);
        for number in root.list(&folder) {
            let path = root.path(&format!("{folder}/{number}"));
            let Ok(target) = std::fs::read_link(&path) else {
                continue;
            };
            let target = target.to_string_lossy().into_owned();
            if !target.starts_with("/memfd:") {
                continue;
            }
            let Ok(facts) = std::fs::metadata(&path) else {
                continue;
            };
            if seen.insert((facts.dev(), facts.ino())) {
                objects.push(Object {
                    owner: Owner {
                        pid: Some(process.pid),
                        name: process.name.clone(),
                        kind: MemoryKind::Memfd,
                        bytes: facts.blocks() * 512,
                    },
                    files: Files::Only((facts.dev(), facts.ino())),
                });
            }
        }
    }
    objects
}

/// Free pages of the pool are pages in use to everybody else.
fn hugetlb_pool(root: &Root, dram_nodes: &[u32]) -> Option<Owner> {
    let mut bytes = 0u64;
    for node in dram_nodes {
        let folder = format!("sys/devices/system/node/node{node}/hugepages");
        for size in root.list_directories(&folder) {
            let kib = size
                .strip_prefix("hugepages-")
                .and_then(|rest| rest.strip_suffix("kB"))
                .and_then(|digits| digits.parse::<u64>().ok());
            let free = root
                .read(&format!("{folder}/{size}/free_hugepages"))
                .ok()
                .and_then(|text| text.parse::<u64>().ok());
            bytes += kib.unwrap_or(0) * 1024 * free.unwrap_or(0);
        }
    }
    (bytes > 0).then(|| Owner::without_process("free huge pages", MemoryKind::HugetlbPool, bytes))
}

/// `mem_used_total` is the third number of mm_stat.
fn zram(root: &Root) -> Vec<Owner> {
    root.list("sys/block")
        .into_iter()
        .filter(|name| name.starts_with("zram"))
        .filter_map(|name| {
            let text = root.read(&format!("sys/block/{name}/mm_stat")).ok()?;
            let bytes: u64 = text.split_ascii_whitespace().nth(2)?.parse().ok()?;
            (bytes > 0).then(|| Owner::without_process(name, MemoryKind::Zram, bytes))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(name: &str, bytes: u64) -> Object {
        Object {
            owner: Owner::without_process(name, MemoryKind::Tmpfs, bytes),
            files: Files::Below(format!("{name}/")),
        }
    }

    #[test]
    fn what_is_mapped_does_not_count_as_unmapped() {
        let objects = [object("/dev/shm", 100), object("/run", 30)];
        let maps = "7f0000-7f0046 rw-s 00000000 00:05 3    /dev/shm/a\n\
                    7f0000-7f0009 rw-s 00000000 00:05 4    /dev/shmem/b\n\
                    7f0000-7f0020 r-xp 00000000 fe:01 5    /run/not-shared\n\
                    7f0000-7f0020 rw-p 00000000 00:00 0    [heap]\n";
        let mapped = parse_maps(maps);
        assert_eq!(mapped.len(), 2);
        let owners = share(&objects, &mapped, 1000);
        let found: Vec<(&str, u64)> = owners.iter().map(|o| (o.name.as_str(), o.bytes)).collect();
        assert_eq!(found, [("/dev/shm", 30), ("/run", 30)]);
        // The same inode number on another file system is another file.
        for (device, unmapped_bytes) in [(5, 1), (6, 10)] {
            let memfd = Object {
                files: Files::Only((rustix::fs::makedev(0, device), 4)),
                ..object("m", 10)
            };
            assert_eq!(share(&[memfd], &mapped, 1000)[0].bytes, unmapped_bytes);
        }
    }

    #[test]
    fn tmpfs_mounts_are_found_once() {
        let text = "tmpfs /run tmpfs rw 0 0\n/dev/vda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n";
        assert!(tmpfs_points(mounts::parse(text)).iter().eq(["/run"]));
    }

    #[test]
    fn a_segment_that_no_process_attached_has_its_creator() {
        let text = "       key      shmid perms                  size  cpid  lpid nattch   uid   \
                    gid  cuid  cgid      atime      dtime      ctime                   rss       \
                    swap\n\
                    0 3 600 4194304 77 78 0 0 0 0 0 0 0 0 4194304 0\n\
                    0 4 600 4194304 77 78 2 0 0 0 0 0 0 0 4194304 0\n";
        let owners = parse_sysv(text);
        assert_eq!(owners.len(), 1);
        assert_eq!((owners[0].pid, owners[0].bytes), (Some(77), 4 << 20));
        assert_eq!(owners[0].name, "segment 3");
    }

    proptest! {
        #[test]
        fn together_they_never_have_more_than_the_nodes(
            sizes in prop::collection::vec(0u64..1000, 0..10),
            limit in 0u64..2000,
        ) {
            let objects: Vec<Object> = sizes.iter().map(|size| object("/x", *size)).collect();
            let owners = share(&objects, &MappedFiles::new(), limit);
            let sum: u64 = owners.iter().map(|owner| owner.bytes).sum();
            prop_assert_eq!(sum, limit.min(sizes.iter().sum()));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "([ -~]|\n){0,200}") {
            let _ = parse_maps(&text);
            let _ = parse_maps(&format!("7f-8f r 0 00:01 7 {text}"));
            let _ = parse_sysv(&text);
            let _ = parse_sysv(&format!("shmid nattch rss cpid\n{text}"));
        }
    }
}
