//! Processes, as /proc reports them.

use std::fs;

use super::files::INIT;
use super::objects::{DELETED, is_at};
use super::{Builder, Error, Seen};
use crate::procfs;
use crate::ptrace::{
    FrozenProcess, Pid, Resource, shares_descriptors, shares_directories, shares_memory, sharing,
};
use crate::state;

impl Builder<'_> {
    /// Describes one process.
    pub(super) fn process(
        &mut self,
        frozen: &mut FrozenProcess,
        maps: &[procfs::MapsLine],
        tree: &[Pid],
    ) -> Result<(), Error> {
        let pid = frozen.pid;
        self.pid = pid;
        let stat = procfs::stat(pid, pid).map_err(self.failed("read its state"))?;
        self.program.clone_from(&stat.name);
        let seen = Seen {
            name: stat.name.clone(),
            started: stat.started,
        };
        self.seen.insert(pid, seen);
        let parent = if tree.contains(&stat.parent) {
            stat.parent
        } else {
            0
        };
        if self.tree.processes.is_empty() {
            self.tree.parent = stat.parent;
        }
        let controlling = (stat.terminal, stat.front);
        self.terminals.controlling.insert(pid, controlling);
        let mut process = state::Process {
            group: stat.group,
            session: stat.session,
            layout: stat.layout,
            ..state::Process::empty(pid, parent)
        };
        if parent != 0 {
            process.exit_signal = stat.exit_signal;
        }
        if frozen.threads.is_empty() {
            process.zombie = Some(stat.exit_code);
            process.zombie_user = real_user(pid);
            if process.exit_signal != libc::SIGCHLD {
                self.refuse("it has ended, and its parent gets another signal than SIGCHLD");
            }
            self.tree.processes.push(process);
            return Ok(());
        }
        if stat.state == 'Z' || frozen.threads[0].tid != pid {
            self.refuse("its main thread has ended while others go on");
            return Ok(());
        }
        process.shares_descriptors = parent != 0 && shares_descriptors(pid, parent);
        self.check_sharing(frozen, parent);
        process.space = (self.options.space_of)(pid);
        if !self.options.stopped_by_us {
            process.stopped = frozen.threads[0].group_stopped;
        }
        self.check_namespaces(frozen);
        self.check_cgroups(frozen)?;
        self.read_proc(&mut process)?;
        process.mappings = self.mappings(maps, stat.resident_pages)?;
        self.descriptors(&mut process)?;
        self.query_inside(&mut process, frozen)?;
        self.tree.processes.push(process);
        Ok(())
    }

    /// The mappings of a process; of one that has ended, none.
    pub(super) fn read_maps(
        &mut self,
        frozen: &FrozenProcess,
    ) -> Result<Vec<procfs::MapsLine>, Error> {
        self.pid = frozen.pid;
        if frozen.threads.is_empty() {
            return Ok(Vec::new());
        }
        procfs::maps(self.pid).map_err(self.failed("read its mappings"))
    }

    /// What `clone` can share in other ways than `fork` and threads do.
    fn check_sharing(&mut self, frozen: &FrozenProcess, parent: Pid) {
        if parent != 0 && shares_memory(frozen.pid, parent) {
            self.refuse(format!("it shares the memory of process {parent}"));
        }
        for thread in &frozen.threads[1..] {
            if !shares_descriptors(frozen.pid, thread.tid) {
                self.refuse(format!("thread {} has descriptors of its own", thread.tid));
            }
            if !shares_directories(frozen.pid, thread.tid) {
                self.refuse(format!(
                    "thread {} has a current directory, root and umask of its own",
                    thread.tid
                ));
            }
        }
    }

    /// Only what a process shares with its parent can be shared again. Call it when all processes are
    /// described.
    pub(super) fn check_sharing_of_others(&mut self) {
        let processes = self.tree.processes.iter();
        let living: Vec<Pid> = processes
            .filter(|process| process.zombie.is_none())
            .map(|process| process.pid)
            .collect();
        for (resource, name) in [
            (Resource::Memory, "memory"),
            (Resource::Descriptors, "descriptors"),
            (Resource::Directories, "current directory, root and umask"),
        ] {
            for (other, pid) in sharing(&living, resource) {
                let mut processes = self.tree.processes.iter();
                let process = processes.find(|process| process.pid == pid);
                if process.is_none_or(|process| process.shares_descriptors)
                    && resource == Resource::Descriptors
                {
                    continue;
                }
                let parent = process.map_or(0, |process| process.parent);
                if resource == Resource::Memory && parent != 0 && shares_memory(pid, parent) {
                    // Refused already.
                    continue;
                }
                self.turn_to(pid);
                self.refuse(match resource {
                    Resource::Directories => format!("it shares the {name} of process {other}"),
                    _ => {
                        format!("it shares the {name} of process {other}, which is not its parent")
                    }
                });
            }
        }
    }

    /// The kernel sends a process this signal at the end of the thread that has created it. A restore gives all
    /// children to the main thread. Call it when all processes are described.
    pub(super) fn check_death_signals(&mut self) {
        let processes = &self.tree.processes;
        let wants = |process: &&state::Process| {
            let main = process.threads.first();
            main.is_some_and(|main| main.parent_death_signal != 0)
        };
        let mut lost: Vec<(Pid, Pid)> = Vec::new();
        for process in processes.iter().filter(wants) {
            let parent = processes.iter().find(|other| other.pid == process.parent);
            let Some(parent) = parent.filter(|parent| parent.threads.len() > 1) else {
                continue;
            };
            let children = format!("/proc/{0}/task/{0}/children", parent.pid);
            let children = procfs::text(children).unwrap_or_default();
            let mut children = children.split_ascii_whitespace();
            if !children.any(|child| child == process.pid.to_string()) {
                lost.push((process.pid, parent.pid));
            }
        }
        for (pid, parent) in lost {
            self.turn_to(pid);
            self.refuse(format!(
                "it has asked for a signal at the end of its parent, which is not the main thread of \
                 process {parent}"
            ));
        }
    }

    /// POSIX timers of which a thread or process has ended that they signal, or that they measure.
    pub(super) fn check_timers<'timers>(
        &mut self,
        process: &state::Process,
        timers: impl Iterator<Item = &'timers state::Timer>,
    ) {
        let is_there = |tid: i32| process.threads.iter().any(|thread| thread.tid == tid);
        for timer in timers {
            let id = timer.id;
            if timer.notify == libc::SIGEV_THREAD_ID && !is_there(timer.thread) {
                let tid = timer.thread;
                self.refuse(format!(
                    "POSIX timer {id} signals thread {tid}, which has ended"
                ));
            }
            let there = match measured(timer.clock) {
                Some((tid, true)) => is_there(tid),
                Some((pid, false)) => self.pids.contains(&pid),
                None => true,
            };
            if !there {
                self.refuse(format!(
                    "POSIX timer {id} measures a thread or process that has ended or is not of the tree"
                ));
            }
        }
    }

    /// What can be read from outside.
    fn read_proc(&mut self, process: &mut state::Process) -> Result<(), Error> {
        let pid = self.pid;
        let text = |file: &str| procfs::text(format!("/proc/{pid}/{file}"));
        let status = procfs::status(pid, pid).map_err(self.failed("read its status"))?;
        let status_field = |name| procfs::field(&status, name).unwrap_or("");
        process.umask = u32::from_str_radix(status_field("Umask"), 8).unwrap_or(0o22);
        process.thp_disabled = status_field("THP_enabled") == "0";
        if status_field("x86_Thread_features").contains("shstk") {
            self.refuse("it uses shadow stacks");
        }
        process.auxv = procfs::auxv(pid).map_err(self.failed("read its auxiliary vector"))?;
        process.auxv.retain(|&(kind, _)| kind != 0);
        process.core_dump_filter = text("coredump_filter")
            .ok()
            .and_then(|text| u32::from_str_radix(text.trim(), 16).ok());
        process.oom_score_adj = text("oom_score_adj")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0);
        process.login_user = text("loginuid")
            .ok()
            .and_then(|text| text.trim().parse().ok());
        process.directory = self.directory("cwd")?;
        let root = self.directory("root")?;
        process.root = (root != "/").then_some(root);
        let exe = fs::read_link(format!("/proc/{pid}/exe"))
            .map_err(self.failed("read the name of its executable"))?;
        if exe.to_str().is_none() {
            self.refuse(format!(
                "its executable {} has a name that is not UTF-8",
                exe.display()
            ));
        }
        process.executable = self.image_of_link(&exe.to_string_lossy())?;
        // From the file: prlimit wants CAP_SYS_RESOURCE for a process of another user.
        process.limits = parse_limits(&text("limits").map_err(self.failed("read its limits"))?);
        Ok(())
    }

    /// A directory of /proc must be there when the process enters it: its other threads are made later.
    fn check_directory_of_proc(&mut self, link: &str, path: &str) {
        let Some((pid, tid)) = procfs::owner_of_path(path) else {
            return;
        };
        if path.ends_with(DELETED) {
            return;
        }
        if link == "root" || pid != INIT && !self.pids.contains(&pid) {
            self.refuse(format!(
                "its {link} is {path}, of a process that is not of the tree"
            ));
        } else if tid.is_some_and(|tid| tid != pid) {
            self.refuse(format!(
                "its {link} is {path}, of a thread other than the main thread"
            ));
        }
    }

    fn directory(&mut self, link: &str) -> Result<String, Error> {
        let path = fs::read_link(format!("/proc/{}/{link}", self.pid))
            .map_err(self.failed(format!("read its {link}")))?;
        if path.to_str().is_none() {
            let path = path.display();
            self.refuse(format!("its {link} is {path}, a name that is not UTF-8"));
            return Ok("/".to_owned());
        }
        let path = path.to_string_lossy().into_owned();
        self.check_directory_of_proc(link, &path);
        // A name may itself end so.
        let itself = fs::metadata(format!("/proc/{}/{link}", self.pid));
        let is_there = itself.is_ok_and(|itself| is_at(&path, &itself));
        if let Some(path) = path.strip_suffix(DELETED).filter(|_| !is_there) {
            if link == "cwd" && self.removed_directory(self.pid, path) {
                return Ok(path.to_owned());
            }
            let number = path
                .strip_prefix("/proc/")
                .and_then(|text| text.parse().ok());
            if link == "cwd"
                && let Some(pid) = number
                && self.is_dead(pid)
            {
                return Ok(path.to_owned());
            }
            self.refuse(format!("its {link} {path} is removed"));
        }
        Ok(path)
    }
}

/// The real user of a process that has ended; the tracker's own, if it has been reaped.
fn real_user(pid: Pid) -> u32 {
    let status = procfs::status(pid, pid).unwrap_or_default();
    let users = procfs::field(&status, "Uid").unwrap_or("");
    let real = users.split_ascii_whitespace().next();
    // SAFETY: no memory involved.
    let own = || unsafe { libc::getuid() };
    real.and_then(|user| user.parse().ok()).unwrap_or_else(own)
}

/// Of a CPU clock, what it measures, and whether that is a thread; `None`: another clock, or one of the
/// caller.
fn measured(clock: i32) -> Option<(i32, bool)> {
    const PER_THREAD: i32 = 4;
    let number = !(clock >> 3);
    (clock < 0 && number != 0).then_some((number, clock & PER_THREAD != 0))
}

/// Soft and hard limits of `/proc/PID/limits`, which stand in the order of their numbers.
fn parse_limits(text: &str) -> Vec<(u64, u64)> {
    const NAME_COLUMNS: usize = 26;
    let number = |word: &str| {
        if word == "unlimited" {
            u64::MAX
        } else {
            word.parse().unwrap_or(u64::MAX)
        }
    };
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let mut words = line.get(NAME_COLUMNS..)?.split_ascii_whitespace();
            Some((number(words.next()?), number(words.next()?)))
        })
        .collect()
}

/// The timers of `/proc/PID/timers`, not yet with their times.
pub(super) fn parse_timers(text: &str) -> Vec<state::Timer> {
    let mut timers: Vec<state::Timer> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        if name == "ID" {
            timers.push(state::Timer {
                id: value.parse().unwrap_or(0),
                clock: 0,
                notify: 0,
                thread: 0,
                signal: 0,
                value: 0,
                remaining_ns: 0,
                interval_ns: 0,
                overrun: 0,
            });
        }
        let Some(timer) = timers.last_mut() else {
            continue;
        };
        match name {
            "signal" => {
                if let Some((signal, data)) = value.split_once('/') {
                    timer.signal = signal.parse().unwrap_or(0);
                    timer.value = u64::from_str_radix(data, 16).unwrap_or(0);
                }
            }
            "notify" => {
                // "signal/pid.7", "signal/tid.8", "none/pid.7", "thread/…"
                let (kind, target) = value.split_once('/').unwrap_or((value, ""));
                timer.notify = match (kind, target.starts_with("tid.")) {
                    ("signal", true) => libc::SIGEV_THREAD_ID,
                    ("signal", false) => libc::SIGEV_SIGNAL,
                    ("thread", _) => libc::SIGEV_THREAD,
                    _ => libc::SIGEV_NONE,
                };
                if let Some(tid) = target.strip_prefix("tid.") {
                    timer.thread = tid.parse().unwrap_or(0);
                }
            }
            "ClockID" => timer.clock = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    timers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_that_the_kernel_tells() {
        let limits = parse_limits(&fs::read_to_string("/proc/self/limits").expect("limits"));
        assert_eq!(limits.len(), 16);
        for (resource, &(soft, hard)) in limits.iter().enumerate() {
            let mut limit = libc::rlimit64 {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: the limit lives.
            let got = unsafe { libc::getrlimit64(resource as u32, &raw mut limit) };
            assert_eq!(got, 0);
            assert_eq!(
                (soft, hard),
                (limit.rlim_cur, limit.rlim_max),
                "limit {resource}"
            );
        }
    }

    #[test]
    fn the_timers_of_proc_are_all_found_with_their_targets() {
        let text = "ID: 0\nsignal: 60/00007fff86e452a8\nnotify: signal/tid.2634\nClockID: 0\n\
                    ID: 3\nsignal: 14/0000000000000007\nnotify: none/pid.2634\nClockID: 1\n";
        let timers = parse_timers(text);
        assert_eq!(timers.len(), 2);
        assert_eq!((timers[0].signal, timers[0].value), (60, 0x7fff_86e4_52a8));
        assert_eq!(
            (timers[0].notify, timers[0].thread),
            (libc::SIGEV_THREAD_ID, 2634)
        );
        assert_eq!(
            (timers[1].id, timers[1].notify, timers[1].clock),
            (3, libc::SIGEV_NONE, 1)
        );
    }
}
