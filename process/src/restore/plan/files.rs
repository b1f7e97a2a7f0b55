//! Descriptors, their locks and owners, and epoll instances, which refer to descriptors by number.

use std::collections::HashSet;

use super::super::Error;
use super::super::stub::{Check, List, Store};
use super::Writer;
use crate::state::{Descriptor, EpollItem, File, FileKind, Lease, Process, Tree};

impl Writer<'_> {
    /// Puts inherited descriptors in their places, and closes all others of the tracker's.
    pub(super) fn descriptors(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        self.login_user(list, process)?;
        // What only this process can open replaces its placeholder.
        for descriptor in &process.descriptors {
            let file = &self.tree.files[descriptor.file as usize];
            let place = self.pool.files[descriptor.file as usize] as u64;
            let next = list.len() + 1;
            match &file.kind {
                FileKind::Proc(path) => {
                    let path = self.string(path)?;
                    let flags = u64::from(file.flags)
                        & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) as u64;
                    let here = libc::AT_FDCWD as u64;
                    list.call(
                        libc::SYS_openat,
                        &[here, path, flags, 0],
                        "open a file of /proc",
                    )
                    .about(descriptor.number as u64)
                    .store(Store::Argument {
                        operation: next,
                        argument: 0,
                    });
                    list.call(libc::SYS_dup2, &[0, place], "open a file of /proc");
                    let position = [place, file.position, libc::SEEK_SET as u64];
                    list.call(libc::SYS_lseek, &position, "seek in a file of /proc")
                        .expect(Check::Any);
                }
                FileKind::Pid(pid) => {
                    // O_EXCL is PIDFD_THREAD.
                    let kept = (libc::O_NONBLOCK | libc::O_EXCL) as u64;
                    let flags = u64::from(file.flags) & kept;
                    list.call(libc::SYS_pidfd_open, &[*pid as u64, flags], "open a pidfd")
                        .store(Store::Argument {
                            operation: next,
                            argument: 0,
                        });
                    list.call(libc::SYS_dup2, &[0, place], "open a pidfd");
                }
                _ => {}
            }
        }
        let base = self.pool.base as u64;
        let mut next = 0;
        for descriptor in &process.descriptors {
            let number = descriptor.number as u64;
            if number > next {
                list.call(
                    libc::SYS_close_range,
                    &[next, number - 1, 0],
                    "close descriptors",
                );
            }
            next = number + 1;
        }
        if next < base {
            list.call(
                libc::SYS_close_range,
                &[next, base - 1, 0],
                "close descriptors",
            );
        }
        for descriptor in &process.descriptors {
            let from = self.pool.files[descriptor.file as usize] as u64;
            let flags = if descriptor.close_on_exec {
                libc::O_CLOEXEC as u64
            } else {
                0
            };
            list.call(
                libc::SYS_dup3,
                &[from, descriptor.number as u64, flags],
                "place descriptor",
            )
            .about(descriptor.number as u64);
        }
        Ok(())
    }

    /// The user who logged in, where it is not that of the tracker. The descriptor is closed with those
    /// that are not the program's.
    fn login_user(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        let path = "/proc/self/loginuid";
        let own = std::fs::read_to_string(path).ok();
        let own = own.and_then(|text| text.trim().parse::<u32>().ok());
        let Some(user) = process.login_user.filter(|_| own != process.login_user) else {
            return Ok(());
        };
        let text = user.to_string();
        let (path, words) = (self.string(path)?, self.bytes(text.as_bytes())?);
        let next = list.len() + 1;
        let arguments = [libc::AT_FDCWD as u64, path, libc::O_WRONLY as u64, 0];
        let action = "set its login user (this needs CAP_AUDIT_CONTROL)";
        list.call(libc::SYS_openat, &arguments, action)
            .about(u64::from(user))
            .store(Store::Argument {
                operation: next,
                argument: 0,
            });
        list.call(libc::SYS_write, &[0, words, text.len() as u64], action)
            .about(u64::from(user));
        Ok(())
    }

    /// The descriptors of `process` of which the descriptions are its to finish: those that no
    /// process before it has; one descriptor of each.
    fn first_of_descriptions<'tree>(
        tree: &'tree Tree,
        process: &'tree Process,
    ) -> impl Iterator<Item = (&'tree Descriptor, &'tree File)> {
        let before = tree.processes.iter().take_while(|p| p.pid != process.pid);
        let mut met: HashSet<u32> = before
            .flat_map(|other| &other.descriptors)
            .map(|descriptor| descriptor.file)
            .collect();
        let first = process.descriptors.iter();
        let first = first.filter(move |descriptor| met.insert(descriptor.file));
        let with_file = first.map(|own| (own, &tree.files[own.file as usize]));
        with_file.filter(|(_, file)| {
            !matches!(
                file.kind,
                FileKind::Inherited(_)
                    | FileKind::Proc(_)
                    | FileKind::Pid(_)
                    | FileKind::DeadPid(_)
            )
        })
    }

    /// Locks of `flock`, of which the kernel notes which process has taken them, and record locks of
    /// descriptions.
    pub(super) fn description_locks(
        &mut self,
        list: &mut List,
        process: &Process,
    ) -> Result<(), Error> {
        const F_OFD_SETLK: u64 = 37;
        let tree = self.tree;
        for (descriptor, file) in Self::first_of_descriptions(tree, process) {
            for lock in &file.records {
                let kind = if lock.exclusive {
                    libc::F_WRLCK
                } else {
                    libc::F_RDLCK
                };
                // struct flock: type, whence, start, length, pid.
                let flock = self.words(&[kind as u64, lock.start, lock.bytes, 0])?;
                list.call(
                    libc::SYS_fcntl,
                    &[descriptor.number as u64, F_OFD_SETLK, flock],
                    "lock a file as it was (another process has locked it)",
                )
                .about(descriptor.number as u64);
            }
            let Some(exclusive) = file.lock else { continue };
            let lock = if exclusive {
                libc::LOCK_EX
            } else {
                libc::LOCK_SH
            };
            let lock = (lock | libc::LOCK_NB) as u64;
            list.call(
                libc::SYS_flock,
                &[descriptor.number as u64, lock],
                "lock a file as it was (another process has locked it)",
            )
            .about(descriptor.number as u64);
        }
        Ok(())
    }

    /// Leases. One that was being broken is broken again: by an open that does not wait, of which the
    /// signal is taken away. The program has had it.
    pub(super) fn leases(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        const F_SETLEASE: u64 = 1024;
        let tree = self.tree;
        for (descriptor, file) in Self::first_of_descriptions(tree, process) {
            let (Some(lease), FileKind::Image(image)) = (file.lease, &file.kind) else {
                continue;
            };
            let number = descriptor.number as u64;
            let (kind, breaker) = match lease {
                Lease::Read => (libc::F_RDLCK, None),
                Lease::Write => (libc::F_WRLCK, None),
                Lease::WriteToRead => (libc::F_WRLCK, Some(libc::O_RDONLY)),
                Lease::ReadToNone => (libc::F_RDLCK, Some(libc::O_WRONLY)),
                Lease::WriteToNone => (libc::F_WRLCK, Some(libc::O_WRONLY)),
            };
            list.call(
                libc::SYS_fcntl,
                &[number, F_SETLEASE, kind as u64],
                "take a lease of a file (another process has it open)",
            )
            .about(number);
            let Some(mode) = breaker else { continue };
            let path = self.string(&tree.images[*image as usize].path)?;
            let flags = (mode | libc::O_NONBLOCK | libc::O_CLOEXEC) as u64;
            let here = libc::AT_FDCWD as u64;
            let refused = u64::from(libc::EWOULDBLOCK.unsigned_abs()).wrapping_neg();
            list.call(
                libc::SYS_openat,
                &[here, path, flags, 0],
                "break a lease of a file",
            )
            .expect(Check::Equals(refused))
            .about(number);
            let signal = self.words(&[1 << (libc::SIGIO - 1)])?;
            let at_once = self.words(&[0, 0])?;
            list.call(
                libc::SYS_rt_sigtimedwait,
                &[signal, 0, at_once, 8],
                "break a lease of a file",
            )
            .expect(Check::Any);
        }
        Ok(())
    }

    /// The receiver of SIGIO (`F_SETOWN`), and the signal. All processes and the threads of this one
    /// must exist, and it must have its credentials: the kernel notes them, too.
    pub(super) fn description_owners(
        &mut self,
        list: &mut List,
        process: &Process,
    ) -> Result<(), Error> {
        const F_SETOWN_EX: u64 = 15;
        const F_SETSIG: u64 = 10;
        let tree = self.tree;
        for (descriptor, file) in Self::first_of_descriptions(tree, process) {
            let number = descriptor.number as u64;
            let (kind, owner, signal) = file.owner;
            // A process outside the tree need not exist any more: then there is no receiver.
            let of_tree = tree.processes.iter().any(|p| {
                let threads = p.pid == process.pid;
                owner == p.pid
                    || owner == p.group
                    || threads && p.threads.iter().any(|thread| thread.tid == owner)
            });
            // Without one the number is 0, which also stands for a group of outside.
            if owner != 0 && of_tree {
                let owner = self.words(&[u64::from(kind as u32) | (owner as u64) << 32])?;
                let arguments = [number, F_SETOWN_EX, owner];
                list.call(libc::SYS_fcntl, &arguments, "set the owner of a descriptor")
                    .about(number);
            }
            if signal != 0 {
                let arguments = [number, F_SETSIG, signal as u64];
                list.call(
                    libc::SYS_fcntl,
                    &arguments,
                    "set the signal of a descriptor",
                )
                .about(number);
            }
            if file.flags & libc::O_ASYNC as u32 != 0 {
                let arguments = [number, libc::F_SETFL as u64, u64::from(file.flags)];
                list.call(
                    libc::SYS_fcntl,
                    &arguments,
                    "ask for signals of a descriptor",
                )
                .about(number);
            }
        }
        Ok(())
    }

    /// Epoll instances wait for descriptors by number, so their owner fills them.
    pub(super) fn epolls(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        for descriptor in &process.descriptors {
            let FileKind::Epoll(items) = &self.tree.files[descriptor.file as usize].kind else {
                continue;
            };
            // Of several processes that share one, the first that has all it waits for, or the
            // first; and of several descriptors, the first.
            let leads = |other: &Process, item: &EpollItem| {
                let mut own = other.descriptors.iter();
                own.any(|own| own.number == item.descriptor && own.file == item.file)
            };
            let sharing = self.tree.processes.iter().filter(|other| {
                let mut own = other.descriptors.iter();
                own.any(|own| own.file == descriptor.file)
            });
            let owner = sharing
                .clone()
                .find(|other| items.iter().all(|item| leads(other, item)))
                .or_else(|| sharing.clone().next());
            let mut own = process.descriptors.iter();
            let first = own.find(|own| own.file == descriptor.file);
            if owner.is_none_or(|owner| owner.pid != process.pid)
                || first.is_none_or(|first| first.number != descriptor.number)
            {
                continue;
            }
            let number = descriptor.number as u64;
            self.fill_epoll(list, process, number, items)?;
        }
        self.epolls_under_way(list, process)
    }

    /// Epoll instances that only a message in a unix socket holds: the first process fills them.
    fn epolls_under_way(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        let tree = self.tree;
        let mut living = tree.processes.iter().filter(|p| p.zombie.is_none());
        if living.next().is_none_or(|first| first.pid != process.pid) {
            return Ok(());
        }
        let processes = tree.processes.iter();
        let held: HashSet<u32> = processes
            .flat_map(|process| &process.descriptors)
            .map(|descriptor| descriptor.file)
            .collect();
        for (index, file) in (0u32..).zip(&tree.files) {
            if let FileKind::Epoll(items) = &file.kind
                && !held.contains(&index)
            {
                let number = self.pool.files[index as usize] as u64;
                self.fill_epoll(list, process, number, items)?;
            }
        }
        Ok(())
    }

    /// Adds what an epoll instance waits for.
    fn fill_epoll(
        &mut self,
        list: &mut List,
        process: &Process,
        epoll: u64,
        items: &[EpollItem],
    ) -> Result<(), Error> {
        // Those that were reported and are silent come first: each is reported again, alone.
        let mut items: Vec<_> = items
            .iter()
            .map(|item| (item, self.ready_again(item)))
            .collect();
        items.sort_by_key(|(_, ready)| *ready == 0);
        for (item, ready) in items {
            // struct epoll_event is packed: events, then the word.
            let mut event = (item.events | ready).to_ne_bytes().to_vec();
            event.extend_from_slice(&item.data.to_ne_bytes());
            let event = self.bytes(&event)?;
            let number = item.descriptor as u64;
            let mut own = process.descriptors.iter();
            let stray = !own.any(|own| own.number == item.descriptor && own.file == item.file);
            if stray {
                let place = self.pool.files[item.file as usize] as u64;
                list.call(libc::SYS_dup2, &[place, number], "wait for a descriptor")
                    .about(number);
            }
            let add = libc::EPOLL_CTL_ADD as u64;
            let arguments = [epoll, add, number, event];
            list.call(libc::SYS_epoll_ctl, &arguments, "wait for a descriptor")
                .about(number);
            if ready != 0 {
                list.call(
                    libc::SYS_epoll_wait,
                    &[epoll, event, 1, 0],
                    "wait for a descriptor",
                )
                .expect(Check::Any);
            }
            if stray {
                self.back_in_place(list, process, number);
            }
        }
        Ok(())
    }

    /// For what an item is ready that was to be reported once (`EPOLLONESHOT`) and has been. Only by
    /// reporting it does the kernel make it silent: added as it is, it reports a hang-up. 0: another item,
    /// or it is ready for nothing.
    fn ready_again(&self, item: &EpollItem) -> u32 {
        const LEFT: u32 = (libc::EPOLLONESHOT | libc::EPOLLET | libc::EPOLLWAKEUP) as u32;
        let once = item.events & libc::EPOLLONESHOT as u32 != 0;
        let kind = &self.tree.files[item.file as usize].kind;
        // In the place of these there is another file yet.
        let elsewhere = matches!(kind, FileKind::Proc(_) | FileKind::Pid(_));
        if !once || item.events & !LEFT != 0 || elsewhere {
            return 0;
        }
        let mut polled = libc::pollfd {
            fd: self.pool.files[item.file as usize],
            events: libc::POLLIN | libc::POLLPRI | libc::POLLOUT | libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: the structure lives.
        let ready = unsafe { libc::poll(&raw mut polled, 1, 0) };
        // The bits of both calls are the same.
        match ready {
            1 => u32::from((polled.revents & polled.events).cast_unsigned()),
            _ => 0,
        }
    }

    /// Puts what the process has under a number there again, or closes it.
    fn back_in_place(&self, list: &mut List, process: &Process, number: u64) {
        let mut own = process.descriptors.iter();
        let Some(own) = own.find(|own| own.number as u64 == number) else {
            list.call(libc::SYS_close, &[number], "close a descriptor");
            return;
        };
        let from = self.pool.files[own.file as usize] as u64;
        let flags = if own.close_on_exec {
            libc::O_CLOEXEC as u64
        } else {
            0
        };
        list.call(libc::SYS_dup3, &[from, number, flags], "place descriptor")
            .about(number);
    }
}
