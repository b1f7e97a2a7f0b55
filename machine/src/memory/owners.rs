//! Owners of memory: of what stayed in DRAM, and the largest ones where CXL memory is too
//! small.

use std::collections::BTreeMap;

use dormouse_system::Root;

use crate::memory::mappings::{self, Mapping};
use crate::memory::unmapped;
use crate::owner::{MemoryKind, Owner};
use crate::processes::Process;

/// Smaller ones are not listed: per-process leftovers of a page or two explain nothing.
const MIN_BYTES: u64 = 1 << 20;
/// Maximum number of owners in a list.
const LISTED: usize = 50;

/// The kernel's name for memory that has no file: System V, memfd, shared anonymous.
fn is_shared_memory(file: &str) -> bool {
    ["/dev/shm/", "/SYSV", "/memfd:", "/dev/zero"]
        .iter()
        .any(|prefix| file.starts_with(prefix))
}

/// Pages that the kernel allocated for itself and lets a process map.
fn is_kernel_buffer(file: &str) -> bool {
    let device = file.starts_with("/dev/") && !is_shared_memory(file);
    device || file.starts_with("anon_inode:") || file.starts_with("socket:")
}

/// What a mapping is.
pub fn kind_of(mapping: &Mapping) -> MemoryKind {
    let file = mapping.file.as_deref().unwrap_or("");
    if mapping.hugetlb {
        MemoryKind::Hugetlb
    } else if file.starts_with("/secretmem") {
        MemoryKind::Secretmem
    } else if is_kernel_buffer(file) {
        MemoryKind::KernelBuffer
    } else if mapping.locked {
        MemoryKind::Mlocked
    } else if is_shared_memory(file) {
        MemoryKind::SharedMemory
    } else if file.is_empty() {
        MemoryKind::Anonymous
    } else {
        MemoryKind::File
    }
}

/// Why pages of a mapping stayed in DRAM after several tries to move them.
pub fn kind_of_left(mapping: &Mapping, node_full: bool) -> MemoryKind {
    match kind_of(mapping) {
        kind @ (MemoryKind::Secretmem | MemoryKind::KernelBuffer) => kind,
        MemoryKind::Hugetlb => MemoryKind::Hugetlb,
        _ if node_full => MemoryKind::NoRoom,
        MemoryKind::File => MemoryKind::File,
        // Nothing else keeps the pages of a process that stands still.
        _ => MemoryKind::Pinned,
    }
}

/// What a process has on `nodes`, by kind.
pub fn of_process(
    process: &Process,
    mappings: &[Mapping],
    nodes: &[u32],
    kind: impl Fn(&Mapping) -> MemoryKind,
) -> Vec<Owner> {
    let mut by_kind: BTreeMap<MemoryKind, u64> = BTreeMap::new();
    for mapping in mappings {
        let bytes = mapping.bytes_on(nodes);
        if bytes > 0 {
            *by_kind.entry(kind(mapping)).or_default() += bytes;
        }
    }
    by_kind
        .into_iter()
        .map(|(kind, bytes)| Owner {
            pid: Some(process.pid),
            name: process.name.clone(),
            kind,
            bytes,
        })
        .collect()
}

/// Largest first; ties in the order of pids and names.
fn largest_first(mut owners: Vec<Owner>) -> Vec<Owner> {
    owners.sort_by(|a, b| (b.bytes, a.pid, &a.name).cmp(&(a.bytes, b.pid, &b.name)));
    owners.truncate(LISTED);
    owners
}

/// The owners of what stayed in DRAM: of the processes with these pids what their page tables show,
/// and what no process maps. A process that moved whole is not looked at.
pub fn left(
    root: &Root,
    processes: &[Process],
    failed_pids: &[i32],
    dram_nodes: &[u32],
    node_full: bool,
) -> Vec<Owner> {
    let failed = processes
        .iter()
        .filter(|process| failed_pids.contains(&process.pid));
    let mut owners: Vec<Owner> = failed
        .flat_map(|process| {
            let mappings = mappings::read(root, process.pid);
            let kind = |mapping: &Mapping| kind_of_left(mapping, node_full);
            of_process(process, &mappings, dram_nodes, kind)
        })
        .collect();
    let large = |owner: &Owner| owner.bytes >= MIN_BYTES;
    owners.extend(
        unmapped::read(root, processes, dram_nodes)
            .into_iter()
            .filter(large),
    );
    largest_first(owners)
}

/// The largest owners of what lies in DRAM now; `kernel_bytes` is what no user owns.
pub fn largest(
    root: &Root,
    processes: &[Process],
    dram_nodes: &[u32],
    kernel_bytes: u64,
) -> Vec<Owner> {
    let mut owners: Vec<Owner> = processes
        .iter()
        .flat_map(|process| {
            let mappings = mappings::read(root, process.pid);
            of_process(process, &mappings, dram_nodes, kind_of)
        })
        .collect();
    owners.extend(unmapped::read(root, processes, dram_nodes));
    let rest_bytes = kernel_bytes.saturating_sub(not_user_pages(&owners));
    owners.push(Owner::without_process(
        "kernel",
        MemoryKind::Kernel,
        rest_bytes,
    ));
    owners.retain(|owner| owner.bytes >= MIN_BYTES);
    largest_first(owners)
}

/// What the kernel does not count as anonymous or mapped pages although it has an owner.
fn not_user_pages(owners: &[Owner]) -> u64 {
    let counted = |owner: &&Owner| {
        owner.pid.is_none()
            || matches!(
                owner.kind,
                MemoryKind::Hugetlb | MemoryKind::SysvShm | MemoryKind::Memfd
            )
    };
    owners.iter().filter(counted).map(|owner| owner.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::describe;
    use dormouse_system::proc::numa_maps::BytesByNode;

    fn mapping(file: &str, bytes_on_dram: u64, bytes_on_cxl: u64) -> Mapping {
        Mapping {
            file: (!file.is_empty()).then(|| file.to_owned()),
            bytes: BytesByNode::from([(0, bytes_on_dram), (1, bytes_on_cxl)]),
            ..Mapping::default()
        }
    }

    fn process() -> Process {
        Process {
            pid: 7,
            name: "db".to_owned(),
            start_ticks: 1,
            rss_bytes: 1,
            exec_start_ns: None,
            kernel: false,
        }
    }

    #[test]
    fn each_mapping_has_its_kind() {
        for (file, kind) in [
            ("", MemoryKind::Anonymous),
            ("/usr/lib/libc.so.6", MemoryKind::File),
            ("/dev/shm/segment", MemoryKind::SharedMemory),
            ("/SYSV00000000 (deleted)", MemoryKind::SharedMemory),
            ("/memfd:sealed (deleted)", MemoryKind::SharedMemory),
            ("/dev/zero (deleted)", MemoryKind::SharedMemory),
            ("/secretmem (deleted)", MemoryKind::Secretmem),
            ("anon_inode:[io_uring]", MemoryKind::KernelBuffer),
            ("/dev/dri/card0", MemoryKind::KernelBuffer),
        ] {
            assert_eq!(kind_of(&mapping(file, 1, 0)), kind, "{file}");
        }
        let locked = Mapping {
            locked: true,
            ..mapping("", 1, 0)
        };
        assert_eq!(kind_of(&locked), MemoryKind::Mlocked);
        let huge = Mapping {
            hugetlb: true,
            locked: true,
            ..mapping("/anon_hugepage (deleted)", 1, 0)
        };
        assert_eq!(kind_of(&huge), MemoryKind::Hugetlb);
    }

    #[test]
    fn what_stays_on_a_node_with_room_is_pinned_and_else_had_no_room() {
        for file in ["", "/memfd:x (deleted)"] {
            let locked = Mapping {
                locked: true,
                ..mapping(file, 1, 0)
            };
            assert_eq!(kind_of_left(&locked, false), MemoryKind::Pinned);
            assert_eq!(kind_of_left(&mapping(file, 1, 0), true), MemoryKind::NoRoom);
        }
        let secret = mapping("/secretmem (deleted)", 1, 0);
        assert_eq!(kind_of_left(&secret, true), MemoryKind::Secretmem);
    }

    #[test]
    fn the_pages_of_a_process_are_summed_by_kind_on_the_asked_nodes_only() {
        let mappings = [
            mapping("", 10, 100),
            mapping("", 5, 0),
            mapping("/secretmem (deleted)", 3, 0),
            mapping("/usr/bin/db", 0, 50),
        ];
        let owners = of_process(&process(), &mappings, &[0], |m| kind_of_left(m, false));
        let found: Vec<(MemoryKind, u64)> = owners.iter().map(|o| (o.kind, o.bytes)).collect();
        assert_eq!(
            found,
            [(MemoryKind::Pinned, 15), (MemoryKind::Secretmem, 3)]
        );
        assert!(
            owners
                .iter()
                .all(|owner| owner.pid == Some(7) && owner.name == "db")
        );
    }

    #[test]
    fn huge_pages_of_the_pool_and_unmapped_memory_are_not_the_kernel_s_as_well() {
        let owner = |pid, kind, bytes| Owner {
            pid,
            name: String::new(),
            kind,
            bytes,
        };
        let owners = [
            owner(Some(1), MemoryKind::Anonymous, 1),
            owner(Some(1), MemoryKind::Hugetlb, 20),
            owner(Some(1), MemoryKind::Memfd, 300),
            owner(None, MemoryKind::Tmpfs, 4000),
        ];
        assert_eq!(not_user_pages(&owners), 4320);
    }

    #[test]
    fn the_largest_owners_come_first_in_a_sentence() {
        let owners = largest_first(vec![
            Owner::without_process("/tmp", MemoryKind::Tmpfs, 3 << 20),
            Owner {
                pid: Some(7),
                name: "db".to_owned(),
                kind: MemoryKind::Pinned,
                bytes: 5 << 20,
            },
        ]);
        assert_eq!(
            describe(&owners),
            "db (7) 5.0 MiB pinned, /tmp 3.0 MiB tmpfs"
        );
    }
}
