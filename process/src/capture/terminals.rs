//! Pseudo-terminals: those of which the tree has the master side, and the terminals that control its
//! sessions.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use super::{Builder, Error};
use crate::ptrace::{Pid, sys::take_fd};
use crate::state::{FileKind, SETTINGS_BYTES, Terminal};

/// The slave sides: 136 to 143, with 256 minor numbers each.
const SLAVE_MAJOR: u32 = 136;
const SLAVE_MAJORS: u32 = 8;

/// What is known of terminals until all descriptors are.
#[derive(Debug, Default)]
pub(super) struct Terminals {
    /// Of each terminal of the tree: a process and its descriptor of the master side.
    masters: Vec<(Pid, RawFd)>,
    /// Slave sides: index of the file, number of the terminal, process and descriptor.
    slaves: Vec<(u32, i32, Pid, RawFd)>,
    /// Of each process its controlling terminal, as a device number, and the group in front.
    pub(super) controlling: HashMap<Pid, (i32, i32)>,
}

impl Builder<'_> {
    /// Describes a master side.
    pub(super) fn master(&mut self, number: RawFd, path: &str) -> Result<Option<FileKind>, Error> {
        let failed = || self.failed(format!("read the terminal behind its descriptor {number}"));
        let master = take_fd(self.pid, number).map_err(failed())?;
        let terminal = read(&master, path).map_err(failed())?;
        let index = self.tree.terminals.len() as u32;
        self.tree.terminals.push(terminal);
        self.terminals.masters.push((self.pid, number));
        Ok(Some(FileKind::Master(index)))
    }

    /// Notes the file that is described next, if it is a slave side.
    pub(super) fn slave(&mut self, number: RawFd, device: u64) {
        let (major, minor) = (libc::major(device), libc::minor(device));
        if (SLAVE_MAJOR..SLAVE_MAJOR + SLAVE_MAJORS).contains(&major) {
            let terminal = ((major - SLAVE_MAJOR) << 8 | minor) as i32;
            let file = self.tree.files.len() as u32;
            self.terminals
                .slaves
                .push((file, terminal, self.pid, number));
        }
    }

    /// Joins both sides, now that all are known.
    pub(super) fn finish_terminals(&mut self) -> Result<(), Error> {
        let known = std::mem::take(&mut self.terminals);
        let numbers: Vec<i32> = self.tree.terminals.iter().map(|t| t.number).collect();
        for (file, terminal, ..) in &known.slaves {
            if let Some(index) = numbers.iter().position(|number| number == terminal) {
                self.tree.files[*file as usize].kind = FileKind::Slave(index as u32);
            }
        }
        for (at, &(pid, number)) in known.masters.iter().enumerate() {
            self.turn_to(pid);
            let mut slaves = known.slaves.iter();
            let slave = slaves.find(|(_, terminal, ..)| *terminal == numbers[at]);
            let slave = slave.map(|&(_, _, pid, number)| (pid, number));
            let failed = self.failed(format!("read the terminal behind its descriptor {number}"));
            let closed = self.tree.terminals[at].closed;
            if let Some(what) = obstacle((pid, number), slave, closed).map_err(failed)? {
                self.refuse(format!("fd {number} is a pseudo-terminal {what}"));
            }
        }
        self.controlling_terminals(&known.controlling, &numbers);
        Ok(())
    }

    /// All processes of a session have the terminal of its leader; the leader takes it again.
    fn controlling_terminals(&mut self, controlling: &HashMap<Pid, (i32, i32)>, numbers: &[i32]) {
        let of = |pid: Pid| controlling.get(&pid).copied().unwrap_or((0, 0));
        for at in 0..self.tree.processes.len() {
            let process = &self.tree.processes[at];
            let (pid, session) = (process.pid, process.session);
            // In the tracker's session, it has the tracker's.
            if session == 0 || process.zombie.is_some() {
                continue;
            }
            let (device, front) = of(pid);
            let wanted = of(session).0;
            if device != wanted {
                self.turn_to(pid);
                self.refuse("it has not the controlling terminal of its session");
                continue;
            }
            if device == 0 || pid != session {
                continue;
            }
            let terminal = terminal_of(device);
            match numbers.iter().position(|number| Some(*number) == terminal) {
                Some(index) => {
                    let same =
                        |p: &&crate::state::Process| p.group == front && p.session == session;
                    let front = self.tree.processes.iter().find(same).map_or(0, |p| p.group);
                    self.tree.processes[at].terminal = Some((index as u32, front));
                }
                None => {
                    self.turn_to(pid);
                    self.refuse("the master side of its controlling terminal is not of the tree");
                }
            }
        }
    }
}

/// The pseudo-terminal of a device number as `stat` gives it.
fn terminal_of(device: i32) -> Option<i32> {
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let (first, count) = (SLAVE_MAJOR as i32, SLAVE_MAJORS as i32);
    let slave = (first..first + count).contains(&major);
    slave.then_some((major - first) << 8 | minor)
}

fn ask<T: Copy>(file: &OwnedFd, request: libc::c_ulong, mut answer: T) -> io::Result<T> {
    // SAFETY: the caller gives a type of the length that the request fills.
    if unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut answer) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// What can be read through the master side.
fn read(master: &OwnedFd, path: &str) -> io::Result<Terminal> {
    let number = ask(master, libc::TIOCGPTN, 0i32)?;
    let mut poll = libc::pollfd {
        fd: master.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one structure, which lives.
    unsafe { libc::poll(&raw mut poll, 1, 0) };
    let slave = fs::metadata(format!("/dev/pts/{number}"))?;
    Ok(Terminal {
        number,
        multiplexer: path.to_owned(),
        settings: ask(master, libc::TCGETS2, [0u8; SETTINGS_BYTES])?.to_vec(),
        window: ask(master, libc::TIOCGWINSZ, [0u16; 4])?,
        locked: ask(master, libc::TIOCGPTLCK, 0i32)? != 0,
        packets: ask(master, libc::TIOCGPKT, 0i32)? != 0,
        closed: poll.revents & libc::POLLHUP != 0,
        mode: slave.mode() & 0o7777,
        owner: (slave.uid(), slave.gid()),
    })
}

/// What cannot be made again of a terminal, with a descriptor of its master side, and of its slave side
/// where somebody has one.
fn obstacle(
    master: (Pid, RawFd),
    slave: Option<(Pid, RawFd)>,
    closed: bool,
) -> io::Result<Option<&'static str>> {
    let master = take_fd(master.0, master.1)?;
    let slave = match slave {
        Some((pid, number)) => take_fd(pid, number)?,
        None if closed => {
            // All have closed it, as we do again.
            let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
            // SAFETY: no memory involved; the descriptor is new and ours.
            unsafe {
                let fd = libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags);
                if fd < 0 {
                    return Err(io::Error::last_os_error());
                }
                OwnedFd::from_raw_fd(fd)
            }
        }
        None => return Ok(Some("of which no process of the tree has the slave side")),
    };
    for side in [&master, &slave] {
        if ask(side, libc::FIONREAD, 0i32)? != 0 {
            return Ok(Some("with unread input or output"));
        }
        if ask(side, libc::TIOCGEXCL, 0i32)? != 0 {
            return Ok(Some("that is exclusively opened"));
        }
        if ask(side, libc::TIOCGETD, 0i32)? != 0 {
            return Ok(Some("with a line discipline of its own"));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_of_a_device_number_is_known() {
        assert_eq!(terminal_of(136 << 8 | 7), Some(7));
        assert_eq!(terminal_of(137 << 8 | 1), Some(257));
        assert_eq!(terminal_of(4 << 8 | 1), None);
        assert_eq!(terminal_of(0), None);
    }
}
