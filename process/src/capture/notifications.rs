//! Registrations for a notification of a POSIX message queue (`mq_notify`).
//!
//! The kernel tells which process is registered and by which signal, but not with which value. So the signal is caused,
//! read and taken away while its process is stopped, and the process registers again as it was.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::posix_queues::{Registered, put_back, send, take, take_all};
use super::{Builder, Error};
use crate::memory;
use crate::procfs;
use crate::ptrace::{FrozenProcess, FrozenTree, sys};
use crate::state::{NOTIFICATION_BYTES, Notification, descriptor_of_queue};

/// What the signal of a message queue has as its code.
const SI_MESGQ: i32 = -3;
/// Of a `siginfo_t`: number, code and value.
const SIGNO: usize = 0;
const CODE: usize = 8;
const VALUE: usize = 24;
/// In memory of a process: a set of signals, no time at all, and a registration.
const ROOM: usize = 24 + NOTIFICATION_BYTES;
/// To send them has other effects, or stops a thread that makes calls for us.
const SPECIAL: [i32; 7] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGTRAP,
];

impl Builder<'_> {
    /// Describes queues with a registration: their messages and the registration. All descriptors are
    /// described by now.
    pub(super) fn notifications(&mut self, frozen: &mut FrozenTree) -> Result<(), Error> {
        for registered in std::mem::take(&mut self.registered) {
            let pid = registered.pid;
            self.turn_to(pid);
            let Some(stopped) = frozen.process_mut(pid) else {
                continue;
            };
            if let Some(why) = self.obstacle(&registered, stopped)? {
                let name = &self.tree.posix_queues[registered.queue as usize].name;
                self.refuse(format!(
                    "it is registered for a notification of the POSIX message queue /{name} {why}"
                ));
                continue;
            }
            self.notification(&registered, stopped)?;
        }
        Ok(())
    }

    /// Why a registration cannot be read.
    fn obstacle(
        &self,
        registered: &Registered,
        stopped: &FrozenProcess,
    ) -> Result<Option<&'static str>, Error> {
        let failed = || self.failed("read its pending signals");
        match registered.kind {
            libc::SIGEV_NONE => return Ok(None),
            libc::SIGEV_SIGNAL => {}
            _ => return Ok(Some("by a thread (SIGEV_THREAD)")),
        }
        if SPECIAL.contains(&registered.signal) {
            return Ok(Some("by a signal that stops, continues or kills"));
        }
        let mut pending = sys::pending_signals(self.pid, true).map_err(failed())?;
        for thread in &stopped.threads {
            pending.extend(sys::pending_signals(thread.tid, false).map_err(failed())?);
        }
        if pending
            .iter()
            .any(|info| word(info, SIGNO) == registered.signal)
        {
            return Ok(Some("by a signal that is pending"));
        }
        // 1/94977
        let status = procfs::status(self.pid, self.pid).map_err(failed())?;
        let queued = procfs::field(&status, "SigQ").and_then(|text| text.split_once('/'));
        let room = queued.is_some_and(|(used, limit)| {
            let number = |text: &str| text.trim().parse::<u64>().ok();
            number(used) < number(limit)
        });
        Ok((!room).then_some("and its limit of pending signals is reached"))
    }

    fn notification(
        &mut self,
        registered: &Registered,
        stopped: &mut FrozenProcess,
    ) -> Result<(), Error> {
        let queue = registered.queue as usize;
        let at = self.tree.processes.iter().position(|p| p.pid == self.pid);
        let process = at.map(|at| &self.tree.processes[at]);
        let number = process.and_then(|it| descriptor_of_queue(&self.tree, it, registered.queue));
        let (Some(process), Some(number)) = (process, number) else {
            // Closing one removes it: this cannot be.
            self.refuse("it is registered for a notification of a queue that it has not open");
            return Ok(());
        };
        let spare = self.spare_address(process, stopped)?;
        let saved = memory::read_array::<ROOM>(self.pid, spare)
            .map_err(self.failed("read memory of it"))?;
        let failed = || self.failed("read a notification of a POSIX message queue");
        let bytes_max = self.tree.posix_queues[queue].message_bytes_max as usize;
        let (messages, cause) = take_all(&registered.file, bytes_max);
        let caused = cause.and_then(|()| caused(&registered.file, bytes_max));
        put_back(&registered.file, &messages).map_err(failed())?;
        caused.map_err(failed())?;
        let mut signal = None;
        if registered.kind == libc::SIGEV_SIGNAL {
            let pending = sys::pending_signals(self.pid, true).map_err(failed())?;
            let mut infos = pending.iter();
            let info = infos.find(|info| {
                (word(&info[..], SIGNO), word(&info[..], CODE)) == (registered.signal, SI_MESGQ)
            });
            let info = info.ok_or_else(|| failed()(io::Error::other("no signal came")))?;
            let value = info[VALUE..VALUE + 8].try_into().expect("eight bytes");
            signal = Some((registered.signal, u64::from_ne_bytes(value)));
            let set = 1u64 << (registered.signal - 1);
            let words = [&set.to_ne_bytes()[..], &[0; 16]].concat();
            memory::write(self.pid, spare, &words).map_err(failed())?;
            let arguments = [spare, 0, spare + 8, 8, 0, 0];
            let taken = stopped.syscall(0, libc::SYS_rt_sigtimedwait, arguments)?;
            taken.map_err(failed())?;
        }
        let notification = Notification {
            pid: self.pid,
            signal,
        };
        memory::write(self.pid, spare + 24, &notification.event()).map_err(failed())?;
        let arguments = [number as u64, spare + 24, 0, 0, 0, 0];
        let again = stopped.syscall(0, libc::SYS_mq_notify, arguments)?;
        again.map_err(failed())?;
        memory::write(self.pid, spare, &saved).map_err(failed())?;
        stopped.end_injections();
        let described = &mut self.tree.posix_queues[queue];
        described.messages = messages;
        described.notification = Some(notification);
        Ok(())
    }
}

/// Causes a notification of an empty queue. It is empty afterwards.
fn caused(file: &File, bytes_max: usize) -> io::Result<()> {
    send(file.as_raw_fd(), 0, b"")?;
    take(file, &mut vec![0; bytes_max]).map(drop)
}

fn word(info: &[u8], at: usize) -> i32 {
    i32::from_ne_bytes(info[at..at + 4].try_into().expect("four bytes"))
}
