//! Reads System V objects by their numbers.

use std::fs::{File, OpenOptions};
use std::io;

use crate::ptrace::Pid;
use crate::state::{Ipc, MessageQueue, SHM_LOCKED};

/// Of the mode of a segment: it goes with its last attachment.
const SHM_DEST: u32 = 0o1000;
const PERMISSIONS: u32 = 0o777;
/// Copies a message instead of taking it; its "type" is its place in the queue.
const MSG_COPY: i32 = 0o40_000;
/// No message is longer (the sysctl `kernel.msgmax` is an int, and its default 8 KiB).
const MESSAGE_BYTES_MIN: usize = 8 << 10;

/// A segment of shared memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Segment {
    pub ipc: Ipc,
    pub bytes: u64,
    pub removed: bool,
    /// How many times it is attached, and by which process last.
    pub attached: (u64, Pid),
}

fn ipc(id: i32, of: &libc::ipc_perm) -> Ipc {
    Ipc {
        id,
        key: of.__key,
        mode: u32::from(of.mode) & PERMISSIONS,
        owner: (of.uid, of.gid),
        creator: (of.cuid, of.cgid),
    }
}

fn done(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub fn segment(id: i32) -> io::Result<Segment> {
    // SAFETY: a structure of numbers, which the kernel fills.
    let stat = unsafe {
        let mut stat: libc::shmid_ds = std::mem::zeroed();
        done(libc::shmctl(id, libc::IPC_STAT, &raw mut stat))?;
        stat
    };
    let mut ipc = ipc(id, &stat.shm_perm);
    ipc.mode |= u32::from(stat.shm_perm.mode) & SHM_LOCKED;
    Ok(Segment {
        ipc,
        bytes: stat.shm_segsz as u64,
        removed: u32::from(stat.shm_perm.mode) & SHM_DEST != 0,
        attached: (stat.shm_nattch, stat.shm_lpid),
    })
}

fn semaphore_stat(id: i32) -> io::Result<libc::semid_ds> {
    // SAFETY: a structure of numbers, which the kernel fills.
    unsafe {
        let mut stat: libc::semid_ds = std::mem::zeroed();
        done(libc::semctl(id, 0, libc::IPC_STAT, &raw mut stat))?;
        Ok(stat)
    }
}

/// A set and its values.
pub fn semaphores(id: i32) -> io::Result<(Ipc, Vec<u16>)> {
    let stat = semaphore_stat(id)?;
    let mut values = vec![0u16; stat.sem_nsems as usize];
    // SAFETY: there is room for the value of each; the size of a set never changes.
    done(unsafe { libc::semctl(id, 0, libc::GETALL, values.as_mut_ptr()) })?;
    Ok((ipc(id, &stat.sem_perm), values))
}

/// For each semaphore of a set, the process that operated on it last; 0: none.
pub fn last_touchers(id: i32, count: usize) -> Vec<Pid> {
    (0..count)
        // SAFETY: no memory involved.
        .map(|semaphore| unsafe { libc::semctl(id, semaphore as i32, libc::GETPID) }.max(0))
        .collect()
}

fn queue_stat(id: i32) -> io::Result<libc::msqid_ds> {
    // SAFETY: a structure of numbers, which the kernel fills.
    unsafe {
        let mut stat: libc::msqid_ds = std::mem::zeroed();
        done(libc::msgctl(id, libc::IPC_STAT, &raw mut stat))?;
        Ok(stat)
    }
}

/// A queue with copies of its messages.
pub fn queue(id: i32) -> io::Result<MessageQueue> {
    let stat = queue_stat(id)?;
    let room = (stat.msg_qbytes as usize)
        .max(stat.__msg_cbytes as usize)
        .max(MESSAGE_BYTES_MIN);
    let mut buffer = vec![0u64; room.div_ceil(8) + 1];
    let mut messages = Vec::new();
    for at in 0..stat.msg_qnum {
        // SAFETY: the buffer has room for the type and `room` bytes.
        let got = unsafe {
            let flags = MSG_COPY | libc::IPC_NOWAIT;
            libc::msgrcv(
                id,
                buffer.as_mut_ptr().cast(),
                room,
                at as libc::c_long,
                flags,
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = buffer[0] as i64;
        let bytes = buffer[1..].iter().flat_map(|word| word.to_ne_bytes());
        messages.push((kind, bytes.take(got as usize).collect()));
    }
    Ok(MessageQueue {
        ipc: ipc(id, &stat.msg_perm),
        capacity: stat.msg_qbytes,
        messages,
        used: stat.msg_lspid != 0 || stat.msg_lrpid != 0,
    })
}

/// A segment that this process has attached; detached when dropped.
#[derive(Debug)]
pub struct Attached {
    address: *mut libc::c_void,
    file: File,
}

// SAFETY: the address is only used to detach it.
unsafe impl Send for Attached {}

impl Attached {
    /// The segment as a file.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the address of an attachment of ours, into which nothing points.
        unsafe { libc::shmdt(self.address) };
    }
}

/// Attaches a segment, and opens it by that.
///
/// # Errors
/// It is not there; the right is missing.
pub fn open_segment(id: i32, flags: i32) -> io::Result<Attached> {
    let bytes = segment(id)?.bytes.next_multiple_of(4096);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = unsafe { libc::shmat(id, std::ptr::null(), flags) };
    if address as isize == -1 {
        return Err(io::Error::last_os_error());
    }
    let start = address as u64;
    let link = format!("/proc/self/map_files/{start:x}-{:x}", start + bytes);
    let opened = OpenOptions::new()
        .read(true)
        .write(flags & libc::SHM_RDONLY == 0)
        .open(link);
    match opened {
        Ok(file) => Ok(Attached { address, file }),
        Err(error) => {
            // SAFETY: as in `drop`.
            unsafe { libc::shmdt(address) };
            Err(error)
        }
    }
}

/// An object that exists now.
#[derive(Debug, PartialEq, Eq)]
pub struct Existing {
    pub ipc: Ipc,
    /// Bytes of a segment, number of semaphores of a set, 0 for a queue.
    pub size: u64,
    /// Processes that have touched it last.
    pub touched_by: Vec<Pid>,
    /// It is attached now.
    pub attached: bool,
}

/// None: there is no such object.
fn or_none<Found>(found: io::Result<Found>) -> io::Result<Option<Found>> {
    match found {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIDRM)) => Ok(None),
        found => found.map(Some),
    }
}

pub fn existing_segment(id: i32) -> io::Result<Option<Existing>> {
    let found = or_none(segment(id))?;
    Ok(found.map(|segment| Existing {
        ipc: segment.ipc,
        size: segment.bytes,
        touched_by: vec![segment.attached.1],
        attached: segment.attached.0 > 0,
    }))
}

pub fn existing_semaphores(id: i32) -> io::Result<Option<Existing>> {
    let Some(stat) = or_none(semaphore_stat(id))? else {
        return Ok(None);
    };
    Ok(Some(Existing {
        ipc: ipc(id, &stat.sem_perm),
        size: stat.sem_nsems,
        touched_by: last_touchers(id, stat.sem_nsems as usize),
        attached: false,
    }))
}

pub fn existing_queue(id: i32) -> io::Result<Option<Existing>> {
    let found = or_none(queue_stat(id))?;
    Ok(found.map(|stat| Existing {
        ipc: ipc(id, &stat.msg_perm),
        size: 0,
        touched_by: vec![stat.msg_lspid, stat.msg_lrpid],
        attached: false,
    }))
}

/// Bytes of the stack of a process that only waits for a signal.
const STACK_BYTES: usize = 16 << 10;

/// A process without adjustments of semaphores, to compare others with. Every thread of ours has a
/// list for them, because libraries share it among threads.
#[derive(Debug)]
pub struct Unadjusted {
    pid: Pid,
    /// In use until it has ended.
    _stack: Vec<u128>,
}

impl Unadjusted {
    pub fn new() -> io::Result<Self> {
        let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
        // It shares our memory and descriptors: copying page tables took 3 % of a small capture. So it must
        // not run a handler of ours, nor return from its call.
        let shared = libc::CLONE_VM | libc::CLONE_FILES;
        let parent = std::process::id() as usize as *mut libc::c_void;
        // SAFETY: the sets of signals are locals; the child has a stack of its own that lives as long
        // as it, blocks all signals, and makes no call that writes to memory. It sends no signal at its
        // end, of which the tracker would take note.
        let pid = unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let top = stack.as_mut_ptr_range().end;
            let pid = libc::clone(wait, top.cast(), shared, parent);
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            if pid < 0 {
                return Err(error);
            }
            pid
        };
        Ok(Self { pid, _stack: stack })
    }

    /// Whether a process may have adjustments: it has a list for them.
    pub fn differs(&self, pid: Pid) -> bool {
        differ(self.pid, pid)
    }
}

/// Whether two tasks have different lists of adjustments.
pub fn differ(one: Pid, other: Pid) -> bool {
    const KCMP_SYSVSEM: libc::c_long = 6;
    let (one, other) = (libc::c_long::from(one), libc::c_long::from(other));
    // SAFETY: no memory involved.
    one != other && unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_SYSVSEM, 0, 0) != 0 }
}

impl Drop for Unadjusted {
    fn drop(&mut self) {
        // SAFETY: our child, which is not reaped yet.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL);
        }
    }
}

/// Until it is killed: by us, or because the thread that made it has ended. Otherwise the store's lock
/// would outlive a tracker that is killed.
extern "C" fn wait(parent: *mut libc::c_void) -> i32 {
    // SAFETY: no memory involved.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        while libc::getppid() as usize == parent as usize {
            libc::syscall(libc::SYS_pause);
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_stay() {
        // SAFETY: no memory involved but the messages, which have the length that is said.
        unsafe {
            let id = libc::msgget(libc::IPC_PRIVATE, 0o600);
            assert!(id >= 0);
            for (kind, text) in [(7i64, *b"first   "), (3, *b"second  ")] {
                let message = [kind as u64, u64::from_ne_bytes(text)];
                assert_eq!(libc::msgsnd(id, message.as_ptr().cast(), 8, 0), 0);
            }
            let read = queue(id);
            let again = queue(id);
            libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut());
            let read = read.expect("readable");
            let expected = vec![(7, b"first   ".to_vec()), (3, b"second  ".to_vec())];
            assert_eq!(read.messages, expected);
            assert_eq!(again.expect("readable").messages, expected);
            assert!(read.used);
            assert_eq!(existing_queue(id).expect("asked"), None);
        }
    }

    #[test]
    fn a_process_that_used_sem_undo_is_told_from_one_that_did_not() {
        // SAFETY: no memory involved but the operation.
        unsafe {
            let id = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
            assert!(id >= 0);
            let mut ready = [0; 2];
            assert_eq!(libc::pipe(ready.as_mut_ptr()), 0);
            let with = [false, true].map(|undo| {
                let child = libc::fork();
                if child == 0 {
                    let mut operation = libc::sembuf {
                        sem_num: 0,
                        sem_op: 1,
                        sem_flg: if undo { libc::SEM_UNDO as i16 } else { 0 },
                    };
                    libc::semop(id, &raw mut operation, 1);
                    libc::write(ready[1], [0u8].as_ptr().cast(), 1);
                    loop {
                        libc::pause();
                    }
                }
                let mut byte = 0u8;
                assert_eq!(libc::read(ready[0], (&raw mut byte).cast(), 1), 1);
                let differs = Unadjusted::new().expect("made").differs(child);
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
                differs
            });
            libc::semctl(id, 0, libc::IPC_RMID);
            assert_eq!(with, [false, true]);
        }
    }

    #[test]
    fn the_process_for_comparison_goes_with_a_tracker_that_is_killed() {
        use std::time::{Duration, Instant};
        // SAFETY: the child writes what it has read, and waits for its end.
        let (tracker, compared) = unsafe {
            let mut ready = [0; 2];
            assert_eq!(libc::pipe(ready.as_mut_ptr()), 0);
            let tracker = libc::fork();
            if tracker == 0 {
                let made = Unadjusted::new().map_or(0, |made| {
                    let pid = made.pid;
                    std::mem::forget(made);
                    pid
                });
                libc::write(ready[1], (&raw const made).cast(), 4);
                loop {
                    libc::pause();
                }
            }
            let mut pid: Pid = 0;
            assert_eq!(libc::read(ready[0], (&raw mut pid).cast(), 4), 4);
            (tracker, pid)
        };
        assert!(compared > 0 && crate::procfs::stat(compared, compared).is_ok());
        // SAFETY: our child.
        unsafe {
            libc::kill(tracker, libc::SIGKILL);
            libc::waitpid(tracker, std::ptr::null_mut(), 0);
        }
        // Whoever is its parent now may never ask for its status.
        let is_there = || {
            crate::procfs::stat(compared, compared).is_ok_and(|it| !matches!(it.state, 'Z' | 'X'))
        };
        let limit = Instant::now() + Duration::from_secs(60);
        while is_there() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_there());
    }

    #[test]
    fn a_segment_is_readable_as_a_file() {
        use std::os::unix::fs::FileExt;
        use std::time::{Duration, Instant};
        // SAFETY: no memory involved.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 5000, 0o600) };
        assert!(id >= 0);
        let attached = open_segment(id, 0);
        let bytes = attached.as_ref().ok().map(|attached| {
            let file = attached.file().expect("a file");
            file.write_all_at(b"word", 4998 - 4).expect("written");
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, 4994).expect("read");
            (bytes, file.metadata().expect("known").len())
        });
        drop(attached);
        // A child that another test forked meanwhile has the attachment too, until it ends.
        let limit = Instant::now() + Duration::from_secs(60);
        let before = loop {
            let before = existing_segment(id).expect("asked").expect("there");
            if !before.attached || Instant::now() > limit {
                break before;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        // SAFETY: no memory involved.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        assert_eq!(bytes, Some((*b"word", 5000)));
        assert!(!before.attached);
        assert_eq!(existing_segment(id).expect("asked"), None);
    }
}
