//! Undoes a failed restore: kills created processes, unblocks signals.

use std::time::Duration;

use crate::ptrace::{FrozenTree, Pid};

/// Kills what was created when the rest fails.
pub struct KillOnError {
    /// Our children.
    pub roots: Vec<Pid>,
    /// The whole tree, once all of it exists: then these numbers are surely ours. Before, all
    /// others die with the root: each asks for that before anything else.
    pub all: Vec<Pid>,
}

impl KillOnError {
    /// Nothing is killed.
    pub fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for KillOnError {
    fn drop(&mut self) {
        const WAIT_MAX: Duration = Duration::from_secs(2);
        for &pid in self.all.iter().chain(&self.roots) {
            // SAFETY: no memory involved.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        for &root in &self.roots {
            // SAFETY: no memory involved; the root is our child.
            unsafe { libc::waitpid(root, std::ptr::null_mut(), libc::__WALL) };
        }
        // The others are adopted, by us or by init.
        let started = std::time::Instant::now();
        for &pid in &self.all {
            while std::path::Path::new(&format!("/proc/{pid}")).exists()
                && started.elapsed() < WAIT_MAX
            {
                // SAFETY: no memory involved.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}

/// A stopped tree that must not run: a [`FrozenTree`] that is dropped runs on, this one is killed.
#[derive(Debug)]
pub struct KilledUnlessReleased(Option<FrozenTree>);

impl KilledUnlessReleased {
    /// Until it is released.
    pub fn new(tree: FrozenTree) -> Self {
        Self(Some(tree))
    }

    /// The tree, to do with it as wanted.
    ///
    /// # Panics
    /// Never: it is there until then.
    pub fn release(mut self) -> FrozenTree {
        self.0.take().expect("it was not released before")
    }
}

impl std::ops::Deref for KilledUnlessReleased {
    type Target = FrozenTree;

    fn deref(&self) -> &FrozenTree {
        self.0.as_ref().expect("it was not released")
    }
}

impl std::ops::DerefMut for KilledUnlessReleased {
    fn deref_mut(&mut self) -> &mut FrozenTree {
        self.0.as_mut().expect("it was not released")
    }
}

impl Drop for KilledUnlessReleased {
    fn drop(&mut self) {
        if let Some(tree) = self.0.take() {
            tree.kill();
        }
    }
}

/// All signals but SIGCHLD are blocked in this thread, and in what it creates, while this lives.
pub struct SignalsBlocked {
    old: libc::sigset_t,
}

impl SignalsBlocked {
    /// Until it is dropped.
    pub fn new() -> Self {
        // SAFETY: both sets live.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut old = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::sigdelset(&raw mut all, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
            Self { old }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set lives.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.old, std::ptr::null_mut());
        }
    }
}
