//! What epoll instances wait for. An item is a descriptor's number and the open file description that
//! the number led to when it was added; the number may have been closed or used again since.

use std::collections::HashMap;
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;

use super::Builder;
use crate::ptrace::Pid;
use crate::state::{EpollItem, FileKind};

const KCMP_EPOLL_TFD: libc::c_long = 7;

/// `struct kcmp_epoll_slot`: the item of an epoll instance, the `offset`-th of its number.
#[repr(C)]
struct Slot {
    epoll: u32,
    descriptor: u32,
    offset: u32,
}

/// A descriptor of the tree.
#[derive(Clone, Copy)]
struct Held {
    pid: Pid,
    number: RawFd,
    file: u32,
}

impl Builder<'_> {
    /// Finds the file of each item, now that all are known.
    pub(super) fn finish_epolls(&mut self) {
        let epolls = std::mem::take(&mut self.epolls);
        if epolls.is_empty() {
            return;
        }
        let processes = self.tree.processes.iter();
        let held: Vec<Held> = processes
            .flat_map(|process| {
                process.descriptors.iter().map(|descriptor| Held {
                    pid: process.pid,
                    number: descriptor.number,
                    file: descriptor.file,
                })
            })
            .collect();
        for (index, pid, number, inodes) in epolls {
            let FileKind::Epoll(items) = &self.tree.files[index as usize].kind else {
                continue;
            };
            let mut items = items.clone();
            let mut met: HashMap<i32, u32> = HashMap::new();
            let mut stray = None;
            for at in 0..items.len() {
                let offset = met.entry(items[at].descriptor).or_insert(0);
                let place = (pid, number, *offset);
                *offset += 1;
                let alone = items
                    .iter()
                    .filter(|i| i.descriptor == items[at].descriptor);
                let alone = *offset == 1 && alone.take(2).count() == 1;
                match file_of(&held, place, &items[at], inodes[at], alone) {
                    Some(file) => items[at].file = file,
                    None => stray = Some(items[at].descriptor),
                }
            }
            if let Some(descriptor) = stray {
                self.turn_to(pid);
                self.refuse(format!(
                    "fd {number} is an epoll instance that waits for what was fd {descriptor}, and \
                     which no process of the tree has open"
                ));
            }
            self.tree.files[index as usize].kind = FileKind::Epoll(items);
        }
    }
}

/// The file of an item: mostly the one to which its number leads. To compare is slow where an
/// instance has many items, so it is done only where several could be meant.
fn file_of(
    held: &[Held],
    (pid, epoll, offset): (Pid, RawFd, u32),
    item: &EpollItem,
    inode: u64,
    alone: bool,
) -> Option<u32> {
    let mut likely = held.iter().filter(|one| one.number == item.descriptor);
    let own = likely
        .clone()
        .find(|one| one.pid == pid)
        .or_else(|| likely.next());
    if let Some(one) = own
        && alone
        && let Ok(metadata) = fs::metadata(format!("/proc/{}/fd/{}", one.pid, one.number))
        && metadata.ino() == inode
        // All eventfds and the like have one inode.
        && (metadata.mode() & libc::S_IFMT != 0 || is_item(one, (pid, epoll, offset), item))
    {
        return Some(one.file);
    }
    let mut compared = Vec::new();
    for one in held {
        if compared.contains(&one.file) {
            continue;
        }
        compared.push(one.file);
        if is_item(one, (pid, epoll, offset), item) {
            return Some(one.file);
        }
    }
    None
}

/// Whether a descriptor leads to what an item waits for.
fn is_item(one: &Held, (pid, epoll, offset): (Pid, RawFd, u32), item: &EpollItem) -> bool {
    let slot = Slot {
        epoll: epoll as u32,
        descriptor: item.descriptor as u32,
        offset,
    };
    // SAFETY: the slot lives.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            libc::c_long::from(one.pid),
            libc::c_long::from(pid),
            KCMP_EPOLL_TFD,
            libc::c_long::from(one.number),
            &raw const slot,
        )
    };
    order == 0
}
