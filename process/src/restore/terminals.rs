//! Makes pseudo-terminals with their old numbers.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use super::Error;
use super::descriptors::{open, owned};
use crate::state::{FileKind, Terminal, Tree};

const TCSETS2: libc::c_ulong = 0x402c_542b;

/// The master sides, by index, unlocked. The kernel gives the lowest number that is free: those that are
/// not wanted are opened, too, and closed again.
///
/// # Errors
/// A number is taken.
pub fn open_masters(tree: &Tree) -> Result<Vec<OwnedFd>, Error> {
    let mut order: Vec<usize> = (0..tree.terminals.len()).collect();
    order.sort_by_key(|at| tree.terminals[*at].number);
    let mut masters: Vec<Option<OwnedFd>> = tree.terminals.iter().map(|_| None).collect();
    let mut unwanted = Vec::new();
    for at in order {
        let terminal = &tree.terminals[at];
        loop {
            let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
            let master = open(&terminal.multiplexer, flags).map_err(|source| Error::Open {
                path: terminal.multiplexer.clone(),
                source,
            })?;
            let mut number = 0i32;
            control(&master, libc::TIOCGPTN, &mut number, terminal)?;
            if number == terminal.number {
                control(&master, libc::TIOCSPTLCK, &mut 0i32, terminal)?;
                masters[at] = Some(master);
                break;
            }
            if number > terminal.number {
                return Err(Error::Ipc(format!(
                    "the pseudo-terminal {} is another program's; `fuser /dev/pts/{0}` shows which",
                    terminal.number
                )));
            }
            unwanted.push(master);
        }
    }
    Ok(masters.into_iter().flatten().collect())
}

/// The slave side as `openpty` opens it: by the master side, without the flag that every path gives.
pub(super) fn open_slave(master: i32, flags: u32) -> io::Result<OwnedFd> {
    let flags = flags as i32 & (libc::O_ACCMODE | libc::O_NONBLOCK);
    // Not O_CLOEXEC: here the kernel keeps it among the flags of the description, where F_GETFL finds it.
    // SAFETY: no memory involved.
    let slave = owned(unsafe { libc::ioctl(master, libc::TIOCGPTPEER, flags | libc::O_NOCTTY) })?;
    rustix::io::fcntl_setfd(&slave, rustix::io::FdFlags::CLOEXEC)?;
    Ok(slave)
}

/// Settings, owner and state, when all sides are open that the program had open.
///
/// # Errors
/// The kernel refuses something.
pub fn finish(tree: &Tree, masters: &[i32]) -> Result<(), Error> {
    for (at, (terminal, master)) in tree.terminals.iter().zip(masters).enumerate() {
        let slave = format!("/dev/pts/{}", terminal.number);
        let failed = |source| Error::Open {
            path: slave.clone(),
            source,
        };
        let has_slave = |kind: &FileKind| matches!(kind, FileKind::Slave(of) if *of == at as u32);
        let open_now = tree.files.iter().any(|file| has_slave(&file.kind));
        if terminal.closed && !open_now {
            open(&slave, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC).map_err(failed)?;
        }
        std::os::unix::fs::chown(&slave, Some(terminal.owner.0), Some(terminal.owner.1))
            .map_err(failed)?;
        fs::set_permissions(&slave, fs::Permissions::from_mode(terminal.mode)).map_err(failed)?;
        let mut settings = terminal.settings.clone();
        raw_control(*master, TCSETS2, settings.as_mut_ptr().cast(), terminal)?;
        let mut window = terminal.window;
        raw_control(
            *master,
            libc::TIOCSWINSZ,
            window.as_mut_ptr().cast(),
            terminal,
        )?;
        let number = |flag: bool| i32::from(flag);
        let (mut packets, mut locked) = (number(terminal.packets), number(terminal.locked));
        raw_control(*master, libc::TIOCPKT, (&raw mut packets).cast(), terminal)?;
        raw_control(
            *master,
            libc::TIOCSPTLCK,
            (&raw mut locked).cast(),
            terminal,
        )?;
    }
    Ok(())
}

fn control(
    file: &OwnedFd,
    request: libc::c_ulong,
    number: &mut i32,
    terminal: &Terminal,
) -> Result<(), Error> {
    raw_control(
        file.as_raw_fd(),
        request,
        std::ptr::from_mut(number).cast(),
        terminal,
    )
}

fn raw_control(
    fd: i32,
    request: libc::c_ulong,
    argument: *mut libc::c_void,
    terminal: &Terminal,
) -> Result<(), Error> {
    // SAFETY: the callers give what the request reads or fills.
    if unsafe { libc::ioctl(fd, request, argument) } < 0 {
        return Err(Error::System {
            action: format!("set up the pseudo-terminal {}", terminal.number),
            source: io::Error::last_os_error(),
        });
    }
    Ok(())
}
