//! POSIX message queues.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::check::{Invalid, number};
use super::{FileKind, Process, Tree};

/// Longest name of a file.
const NAME_MAX: usize = 255;
/// Most messages of a queue, and most bytes of a message, that any kernel allows.
const MESSAGES_MAX: u64 = 65_536;
const MESSAGE_BYTES_MAX: u64 = 16 << 20;
const SIGNAL_MAX: i32 = 64;

/// A queue of `mq_open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PosixQueue {
    /// Without the slash before it.
    pub name: String,
    /// The name was removed.
    pub removed: bool,
    /// Permissions.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Room, messages.
    pub messages_max: u64,
    /// Longest message, bytes.
    pub message_bytes_max: u64,
    /// Priority and contents of each message, in the order in which they are received.
    pub messages: Vec<(u32, Vec<u8>)>,
    /// A process that is registered for a notification (`mq_notify`).
    pub notification: Option<Notification>,
}

/// Bytes of a `struct sigevent`.
pub const NOTIFICATION_BYTES: usize = 64;

/// A registration for a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// The process.
    pub pid: i32,
    /// By a signal, with a value; none: nothing comes (`SIGEV_NONE`).
    pub signal: Option<(i32, u64)>,
}

impl Notification {
    /// The `struct sigevent` that makes it.
    pub fn event(&self) -> [u8; NOTIFICATION_BYTES] {
        let kind = match self.signal {
            Some(_) => libc::SIGEV_SIGNAL,
            None => libc::SIGEV_NONE,
        };
        let (signal, value) = self.signal.unwrap_or_default();
        let mut bytes = [0; NOTIFICATION_BYTES];
        bytes[..8].copy_from_slice(&value.to_ne_bytes());
        bytes[8..12].copy_from_slice(&signal.to_ne_bytes());
        bytes[12..16].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }
}

/// A descriptor under which a process has the queue with this index open.
pub fn descriptor_of_queue(tree: &Tree, process: &Process, index: u32) -> Option<i32> {
    let mut descriptors = process.descriptors.iter();
    let own = descriptors.find(|descriptor| {
        let file = tree.files.get(descriptor.file as usize);
        file.is_some_and(
            |file| matches!(&file.kind, FileKind::PosixQueue { queue, .. } if *queue == index),
        )
    });
    own.map(|own| own.number)
}

/// Checks names and sizes.
pub(super) fn validate(tree: &Tree) -> Result<(), Invalid> {
    let mut names = HashSet::new();
    for (index, queue) in (0u32..).zip(&tree.posix_queues) {
        let name = queue.name.as_str();
        let bad = |why| {
            Err(Invalid::Bad {
                what: format!("the POSIX message queue {name:?}"),
                why,
            })
        };
        if name.is_empty() || name.len() > NAME_MAX || name.contains(['/', '\0']) {
            return bad("of an impossible name");
        }
        if !queue.removed && !names.insert(name) {
            return bad("there twice");
        }
        let (messages, bytes) = (queue.messages_max, queue.message_bytes_max);
        if !(1..=MESSAGES_MAX).contains(&messages) || !(1..=MESSAGE_BYTES_MAX).contains(&bytes) {
            return bad("of an impossible size");
        }
        let long = |message: &(u32, Vec<u8>)| message.1.len() as u64 > bytes;
        if queue.messages.len() as u64 > messages || queue.messages.iter().any(long) {
            return bad("fuller than it can be");
        }
        if let Some(notification) = &queue.notification {
            let (signal, _) = notification.signal.unwrap_or((1, 0));
            number("signal", signal, 1, SIGNAL_MAX)?;
            let mut processes = tree.processes.iter();
            let process = processes.find(|process| process.pid == notification.pid);
            if process.is_none_or(|process| descriptor_of_queue(tree, process, index).is_none()) {
                return bad("one of which a process that has not opened it is notified");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_no_kernel_makes_is_refused() {
        let queue = PosixQueue {
            name: "q".to_owned(),
            removed: false,
            mode: 0o600,
            owner: (0, 0),
            messages_max: 2,
            message_bytes_max: 3,
            messages: vec![(7, b"abc".to_vec()), (0, Vec::new())],
            notification: None,
        };
        let check = |queues: Vec<PosixQueue>| {
            let mut tree = Tree::empty();
            tree.posix_queues = queues;
            validate(&tree)
        };
        check(vec![queue.clone()]).expect("a good one");
        let removed = PosixQueue {
            removed: true,
            ..queue.clone()
        };
        check(vec![removed, queue.clone()]).expect("a name is free again when it is removed");
        check(vec![queue.clone(), queue.clone()]).expect_err("one name, two queues");
        for name in ["", "a/b", "a\0"] {
            let name = name.to_owned();
            let named = PosixQueue {
                name,
                ..queue.clone()
            };
            check(vec![named]).expect_err("its name");
        }
        let messages = vec![(0, vec![0; 4])];
        let too_long = PosixQueue {
            messages,
            ..queue.clone()
        };
        check(vec![too_long]).expect_err("its message");
        let notification = Some(Notification {
            pid: 1,
            signal: None,
        });
        let without_process = PosixQueue {
            notification,
            ..queue.clone()
        };
        check(vec![without_process]).expect_err("its notification");
        let messages_max = 1;
        let too_full = PosixQueue {
            messages_max,
            ..queue
        };
        check(vec![too_full]).expect_err("its number of messages");
    }
}
