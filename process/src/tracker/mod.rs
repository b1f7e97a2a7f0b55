//! The tracker: one thread that runs beside a program and keeps its store up to date.
//!
//! It waits for signals, for the power source, for its control socket and for the next round of
//! background sync; everything that stops or reads the program happens in this thread, because
//! ptrace is bound to a thread.

mod background;
pub mod control;
pub mod isolate;
mod last_words;
pub mod launch;
pub mod number;
mod outer;
mod requests;
pub mod resume;
pub mod status;
mod wake;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, WaitStatus, waitid, waitpid};

use crate::persist::{PersistError, Persister, Precedence, Report, SigchldBlocked, Then};
use crate::power::{self, Event, Watcher};
use crate::procfs;
use crate::ptrace::{self, Pid};
use crate::restore::lazy::{FillError, Filling};
use crate::roots::Roots;
use crate::sync::schedule::Budget;
use crate::sync::throttle::Throttle;
use crate::sync::{Mirror, Share};

use control::Server;
use isolate::in_container;
use requests::stand;
use status::Status;
use wake::Wake;

/// How a tracker works.
#[derive(Debug, Clone)]
pub struct Options {
    /// How much may be dirty.
    pub budget: Budget,
    /// Time from one background epoch to the next.
    pub epoch_interval: Duration,
    /// How long the background sync may let the program stand still to copy pages.
    pub pause: Duration,
    /// The part of its time that the program may be stopped so that no more than the budget is dirty.
    pub throttle: Share,
    /// The source of power-loss warnings.
    pub power: power::Source,
    /// What happens to the program when power fails.
    pub then: Then,
    /// Directories of files that belong to the program's state.
    pub data: Vec<std::path::PathBuf>,
}

/// How it ended.
#[derive(Debug)]
pub enum End {
    /// The program ended by itself, with this code; its state is gone.
    Exited(i32),
    /// It was killed by a signal that did not come from us; the last epoch is kept.
    Killed(i32),
    /// An attached program ended; its exit status is unknown. Its state is kept.
    Vanished,
    /// It was persisted and then killed.
    Persisted(Box<Report>),
}

/// Why a tracker gives up.
#[derive(Debug, thiserror::Error)]
pub enum TrackerError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The program cannot be tracked from the start.
    #[error(transparent)]
    Start(#[from] PersistError),
    /// The program cannot be restored; the store is as it was.
    #[error(transparent)]
    Restore(#[from] crate::restore::Error),
    /// The description in the store cannot be used.
    #[error("{store}: {source}")]
    Description {
        /// The store.
        store: String,
        /// Why not.
        source: crate::state::DecodeError,
    },
    /// Pages do not match their checksums.
    #[error(
        "{store}: {pages} pages of epoch {epoch} do not match their checksums; it will not be \
         restored from (`dormouse process verify` lists them)"
    )]
    Damaged {
        /// The store.
        store: String,
        /// Its epoch.
        epoch: u64,
        /// How many.
        pages: usize,
    },
    /// Memory of a restored program cannot be filled; it was killed.
    #[error("{0}; the program was killed, its state is kept")]
    Fill(#[from] FillError),
    /// The store cannot be cleared after the program ended.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
}

fn io_error(what: &'static str) -> impl FnOnce(std::io::Error) -> TrackerError {
    move |source| TrackerError::Io { what, source }
}

/// A tracker and its program.
pub struct Tracker {
    persister: Persister,
    roots: Roots,
    options: Options,
    wake: Wake,
    watcher: Watcher,
    server: Option<Server>,
    urgent: Arc<AtomicBool>,
    status: Status,
    /// Dirty bytes that the last rounds found.
    dirty: VecDeque<u64>,
    /// Bytes that the last rounds stored for the second time.
    rewritten: VecDeque<u64>,
    /// Bytes a second that the last rounds found written.
    paces: VecDeque<f64>,
    throttle: Throttle,
    /// Time for which the last round stopped the program.
    stood_in_round: Duration,
    started: Instant,
    last_round: Instant,
    next_round: Instant,
    /// The last epoch, or the start.
    last_epoch: Instant,
    next_epoch: Instant,
    next_room: Instant,
    exit: Option<WaitStatus>,
    /// A restored program gets its pages.
    filling: Option<Filling>,
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.persister.let_go();
    }
}

impl Tracker {
    /// Prepares to track; nothing of the program is touched yet.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub fn new(
        mirror: Mirror,
        tracking: bool,
        roots: Roots,
        options: Options,
    ) -> Result<Self, TrackerError> {
        let init = in_container();
        let power_signals = power::signals(&options.power, init);
        // What is handed on to the program ends nobody.
        let handled: Vec<i32> = if init {
            [power_signals, &[libc::SIGUSR1, libc::SIGUSR2]].concat()
        } else {
            power_signals.to_vec()
        };
        last_words::prepare(mirror.store.name(), &handled);
        let wake = Wake::new(power_signals, init).map_err(io_error("catch signals"))?;
        let waker = || wake.waker().map_err(io_error("catch signals"));
        let urgent = wake.urgent();
        // For the threads: each would be interrupted by every stop of the program.
        let blocked = SigchldBlocked::begin();
        let watcher = Watcher::start(&options.power, waker()?, Arc::clone(&urgent));
        let socket = control::socket_path(mirror.store.path());
        let server = Server::start(&socket, waker()?, Arc::clone(&urgent))
            .inspect_err(|error| {
                tracing::warn!(
                    "no control socket at {}: {error}; `dormouse process persist` cannot reach this tracker",
                    socket.display()
                );
            })
            .ok();
        drop(blocked);
        let home = match &roots {
            Roots::Attached(pid) => *pid,
            Roots::Children(_) => std::process::id() as Pid,
        };
        let status = Status {
            name: mirror.store.name().to_owned(),
            store: mirror.store.path().display().to_string(),
            tracker_pid: std::process::id(),
            program: "running".to_owned(),
            tracking: if tracking { "write-protect" } else { "compare" }.to_owned(),
            power: options.power.to_string(),
            throttle_percent: options.throttle.percent(),
            ..Status::default()
        };
        let now = Instant::now();
        let mut persister = Persister::new(mirror, home);
        persister.data.clone_from(&options.data);
        Ok(Self {
            persister,
            roots,
            wake,
            watcher,
            server,
            urgent,
            status,
            dirty: VecDeque::new(),
            rewritten: VecDeque::new(),
            throttle: Throttle::new(options.throttle),
            paces: VecDeque::new(),
            stood_in_round: Duration::ZERO,
            started: now,
            last_round: now,
            last_epoch: now,
            next_round: now,
            next_epoch: now + options.epoch_interval,
            next_room: now,
            options,
            exit: None,
            filling: None,
        })
    }

    /// The pages of the program, to adopt restored spaces before [`Tracker::run`].
    pub fn mirror(&mut self) -> &mut Mirror {
        &mut self.persister.mirror
    }

    /// Whether this kernel's tracking can be trusted, where that is learnt while the program runs.
    pub fn set_tracking(&mut self, tracking: bool) {
        self.mirror().set_tracking(tracking);
        if !tracking {
            self.status.tracking = "compare".to_owned();
        }
    }

    fn roots(&self) -> Vec<Pid> {
        self.roots_now().unwrap_or_else(|error| {
            tracing::warn!("cannot read the list of our children: {error}");
            Vec::new()
        })
    }

    /// The roots of the program, without the guard of a half-filled one.
    fn roots_now(&self) -> std::io::Result<Vec<Pid>> {
        let guard = self.filling.as_ref().map(Filling::guard);
        let mut pids = self.roots.pids()?;
        pids.retain(|pid| Some(*pid) != guard);
        Ok(pids)
    }

    /// Tracks the program until it ends.
    ///
    /// # Errors
    /// It cannot be tracked at all.
    pub fn run(mut self) -> Result<End, TrackerError> {
        // Short waits must be short. The program was started before, and does not inherit this.
        // SAFETY: no memory involved.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000) };
        // A tracker that waits for a processor does not keep a budget.
        let _precedence = (self.options.throttle != Share::NONE).then(Precedence::take);
        if self.filling.is_none() {
            self.take_in()?;
        }
        loop {
            if self.filling.as_ref().is_some_and(Filling::is_done) {
                self.filled()?;
            }
            if self.ended() {
                return self.finish();
            }
            self.wait();
            self.wake.clear();
            if self.wake.take_child() {
                crate::ptrace::release_late();
                self.reap();
            }
            for signal in self.wake.take_forward() {
                self.forward(signal);
            }
            let mut events = self.watcher.take();
            if self.wake.take_power() {
                events.push(Event::Lost("a signal reported it".to_owned()));
            }
            for event in events {
                if let Some(report) = self.power_event(&event) {
                    return Ok(End::Persisted(Box::new(report)));
                }
            }
            if let Some(report) = self.serve() {
                return Ok(End::Persisted(Box::new(report)));
            }
            self.notice_continued();
            let now = Instant::now();
            if !self.persister.stopped && self.filling.is_none() && !self.ended() {
                if now >= self.next_epoch {
                    self.epoch();
                } else if now >= self.next_round {
                    self.round();
                } else if now >= self.next_room {
                    self.make_room();
                    // Not in the pause of a persist: others may write many files.
                    self.take_reports();
                }
            }
        }
    }

    /// Protects the program's memory for the first time.
    fn take_in(&mut self) -> Result<(), TrackerError> {
        if let Err(error) = self.persister.take_in(self.roots) {
            // Too short-lived to be caught: its end is seen elsewhere.
            self.reap();
            // A program may trace its own child for a while: until then it is not persisted.
            let passes = matches!(error, PersistError::Ptrace(ptrace::Error::Traced { .. }))
                && matches!(self.roots, Roots::Children(_));
            if !self.ended() && !passes {
                return Err(error.into());
            }
        }
        self.find_obstacles();
        let medium = Arc::clone(self.mirror().store.medium());
        let _blocked = SigchldBlocked::begin();
        std::thread::spawn(move || medium.populate());
        Ok(())
    }

    /// The pages of a restored program are all filled, or cannot be filled.
    fn filled(&mut self) -> Result<(), TrackerError> {
        // While it is being dismissed the guard must not be taken for the program.
        let filling = self.filling.take();
        if let Some(Err(error)) = filling.map(Filling::finish) {
            for pid in descendants(&self.roots()) {
                // SAFETY: no memory involved.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            return Err(error.into());
        }
        tracing::info!("all pages are filled");
        self.take_in()
    }

    fn wait(&self) {
        let next = self.next_round.min(self.next_epoch).min(self.next_room);
        let timeout = if self.persister.stopped || self.filling.is_some() {
            Duration::from_secs(1)
        } else {
            next.saturating_duration_since(Instant::now())
        };
        // A program that is not our child sends no signal when it ends.
        let timeout = match self.roots {
            Roots::Attached(_) => timeout.min(Duration::from_millis(200)),
            Roots::Children(_) => timeout,
        };
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let wake = self.wake.descriptor();
        // Interrupted by a signal or not: the loop checks everything.
        let _ = poll(&mut [PollFd::new(&wake, PollFlags::IN)], Some(&timeout));
    }

    /// Takes the ends of children; the first root's is the program's.
    fn reap(&mut self) {
        let Roots::Children(first) = self.roots else {
            return;
        };
        for pid in self.roots() {
            let pid = rustix::process::Pid::from_raw(pid);
            // A traced child also reports its stops.
            if let Ok(Some((pid, status))) = waitpid(pid, WaitOptions::NOHANG)
                && pid.as_raw_nonzero().get() == first
                && (status.exited() || status.signaled())
            {
                self.exit = Some(status);
            }
        }
    }

    fn ended(&self) -> bool {
        match self.roots {
            // A container ends with its program; the kernel ends what is left of it.
            Roots::Children(_) if in_container() => {
                self.exit.is_some() || self.roots_now().is_ok_and(|pids| pids.is_empty())
            }
            // A list that cannot be read is not an empty one, and the kernel has the last word.
            Roots::Children(_) => {
                self.roots_now().is_ok_and(|pids| pids.is_empty())
                    && (self.filling.is_some() || !has_children())
            }
            Roots::Attached(pid) => procfs::stat(pid, pid).map_or(true, |stat| stat.state == 'Z'),
        }
    }

    fn finish(mut self) -> Result<End, TrackerError> {
        let end = match (self.roots, self.exit) {
            (Roots::Attached(_), _) | (_, None) => return Ok(End::Vanished),
            (_, Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => End::Exited(code),
                (None, signal) => return Ok(End::Killed(signal.unwrap_or(0))),
            },
        };
        // It is done: there is nothing to go on with. Cleared first, should removing fail.
        self.persister.mirror.store.clear()?;
        if let Err(error) = self.persister.mirror.store.remove() {
            tracing::warn!("{error}; it is empty");
        }
        Ok(end)
    }

    fn forward(&mut self, signal: i32) {
        let mut to = self.roots();
        if let Roots::Children(first) = self.roots
            && in_container()
        {
            // What is sent to a container is for its program, not for what that has started.
            to.retain(|pid| *pid == first);
        }
        for pid in to {
            // SAFETY: no memory involved.
            unsafe { libc::kill(pid, signal) };
        }
        self.continue_program();
    }

    fn continue_program(&mut self) {
        if std::mem::take(&mut self.persister.stopped) {
            for pid in self.mirror().processes() {
                // SAFETY: no memory involved.
                unsafe { libc::kill(pid, libc::SIGCONT) };
            }
            self.status.program = "running".to_owned();
        }
    }

    /// Others may continue the program that the tracker has stopped.
    fn notice_continued(&mut self) {
        if self.persister.stopped && !stand(&self.roots()) {
            tracing::info!("the program was continued by another process");
            self.persister.stopped = false;
            self.status.program = "running".to_owned();
            self.next_epoch = Instant::now();
        }
    }
}

/// Whether this process has any child, also one that has ended.
fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

/// These processes and all that descend from them.
fn descendants(roots: &[Pid]) -> Vec<Pid> {
    let mut all = roots.to_vec();
    let mut at = 0;
    while at < all.len() {
        all.extend(procfs::children(all[at]).unwrap_or_default());
        at += 1;
    }
    all
}
