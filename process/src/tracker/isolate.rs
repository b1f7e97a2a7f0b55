//! A PID namespace of the program's own: as in a container, PIDs are free when it is restored, and
//! the program never outlives its init.
//!
//! ```text
//!  dormouse process run …      hands signals on, waits, ends with the same code
//!   └─ init                    PID 1 of the new namespace, with a /proc of its own; does the same
//!       └─ tracker
//!           └─ program …
//! ```
//!
//! The init has no file open but what it was started with. So it ends at once when it is killed,
//! whatever a file server does, and the kernel ends all others with it. In a container the first
//! process is the outermost one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::outer::{End, INIT, go_on_in_child};

/// This process is the tracker under an init of ours.
static INSIDE: AtomicBool = AtomicBool::new(false);

/// Whether this process is the tracker of a container or of a namespace of ours: it ends with its
/// program, and what is sent to it is for the program.
pub fn in_container() -> bool {
    INSIDE.load(Ordering::Acquire) || std::process::id() as i32 == INIT
}

/// Goes on as the tracker in a new namespace (in a container: in its own), as a child of its init.
/// Call it before there are threads.
///
/// # Errors
/// The kernel refuses.
pub fn enter() -> io::Result<()> {
    if std::process::id() as i32 != INIT {
        leave(libc::CLONE_NEWPID)?;
        go_on_in_child(None, End::WithProgram)?;
        become_init()?;
    }
    go_on_in_child(None, End::WithProgram)?;
    INSIDE.store(true, Ordering::Release);
    Ok(())
}

/// Gets a namespace of its own; of PIDs, for children.
fn leave(namespace: i32) -> io::Result<()> {
    // SAFETY: no memory involved.
    match unsafe { libc::unshare(namespace) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn become_init() -> io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    // Not before: an engine enters the mount namespace of a container's first process to execute more
    // in it, which must find itself in /proc.
    leave(libc::CLONE_NEWNS)?;
    // What is mounted outside is still seen; what is mounted here is not seen outside.
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", propagation)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    Ok(())
}
