//! Descriptors that were sent through a unix socket and not received yet (`SCM_RIGHTS`).
//!
//! To peek at a message duplicates them into the tracker, where they are described as those of a
//! process are. They stay there until the tree is described, to be compared with others.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};

use super::{Builder, Error};
use crate::ptrace::Pid;
use crate::state::{FileKind, SocketState, sender_of};

/// Descriptors in the queues of sockets.
#[derive(Default)]
pub(super) struct UnderWay {
    /// Not described yet.
    met: VecDeque<Batch>,
    /// Described.
    held: Vec<OwnedFd>,
}

/// The descriptors of a message.
struct Batch {
    /// The process that has the socket.
    pid: Pid,
    socket: u32,
    message: u32,
    descriptors: Vec<OwnedFd>,
}

impl UnderWay {
    /// Descriptors in a message in the queue of a socket.
    pub(super) fn add(&mut self, pid: Pid, socket: u32, message: u32, descriptors: Vec<OwnedFd>) {
        self.met.push_back(Batch {
            pid,
            socket,
            message,
            descriptors,
        });
    }
}

impl Builder<'_> {
    /// Describes what is under way, now that all processes are known. A socket may itself be under
    /// way, with more in its queue.
    pub(super) fn files_under_way(&mut self) -> Result<(), Error> {
        let tracker = std::process::id() as Pid;
        while let Some(batch) = self.under_way.met.pop_front() {
            self.turn_to(batch.pid);
            // What is described now is the tracker's.
            self.pid = tracker;
            let mut files = Vec::new();
            for descriptor in batch.descriptors {
                let opened = self.read_descriptor(tracker, descriptor.as_raw_fd())?;
                let found = self.description(&opened.open())?;
                self.under_way.held.push(descriptor);
                files.extend(found);
            }
            let socket = &mut self.tree.sockets[batch.socket as usize];
            socket.passed.push((batch.message, files));
        }
        Ok(())
    }

    /// What is under way only, no process can lock or open again; and it must have a sender.
    pub(super) fn finish_under_way(&mut self) {
        let processes = self.tree.processes.iter();
        let of_processes: HashSet<u32> = processes
            .flat_map(|process| &process.descriptors)
            .map(|descriptor| descriptor.file)
            .collect();
        let mut refusals = Vec::new();
        for socket in self
            .tree
            .sockets
            .iter()
            .filter(|socket| !socket.passed.is_empty())
        {
            let nameless = socket.address.is_empty();
            if !(matches!(socket.state, SocketState::Pair(_) | SocketState::Broken)
                || sender_of(&self.tree, socket).is_some()
                || socket.state == SocketState::Idle && nameless)
            {
                refusals.push("descriptors are under way in a unix socket that has an address");
            }
            for file in socket.passed.iter().flat_map(|(_, files)| files) {
                let only = !of_processes.contains(file);
                let file = &self.tree.files[*file as usize];
                let own = matches!(file.kind, FileKind::Proc(_) | FileKind::Pid(_));
                let locked =
                    file.lock.is_some() || !file.records.is_empty() || file.lease.is_some();
                let signals = file.owner.1 != 0 || file.flags & libc::O_ASYNC as u32 != 0;
                if only && (own || locked || signals) {
                    refusals.push(
                        "a descriptor that only a message in a unix socket holds is a file of \
                         /proc, a pidfd, has a lock, or sends signals",
                    );
                }
            }
        }
        if let Some(process) = self.tree.processes.first() {
            self.turn_to(process.pid);
        }
        for what in refusals {
            self.refuse(what);
        }
    }
}
