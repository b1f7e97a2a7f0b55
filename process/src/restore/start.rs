//! Starts the root processes, in a time namespace in which the clocks continue from their old values.

use std::io;
use std::time::Duration;

use super::undo::KillOnError;
use super::{Error, check, numbers, plan, stub};
use crate::ptrace::Pid;
use crate::state::Tree;

/// The roots, and the thread that they are children of until the end.
pub(super) struct Started {
    pub roots: Vec<Pid>,
    _parent: Parent,
}

/// A thread of ours in another time namespace, without restartable sequences: a child inherits
/// both. Its end would be taken for the death of a parent.
struct Parent {
    release: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    tid: Option<Pid>,
}

impl Drop for Parent {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(tid) = self.tid {
            wait_until_gone(tid);
        }
    }
}

/// A thread is joined before the kernel gives its children to the main thread. To ask for our
/// children just then, thread by thread, may find none.
fn wait_until_gone(tid: Pid) {
    let own = std::process::id().cast_signed();
    // SAFETY: signal 0 is none; no memory is involved.
    while unsafe { libc::syscall(libc::SYS_tgkill, own, tid, 0) } == 0 {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Starts the roots, in a time namespace in which the clocks go on where they stood.
pub(super) fn start(
    tree: &Tree,
    region: &stub::Region,
    lists: &[(Pid, u64)],
) -> Result<Started, Error> {
    let failed = |(pid, source): (Pid, io::Error)| match source.raw_os_error() {
        Some(libc::EEXIST) => numbers::taken(pid),
        Some(libc::EPERM) => Error::Right("CAP_CHECKPOINT_RESTORE"),
        _ => Error::System {
            action: format!("create process {pid}"),
            source,
        },
    };
    let clocks = tree.clocks;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (created, creation) = std::sync::mpsc::channel();
    let handle = region.handle();
    let lists = lists.to_vec();
    let thread = std::thread::Builder::new()
        .name("restore-clocks".to_owned())
        .spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            let first = lists.first().map_or(0, |(pid, _)| *pid);
            let ready = leave_rseq()
                .and_then(|()| check::continue_clocks(&clocks))
                .map_err(|source| (first, source));
            let mut made = Vec::new();
            let all = ready.and_then(|()| {
                for &(pid, list) in &lists {
                    made.push(create(handle, pid, list).map_err(|source| (pid, source))?);
                }
                Ok(())
            });
            if all.is_err() {
                drop(KillOnError {
                    roots: std::mem::take(&mut made),
                    all: Vec::new(),
                });
            }
            let _ = created.send((tid, all.map(|()| made)));
            // Until the sender is dropped.
            let _ = released.recv();
        })
        .map_err(|source| Error::System {
            action: "start a thread".to_owned(),
            source,
        })?;
    let mut parent = Parent {
        release: Some(release),
        thread: Some(thread),
        tid: None,
    };
    let ended = || io::Error::other("the thread that should create it ended");
    let roots = match creation.recv() {
        Ok((tid, roots)) => {
            parent.tid = Some(tid);
            roots
        }
        Err(_) => Err((0, ended())),
    };
    let roots = roots.map_err(failed)?;
    Ok(Started {
        roots,
        _parent: parent,
    })
}

/// Ends the registration of restartable sequences that the C library made for the calling thread.
/// A child would inherit it, and the kernel would write to memory that the child unmaps.
fn leave_rseq() -> io::Result<()> {
    // From the C library (2.35 and later): where, relative to the thread pointer, and whether.
    unsafe extern "C" {
        static __rseq_offset: isize;
        static __rseq_size: u32;
    }
    const UNREGISTER: u64 = 1;
    const SIGNATURE: u64 = 0x5305_3053;
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    // SAFETY: constants of the C library; the thread pointer is that of this thread, which has
    // no sequence running, since it is here.
    unsafe {
        if __rseq_size == 0 {
            return Ok(());
        }
        let thread: u64;
        std::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, readonly));
        let area = thread.wrapping_add_signed(__rseq_offset as i64);
        // The registered length is that of the first version, or what the kernel requested.
        let wanted = libc::getauxval(AT_RSEQ_FEATURE_SIZE).next_multiple_of(32);
        for bytes in [32, wanted, wanted.next_power_of_two()] {
            if libc::syscall(libc::SYS_rseq, area, bytes, UNREGISTER, SIGNATURE) == 0 {
                return Ok(());
            }
        }
    }
    Err(io::Error::last_os_error())
}

fn create(region: stub::Handle, pid: Pid, list: u64) -> io::Result<Pid> {
    let mut arguments = stub::CloneArguments {
        flags: plan::CLONE_CLEAR_SIGHAND,
        exit_signal: libc::SIGCHLD as u64,
        set_tid: (&raw const pid) as u64,
        set_tid_size: 1,
        ..Default::default()
    };
    region.start_process(&mut arguments, list)
}
