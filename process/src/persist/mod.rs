//! One epoch from a running program: freeze the tree, describe it, copy what is dirty, commit.
//!
//! ```text
//!  persist:     freeze ─ capture ─ scan ─ copy ─(files synced meanwhile)─ commit ─ go on, stop or kill
//!  background:  freeze ─ capture ─ scan ─ copy ─ thaw ─ files ─ commit
//!                                       └─ too much for the pause: thaw without a commit
//! ```
//!
//! A tree that runs on has its mapped files synced while it stands: see `files::settle`.

mod files;
mod handles;
mod precedence;
mod sigchld;
mod written;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::capture::{self, AdviceCache, HeldConnection, Options, capture};
use crate::procfs;
use crate::ptrace::{self, FrozenTree, Pid};
use crate::rehearsal;
use crate::restore;
use crate::roots::Roots;
use crate::state::{Image, Tree};
use crate::store::{Cause, PAGE_BYTES, SpaceId};
use crate::sync::{Copying, Mirror, Object, Part, SyncError};
use crate::track::Program;

pub use precedence::Precedence;
pub use sigchld::SigchldBlocked;
use written::Written;

/// How long a program that goes on stands for the sake of requests that end by themselves.
const SETTLE_LIMIT: Duration = Duration::from_millis(200);
/// The same for one that stops or ends: a refusal would cost it its state.
const SETTLE_LIMIT_AT_END: Duration = Duration::from_secs(2);

/// What happens to the program after it was persisted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Then {
    /// It continues; the next epoch holds what it does from now on
    Continue,
    /// It stays stopped (SIGSTOP) until it is continued
    Stop,
    /// It is killed; the next `run` restores it
    Kill,
}

/// Why there is no new epoch. The former one is still there.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// The tree cannot be stopped.
    #[error(transparent)]
    Ptrace(#[from] ptrace::Error),
    /// The tree uses something that cannot be restored.
    #[error(transparent)]
    Capture(#[from] capture::Error),
    /// A restore would fail.
    #[error("it could not be restored here: {0}")]
    Restore(#[from] restore::Error),
    /// A copy could not be restored, or came back otherwise.
    #[error(transparent)]
    Rehearsal(#[from] rehearsal::Error),
    /// Pages cannot be read or stored.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// A restored program did not get its pages.
    #[error("{0}")]
    NotFilled(String),
    /// Later stores into a mapped file could not be distinguished from earlier ones.
    #[error(
        "what the program has stored into the mapped file {0} cannot be written out ({1}): a restore \
         would not notice what it stores there after this epoch"
    )]
    Mapped(String, std::io::Error),
    /// There is nothing to persist.
    #[error("the program has ended")]
    Ended,
}

impl From<crate::store::StoreError> for PersistError {
    fn from(error: crate::store::StoreError) -> Self {
        Self::Sync(error.into())
    }
}

/// How long each step took, and what it moved. Times in nanoseconds.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Number of the new epoch.
    pub epoch: u64,
    /// From the request to the commit.
    pub total_ns: u64,
    /// All threads stopped.
    pub freeze_ns: u64,
    /// Kernel objects described.
    pub capture_ns: u64,
    /// Dirty pages found.
    #[serde(default)]
    pub scan_ns: u64,
    /// The former name of `scan_ns`.
    #[serde(default)]
    pub look_ns: u64, // until 0.3
    /// Pages compared and copied.
    pub copy_ns: u64,
    /// Waiting for files that the program writes (beside the copying).
    pub files_ns: u64,
    /// A copy restored and compared; 0: that was not asked for.
    #[serde(default)]
    pub rehearsal_ns: u64,
    /// Index, description and root durable.
    pub commit_ns: u64,
    /// How long the program was stopped; the total where it does not continue.
    pub pause_ns: u64,
    /// Bytes of pages written to the store in this step.
    pub stored_bytes: u64,
    /// Bytes of pages that were only compared with it.
    pub compared_bytes: u64,
    /// Bytes of the description.
    pub description_bytes: u64,
    /// Processes and threads in the tree.
    pub processes: usize,
    /// Threads in the tree.
    pub threads: usize,
}

impl Report {
    fn scanned_in(&mut self, time: Duration) {
        self.scan_ns = nanoseconds(time);
        self.look_ns = self.scan_ns; // until 0.3
    }
}

/// The outcome of a background epoch.
#[derive(Debug)]
pub enum Background {
    /// It is durable.
    Committed(Report),
    /// More bytes were dirty than the pause allows to copy; the program runs on.
    TooMuch(u64),
}

/// A program whose pages are mirrored.
#[derive(Debug)]
pub struct Persister {
    /// Its pages.
    pub mirror: Mirror,
    /// Directories of files that belong to the program's state.
    pub data: Vec<std::path::PathBuf>,
    /// The tracker has stopped the program (SIGSTOP), and it was not continued since.
    pub stopped: bool,
    /// TCP connections of a program that was persisted and killed: see [`Persister::let_go`].
    connections: Vec<HeldConnection>,
    advice: AdviceCache,
    /// Files that the program has written and closed.
    pub written: Written,
    /// Control groups in which the program was started; none: they cannot be read.
    cgroups: Option<String>,
    /// It had files mapped for writing at the last epoch.
    maps_files: bool,
}

struct Stopped {
    /// Let go before the tree is: it must not meet them while they are held.
    connections: Vec<HeldConnection>,
    tree: FrozenTree,
    description: Vec<u8>,
    objects: Vec<Object>,
    /// Files that it had open for writing.
    open: Vec<String>,
    /// Files that it has written and closed, and that may not be durable.
    closed: Vec<Image>,
    /// Newest time of change of its files, nanoseconds since 1970. It runs again only when another
    /// change has another time.
    newest_ns: i64,
    report: Report,
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Persister {
    /// For pages that are mirrored here, of a program that is in the control groups of process
    /// `home`: of the tracker, or of the program to which it was attached.
    pub fn new(mirror: Mirror, home: Pid) -> Self {
        Self {
            cgroups: procfs::text(format!("/proc/{home}/cgroup")).ok(),
            mirror,
            data: Vec::new(),
            stopped: false,
            connections: Vec::new(),
            advice: AdviceCache::default(),
            written: Written::new(),
            maps_files: false,
        }
    }

    /// The last thing to do for a program that was persisted and killed: what its clients still
    /// acknowledge is swallowed. A socket that is gone would answer them with a reset.
    pub fn let_go(&mut self) {
        /// Acknowledgements are delayed by at most 200 ms.
        const DELAYED: Duration = Duration::from_millis(250);
        if !self.connections.is_empty() {
            std::thread::sleep(DELAYED);
        }
        self.connections.drain(..).for_each(HeldConnection::abandon);
    }

    /// Makes ready for a program that has so many bytes of memory and may grow.
    pub fn expect(&mut self, bytes: u64) {
        self.advice.expect(bytes);
    }

    /// Reads what is slow to read, while the program runs.
    pub fn prepare(&mut self) {
        for pid in self.mirror.processes() {
            if let Err(error) = self.advice.prepare(pid) {
                tracing::debug!(pid, "its mappings cannot be read: {error}");
            }
        }
    }

    /// Freezes the tree, takes in processes that are new, and protects what is not protected.
    ///
    /// # Errors
    /// It cannot be stopped, or has ended.
    pub fn take_in(&mut self, roots: Roots) -> Result<(), PersistError> {
        let _blocked = SigchldBlocked::begin();
        let mut tree = FrozenTree::freeze_all(|| roots.pids())?;
        self.written.watch(&tree.living());
        let result = self.mirror.take_in(&mut tree);
        if result.is_ok() {
            self.mirror.scan(Program::Stands);
        }
        tree.thaw();
        Ok(result?)
    }

    /// Stops the tree and copies dirty pages for about as long as `limit`; returns how long it stood, and how many
    /// pages were stored.
    ///
    /// # Errors
    /// It cannot be stopped, or has ended; the store is full or failed.
    pub fn copy_standing(
        &mut self,
        roots: Roots,
        limit: Duration,
        urgent: &AtomicBool,
    ) -> Result<(Duration, u64), PersistError> {
        let started = Instant::now();
        let precedence = Precedence::take();
        let _blocked = SigchldBlocked::begin();
        let tree = FrozenTree::freeze_all(|| roots.pids())?;
        let alone = tree.living().len() == 1;
        let how = Copying::Standing(Part { limit, alone });
        let copied = self.mirror.copy_dirty(urgent, how);
        tree.thaw();
        drop(precedence);
        let stored = copied?.stored_pages;
        Ok((started.elapsed(), stored))
    }

    /// Whether the tree could be restored: describes it, and lets it run on.
    ///
    /// # Errors
    /// What is in the way, by name.
    pub fn probe(&mut self, roots: Roots) -> Result<(), PersistError> {
        let _blocked = SigchldBlocked::begin();
        let stopped = self.stop(roots, Then::Continue);
        stopped.map(|stopped| stopped.tree.thaw())
    }

    fn stop(&mut self, roots: Roots, then: Then) -> Result<Stopped, PersistError> {
        let started = Instant::now();
        let mut tree = FrozenTree::freeze_all(|| roots.pids())?;
        let frozen = Instant::now();
        if tree
            .processes
            .iter()
            .all(|process| process.threads.is_empty())
        {
            return Err(PersistError::Ended);
        }
        let captured = (|| {
            if then == Then::Continue {
                self.mirror.take_in(&mut tree)?;
            }
            let spaces: HashMap<Pid, SpaceId> = tree
                .processes
                .iter()
                .map(|process| (process.pid, self.mirror.space_of(process.pid)))
                .collect();
            let mirror = &mut self.mirror;
            let options = Options {
                space_of: &|pid| spaces[&pid],
                object_space: &mut |device, inode| mirror.space_of_object(device, inode),
                advice: &mut self.advice,
                keep_connections: then == Then::Kill,
                stopped_by_us: self.stopped,
                settle_limit: match then {
                    Then::Continue => SETTLE_LIMIT,
                    Then::Stop | Then::Kill => SETTLE_LIMIT_AT_END,
                },
                data: &self.data,
                cgroups: self.cgroups.as_deref(),
            };
            Ok::<_, PersistError>(capture(&mut tree, options)?)
        })();
        // A tree that is dropped runs on.
        let mut captured = captured?;
        let pids = tree.living();
        self.written.take(&pids);
        self.written.watch(&pids);
        captured.tree.written = self.written.images(&captured.tree.images);
        if then != Then::Kill {
            self.maps_files = files::settle(&mut captured.tree, &pids)
                .map_err(|(path, error)| PersistError::Mapped(path, error))?;
        }
        restore::possible(&captured.tree)?;
        if then != Then::Kill {
            // Nothing of it is borrowed any more: without us it can run on.
            tree.allow_to_run_alone()?;
        }
        let alive = tree.living();
        self.mirror.keep_only(&alive);
        self.advice.retain(|pid| alive.contains(&pid));
        let description = captured.tree.encode();
        if then == Then::Kill {
            restore::certain(&captured.tree, &description)?;
        }
        let report = Report {
            freeze_ns: nanoseconds(frozen - started),
            capture_ns: nanoseconds(frozen.elapsed()),
            description_bytes: description.len() as u64,
            processes: alive.len(),
            threads: tree
                .processes
                .iter()
                .map(|process| process.threads.len())
                .sum(),
            ..Report::default()
        };
        let objects = captured.objects.into_iter().map(|object| Object {
            space: object.space,
            file: object.file.into(),
            bytes: object.bytes,
        });
        Ok(Stopped {
            connections: captured.connections,
            objects: objects.collect(),
            open: files::written_to(&captured.tree),
            closed: self.written.not_durable(&captured.tree.written),
            newest_ns: files::newest_ns(&captured.tree),
            tree,
            description,
            report,
        })
    }

    /// Stores what has changed in the memory of a stopped program.
    fn copy_changes(&mut self, stopped: &mut Stopped) -> Result<(), PersistError> {
        let never = AtomicBool::new(false);
        let copying = Instant::now();
        let copied = self.mirror.copy_dirty(&never, Copying::Epoch)?;
        let shared = self.mirror.copy_objects(&stopped.objects)?;
        let report = &mut stopped.report;
        report.stored_bytes = (copied.stored_pages + shared.stored_pages) * PAGE_BYTES;
        report.compared_bytes = (copied.compared_pages + shared.compared_pages) * PAGE_BYTES;
        report.copy_ns = nanoseconds(copying.elapsed());
        Ok(())
    }

    /// The files that an epoch of a stopped program refers to.
    fn referred(&self, stopped: &Stopped) -> files::Referred {
        let closed = stopped.closed.iter().map(|image| image.path.clone());
        files::Referred {
            pids: stopped.tree.pids(),
            paths: stopped.open.iter().cloned().chain(closed).collect(),
            data: self.data.clone(),
        }
    }

    /// Files that were written and closed have been synced, but for some.
    fn synced(&mut self, closed: Vec<Image>, failed: &HashSet<String>) {
        let durable = closed.into_iter();
        self.written
            .are_durable(durable.filter(|image| !failed.contains(&image.path)));
    }

    /// Makes what was stored the newest epoch.
    fn commit(
        &mut self,
        report: &mut Report,
        description: &[u8],
        cause: Cause,
    ) -> Result<(), PersistError> {
        let committing = Instant::now();
        let last_space = self.mirror.last_space();
        report.epoch = self.mirror.store.commit(description, cause, last_space)?;
        report.commit_ns = nanoseconds(committing.elapsed());
        Ok(())
    }

    /// Restores a copy of a stopped program from what was copied to the store, and compares the two.
    fn rehearse_restore(&self, stopped: &mut Stopped) -> Result<(), PersistError> {
        let started = Instant::now();
        let tree = Tree::decode(&stopped.description)
            .map_err(|error| restore::Error::Description(error.to_string()))?;
        let snapshot = self.mirror.store.uncommitted(&stopped.description);
        rehearsal::rehearse(&stopped.tree, &tree, &snapshot)?;
        stopped.report.rehearsal_ns = nanoseconds(started.elapsed());
        Ok(())
    }

    /// Persists the program as it is now; with `rehearse`, if a copy of it can be restored and is the
    /// same.
    ///
    /// # Errors
    /// There is no new epoch; the program runs on.
    pub fn persist(
        &mut self,
        roots: Roots,
        then: Then,
        rehearse: bool,
    ) -> Result<Report, PersistError> {
        let started = Instant::now();
        let _precedence = Precedence::take();
        let _blocked = SigchldBlocked::begin();
        let mut stopped = self.stop(roots, then)?;
        let referred = self.referred(&stopped);
        let files = std::thread::spawn(move || files::sync(&referred));
        let round = self.mirror.scan(match then {
            Then::Kill => Program::Ends,
            Then::Continue | Then::Stop => Program::Stands,
        });
        stopped.report.scanned_in(round.scan);
        self.copy_changes(&mut stopped)?;
        if rehearse {
            self.rehearse_restore(&mut stopped)?;
        }
        let waiting = Instant::now();
        // A file that cannot be synced is no reason to lose the memory, too: it is logged.
        if let Ok(failed) = files.join() {
            self.synced(std::mem::take(&mut stopped.closed), &failed);
        }
        let report = &mut stopped.report;
        report.files_ns = nanoseconds(waiting.elapsed());
        self.commit(report, &stopped.description, Cause::Persist)?;
        capture::pass(stopped.newest_ns);
        report.total_ns = nanoseconds(started.elapsed());
        report.pause_ns = report.total_ns;
        match then {
            Then::Continue => stopped.tree.thaw(),
            Then::Kill => {
                self.connections = stopped.connections;
                stopped.tree.kill();
            }
            Then::Stop => {
                for process in &stopped.tree.processes {
                    // SAFETY: no memory involved.
                    unsafe { libc::kill(process.pid, libc::SIGSTOP) };
                }
                stopped.tree.thaw();
            }
        }
        Ok(stopped.report)
    }

    /// Commits an epoch and lets the program continue, unless copying would stop it for longer than
    /// `pause`.
    ///
    /// # Errors
    /// There is no new epoch; the program runs on.
    pub fn background(
        &mut self,
        roots: Roots,
        pause: Duration,
    ) -> Result<Background, PersistError> {
        if self.maps_files {
            files::sync_mapped(&self.mirror.processes());
        }
        let started = Instant::now();
        let (precedence, blocked) = (Precedence::take(), SigchldBlocked::begin());
        let mut stopped = self.stop(roots, Then::Continue)?;
        let round = self.mirror.scan(Program::Stands);
        stopped.report.scanned_in(round.scan);
        if self.mirror.copy_time() > pause {
            stopped.tree.thaw();
            return Ok(Background::TooMuch(self.mirror.dirty_bytes()));
        }
        self.copy_changes(&mut stopped)?;
        let referred = self.referred(&stopped);
        capture::pass(stopped.newest_ns);
        let closed = std::mem::take(&mut stopped.closed);
        stopped.tree.thaw();
        drop((precedence, blocked));
        let mut report = stopped.report;
        report.pause_ns = nanoseconds(started.elapsed());
        let syncing = Instant::now();
        let failed = files::sync(&referred);
        self.synced(closed, &failed);
        report.files_ns = nanoseconds(syncing.elapsed());
        self.commit(&mut report, &stopped.description, Cause::Background)?;
        report.total_ns = nanoseconds(started.elapsed());
        Ok(Background::Committed(report))
    }
}

/// For tests: takes a write lease on a file that this process alone has open.
#[cfg(test)]
fn hold_lease(file: &std::fs::File) {
    use std::os::fd::AsRawFd;

    // SAFETY: no memory involved. The signal of a lease that is broken would end this process.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    // A child that another test forked meanwhile has the file, too, until it executes its program.
    let limit = Instant::now() + Duration::from_secs(60);
    // SAFETY: no memory involved.
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } != 0 {
        let error = std::io::Error::last_os_error();
        assert!(Instant::now() < limit, "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
