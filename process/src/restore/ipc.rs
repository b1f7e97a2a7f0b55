//! Makes System V objects and POSIX shared memory again, and takes them away if the restore fails.
//!
//! They outlive a program that was killed on a machine that goes on. What its former life has left
//! behind is replaced; what another program uses is never touched.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use super::Error;
use super::shared_files::MadeFiles;
use crate::capture::{
    Attached, Existing, existing_queue, existing_segment, existing_semaphores, open_segment,
};
use crate::procfs;
use crate::state::{Ipc, MessageQueue, SHM_LOCKED, SemaphoreSet, Tree};

/// How often another program may take the number first.
const TRIES: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Segment,
    Semaphores,
    Queue,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Segment => "System V segment",
            Self::Semaphores => "System V semaphore set",
            Self::Queue => "System V message queue",
        }
    }

    /// Where the kernel takes the number of the next one. A container sees that read-only; a view of
    /// /proc of the tracker's own is writable.
    ///
    /// # Errors
    /// Neither can be written to.
    pub(super) fn next_id(self) -> Result<fs::File, Error> {
        let path = self.next_id_path();
        let mut options = fs::OpenOptions::new();
        let opened = options.write(true).open(path).or_else(|error| {
            let own = own_proc().map_err(|_| error)?;
            let below = path.trim_start_matches("/proc/");
            let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
            let file = rustix::fs::openat(own, below, flags, rustix::fs::Mode::empty())?;
            Ok(file.into())
        });
        opened.map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })
    }

    pub(super) fn next_id_path(self) -> &'static str {
        match self {
            Self::Segment => "/proc/sys/kernel/shm_next_id",
            Self::Semaphores => "/proc/sys/kernel/sem_next_id",
            Self::Queue => "/proc/sys/kernel/msg_next_id",
        }
    }

    /// The option of `ipcrm`.
    fn option(self) -> char {
        match self {
            Self::Segment => 'm',
            Self::Semaphores => 's',
            Self::Queue => 'q',
        }
    }

    fn remove(self, id: i32) {
        // SAFETY: no memory involved.
        unsafe {
            match self {
                Self::Segment => libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()),
                Self::Semaphores => libc::semctl(id, 0, libc::IPC_RMID),
                Self::Queue => libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()),
            };
        }
    }
}

/// A view of /proc that is mounted nowhere.
fn own_proc() -> io::Result<OwnedFd> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
    };
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// What was made. Unless it is kept, all of it is removed again.
#[derive(Debug, Default)]
pub struct Made {
    objects: Vec<(Kind, i32)>,
    /// POSIX message queues that have a name.
    pub(super) posix_queues: Vec<CString>,
    /// Files of /dev/shm.
    pub(super) files: MadeFiles,
    attached: Vec<Attached>,
    /// Segments that go with their last attachment.
    removed: Vec<i32>,
    kept: bool,
}

impl Made {
    /// An empty segment as a file. It stays attached here, so that it stays.
    ///
    /// # Errors
    /// Its number or key is taken; the kernel refuses.
    pub fn segment(&mut self, ipc: &Ipc, bytes: u64, removed: bool) -> Result<OwnedFd, Error> {
        let existing = existing_segment(ipc.id).map_err(failed(Kind::Segment, ipc))?;
        clear(Kind::Segment, ipc, bytes, true, existing)?;
        self.numbered(Kind::Segment, ipc, |flags| {
            // SAFETY: no memory involved.
            unsafe { libc::shmget(ipc.key, bytes as usize, flags) }
        })?;
        // SAFETY: the structure lives; only what is set here is taken from it.
        let set = unsafe {
            let mut stat: libc::shmid_ds = std::mem::zeroed();
            own(&mut stat.shm_perm, ipc);
            libc::shmctl(ipc.id, libc::IPC_SET, &raw mut stat)
        };
        result(set).map_err(failed(Kind::Segment, ipc))?;
        if ipc.mode & SHM_LOCKED != 0 {
            // SAFETY: no memory involved.
            let locked = unsafe { libc::shmctl(ipc.id, libc::SHM_LOCK, std::ptr::null_mut()) };
            result(locked).map_err(failed(Kind::Segment, ipc))?;
        }
        let attached = open_segment(ipc.id, 0).map_err(failed(Kind::Segment, ipc))?;
        let file = attached.file().map_err(failed(Kind::Segment, ipc))?;
        self.attached.push(attached);
        if removed {
            self.removed.push(ipc.id);
        }
        Ok(file.into())
    }

    /// Semaphores and message queues.
    ///
    /// # Errors
    /// As of [`Self::segment`].
    pub fn others(&mut self, tree: &Tree) -> Result<(), Error> {
        for set in &tree.semaphores {
            self.semaphores(set)?;
        }
        for queue in &tree.queues {
            self.queue(queue)?;
        }
        Ok(())
    }

    fn semaphores(&mut self, set: &SemaphoreSet) -> Result<(), Error> {
        let (ipc, count) = (&set.ipc, set.values.len());
        let failed = || failed(Kind::Semaphores, ipc);
        let existing = existing_semaphores(ipc.id).map_err(failed())?;
        if clear(Kind::Semaphores, ipc, count as u64, set.used, existing)? {
            return Ok(());
        }
        self.numbered(Kind::Semaphores, ipc, |flags| {
            // SAFETY: no memory involved.
            unsafe { libc::semget(ipc.key, count as i32, flags) }
        })?;
        if set.used {
            // SAFETY: there is a value for each.
            result(unsafe { libc::semctl(ipc.id, 0, libc::SETALL, set.values.as_ptr()) })
                .map_err(failed())?;
        }
        // SAFETY: as for segments.
        let owned = unsafe {
            let mut stat: libc::semid_ds = std::mem::zeroed();
            own(&mut stat.sem_perm, ipc);
            libc::semctl(ipc.id, 0, libc::IPC_SET, &raw mut stat)
        };
        result(owned).map_err(failed())
    }

    fn queue(&mut self, queue: &MessageQueue) -> Result<(), Error> {
        let ipc = &queue.ipc;
        let failed = || failed(Kind::Queue, ipc);
        let existing = existing_queue(ipc.id).map_err(failed())?;
        if clear(Kind::Queue, ipc, 0, queue.used, existing)? {
            return Ok(());
        }
        self.numbered(Kind::Queue, ipc, |flags| {
            // SAFETY: no memory involved.
            unsafe { libc::msgget(ipc.key, flags) }
        })?;
        // SAFETY: as for segments.
        let owned = unsafe {
            let mut stat: libc::msqid_ds = std::mem::zeroed();
            own(&mut stat.msg_perm, ipc);
            stat.msg_qbytes = queue.capacity;
            libc::msgctl(ipc.id, libc::IPC_SET, &raw mut stat)
        };
        result(owned).map_err(failed())?;
        for (kind, text) in &queue.messages {
            let message = [&kind.to_ne_bytes(), &text[..]].concat();
            // SAFETY: a type, and as many bytes as are said.
            let sent = unsafe {
                libc::msgsnd(
                    ipc.id,
                    message.as_ptr().cast(),
                    text.len(),
                    libc::IPC_NOWAIT,
                )
            };
            result(sent).map_err(failed())?;
        }
        Ok(())
    }

    /// Makes an object that gets its number.
    fn numbered(
        &mut self,
        kind: Kind,
        ipc: &Ipc,
        make: impl Fn(i32) -> i32 + Sync,
    ) -> Result<(), Error> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | (ipc.mode & !SHM_LOCKED) as i32;
        for _ in 0..TRIES {
            let mut next_id = kind.next_id()?;
            let written = next_id.write_all(ipc.id.to_string().as_bytes());
            written.map_err(|source| Error::Open {
                path: kind.next_id_path().to_owned(),
                source,
            })?;
            let id = as_creator(ipc.creator, || make(flags)).map_err(failed(kind, ipc))?;
            if id == ipc.id {
                self.objects.push((kind, id));
                return Ok(());
            }
            // Another process has made one between the two calls.
            kind.remove(id);
        }
        Err(taken(kind, ipc))
    }

    /// All processes have attached their segments: those that go with the last attachment may.
    pub fn all_attached(&mut self) {
        for id in self.removed.drain(..) {
            Kind::Segment.remove(id);
        }
        self.attached.clear();
    }

    /// The program has them: they stay.
    pub fn keep(mut self) {
        self.files.take_places();
        self.kept = true;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for (kind, id) in self.objects.drain(..) {
            kind.remove(id);
        }
        for name in self.posix_queues.drain(..) {
            // SAFETY: the name lives.
            unsafe { libc::mq_unlink(name.as_ptr()) };
        }
    }
}

/// Removes what the program's former life has left behind. True: what is there is as it should be.
fn clear(
    kind: Kind,
    ipc: &Ipc,
    size: u64,
    used: bool,
    existing: Option<Existing>,
) -> Result<bool, Error> {
    let Some(existing) = existing else {
        return Ok(false);
    };
    // A segment loses its key when it is removed.
    let same_key = existing.ipc.key == ipc.key || existing.ipc.key == 0;
    let same = same_key && existing.ipc.creator == ipc.creator && existing.size == size;
    let untouched = existing.touched_by.iter().all(|pid| *pid == 0);
    let in_use = existing.attached || existing.touched_by.iter().any(|pid| lives(*pid));
    match (same, used) {
        (true, false) if untouched || in_use => Ok(true),
        (true, _) if !in_use => {
            kind.remove(ipc.id);
            Ok(false)
        }
        _ => Err(taken(kind, ipc)),
    }
}

/// Whether a process lives that is not us.
fn lives(pid: i32) -> bool {
    pid > 0
        && pid != std::process::id() as i32
        && procfs::stat(pid, pid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Makes something as the user and group that has made it. Only the calling thread is that user.
fn as_creator(creator: (u32, u32), make: impl Fn() -> i32 + Sync) -> io::Result<i32> {
    // SAFETY: no memory involved.
    let own = unsafe { (libc::geteuid(), libc::getegid()) };
    if own == creator {
        return number(make());
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // The calls of the C library would change all threads.
            // SAFETY: no memory involved.
            unsafe {
                let keep = u64::from(u32::MAX);
                let (user, group) = (u64::from(creator.0), u64::from(creator.1));
                result(libc::syscall(libc::SYS_setresgid, keep, group, keep) as i32)?;
                result(libc::syscall(libc::SYS_setresuid, keep, user, keep) as i32)?;
            }
            number(make())
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn own(permissions: &mut libc::ipc_perm, ipc: &Ipc) {
    (permissions.uid, permissions.gid) = ipc.owner;
    permissions.mode = (ipc.mode & !SHM_LOCKED) as _;
}

fn number(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn result(result: i32) -> io::Result<()> {
    number(result).map(|_| ())
}

fn failed(kind: Kind, ipc: &Ipc) -> impl FnOnce(io::Error) -> Error {
    let action = format!("make the {} {} (key {:#x})", kind.name(), ipc.id, ipc.key);
    move |source| Error::System { action, source }
}

fn taken(kind: Kind, ipc: &Ipc) -> Error {
    Error::Ipc(format!(
        "the {} {} (key {:#x}) is another program's; `ipcs -{}` shows it",
        kind.name(),
        ipc.id,
        ipc.key,
        kind.option()
    ))
}

#[cfg(test)]
#[path = "ipc_tests.rs"]
mod tests;
