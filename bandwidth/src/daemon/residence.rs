//! Which cgroups have memory on the device, and how much: a thread of its own, because reading
//! `numa_maps` walks page tables and takes long for large processes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::enforce::cgroup::{Cgroup, Hierarchy};

/// A cgroup with processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    pub path: PathBuf,
    /// Share of its memory on each of the device's nodes.
    pub shares: Vec<f64>,
    /// Bytes on the device.
    pub bytes: u64,
    /// Its processes.
    pub processes: Vec<i32>,
}

/// What was found last, and how often anything was.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub generation: u64,
    pub residents: Vec<Resident>,
}

/// The thread that looks; it ends with this.
pub struct Watcher {
    found: Arc<Mutex<Found>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Between two looks, at least.
const PAUSE: Duration = Duration::from_secs(1);
/// But nobody waits longer for one: where memory went is to be known while it is there.
const MOST_PAUSE: Duration = Duration::from_secs(20);
/// A look takes this part of a processor's time at most.
const MOST_PART: u32 = 800;
/// The memory of a process is looked at when it is new, and, where looks take long, in one of so
/// many of them only.
const MOST_STRIDE: u64 = 16;

impl Watcher {
    /// Looks once, then again and again.
    pub fn start(hierarchy: Hierarchy, below: Vec<PathBuf>, nodes: Vec<u32>) -> Self {
        let mut known = Known::default();
        let mut look = move |generation| {
            let before = cpu_time();
            let residents = known.look(&hierarchy, &below, &nodes);
            let took = cpu_time().saturating_sub(before);
            known.adapt(took);
            let found = Found {
                generation,
                residents,
            };
            (found, took)
        };
        let found = Arc::new(Mutex::new(look(1).0));
        let end = Arc::new(AtomicBool::new(false));
        let (to, stop) = (Arc::clone(&found), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            let mut generation = 1;
            let mut pause = PAUSE;
            loop {
                std::thread::park_timeout(pause);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                generation += 1;
                let (new, took) = look(generation);
                if let Ok(mut found) = to.lock() {
                    *found = new;
                }
                pause = pause_after(took);
            }
        });
        Self {
            found,
            end,
            thread: Some(thread),
        }
    }

    /// What was found, if it is newer than that.
    pub fn newer(&self, than: u64) -> Option<Found> {
        let found = self.found.lock().ok()?;
        (found.generation > than).then(|| found.clone())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// CPU time of this thread so far. Others that run meanwhile make no look longer.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(MOST_PART).clamp(PAUSE, MOST_PAUSE)
}

/// What is known of processes from earlier looks.
#[derive(Debug, Default)]
pub struct Known {
    looks: u64,
    /// In one of so many looks a process's memory is looked at again.
    stride: u64,
    /// Bytes on each node; in which look they were seen last.
    processes: HashMap<i32, (HashMap<u32, u64>, u64)>,
}

impl Known {
    /// All cgroups with processes that have memory on the nodes.
    pub fn look(
        &mut self,
        hierarchy: &Hierarchy,
        below: &[PathBuf],
        nodes: &[u32],
    ) -> Vec<Resident> {
        self.looks += 1;
        let mut residents = Vec::new();
        let mut folders: Vec<PathBuf> =
            below.iter().map(|path| hierarchy.root.join(path)).collect();
        folders.sort();
        folders.dedup();
        let mut seen: HashSet<PathBuf> = folders.iter().cloned().collect();
        while let Some(path) = folders.pop() {
            let Ok(data) = fs::metadata(&path) else {
                continue;
            };
            // A folder is linked from its parent, itself, and each folder in it: most have none, and
            // listing all their files takes longer than anything else here.
            let entries = (data.nlink() != 2).then(|| fs::read_dir(&path).ok());
            for entry in entries.flatten().into_iter().flatten().flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder && seen.insert(entry.path()) {
                    folders.push(entry.path());
                }
            }
            let cgroup = Cgroup::new(&path, hierarchy.version);
            let processes = cgroup.processes().unwrap_or_default();
            let mut bytes: HashMap<u32, u64> = HashMap::new();
            for &process in &processes {
                for (&node, on_node) in self.memory_of(process) {
                    *bytes.entry(node).or_default() += on_node;
                }
            }
            let all: u64 = bytes.values().sum();
            let on = |node: &u32| bytes.get(node).copied().unwrap_or(0);
            let on_device: u64 = nodes.iter().map(on).sum();
            if on_device > 0 {
                let share = |node| on(node) as f64 / all as f64;
                residents.push(Resident {
                    path,
                    shares: nodes.iter().map(share).collect(),
                    bytes: on_device,
                    processes,
                });
            }
        }
        let looks = self.looks;
        self.processes.retain(|_, (_, seen)| *seen == looks);
        residents.sort_by(|a, b| a.path.cmp(&b.path));
        residents
    }

    /// Looks at less where looks take longer than they may, and at more where they do not.
    fn adapt(&mut self, took: Duration) {
        self.stride = match pause_after(took) > PAUSE {
            true => (self.stride.max(1) * 2).min(MOST_STRIDE),
            false => (self.stride / 2).max(1),
        };
    }

    /// Bytes of a process on each node, as of now or of one of the last looks.
    fn memory_of(&mut self, process: i32) -> &HashMap<u32, u64> {
        let looks = self.looks;
        let (bytes, seen) = self.processes.entry(process).or_default();
        let due = (process as u64 + looks).is_multiple_of(self.stride.max(1));
        if due || *seen == 0 || bytes.is_empty() {
            bytes.clear();
            // A process that has ended meanwhile has no memory.
            let maps = fs::read_to_string(format!("/proc/{process}/numa_maps"));
            add(bytes, &maps.unwrap_or_default());
        }
        *seen = looks;
        bytes
    }
}

/// Adds the bytes of each node in the text of a `numa_maps`.
fn add(bytes: &mut HashMap<u32, u64>, maps: &str) {
    for line in maps.lines() {
        let size = line
            .split(' ')
            .find_map(|word| word.strip_prefix("kernelpagesize_kB="));
        let page = size.and_then(|size| size.parse::<u64>().ok()).unwrap_or(4) * 1024;
        for word in line.split(' ') {
            let node = word.strip_prefix('N').and_then(|word| word.split_once('='));
            if let Some((node, pages)) = node
                && let (Ok(node), Ok(pages)) = (node.parse::<u32>(), pages.parse::<u64>())
            {
                *bytes.entry(node).or_default() += pages.saturating_mul(page);
            }
        }
    }
}

/// Whether a cgroup is one of these or below one.
pub fn is_below(hierarchy: &Hierarchy, path: &Path, any: &[PathBuf]) -> bool {
    any.iter()
        .any(|one| path.starts_with(hierarchy.root.join(one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforce::cgroup::Version;

    #[test]
    fn a_process_is_found_in_its_cgroup_and_looked_at_less_where_looks_take_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        fs::create_dir_all(&path).unwrap();
        fs::write(
            path.join("cgroup.procs"),
            format!("{}\n", std::process::id()),
        )
        .unwrap();
        let hierarchy = Hierarchy {
            root: folder.path().to_owned(),
            version: Version::V2,
        };
        let mut known = Known::default();
        let mut look = || known.look(&hierarchy, &[PathBuf::from("a")], &[0]);
        let found = look();
        if found.is_empty() {
            eprintln!("left out: this kernel does not show which node memory is on");
            return;
        }
        assert_eq!((found.len(), &found[0].path), (1, &path));
        assert!(found[0].bytes > 4096 && found[0].shares[0] > 0.0);
        assert_eq!(found[0].processes, [std::process::id() as i32]);
        fs::write(path.join("cgroup.procs"), "").unwrap();
        assert!(look().is_empty());
        assert!(known.processes.is_empty(), "who is gone is forgotten");
        for expected in [2, 4, 8, 16, 16] {
            known.adapt(PAUSE);
            assert_eq!(known.stride, expected);
        }
        for expected in [8, 4, 2, 1, 1] {
            known.adapt(PAUSE / MOST_PART);
            assert_eq!(known.stride, expected);
        }
    }

    #[test]
    fn the_next_look_comes_soon_however_long_one_takes() {
        assert_eq!(pause_after(PAUSE / MOST_PART / 2), PAUSE);
        assert_eq!(pause_after(Duration::from_millis(10)).as_secs(), 8);
        for took in [Duration::from_secs(1), Duration::MAX] {
            assert_eq!(pause_after(took), MOST_PAUSE);
        }
    }

    #[test]
    fn who_waits_uses_no_time() {
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(50));
        assert!(cpu_time() - before < Duration::from_millis(40));
    }

    #[test]
    fn pages_of_all_sizes_and_nodes_are_added_up() {
        let maps = "7f00 default heap anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n\
            7f80 bind:1 huge anon=1 N1=1 kernelpagesize_kB=2048\n\
            7f90 default file=/usr/lib/NAME N0=5\n\
            7fa0 default\n";
        let mut bytes = HashMap::new();
        add(&mut bytes, maps);
        assert_eq!(bytes[&0], 6 * 4096);
        assert_eq!(bytes[&1], 2 * 4096 + (2 << 20));
    }
}
