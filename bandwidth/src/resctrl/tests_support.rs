//! A made-up resctrl for tests: a folder with the kernel's files, kept as its documentation says.
//!
//! * `mkdir` in `mon_groups` takes the lowest free RMID and resets its counts; without a free one
//!   it fails with ENOSPC, or with EBUSY while RMIDs are in limbo. `rmdir` moves the tasks to the
//!   CTRL_MON group above. The RMID is in limbo until few lines of the caches have it: at once, or
//!   after [`Machine::leave_limbo`] (arch/x86/kernel/cpu/resctrl/monitor.c: `free_rmid`,
//!   `check_limbo`).
//! * A task id written to `tasks` moves that thread only, and fails with EINVAL if it belongs to
//!   another CTRL_MON group.
//! * The count of a CTRL_MON group contains those of its MON groups.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::Kernel;
use super::counts::EVENT;

#[derive(Debug)]
struct State {
    domains: Vec<bool>,
    free_rmids: Vec<u32>,
    /// RMIDs whose lines are still in caches, if caches keep them.
    limbo: Vec<u32>,
    keeps_lines: bool,
    /// Groups and their RMIDs.
    groups: BTreeMap<PathBuf, u32>,
    /// Bytes of each RMID in each domain.
    bytes: HashMap<u32, Vec<u64>>,
    /// The group of each thread.
    threads: BTreeMap<i32, PathBuf>,
    processes: HashMap<i32, Vec<i32>>,
}

/// The machine; clones are the same one.
#[derive(Clone, Debug)]
pub struct Machine {
    folder: Arc<tempfile::TempDir>,
    state: Arc<Mutex<RefCell<State>>>,
}

const ALL: &str = "local_reads,remote_reads,local_non_temporal_writes,remote_non_temporal_writes,\
                   local_reads_slow_memory,remote_reads_slow_memory,dirty_victims_writes_all";

impl Machine {
    /// With this number of L3 domains and of RMIDs. Processes 1 and 2 run, with one thread each.
    pub fn new(domains: usize, rmids: u32) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let state = State {
            domains: vec![true; domains],
            free_rmids: (0..rmids).rev().collect(),
            limbo: Vec::new(),
            keeps_lines: false,
            groups: BTreeMap::new(),
            bytes: HashMap::new(),
            threads: BTreeMap::new(),
            processes: HashMap::new(),
        };
        let machine = Self {
            folder,
            state: Arc::new(Mutex::new(RefCell::new(state))),
        };
        let info = machine.root().join("info/L3_MON");
        fs::create_dir_all(&info).unwrap();
        let each: Vec<String> = (0..domains).map(|at| format!("{at}=0x7f")).collect();
        fs::write(info.join("mbm_total_bytes_config"), each.join(";") + "\n").unwrap();
        fs::write(info.join("num_rmids"), format!("{rmids}\n")).unwrap();
        let root = machine.root().to_owned();
        machine.add(&root).unwrap();
        for process in [1, 2] {
            machine.start(process, &[process]);
        }
        machine
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let state = self.state.lock().unwrap();
        let result = change(&mut state.borrow_mut());
        self.show(&state.borrow());
        result
    }

    /// Writes all files.
    fn show(&self, state: &State) {
        for group in state.groups.keys() {
            let members: Vec<String> = state
                .threads
                .iter()
                .filter(|(_, of)| *of == group)
                .map(|(thread, _)| thread.to_string())
                .collect();
            fs::write(group.join("tasks"), members.join("\n")).unwrap();
            for (at, &online) in state.domains.iter().enumerate() {
                let folder = group.join(format!("mon_data/mon_L3_{at:02}"));
                if !online {
                    if folder.exists() {
                        self.discard(&folder).unwrap();
                    }
                    continue;
                }
                fs::create_dir_all(&folder).unwrap();
                let with_children = |(other, rmid): (&PathBuf, &u32)| {
                    let below = other.parent() == Some(&group.join("mon_groups"));
                    (other == group || below).then(|| state.bytes[rmid][at])
                };
                let sum: u64 = state.groups.iter().filter_map(with_children).sum();
                fs::write(folder.join(EVENT), format!("{sum}\n")).unwrap();
            }
        }
    }

    /// Takes a folder away. It is kept elsewhere, because the kernel does not reuse inodes of
    /// resctrl, and a file system does.
    fn discard(&self, folder: &Path) -> io::Result<()> {
        let trash = self.root().join("info/gone");
        fs::create_dir_all(&trash)?;
        let count = fs::read_dir(&trash)?.count();
        fs::rename(folder, trash.join(count.to_string()))
    }

    fn add(&self, group: &Path) -> io::Result<()> {
        self.with(|state| {
            let rmid = state.free_rmids.pop();
            let errno = if state.limbo.is_empty() {
                libc::ENOSPC
            } else {
                libc::EBUSY
            };
            let rmid = rmid.ok_or_else(|| io::Error::from_raw_os_error(errno))?;
            fs::create_dir_all(group.join("mon_groups"))?;
            let zero = vec![0; state.domains.len()];
            state.bytes.insert(rmid, zero);
            state.groups.insert(group.to_owned(), rmid);
            Ok(())
        })
    }

    /// A new CTRL_MON group.
    pub fn control_group(&self, name: &str) -> PathBuf {
        let group = self.root().join(name);
        self.add(&group).unwrap();
        group
    }

    pub fn remove_group(&self, group: &Path) {
        self.remove(group).unwrap();
    }

    /// A process begins, in the default group.
    pub fn start(&self, process: i32, threads: &[i32]) {
        let root = self.root().to_owned();
        self.with(|state| {
            state.processes.insert(process, threads.to_vec());
            for &thread in threads {
                state.threads.insert(thread, root.clone());
            }
        });
    }

    pub fn end(&self, process: i32) {
        self.with(|state| {
            for thread in state.processes.remove(&process).unwrap_or_default() {
                state.threads.remove(&thread);
            }
        });
    }

    /// Moves a thread into a CTRL_MON group, as an administrator does.
    pub fn put(&self, thread: i32, group: &Path) {
        self.with(|state| state.threads.insert(thread, group.to_owned()));
    }

    pub fn group_of(&self, thread: i32) -> PathBuf {
        self.with(|state| state.threads[&thread].clone())
    }

    /// A thread moves bytes in a domain.
    pub fn move_bytes(&self, thread: i32, domain: usize, bytes: u64) {
        self.with(|state| {
            let rmid = state.groups[&state.threads[&thread]];
            state.bytes.get_mut(&rmid).unwrap()[domain] += bytes;
        });
    }

    pub fn offline(&self, domain: usize) {
        self.with(|state| state.domains[domain] = false);
    }

    pub fn online(&self, domain: usize) {
        self.with(|state| {
            state.domains[domain] = true;
            // The kernel starts its sums anew.
            state.bytes.values_mut().for_each(|bytes| bytes[domain] = 0);
        });
    }

    /// All groups show this text in a domain, until something changes.
    pub fn say(&self, domain: usize, text: &str) {
        let state = self.state.lock().unwrap();
        for group in state.borrow().groups.keys() {
            let file = group
                .join(format!("mon_data/mon_L3_{domain:02}"))
                .join(EVENT);
            fs::write(file, format!("{text}\n")).unwrap();
        }
    }

    /// The mode in which counters are assigned to groups.
    pub fn assign_counters(&self) {
        let info = self.root().join("info/L3_MON");
        let event = info.join("event_configs/mbm_total_bytes");
        fs::create_dir_all(&event).unwrap();
        fs::write(event.join("event_filter"), format!("{ALL}\n")).unwrap();
        fs::write(info.join("mbm_assign_mode"), "[mbm_event]\ndefault\n").unwrap();
    }

    /// From now on caches keep the lines of removed groups.
    pub fn keep_lines(&self) {
        self.with(|state| state.keeps_lines = true);
    }

    /// Caches have replaced those lines.
    pub fn leave_limbo(&self) {
        self.with(|state| {
            let rmids = std::mem::take(&mut state.limbo);
            state.free_rmids.extend(rmids);
        });
    }

    pub fn free_rmids(&self) -> usize {
        self.with(|state| state.free_rmids.len())
    }
}

impl Kernel for Machine {
    fn create(&self, group: &Path) -> io::Result<()> {
        self.add(group)
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        self.with(|state| {
            let rmid = state.groups.remove(group).ok_or(io::ErrorKind::NotFound)?;
            match state.keeps_lines {
                true => state.limbo.push(rmid),
                false => state.free_rmids.push(rmid),
            }
            let is_mon = group
                .parent()
                .is_some_and(|parent| parent.ends_with("mon_groups"));
            let above = match is_mon {
                true => group.parent().and_then(Path::parent).unwrap().to_owned(),
                false => self.root().to_owned(),
            };
            for of in state.threads.values_mut().filter(|of| *of == group) {
                of.clone_from(&above);
            }
            self.discard(group)
        })
    }

    fn assign(&self, group: &Path, thread: i32) -> io::Result<()> {
        self.with(|state| {
            let control = |group: &Path| match group.parent() {
                Some(parent) if parent.ends_with("mon_groups") => {
                    parent.parent().unwrap().to_owned()
                }
                _ => group.to_owned(),
            };
            let errno = io::Error::from_raw_os_error;
            let of = state
                .threads
                .get_mut(&thread)
                .ok_or_else(|| errno(libc::ESRCH))?;
            if control(of) != control(group) {
                return Err(errno(libc::EINVAL));
            }
            *of = group.to_owned();
            Ok(())
        })
    }

    fn threads(&self, process: i32) -> Vec<i32> {
        self.with(|state| state.processes.get(&process).cloned().unwrap_or_default())
    }
}
