//! System V semaphores, message queues and shared memory: found by the kernel's tables, read without
//! a change to them. Attached shared memory is found among the mappings.

mod read;
mod tables;
mod undo;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use super::objects::LINK_FAILED;
use super::{Builder, Error, SharedObject};
use crate::procfs::MapsLine;
use crate::ptrace::{FrozenTree, Pid};
use crate::state::{Backing, MessageQueue, Object, ObjectKind, SemaphoreSet};
pub(crate) use read::{
    Attached, Existing, existing_queue, existing_segment, existing_semaphores, open_segment,
};
use tables::{Member, Users, table};

/// Marks the numbers of segments among inode numbers.
const SEGMENT_DEVICE: u64 = 1 << 63;

/// Whether an object that was listed is no more: others remove theirs at any time.
fn is_gone(now: io::Result<Option<Existing>>) -> bool {
    matches!(now, Ok(None))
}

impl Builder<'_> {
    /// Describes what processes of the tree have used.
    pub(super) fn system_v(&mut self, tree: &[Pid], frozen: &mut FrozenTree) -> Result<(), Error> {
        let mut members = vec![Member::new(
            std::process::id() as Pid,
            tables::started(std::process::id() as Pid),
        )];
        members.extend(tree.iter().map(|pid| {
            let known = self.seen.get(pid).map(|seen| seen.started);
            Member::new(*pid, known.or_else(|| tables::started(*pid)))
        }));
        let threads = self.tree.processes.iter().flat_map(|p| &p.threads);
        let mut user_ids: Vec<u32> = threads.map(|thread| thread.credentials.users[1]).collect();
        user_ids.sort_unstable();
        user_ids.dedup();
        let users = Users {
            members: &members,
            users: &user_ids,
        };
        self.turn_to(tree.first().copied().unwrap_or(0));
        let sets = table("sem");
        let own = tables::semaphores(&users, &sets, read::last_touchers);
        for id in own {
            self.semaphores(id)?;
        }
        for id in tables::queues(&users, &table("msg")) {
            self.queue(id)?;
        }
        for id in tables::segments(&users, &table("shm")) {
            self.unattached(id)?;
        }
        self.adjustments(frozen, &sets)?;
        Ok(())
    }

    fn semaphores(&mut self, id: i32) -> Result<(), Error> {
        let failed = self.failed(format!("read the System V semaphore set {id}"));
        let found = read::semaphores(id);
        if found.is_err() && is_gone(read::existing_semaphores(id)) {
            return Ok(());
        }
        let (ipc, values) = found.map_err(failed)?;
        let used = read::last_touchers(id, values.len())
            .iter()
            .any(|pid| *pid != 0);
        self.tree
            .semaphores
            .push(SemaphoreSet { ipc, values, used });
        Ok(())
    }

    fn queue(&mut self, id: i32) -> Result<(), Error> {
        let failed = self.failed(format!(
            "read the System V message queue {id} (CONFIG_CHECKPOINT_RESTORE is needed)"
        ));
        let found = read::queue(id);
        if found.is_err() && is_gone(read::existing_queue(id)) {
            return Ok(());
        }
        let queue: MessageQueue = found.map_err(failed)?;
        self.tree.queues.push(queue);
        Ok(())
    }

    /// A mapping of an attached segment.
    pub(super) fn segment(
        &mut self,
        map: &MapsLine,
        range: &str,
        huge: bool,
    ) -> Result<Option<Backing>, Error> {
        if huge || !map.shared {
            self.refuse(format!("{range} is System V shared memory of huge pages"));
            return Ok(None);
        }
        let link = format!("/proc/{}/map_files/{:x}-{:x}", self.pid, map.start, map.end);
        let writable = super::objects::link_is_writable(&link);
        let file = File::open(&link).map_err(self.failed(LINK_FAILED))?;
        let object = self.enter_segment(map.inode as i32, file)?;
        Ok(Some(Backing::SystemV { object, writable }))
    }

    /// A segment that no process has attached: the tracker does, for a moment.
    fn unattached(&mut self, id: i32) -> Result<(), Error> {
        let failed = self.failed(format!("attach the System V segment {id}"));
        let file = open_segment(id, libc::SHM_RDONLY).and_then(|attached| attached.file());
        let entered = file
            .map_err(failed)
            .and_then(|file| self.enter_segment(id, file));
        if entered.is_err() && is_gone(read::existing_segment(id)) {
            return Ok(());
        }
        entered.map(drop)
    }

    fn enter_segment(&mut self, id: i32, file: File) -> Result<u32, Error> {
        let key = (SEGMENT_DEVICE, id as u64);
        if let Some(&index) = self.object_index.get(&key) {
            return Ok(index);
        }
        let failed = self.failed(format!("read the System V segment {id}"));
        let found = read::segment(id).map_err(failed)?;
        let space = (self.options.object_space)(key.0, key.1);
        let index = self.tree.objects.len() as u32;
        self.tree.objects.push(Object {
            attributes: Vec::new(),
            space,
            bytes: found.bytes,
            kind: ObjectKind::SystemV {
                ipc: found.ipc,
                removed: found.removed,
            },
        });
        self.objects.push(SharedObject {
            space,
            file: OwnedFd::from(file),
            bytes: found.bytes,
        });
        self.object_index.insert(key, index);
        Ok(index)
    }
}
