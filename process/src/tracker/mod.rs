//! The tracker: one thread that runs beside a program and keeps it safe.
//!
//! It waits for signals, for the power source, for its control socket and for the next round of
//! background sync; whatever stops or looks into the program happens in this thread, because
//! ptrace belongs to threads.

mod background;
pub mod control;
pub mod launch;
pub mod resume;
pub mod status;
mod wake;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, WaitStatus, waitpid};

use crate::capture;
use crate::persist::{PersistError, Persister, Report, Then};
use crate::power::{self, Event, Watcher};
use crate::procfs;
use crate::ptrace::Pid;
use crate::restore::lazy::{FillError, Filling};
use crate::store::file::now_ns;
use crate::sync::Mirror;
use crate::sync::schedule::{Budget, FIXED_COST};

use control::{Answer, Request, Server};
use status::Status;
use wake::Wake;

/// Some obstacles pass by themselves, such as descriptors that are under way in a socket: the
/// program runs on for a moment, and another instant is tried.
const INSTANTS: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
/// How a tracker works.
#[derive(Debug, Clone)]
pub struct Options {
    /// How much may be dirty.
    pub budget: Budget,
    /// Time from one background epoch to the next.
    pub epoch_interval: Duration,
    /// How long the background sync may let the program stand still to copy pages.
    pub pause: Duration,
    /// Who tells that power fails.
    pub power: power::Source,
    /// What becomes of the program when power fails.
    pub then: Then,
}

/// Which processes are the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roots {
    /// All children of the tracker; the first one gives the exit status.
    Children(Pid),
    /// This one, which is somebody else's child.
    Attached(Pid),
}

/// How it ended.
#[derive(Debug)]
pub enum End {
    /// The program ended by itself, with this code; its state is gone.
    Exited(i32),
    /// It was killed by a signal that did not come from us; the last epoch is kept.
    Killed(i32),
    /// An attached program ended; nobody tells how. Its state is kept.
    Vanished,
    /// It was persisted and then killed.
    Persisted(Box<Report>),
}

/// Why a tracker gives up.
#[derive(Debug, thiserror::Error)]
pub enum TrackerError {
    /// The machine does not give what is needed.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The program cannot be taken in at the start.
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
    dirty: VecDeque<u64>,
    last_round: Instant,
    next_round: Instant,
    next_epoch: Instant,
    next_room: Instant,
    put_off: u32,
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
        let wake = Wake::new(power::signals(&options.power)).map_err(io_error("catch signals"))?;
        let waker = || wake.waker().map_err(io_error("catch signals"));
        let urgent = wake.urgent();
        let watcher = Watcher::start(&options.power, waker()?, Arc::clone(&urgent));
        let socket = control::socket_path(mirror.store.path());
        let server = Server::start(&socket, waker()?, Arc::clone(&urgent))
            .inspect_err(|error| {
                tracing::warn!(
                    "no control socket at {}: {error}; `dormouse process persist` cannot ask us",
                    socket.display()
                );
            })
            .ok();
        let status = Status {
            name: mirror.store.name().to_owned(),
            store: mirror.store.path().display().to_string(),
            tracker_pid: std::process::id(),
            program: "running".to_owned(),
            tracking: if tracking { "write-protect" } else { "compare" }.to_owned(),
            power: options.power.to_string(),
            ..Status::default()
        };
        let now = Instant::now();
        Ok(Self {
            persister: Persister::new(mirror),
            roots,
            wake,
            watcher,
            server,
            urgent,
            status,
            dirty: VecDeque::new(),
            last_round: now,
            next_round: now,
            next_epoch: now + options.epoch_interval,
            next_room: now,
            options,
            put_off: 0,
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
        match self.roots {
            Roots::Attached(pid) => vec![pid],
            Roots::Children(_) => {
                let own = std::process::id() as Pid;
                let guard = self.filling.as_ref().map(Filling::guard);
                let mut children = procfs::children(own).unwrap_or_default();
                children.retain(|child| Some(*child) != guard);
                children
            }
        }
    }

    /// Tracks the program until it ends.
    ///
    /// # Errors
    /// It cannot be tracked at all.
    pub fn run(mut self) -> Result<End, TrackerError> {
        // Short waits shall be short. The program was started before, and does not inherit it.
        // SAFETY: no memory involved.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000) };
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
                events.push(Event::Lost("a signal says so".to_owned()));
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
                }
            }
        }
    }

    /// Protects the program's memory for the first time.
    fn take_in(&mut self) -> Result<(), TrackerError> {
        if let Err(error) = self.persister.take_in(&self.roots()) {
            // Too short-lived to be caught: its end is seen elsewhere.
            self.reap();
            if !self.ended() {
                return Err(error.into());
            }
        }
        self.look_for_obstacles();
        let medium = Arc::clone(self.mirror().store.medium());
        std::thread::spawn(move || medium.populate());
        Ok(())
    }

    /// A restored program has all of its pages, or can never have them.
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
        tracing::info!("all pages are there");
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
        // Interrupted by a signal or not: the loop looks at everything.
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
            Roots::Children(_) => self.roots().is_empty(),
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
        for pid in self.roots() {
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

    /// Somebody else may continue the program that we have stopped.
    fn notice_continued(&mut self) {
        if self.persister.stopped && !stand(&self.roots()) {
            tracing::info!("somebody has continued the program");
            self.persister.stopped = false;
            self.status.program = "running".to_owned();
            self.next_epoch = Instant::now();
        }
    }

    /// What cannot be persisted is said now, not when power fails.
    fn look_for_obstacles(&mut self) {
        let roots = self.roots();
        if roots.is_empty() {
            return;
        }
        match self.persister.rehearse(&roots) {
            Ok(()) | Err(PersistError::Ended) => self.status.obstacles.clear(),
            Err(error) => self.obstacle(&error),
        }
        self.persister.prepare();
    }

    fn obstacle(&mut self, error: &PersistError) {
        let text: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
        if text != self.status.obstacles {
            for line in &text {
                tracing::error!("cannot be persisted as it is now: {line}");
            }
            self.status.obstacles = text;
        }
    }

    fn power_event(&mut self, event: &Event) -> Option<Report> {
        match event {
            Event::Unknown(why) => {
                tracing::warn!("power is not watched: {why}");
                self.status.power = format!("{}: no answer", self.options.power);
            }
            Event::Back => {
                tracing::info!("power is back");
                self.status.power = format!("{}: power is back", self.options.power);
                self.continue_program();
            }
            Event::Lost(why) => {
                tracing::warn!("power is about to fail: {why}");
                self.status.power = format!("{}: {why}", self.options.power);
                if self.persister.stopped {
                    return None;
                }
                match self.persist(self.options.then) {
                    Ok(report) if self.options.then == Then::Kill => return Some(report),
                    Ok(_) => {}
                    Err(error) => tracing::error!("not persisted: {error}"),
                }
            }
        }
        None
    }

    /// Persists now.
    fn persist(&mut self, then: Then) -> Result<Report, PersistError> {
        // What is not in the program yet is in the store, but the two must not be mixed up.
        if self.filling.is_some() {
            self.filled()
                .map_err(|error| PersistError::NotFilled(error.to_string()))?;
        }
        let roots = self.roots();
        let mut tries = 1;
        let report = loop {
            match self.persister.persist(&roots, then) {
                Ok(report) => break report,
                Err(error @ PersistError::Capture(capture::Error::Unsupported(_))) => {
                    if tries == INSTANTS {
                        self.obstacle(&error);
                        return Err(error);
                    }
                    tries += 1;
                    std::thread::sleep(BETWEEN_TRIES);
                }
                Err(error) => return Err(error),
            }
        };
        tracing::info!(
            epoch = report.epoch,
            ms = report.total_ns as f64 / 1e6,
            bytes = report.stored_bytes,
            "persisted"
        );
        self.committed(&report);
        match then {
            Then::Stop => {
                // Seen standing once, it must have been continued when it does not stand.
                let until = Instant::now() + Duration::from_secs(1);
                while !stand(&roots) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.persister.stopped = true;
                self.status.program = "stopped".to_owned();
            }
            Then::Kill => self.reap(),
            Then::Continue => {}
        }
        Ok(report)
    }

    fn committed(&mut self, report: &Report) {
        self.status.epochs += 1;
        self.status.obstacles.clear();
        self.status.last = Some(report.clone());
        self.status.last_s = Some(now_ns() as f64 / 1e9);
        self.put_off = 0;
        let now = Instant::now();
        self.next_epoch = now + self.options.epoch_interval;
        self.last_round = now;
        self.next_round = self.next_round.max(now);
    }

    /// Answers whoever asks; a report if the program was killed on request.
    fn serve(&mut self) -> Option<Report> {
        loop {
            let (request, stream) = self.server.as_ref()?.next()?;
            match request {
                Request::Status => {
                    let status = serde_json::to_value(self.status()).unwrap_or_default();
                    control::answer(&stream, &Answer::Ok(status));
                }
                Request::Persist { then } => match self.persist(then) {
                    Err(error) => control::answer(&stream, &Answer::Error(error.to_string())),
                    Ok(report) => {
                        let value = serde_json::to_value(&report).unwrap_or_default();
                        control::answer(&stream, &Answer::Ok(value));
                        if then == Then::Kill {
                            return Some(report);
                        }
                    }
                },
            }
        }
    }

    fn status(&mut self) -> Status {
        let pids = self.roots();
        let budget = self.budget();
        let mirror = &self.persister.mirror;
        let most_dirty = self.dirty.iter().copied().max().unwrap_or(0);
        let copying = most_dirty as f64 / mirror.bandwidth();
        Status {
            pids,
            resident_bytes: mirror.resident_bytes(),
            store_bytes: crate::store::medium::Medium::bytes(&**mirror.store.medium()),
            bandwidth_bytes_per_s: mirror.bandwidth(),
            budget_bytes: budget,
            most_dirty_bytes: most_dirty,
            to_bring_in_bytes: self.filling.as_ref().map_or(0, Filling::left_bytes),
            persist_ms: (copying + FIXED_COST.as_secs_f64()) * 1e3,
            ..self.status.clone()
        }
    }
}

/// Whether these processes are stopped.
fn stand(pids: &[Pid]) -> bool {
    let stands = |pid: &Pid| {
        procfs::stat(*pid, *pid).is_ok_and(|stat| matches!(stat.state, 'T' | 't' | 'Z'))
    };
    pids.iter().all(stands)
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
