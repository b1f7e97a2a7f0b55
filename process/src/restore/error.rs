//! Why a tree cannot be restored.

use std::io;

use crate::ptrace::{self, Pid};
use crate::store::DamagedPage;

/// Why a tree cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Numbers are taken.
    #[error(
        "PID {pid} is taken by {name}: end it, or restore right after the boot, before other \
         services take numbers"
    )]
    PidTaken {
        /// The number.
        pid: Pid,
        /// Name of the process that has it.
        name: String,
    },
    /// A file is missing or closed to us.
    #[error("cannot open {path}: {source}; the program had it open or mapped")]
    Open {
        /// Its path.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A file has changed.
    #[error("{path} has changed since the program was persisted ({how})")]
    Changed {
        /// Its path.
        path: String,
        /// In what.
        how: String,
    },
    /// An address is taken.
    #[error("cannot listen on {address} again: {source}; `ss -lnp` shows which process has it")]
    Address {
        /// The address.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The kernel is not like the one that the program ran on.
    #[error("this kernel cannot run the persisted program: {0}")]
    Kernel(String),
    /// The caller lacks a right.
    #[error(
        "restoring needs {0}: run as root, or with that capability (in a container: \
         `--cap-add {0}`)"
    )]
    Right(&'static str),
    /// The hard limit of open files is too low for the program's.
    #[error(
        "restoring needs {needed} open files, and the hard limit is {hard} ({source}): raise it \
         (`ulimit -Hn {needed}`; in a container `--ulimit nofile={needed}:{needed}`), or add \
         CAP_SYS_RESOURCE"
    )]
    FileLimit {
        /// Descriptors that are needed at the same time.
        needed: u64,
        /// The limit.
        hard: u64,
        /// The kernel's answer to raising it.
        source: io::Error,
    },
    /// A recreated process could not do something.
    #[error("process {task}: cannot {action} ({thing}): {source}")]
    Operation {
        /// Which process or thread.
        task: Pid,
        /// What it tried.
        action: &'static str,
        /// With what: an address, a descriptor, a number.
        thing: String,
        /// Why not.
        source: io::Error,
    },
    /// A recreated process stopped responding.
    #[error("the recreated processes do not respond (phase: {0})")]
    Silent(&'static str),
    /// A system call of ours failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// Why not.
        source: io::Error,
    },
    /// The description asks for what cannot be.
    #[error("the description cannot be followed: {0}")]
    Description(String),
    /// A process group or session cannot be made again.
    #[error("{0}")]
    Group(String),
    /// A System V object is in the way.
    #[error("{0}")]
    Ipc(String),
    /// A page is damaged.
    #[error(transparent)]
    Damaged(#[from] DamagedPage),
    /// The tree cannot be taken over.
    #[error(transparent)]
    Ptrace(#[from] ptrace::Error),
}

/// For `map_err` of a system call of the tracker itself.
pub(super) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System {
        action: action.to_owned(),
        source,
    }
}
