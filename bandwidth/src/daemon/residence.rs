//! Finds the cgroups with memory on the device, and how much. It is a thread of its own, because
//! reading `numa_maps` walks page tables and takes long for large processes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use dormouse_system::proc;

use super::config::{Config, UserUnit};
use super::units::unit_of;
use crate::enforce::cgroup::{Cgroup, Hierarchy};

/// A cgroup with processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    /// Path of the cgroup below the hierarchy.
    pub path: PathBuf,
    /// Share of its memory on each of the device's nodes.
    pub shares: Vec<f64>,
    /// Bytes on the device.
    pub bytes: u64,
    /// Its processes.
    pub processes: Vec<i32>,
}

/// The last result, and its number.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Number of the scan.
    pub generation: u64,
    /// Cgroups with memory on the device.
    pub residents: Vec<Resident>,
}

/// The scanning thread; it ends with this value.
pub struct Watcher {
    found: Arc<Mutex<Found>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Minimum time between two scans.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum time between two scans: users must be found while they run.
const MAX_PAUSE: Duration = Duration::from_secs(20);
/// Scans take at most one part in this many of a processor's time.
const MAX_PART: u32 = 800;
/// The memory of a process is read when the process is new; where scans take long, a known process
/// is read in one of up to this many scans.
const MAX_STRIDE: u64 = 16;

impl Watcher {
    /// Scans once, then repeatedly.
    pub fn start(hierarchy: Hierarchy, config: &Config) -> Self {
        let (below, nodes, unit) = (config.cgroups.clone(), config.nodes.clone(), config.users);
        let mut known = Known::default();
        let mut look = move |generation| {
            let before = cpu_time();
            let residents = known.look(&hierarchy, &below, &nodes, unit);
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

    /// The last result, if it is newer than that one.
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

/// CPU time of this thread so far. Other threads do not lengthen a scan.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(MAX_PART).clamp(PAUSE, MAX_PAUSE)
}

/// Results of earlier scans.
#[derive(Debug, Default)]
pub struct Known {
    scans: u64,
    /// A known process is read in one of this many scans.
    stride: u64,
    /// Bytes on each node, and the last scan that saw the process.
    processes: HashMap<i32, (HashMap<u32, u64>, u64)>,
}

impl Known {
    /// All cgroups, or units, with processes that have memory on the nodes.
    pub fn look(
        &mut self,
        hierarchy: &Hierarchy,
        below: &[PathBuf],
        nodes: &[u32],
        unit: UserUnit,
    ) -> Vec<Resident> {
        self.scans += 1;
        let mut units: BTreeMap<PathBuf, (HashMap<u32, u64>, Vec<i32>)> = BTreeMap::new();
        let mut folders: Vec<PathBuf> =
            below.iter().map(|path| hierarchy.root.join(path)).collect();
        folders.sort();
        folders.dedup();
        let mut seen: HashSet<PathBuf> = folders.iter().cloned().collect();
        while let Some(path) = folders.pop() {
            let Ok(data) = fs::metadata(&path) else {
                continue;
            };
            // The link count of a folder is 2 plus the number of folders in it: most have none,
            // and listing their files would take longer than anything else here.
            let entries = (data.nlink() != 2).then(|| fs::read_dir(&path).ok());
            for entry in entries.flatten().into_iter().flatten().flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder && seen.insert(entry.path()) {
                    folders.push(entry.path());
                }
            }
            let cgroup = Cgroup::new(&path, hierarchy.version);
            let processes = cgroup.processes().unwrap_or_default();
            let unit = match unit {
                UserUnit::Cgroup => path,
                UserUnit::Unit => unit_of(&hierarchy.root, &path),
            };
            if processes.is_empty() {
                continue;
            }
            let (bytes, all) = units.entry(unit).or_default();
            for &process in &processes {
                for (&node, on_node) in self.memory_of(process) {
                    *bytes.entry(node).or_default() += on_node;
                }
            }
            all.extend(processes);
        }
        let mut residents = Vec::new();
        for (path, (bytes, processes)) in units {
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
        let scans = self.scans;
        self.processes.retain(|_, (_, seen)| *seen == scans);
        residents
    }

    /// Reads fewer processes where scans take too long, and more where they do not.
    fn adapt(&mut self, took: Duration) {
        self.stride = match pause_after(took) > PAUSE {
            true => (self.stride.max(1) * 2).min(MAX_STRIDE),
            false => (self.stride / 2).max(1),
        };
    }

    /// Bytes of a process on each node, from this or a recent scan.
    fn memory_of(&mut self, process: i32) -> &HashMap<u32, u64> {
        let scans = self.scans;
        let (bytes, seen) = self.processes.entry(process).or_default();
        let due = (process as u64 + scans).is_multiple_of(self.stride.max(1));
        if due || *seen == 0 || bytes.is_empty() {
            bytes.clear();
            // A process that has ended meanwhile has no memory.
            let maps = proc::text(format!("/proc/{process}/numa_maps"));
            add(bytes, &maps.unwrap_or_default());
        }
        *seen = scans;
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
    fn a_process_is_found_in_its_cgroup_and_read_less_often_where_scans_take_long() {
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
        let mut look = || known.look(&hierarchy, &[PathBuf::from("a")], &[0], UserUnit::Cgroup);
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
        assert!(
            known.processes.is_empty(),
            "a process that has ended is forgotten"
        );
        for expected in [2, 4, 8, 16, 16] {
            known.adapt(PAUSE);
            assert_eq!(known.stride, expected);
        }
        for expected in [8, 4, 2, 1, 1] {
            known.adapt(PAUSE / MAX_PART);
            assert_eq!(known.stride, expected);
        }
    }

    #[test]
    fn a_pod_is_one_user_with_all_processes_of_its_containers() {
        let folder = tempfile::tempdir().unwrap();
        let pod = "kubepods.slice/kubepods-pod7f1a2b3c_0000_4d5e_8f90_123456789abc.slice";
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let processes = [std::process::id() as i32, child.id() as i32];
        for (container, process) in ["a", "b"].iter().zip(processes) {
            let path = folder
                .path()
                .join(pod)
                .join(format!("cri-containerd-{container}.scope"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), format!("{process}\n")).unwrap();
        }
        let hierarchy = Hierarchy {
            root: folder.path().to_owned(),
            version: Version::V2,
        };
        let look = |unit| {
            let below = [PathBuf::from("kubepods.slice")];
            Known::default().look(&hierarchy, &below, &[0], unit)
        };
        let (pods, containers) = (look(UserUnit::Unit), look(UserUnit::Cgroup));
        child.kill().unwrap();
        child.wait().unwrap();
        if containers.is_empty() {
            eprintln!("left out: this kernel does not show which node memory is on");
            return;
        }
        assert_eq!((pods.len(), containers.len()), (1, 2));
        assert_eq!(pods[0].path, folder.path().join(pod));
        let mut found = pods[0].processes.clone();
        found.sort_unstable();
        let mut expected = processes.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert!(pods[0].bytes > containers[1].bytes, "{pods:?}");
    }

    #[test]
    fn the_next_scan_comes_soon_however_long_one_takes() {
        assert_eq!(pause_after(PAUSE / MAX_PART / 2), PAUSE);
        assert_eq!(pause_after(Duration::from_millis(10)).as_secs(), 8);
        for took in [Duration::from_secs(1), Duration::MAX] {
            assert_eq!(pause_after(took), MAX_PAUSE);
        }
    }

    #[test]
    fn waiting_uses_no_cpu_time() {
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
