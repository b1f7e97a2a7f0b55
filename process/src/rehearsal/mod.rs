//! A rehearsal: a copy of a stopped program is restored in namespaces of its own, stopped before its
//! first instruction, compared with the program, and thrown away.
//!
//! ```text
//!  tracker                    warden                    stage (PID 1 of the namespaces)
//!  ───────                    ──────                    ───────────────────────────────
//!  program stands
//!  fork ────────────────────► unshare PIDs, mounts,
//!                             network, IPC, names
//!            ◄── PID of stage ─ fork ─────────────────► mounts, addresses
//!                                                       restore: the copy stands
//!  observe the program                                  observe the copy
//!            ◄────────────────────────────────────────── what it is like
//!  compare; compare memory
//!  end of a pipe ─────────────────────────────────────► ends; the kernel ends the copy with it
//!  wait for the warden ◄───── ends
//! ```
//!
//! The copy makes system calls of ours; no instruction of the program is executed.

mod compare;
mod fault;
mod memory;
mod mounts;
mod network;
mod observe;
mod sockets;

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::procfs;
use crate::ptrace::{FrozenTree, Pid};
use crate::restore::{self, CAP_SYS_ADMIN, KilledUnlessReleased, capable};
use crate::state::Tree;
use crate::store::{PAGE_BYTES, Snapshot};

use compare::Observation;

/// Why a program is not persisted after a rehearsal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There can be no rehearsal.
    #[error("no rehearsal: {0}")]
    Impossible(String),
    /// The copy cannot be restored.
    #[error("in the rehearsal it could not be restored: {0}")]
    NotRestored(String),
    /// The copy is not like the program.
    #[error("in the rehearsal it came back otherwise: {0}")]
    Differs(String),
}

/// What the stage reports.
type Answer = Result<Observation, String>;

/// Longest time that a copy may take to stand.
const LIMIT: Duration = Duration::from_secs(120);
/// Of the memory that is available, the part that a copy may take.
const MEMORY_SHARE: u64 = 2;
/// What the kernel ends first when memory is short.
const FIRST_TO_END: &str = "1000";
/// The kernel's own slack of timers. A tracker has a smaller one, which its children inherit.
const USUAL_SLACK_NS: u64 = 50_000;

/// Restores a copy of a stopped program from what the store would hold, and compares the two.
///
/// # Errors
/// See [`Error`]; nothing is left of the copy.
pub fn rehearse(program: &FrozenTree, tree: &Tree, snapshot: &dyn Snapshot) -> Result<(), Error> {
    possible(snapshot)?;
    let impossible = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| Error::Impossible(format!("cannot {what}: {error}"))
    };
    let outside = network::Outside::read().map_err(impossible("list the addresses"))?;
    let copy = Copy::start(tree, snapshot, &outside).map_err(impossible("start a process"))?;
    let stands = copy.answer().map_err(Error::Impossible)?;
    let stands = stands.map_err(Error::NotRestored)?;
    let is = observe::observe(program, tree).map_err(impossible("observe the program"))?;
    let mut found = compare::differences(&is, &stands);
    let pids = copy.pids().map_err(impossible("find the copy"))?;
    found.extend(memory::differences(tree, &pids).map_err(impossible("compare memory"))?);
    match found.is_empty() {
        true => Ok(()),
        false => Err(Error::Differs(compare::text(&found))),
    }
}

/// Rights and room.
fn possible(snapshot: &dyn Snapshot) -> Result<(), Error> {
    if !capable(CAP_SYS_ADMIN) {
        let text = "it needs CAP_SYS_ADMIN, for namespaces".to_owned();
        return Err(Error::Impossible(text));
    }
    let spaces = snapshot.spaces().into_iter();
    let needed = spaces
        .flat_map(|space| snapshot.extents(space))
        .map(|extent| extent.bytes.next_multiple_of(PAGE_BYTES))
        .sum();
    room(needed, available_memory())
}

fn room(needed: u64, available: u64) -> Result<(), Error> {
    if needed <= available / MEMORY_SHARE {
        return Ok(());
    }
    Err(Error::Impossible(format!(
        "the copy needs {} MiB, and no more than half of the {} MiB that are available may be taken",
        needed >> 20,
        available >> 20
    )))
}

/// Bytes that can be had without swapping; where that is not known, none.
fn available_memory() -> u64 {
    let text = procfs::text("/proc/meminfo").unwrap_or_default();
    let kib = crate::procfs::field(&text, "MemAvailable")
        .and_then(|value| value.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// The processes of a rehearsal. Dropped, all of them are gone.
struct Copy {
    warden: Pid,
    stage: Option<(Pid, OwnedFd)>,
    answers: OwnedFd,
    /// Its end ends the stage.
    held: Option<OwnedFd>,
}

impl Copy {
    fn start(tree: &Tree, snapshot: &dyn Snapshot, outside: &network::Outside) -> io::Result<Self> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (answers, to_answer) = pipe()?;
        let (hold, held) = pipe()?;
        // SAFETY: the child never returns. Of what other threads hold it needs the allocator's locks,
        // which the C library puts right.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((answers, held));
                let play = || stage(tree, snapshot, outside);
                let answered = answer_from_inside(&to_answer, &hold, play);
                // SAFETY: no memory involved; nothing of ours runs at an exit.
                unsafe { libc::_exit(i32::from(answered.is_err())) }
            }
            warden => {
                let mut copy = Self {
                    warden,
                    stage: None,
                    answers,
                    held: Some(held),
                };
                drop((to_answer, hold));
                let mut number = [0u8; 4];
                if copy.read(&mut number, Instant::now() + LIMIT).is_ok() {
                    let number = Pid::from_ne_bytes(number);
                    let pid = rustix::process::Pid::from_raw(number);
                    let held = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                    copy.stage = held.map(|held| (number, held));
                }
                Ok(copy)
            }
        }
    }

    /// What the stage reports, or why there is no report.
    fn answer(&self) -> Result<Answer, String> {
        let until = Instant::now() + LIMIT;
        let broken = |error: io::Error| format!("the copy's keeper gave no answer: {error}");
        let mut bytes = [0u8; 8];
        self.read(&mut bytes, until).map_err(broken)?;
        let mut text = vec![0; u64::from_ne_bytes(bytes) as usize];
        self.read(&mut text, until).map_err(broken)?;
        postcard::from_bytes(&text).map_err(|error| broken(io::Error::other(error)))
    }

    /// Reads all of `into`, no later than `until`.
    fn read(&self, into: &mut [u8], until: Instant) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(
                &mut [PollFd::new(&self.answers, PollFlags::IN)],
                Some(&left),
            ) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            match rustix::io::read(&self.answers, &mut into[done..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(got) => done += got,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The copy's processes as the tracker sees them, by their own numbers.
    fn pids(&self) -> io::Result<Vec<(Pid, Pid)>> {
        let mut found = Vec::new();
        let stage = self.stage.as_ref().map(|(pid, _)| *pid);
        let mut queue: Vec<Pid> = stage.into_iter().collect();
        while let Some(pid) = queue.pop() {
            queue.extend(crate::procfs::children(pid)?);
            let status = procfs::status(pid, pid)?;
            let own = crate::procfs::field(&status, "NSpid")
                .and_then(|numbers| numbers.split_ascii_whitespace().last()?.parse().ok());
            if let Some(own) = own
                && Some(pid) != stage
            {
                found.push((own, pid));
            }
        }
        Ok(found)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // The stage ends, and the kernel ends all others of its namespace before it is gone.
        drop(self.held.take());
        match &self.stage {
            Some((_, stage)) => {
                let _ = pidfd_send_signal(stage, Signal::KILL);
            }
            // What the warden may have started dies with it.
            // SAFETY: no memory involved; it is our child.
            None => unsafe {
                libc::kill(self.warden, libc::SIGKILL);
            },
        }
        // SAFETY: no memory involved; it is our child.
        while unsafe { libc::waitpid(self.warden, std::ptr::null_mut(), libc::__WALL) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// In the warden: makes the namespaces and the stage, and ends with it.
fn answer_from_inside(
    answers: &OwnedFd,
    hold: &OwnedFd,
    play: impl FnOnce() -> Result<(Observation, KilledUnlessReleased), String>,
) -> io::Result<()> {
    let mut pipe = fs::File::from(answers.as_fd().try_clone_to_owned()?);
    own_signals();
    // SAFETY: no memory involved.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_TIMERSLACK, USUAL_SLACK_NS);
    }
    // The copy goes before the program.
    let _ = fs::write("/proc/self/oom_score_adj", FIRST_TO_END);
    let namespaces = libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    // SAFETY: no memory involved.
    if unsafe { libc::unshare(namespaces) } != 0 {
        let error = io::Error::last_os_error();
        pipe.write_all(&0i32.to_ne_bytes())?;
        return send(&mut pipe, &Err(format!("cannot make namespaces: {error}")));
    }
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: no memory involved.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            // Log lines of other threads may be under way; what this process would log, it answers.
            let silent = tracing::Dispatch::none();
            let played = tracing::dispatcher::with_default(&silent, play);
            let answer = played.as_ref().map(|(seen, _)| seen.clone());
            let sent = send(&mut pipe, &answer.map_err(Clone::clone));
            let mut hold = fs::File::from(hold.as_fd().try_clone_to_owned()?);
            // Until the tracker has compared the memory.
            let _ = hold.read(&mut [0]);
            // The copy is never let go: it ends with its namespace.
            std::mem::forget(played);
            sent
        }
        stage => {
            pipe.write_all(&stage.to_ne_bytes())?;
            // SAFETY: no memory involved; it is our child.
            unsafe { libc::waitpid(stage, std::ptr::null_mut(), 0) };
            Ok(())
        }
    }
}

fn send(pipe: &mut fs::File, answer: &Answer) -> io::Result<()> {
    let text = postcard::to_allocvec(answer).map_err(io::Error::other)?;
    pipe.write_all(&(text.len() as u64).to_ne_bytes())?;
    pipe.write_all(&text)
}

/// Signal handlers of the tracker wake the tracker: this process has none.
fn own_signals() {
    for signal in 1..=64 {
        // SAFETY: the actions live; a signal that has none is an error that changes nothing.
        unsafe {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction != libc::SIG_IGN
            {
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    }
}

/// In the first process of the namespaces: restores and observes.
fn stage(
    tree: &Tree,
    snapshot: &dyn Snapshot,
    outside: &network::Outside,
) -> Result<(Observation, KilledUnlessReleased), String> {
    mounts::make(tree)?;
    outside
        .make()
        .map_err(|error| format!("cannot make the network: {error}"))?;
    let options = restore::Options {
        accept_changed_files: false,
        copy_all_bytes_max: u64::MAX,
        held: true,
    };
    let restored = restore::restore(tree, snapshot, &options).map_err(|error| error.to_string())?;
    // An error must not let it run.
    let mut copy = KilledUnlessReleased::new(restored.tree);
    fault::inject(&mut copy)?;
    let seen = observe::observe(&copy, tree)
        .map_err(|error| format!("cannot observe the copy: {error}"))?;
    Ok((seen, copy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_would_take_more_than_half_of_the_memory_is_refused_by_its_size() {
        room(4 << 20, 8 << 20).expect("enough");
        let refused = room(5 << 20, 8 << 20).expect_err("too little").to_string();
        let sizes = refused.contains("5 MiB") && refused.contains("8 MiB");
        assert!(sizes, "{refused}");
        assert!(available_memory() > 0, "the machine has some");
    }
}
