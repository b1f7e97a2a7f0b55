//! System V shared memory, semaphores and message queues.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::check::{Invalid, number, path, unique};
use super::{Backing, ObjectKind, Process, Tree};
use crate::sem_undo::VALUE_MAX;
use crate::store::PAGE_BYTES;

/// Of the mode of a segment: it is not swapped out (`SHM_LOCK`).
pub const SHM_LOCKED: u32 = 0o2000;

const SEMAPHORES_MAX: usize = 1 << 16;

/// What all System V objects have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipc {
    /// Its number.
    pub id: i32,
    /// By which programs find it; 0: `IPC_PRIVATE`.
    pub key: i32,
    /// Permissions; of a segment also [`SHM_LOCKED`].
    pub mode: u32,
    /// Owner: user, group.
    pub owner: (u32, u32),
    /// User and group of its creator.
    pub creator: (u32, u32),
}

/// A set of semaphores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreSet {
    /// Which.
    pub ipc: Ipc,
    /// The value of each.
    pub values: Vec<u16>,
    /// Whether any process has operated on it.
    pub used: bool,
}

/// What the kernel adds to a semaphore when a process ends (`SEM_UNDO`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjustment {
    /// Number of the set.
    pub set: i32,
    /// Which of the set.
    pub semaphore: u16,
    /// How much; not zero.
    pub by: i32,
}

/// A message queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueue {
    /// Which.
    pub ipc: Ipc,
    /// Room, bytes.
    pub capacity: u64,
    /// Type and text of each message, the oldest first.
    pub messages: Vec<(i64, Vec<u8>)>,
    /// Whether any process has sent or received.
    pub used: bool,
}

/// A segment of shared memory where a process has attached it, and what is left of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The segment: an object of the tree.
    pub object: u32,
    /// Where it was attached.
    pub start: u64,
    /// Address after its last page.
    pub end: u64,
    /// For writing, too.
    pub writable: bool,
    /// Mappings that are left: index of each among those of the process.
    pub pieces: Vec<usize>,
}

/// The segments that a process has attached, by their first piece.
pub fn attachments(tree: &Tree, process: &Process) -> Vec<Attachment> {
    let mut found: Vec<Attachment> = Vec::new();
    for (at, mapping) in process.mappings.iter().enumerate() {
        let Backing::SystemV { object, writable } = mapping.backing else {
            continue;
        };
        let start = mapping.start.wrapping_sub(mapping.offset);
        let bytes = tree.objects[object as usize].bytes;
        let same = |known: &&mut Attachment| {
            (known.object, known.start, known.writable) == (object, start, writable)
        };
        match found.iter_mut().find(same) {
            Some(known) => known.pieces.push(at),
            None => found.push(Attachment {
                object,
                start,
                end: start.saturating_add(bytes.next_multiple_of(PAGE_BYTES)),
                writable,
                pieces: vec![at],
            }),
        }
    }
    found
}

/// Checks numbers, sizes and paths.
pub(super) fn validate(tree: &Tree) -> Result<(), Invalid> {
    let segments = tree.objects.iter().filter_map(|object| match &object.kind {
        ObjectKind::SystemV { ipc, .. } => Some(ipc),
        _ => None,
    });
    let sets = tree.semaphores.iter().map(|set| &set.ipc);
    let queues = tree.queues.iter().map(|queue| &queue.ipc);
    let kinds: [(&'static str, Vec<&Ipc>); 3] = [
        ("System V segment", segments.collect()),
        ("System V semaphore set", sets.collect()),
        ("System V message queue", queues.collect()),
    ];
    for (what, all) in kinds {
        let mut ids = HashSet::new();
        for ipc in all {
            number(what, ipc.id, 0, i32::MAX)?;
            unique(&mut ids, what, ipc.id)?;
        }
    }
    for object in &tree.objects {
        if let ObjectKind::Posix { path: name, .. } = &object.kind {
            path(name, "path of shared memory")?;
        }
    }
    for set in &tree.semaphores {
        if set.values.is_empty() || set.values.len() > SEMAPHORES_MAX {
            return Err(Invalid::Bad {
                what: format!("System V semaphore set {}", set.ipc.id),
                why: "of an impossible size",
            });
        }
    }
    for adjustment in tree.processes.iter().flat_map(|p| &p.adjustments) {
        let mut sets = tree.semaphores.iter();
        let set = sets.find(|set| set.ipc.id == adjustment.set);
        number("adjustment", adjustment.by, -VALUE_MAX - 1, VALUE_MAX)?;
        if set.is_none_or(|set| usize::from(adjustment.semaphore) >= set.values.len()) {
            return Err(Invalid::Bad {
                what: format!(
                    "an adjustment of the System V semaphore set {}",
                    adjustment.set
                ),
                why: "of no semaphore",
            });
        }
    }
    for queue in &tree.queues {
        let long = |text: &Vec<u8>| text.len() > 1 << 30;
        if queue.messages.iter().any(|(_, text)| long(text)) {
            return Err(Invalid::Bad {
                what: format!("a message of the System V queue {}", queue.ipc.id),
                why: "too long",
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Mapping, Object};
    use crate::store::SpaceId;

    fn piece(start: u64, end: u64, offset: u64) -> Mapping {
        Mapping {
            start,
            end,
            protection: 3,
            shared: true,
            offset,
            backing: Backing::SystemV {
                object: 0,
                writable: true,
            },
            advice: 0,
            huge_page_bytes: 0,
            name: None,
        }
    }

    #[test]
    fn pieces_of_a_segment_that_was_attached_once_belong_together() {
        let ipc = Ipc {
            id: 3,
            key: 0,
            mode: 0o600,
            owner: (0, 0),
            creator: (0, 0),
        };
        let mut tree = Tree::empty();
        tree.objects.push(Object {
            attributes: Vec::new(),
            space: SpaceId(1),
            bytes: 4 * 4096 - 100,
            kind: ObjectKind::SystemV {
                ipc,
                removed: false,
            },
        });
        let process = Process {
            mappings: vec![
                piece(0x1000, 0x2000, 0),
                piece(0x3000, 0x4000, 0x2000),
                piece(0x9000, 0xa000, 0),
            ],
            ..Process::empty(1, 0)
        };
        let found = attachments(&tree, &process);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].start, found[0].end), (0x1000, 0x5000));
        assert_eq!(found[0].pieces, [0, 1]);
        assert_eq!(found[1].pieces, [2]);
    }
}
