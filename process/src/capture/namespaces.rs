//! Namespaces: a program is restored in those of its tracker (but for time), with all of its threads.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, readlinkat};

use super::{Builder, offsets};
use crate::ptrace::{FrozenProcess, Pid};

/// Namespaces in which a process must be with its tracker.
const OF_PROCESS: [&str; 7] = ["mnt", "pid", "net", "ipc", "uts", "user", "cgroup"];
/// Those that a thread can leave without the others, and those in which its children will be. A thread that
/// has left that of mounts has a current directory of its own, which is refused, too; those of PIDs and users
/// it cannot leave.
const OF_THREAD: [&str; 6] = [
    "net",
    "ipc",
    "uts",
    "cgroup",
    "pid_for_children",
    "time_for_children",
];

/// Names of namespaces (`net:[4026531840]`), in the order of `OF_PROCESS`.
pub(super) type Namespaces = [Option<String>; OF_PROCESS.len()];

impl Builder<'_> {
    pub(super) fn check_namespaces(&mut self, frozen: &FrozenProcess) {
        let pid = self.pid;
        let directory = directory(&format!("/proc/{pid}/ns"));
        let its = OF_PROCESS.map(|kind| name(directory.as_ref(), kind));
        let own = self.own_namespaces.get_or_insert_with(|| {
            let directory = self::directory("/proc/self/ns");
            OF_PROCESS.map(|kind| name(directory.as_ref(), kind))
        });
        let kinds = OF_PROCESS.iter().zip(its.iter().zip(own.iter()));
        let others: Vec<&str> = kinds
            .filter_map(|(kind, (its, own))| (its != own).then_some(*kind))
            .collect();
        for kind in others {
            self.refuse(format!(
                "it is in another {kind} namespace than the tracker"
            ));
        }
        let time = name(directory.as_ref(), "time");
        let main = OF_THREAD.map(|kind| name(directory.as_ref(), kind));
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.as_deref().map(number) != other.as_deref().map(number)
        };
        if differ(&its[1], &main[4]) {
            self.refuse("its children will be in another PID namespace");
        }
        if differ(&time, &main[5]) && !is_as_trackers(pid, &time) {
            self.refuse("its children will be in another time namespace");
        }
        // The clocks of all processes become those of the first.
        let first_time = self.first_time.get_or_insert_with(|| time.clone());
        if let Some(first) = self.tree.processes.first()
            && *first_time != time
            && offsets(&first.pid.to_string()) != offsets(&pid.to_string())
        {
            self.refuse("its clocks are others than those of the first process");
        }
        for thread in frozen.threads.iter().skip(1) {
            self.check_namespaces_of(thread.tid, &main);
        }
    }

    fn check_namespaces_of(&mut self, tid: Pid, main: &[Option<String>; OF_THREAD.len()]) {
        let directory = directory(&format!("/proc/{}/task/{tid}/ns", self.pid));
        for (kind, of_main) in OF_THREAD.iter().zip(main) {
            if name(directory.as_ref(), kind) != *of_main {
                self.refuse(format!(
                    "thread {tid} is in another {kind} namespace than the main thread"
                ));
            }
        }
    }
}

/// Whether a process is in the tracker's time namespace, and the one for its children, which its offsets
/// are of, has the same offsets: then it is as good as that.
fn is_as_trackers(pid: Pid, time: &Option<String>) -> bool {
    let own = directory("/proc/self/ns");
    name(own.as_ref(), "time") == *time && offsets("self") == offsets(&pid.to_string())
}

/// Once opened, a directory is a shorter way to its links than their paths.
fn directory(path: &str) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// None: the kernel does not know this kind, or the namespace has no process yet.
fn name(directory: Option<&OwnedFd>, kind: &str) -> Option<String> {
    let link = readlinkat(directory?, kind, Vec::new()).ok()?;
    link.into_string().ok()
}

/// The number of a namespace, without the kind.
fn number(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, number)| number)
}
