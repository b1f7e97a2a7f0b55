//! Stops threads, reads and writes their registers, and executes remote system calls in them.
//!
//! ```text
//!   running ──seize, interrupt──► stopped ──begin──► injecting ──end──► stopped ──detach──► running
//!                                 registers,         remote system calls,
//!                                 xsave, queues      one by one or as a batch
//! ```
//!
//! A program is traced only while it is frozen. Between freezes signals and clones cost nothing, a
//! debugger can attach, and the program continues if the tracker dies. The kernel binds ptrace to
//! the *thread* that seized, so a [`FrozenTree`] stays in that thread.

mod batch;
mod deadlines;
mod freeze;
mod frozen;
mod inject;
mod late;
pub mod sys;
pub mod waits;

pub use batch::{ANSWER_BYTES_MAX, Answer, Answers, Argument, Batch, CallId};
pub use freeze::FrozenTree;
pub(crate) use freeze::{Resource, shares_descriptors, shares_directories, shares_memory, sharing};
pub use frozen::{FrozenProcess, FrozenThread};
pub use late::release_late;

/// A process or thread number in the tracker's PID namespace.
pub type Pid = i32;

/// Why a program cannot be stopped or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a request.
    #[error("cannot {action} thread {tid}: {source}")]
    Request {
        /// What was tried.
        action: &'static str,
        /// On which thread.
        tid: Pid,
        /// Why not.
        source: std::io::Error,
    },
    /// Another tracer is there: a debugger, or a process of the tree itself.
    #[error(
        "process {pid} cannot be stopped: it is traced by process {tracer} ({name}); detach other \
         tracers (debugger, strace)"
    )]
    Traced {
        /// Which process.
        pid: Pid,
        /// By which.
        tracer: Pid,
        /// Its name.
        name: String,
    },
    /// We may not.
    #[error("process {pid} cannot be stopped: {reason}; run with CAP_SYS_PTRACE")]
    NotAllowed {
        /// Which process.
        pid: Pid,
        /// The kernel's words.
        reason: String,
    },
    /// A thread did not stop in time.
    #[error(
        "thread {tid} ({name}) did not stop within {waited_ms} ms: it is in an uninterruptible \
         wait (state {state}), most often for a device, a network file system, or a child of vfork \
         that neither executes a program nor ends"
    )]
    DoesNotStop {
        /// Which thread.
        tid: Pid,
        /// Its name.
        name: String,
        /// Its state in /proc.
        state: char,
        /// How long we waited.
        waited_ms: u64,
    },
    /// A thread ended while we worked with it (SIGKILL does that, stopped or not).
    #[error("thread {tid} ended while it was stopped (killed from outside?)")]
    Gone {
        /// Which thread.
        tid: Pid,
    },
    /// Not a 64-bit process.
    #[error("process {pid} runs 32-bit code: not supported")]
    Not64Bit {
        /// Which process.
        pid: Pid,
    },
    /// No `syscall` instruction to run system calls with.
    #[error("process {pid} has no syscall instruction in its executable memory, not even a vdso")]
    NoSyscallInstruction {
        /// Which process.
        pid: Pid,
    },
    /// Memory that calls need could not be used.
    #[error("process {pid}: memory for its answers cannot be used: {source}")]
    Memory {
        /// Which process.
        pid: Pid,
        /// Why not.
        source: std::io::Error,
    },
    /// /proc could not be read.
    #[error("cannot read /proc/{pid}/{file}: {source}")]
    Proc {
        /// Which process.
        pid: Pid,
        /// Which file.
        file: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}
