//! A program is frozen, described, copied into memory of ours, killed, and recreated: without the
//! store, the tracker and their policies.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_process::capture::{self, AdviceCache, Captured, Options, capture};
use dormouse_process::ptrace::FrozenTree;
use dormouse_process::restore::{self, Restored, restore};
use dormouse_process::state::{Backing, Tree};
use dormouse_process::store::{DamagedPage, Extent, PAGE_BYTES, Snapshot, SpaceId};

/// Pages in memory.
#[derive(Default)]
pub struct Pages {
    spaces: BTreeMap<SpaceId, Vec<Extent>>,
    bytes: Vec<u8>,
    description: Vec<u8>,
}

impl Snapshot for Pages {
    fn epoch(&self) -> u64 {
        1
    }
    fn description(&self) -> &[u8] {
        &self.description
    }
    fn spaces(&self) -> Vec<SpaceId> {
        self.spaces.keys().copied().collect()
    }
    fn extents(&self, space: SpaceId) -> Box<dyn Iterator<Item = Extent> + '_> {
        Box::new(self.spaces.get(&space).into_iter().flatten().copied())
    }
    fn bytes(&self, extent: &Extent) -> &[u8] {
        &self.bytes[extent.offset as usize..(extent.offset + extent.bytes) as usize]
    }
    /// All are alike: whoever wants to know compares pages.
    fn checksum(&self, _: u64) -> Option<u64> {
        Some(0)
    }
    fn check(&self, _: SpaceId, _: &Extent) -> Result<(), DamagedPage> {
        Ok(())
    }
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Pages {
    fn add(&mut self, space: SpaceId, start: u64, bytes: &[u8]) {
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        let length = (bytes.len() as u64).next_multiple_of(PAGE_BYTES);
        self.bytes.resize((offset + length) as usize, 0);
        let extents = self.spaces.entry(space).or_default();
        match extents.last_mut() {
            Some(last) if last.start + last.bytes == start => last.bytes += length,
            _ => extents.push(Extent {
                start,
                bytes: length,
                offset,
                written: 1,
            }),
        }
    }
}

/// Requests that end by themselves do so within this, on however busy a machine.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);

fn describe(frozen: &mut FrozenTree, settle_limit: Duration) -> Result<Captured, capture::Error> {
    let mut objects: HashMap<(u64, u64), SpaceId> = HashMap::new();
    capture(
        frozen,
        Options {
            space_of: &|pid| SpaceId(pid as u32),
            object_space: &mut |device, inode| {
                let next = SpaceId(1 << 24 | objects.len() as u32);
                *objects.entry((device, inode)).or_insert(next)
            },
            advice: &mut AdviceCache::default(),
            keep_connections: false,
            data: &[],
            stopped_by_us: false,
            settle_limit,
            cgroups: None,
        },
    )
}

/// Freezes a tree, keeps all of it, and kills it.
pub fn persist(root: i32) -> Pages {
    let mut frozen = FrozenTree::freeze(&[root]).expect("frozen");
    let captured = describe(&mut frozen, SETTLE_LIMIT).expect("described");
    let mut pages = copy(&captured);
    pages.description = captured.tree.encode();
    frozen.kill();
    pages
}

/// Freezes a tree and keeps all of it; it goes on.
pub fn epoch(root: i32) {
    let mut frozen = FrozenTree::freeze(&[root]).expect("frozen");
    copy(&describe(&mut frozen, SETTLE_LIMIT).expect("described"));
    frozen.thaw();
}

/// Why a tree cannot be described; it goes on.
pub fn refused(root: i32) -> String {
    let mut frozen = FrozenTree::freeze(&[root]).expect("frozen");
    let error = describe(&mut frozen, Duration::from_millis(200))
        .err()
        .expect("refused");
    frozen.thaw();
    error.to_string()
}

/// Copies private pages that are not those of a file, and whole objects.
fn copy(captured: &Captured) -> Pages {
    const FILE_OR_SHARED: u64 = 1 << 61;
    const PRESENT: u64 = 1 << 63;
    let mut pages = Pages::default();
    for process in captured
        .tree
        .processes
        .iter()
        .filter(|process| process.zombie.is_none())
    {
        let pagemap = File::open(format!("/proc/{}/pagemap", process.pid)).expect("pagemap");
        let memory = File::open(format!("/proc/{}/mem", process.pid)).expect("mem");
        for mapping in &process.mappings {
            if mapping.shared || matches!(mapping.backing, Backing::Kernel(_)) {
                continue;
            }
            let count = ((mapping.end - mapping.start) / PAGE_BYTES) as usize;
            let mut entries = vec![0u8; count * 8];
            let got = pagemap
                .read_at(&mut entries, mapping.start / PAGE_BYTES * 8)
                .expect("page table entries");
            for (page, entry) in entries[..got].chunks_exact(8).enumerate() {
                let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
                if entry & PRESENT == 0 || entry & FILE_OR_SHARED != 0 {
                    continue;
                }
                let address = mapping.start + page as u64 * PAGE_BYTES;
                let mut bytes = [0u8; PAGE_BYTES as usize];
                memory.read_exact_at(&mut bytes, address).expect("a page");
                pages.add(process.space, address, &bytes);
            }
        }
    }
    for object in &captured.objects {
        let file = File::from(object.file.try_clone().expect("a descriptor"));
        let mut bytes = vec![0u8; object.bytes as usize];
        file.read_exact_at(&mut bytes, 0).expect("the object");
        assert!(object.file.as_raw_fd() > 2);
        pages.add(object.space, 0, &bytes);
    }
    pages
}

/// Recreates what was kept; it is stopped.
pub fn recreate(pages: &Pages) -> Restored {
    let tree = Tree::decode(pages.description()).expect("its own description");
    let started = Instant::now();
    let options = restore::Options {
        copy_all_bytes_max: u64::MAX,
        ..Default::default()
    };
    let restored = restore(&tree, pages, &options).expect("restored");
    eprintln!(
        "{} processes, {} KiB: stopped again after {:?}",
        tree.processes.len(),
        pages.bytes.len() >> 10,
        started.elapsed()
    );
    restored
}

/// Waits for the end of a recreated root and returns its exit status, or kills it.
pub fn finish(root: i32, limit: Duration) -> Option<i32> {
    let started = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: the status lives.
        let got = unsafe { libc::waitpid(root, &raw mut status, libc::WNOHANG) };
        if got == root {
            return Some(status);
        }
        if started.elapsed() > limit {
            // SAFETY: no memory involved.
            unsafe {
                libc::kill(root, libc::SIGKILL);
                libc::waitpid(root, &raw mut status, 0);
            }
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a program with its output in a file, and waits until that holds a word.
pub fn start(command: &mut Command, output: &Path, word: &str) -> Child {
    // As the tracker does: orphans come to us.
    // SAFETY: no memory involved.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let file = std::fs::File::create(output).expect("an output file");
    let child = command
        .stdin(Stdio::null())
        .stderr(file.try_clone().expect("a copy"))
        .stdout(file)
        .spawn()
        .expect("the program");
    wait_for(output, word);
    child
}

/// Waits until the output holds a word.
pub fn wait_for(output: &Path, word: &str) {
    let started = Instant::now();
    while !std::fs::read_to_string(output)
        .unwrap_or_default()
        .contains(word)
    {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "no {word:?} in {:?}",
            std::fs::read_to_string(output)
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The same of a child of ours; killing the tree waits for it.
pub fn persist_child(child: Child) -> Pages {
    persist(child.id() as i32)
}

/// Persists, kills, recreates and lets run; returns the root.
pub fn through_death(child: Child) -> i32 {
    // Killing the tree waits for it.
    through_death_of(child.id() as i32)
}

/// The same, of a program that was recreated before.
pub fn through_death_of(root: i32) -> i32 {
    let pages = persist(root);
    let restored = recreate(&pages);
    restored.tree.thaw();
    restored.root
}

/// The recreated root ends by itself with status 0.
pub fn assert_good_end(root: i32, output: &Path) {
    let status = finish(root, Duration::from_secs(30));
    let text = std::fs::read_to_string(output).unwrap_or_default();
    assert_eq!(status, Some(0), "it did not end well: {text}");
}
