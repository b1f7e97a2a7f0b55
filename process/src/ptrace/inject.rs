//! Remote system calls: executes system calls in a stopped thread.
//!
//! The thread executes the `syscall` instruction of its vdso with registers that the tracer sets;
//! nothing is written to its memory. Meanwhile all signals are blocked, so that no handler runs.
//! SIGTRAP stays unblocked where possible: then a single step over the instruction is one stop for
//! each call instead of two. At the end the thread gets its registers and signal mask back, and is
//! brought to a stop of the same kind as before, because only there does the kernel restart a
//! system call that the freeze has interrupted (it checks `rax` for `-ERESTART*` where it checks for signals).

use libc::user_regs_struct;

use super::frozen::{Injection, request};
use super::{Error, FrozenProcess, FrozenThread, Pid, sys};
use crate::procfs;

/// Segment selector of 64-bit user code.
const USER_CS_64: u64 = 0x33;
/// SIGTRAP in a set of signals.
const TRAP_BIT: sys::SignalMask = 1 << (libc::SIGTRAP - 1);
/// `syscall`.
const SYSCALL_INSTRUCTION: [u8; 2] = [0x0f, 0x05];
const AT_SYSINFO_EHDR: u64 = 33;
/// More than any vdso has.
const VDSO_BYTES_MAX: usize = 16 << 10;

impl FrozenThread {
    /// Registers, as they were when the thread was frozen.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn registers(&self) -> Result<user_regs_struct, Error> {
        match &self.injection {
            Some(injection) => Ok(injection.registers),
            None => sys::registers(self.tid)
                .map_err(|source| request("read the registers of", self.tid, source)),
        }
    }

    /// Blocked signals, as they were when the thread was frozen.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn signal_mask(&self) -> Result<sys::SignalMask, Error> {
        match &self.injection {
            Some(injection) => Ok(injection.mask),
            None => sys::signal_mask(self.tid)
                .map_err(|source| request("read the signal mask of", self.tid, source)),
        }
    }

    fn begin(&mut self, pid: Pid, trap_is_ignored: bool) -> Result<(), Error> {
        if self.injection.is_some() {
            return Ok(());
        }
        let registers = self.registers()?;
        if registers.cs != USER_CS_64 {
            return Err(Error::Not64Bit { pid });
        }
        let mask = self.signal_mask()?;
        let trap = !trap_is_ignored && mask & TRAP_BIT == 0;
        let blocked = if trap { !TRAP_BIT } else { !0 };
        sys::set_signal_mask(self.tid, blocked)
            .map_err(|source| request("block the signals of", self.tid, source))?;
        self.injection = Some(Injection {
            registers,
            mask,
            trap,
            stop_signal: None,
        });
        Ok(())
    }

    /// Registers to start from while it runs calls for us.
    pub(super) fn injected(&self) -> Result<user_regs_struct, Error> {
        match &self.injection {
            Some(injection) => Ok(injection.registers),
            None => Err(Error::Gone { tid: self.tid }),
        }
    }

    fn set(&self, registers: &user_regs_struct) -> Result<(), Error> {
        sys::set_registers(self.tid, registers)
            .map_err(|source| request("set the registers of", self.tid, source))
    }

    /// Begins to give the thread its registers and mask back; [`Self::finish_end`] waits for it.
    /// False: there was nothing to give back.
    fn begin_end(&mut self) -> Result<bool, Error> {
        let Some(injection) = self.injection.take() else {
            return Ok(false);
        };
        let tid = self.tid;
        self.set(&injection.registers)?;
        sys::set_signal_mask(tid, injection.mask)
            .map_err(|source| request("set the signal mask of", tid, source))?;
        sys::interrupt(tid).map_err(|source| request("interrupt", tid, source))?;
        sys::cont(tid, 0).map_err(|source| request("continue", tid, source))?;
        self.stop_signal = self.stop_signal.or(injection.stop_signal);
        Ok(true)
    }

    /// Afterwards it is stopped as it was.
    fn finish_end(&mut self, pid: Pid) -> Result<(), Error> {
        let event = self.wait()?;
        if let Some(signal) = self.stop_signal.take() {
            // SAFETY: no memory involved. It takes effect when the thread runs on.
            unsafe { libc::syscall(libc::SYS_tgkill, pid, self.tid, signal) };
        }
        match event {
            sys::Event::Gone => Err(Error::Gone { tid: self.tid }),
            _ => Ok(()),
        }
    }

    /// Makes one call; it is at `instruction`.
    fn step(&mut self, registers: &user_regs_struct) -> Result<(), Error> {
        self.set(registers)?;
        let after = registers.rip + SYSCALL_INSTRUCTION.len() as u64;
        if self.injection.as_ref().is_some_and(|i| i.trap) {
            sys::step(self.tid).map_err(|source| request("step", self.tid, source))?;
            return self.wait_for_trap(after, sys::step);
        }
        self.step_to_syscall_stop()?;
        self.step_to_syscall_stop()
    }

    /// Waits until the thread has trapped in front of the instruction at `address`. Whatever else
    /// stops it, `again` lets it run on.
    pub(super) fn wait_for_trap(
        &mut self,
        address: u64,
        again: fn(Pid) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let tid = self.tid;
        loop {
            match self.wait()? {
                sys::Event::Gone => return Err(Error::Gone { tid }),
                sys::Event::Signal(libc::SIGTRAP)
                    if sys::registers(tid).is_ok_and(|now| now.rip == address) =>
                {
                    return Ok(());
                }
                event => self.keep(event),
            }
            again(tid).map_err(|source| request("continue", tid, source))?;
        }
    }

    /// A stop signal, which cannot be blocked, arrives meanwhile: the thread gets it later.
    fn keep(&mut self, event: sys::Event) {
        if let (sys::Event::Signal(signal), Some(injection)) = (event, &mut self.injection)
            && signal != libc::SIGTRAP
        {
            injection.stop_signal = Some(signal);
        }
    }

    fn step_to_syscall_stop(&mut self) -> Result<(), Error> {
        let tid = self.tid;
        loop {
            sys::cont_to_syscall(tid).map_err(|source| request("continue", tid, source))?;
            match self.wait()? {
                sys::Event::Syscall => return Ok(()),
                sys::Event::Gone => return Err(Error::Gone { tid }),
                event => self.keep(event),
            }
        }
    }

    /// Waits for the next stop. On an idle machine it comes sooner than we would sleep and wake;
    /// on a busy one we must not give our turn away.
    fn wait(&self) -> Result<sys::Event, Error> {
        const POLLS: u32 = 16;
        let failed = |source| request("wait for", self.tid, source);
        for _ in 0..POLLS {
            match sys::wait(self.tid, false).map_err(failed)? {
                sys::Event::Nothing => std::hint::spin_loop(),
                event => return Ok(event),
            }
        }
        sys::wait(self.tid, true).map_err(failed)
    }
}

impl FrozenProcess {
    /// Runs a system call in thread number `thread` of [`Self::threads`]. It must not block.
    ///
    /// Returns what the kernel returned: an error number as `Err` inside.
    ///
    /// # Errors
    /// The thread has ended, runs 32-bit code, or there is no `syscall` instruction.
    pub fn syscall(
        &mut self,
        thread: usize,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> Result<Result<u64, std::io::Error>, Error> {
        let instruction = self.syscall_instruction()?;
        self.begin(thread)?;
        let thread = &mut self.threads[thread];
        let mut registers = thread.injected()?;
        registers.rip = instruction;
        registers.rax = number as u64;
        // Not inside a call: the kernel has nothing to restart.
        registers.orig_rax = u64::MAX;
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = arguments;
        thread.step(&registers)?;
        let result = sys::registers(thread.tid)
            .map_err(|source| request("read the registers of", thread.tid, source))?
            .rax as i64;
        Ok(if (-4095..0).contains(&result) {
            Err(std::io::Error::from_raw_os_error(-result as i32))
        } else {
            Ok(result as u64)
        })
    }

    /// Makes a thread ready to run calls for us.
    pub(super) fn begin(&mut self, thread: usize) -> Result<(), Error> {
        let ignored = match self.trap_is_ignored {
            Some(ignored) => ignored,
            None => *self.trap_is_ignored.insert(ignores_trap(self.pid)),
        };
        self.threads[thread].begin(self.pid, ignored)
    }

    /// Whether SIGTRAP may stop a thread that runs calls for us.
    pub(super) fn can_trap(&mut self, thread: usize) -> Result<bool, Error> {
        self.begin(thread)?;
        let injection = &self.threads[thread].injection;
        Ok(injection.as_ref().is_some_and(|injection| injection.trap))
    }

    /// Gives all threads their registers back that ran system calls for us. Thawing does it, too.
    pub fn end_injections(&mut self) {
        let pid = self.pid;
        // All at once; a thread that has ended needs nothing any more.
        let ending: Vec<bool> = self
            .threads
            .iter_mut()
            .map(|thread| thread.begin_end().unwrap_or(false))
            .collect();
        for (thread, ending) in self.threads.iter_mut().zip(ending) {
            if ending {
                let _ = thread.finish_end(pid);
            }
        }
    }

    /// Where the process has its vdso, if a `syscall` instruction was found there.
    pub(super) fn vdso(&mut self) -> Result<Option<u64>, Error> {
        self.syscall_instruction()?;
        Ok(self.vdso)
    }

    /// Address of a `syscall` instruction in the process.
    pub fn syscall_instruction(&mut self) -> Result<u64, Error> {
        if let Some(address) = self.syscall_instruction {
            return Ok(address);
        }
        let pid = self.pid;
        let address = match find_in_vdso(pid) {
            Some((vdso, address)) => {
                self.vdso = Some(vdso);
                address
            }
            None => find_in_code(pid)?.ok_or(Error::NoSyscallInstruction { pid })?,
        };
        self.syscall_instruction = Some(address);
        Ok(address)
    }
}

fn ignores_trap(pid: Pid) -> bool {
    let status = procfs::status(pid, pid).unwrap_or_default();
    let ignored = procfs::field(&status, "SigIgn");
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok());
    ignored.is_none_or(|mask| mask & TRAP_BIT != 0)
}

/// The vdso, and the instruction in it.
fn find_in_vdso(pid: Pid) -> Option<(u64, u64)> {
    let auxv = procfs::auxv(pid).ok()?;
    let &(_, vdso) = auxv.iter().find(|(kind, _)| *kind == AT_SYSINFO_EHDR)?;
    Some((vdso, find_in(pid, vdso, VDSO_BYTES_MAX)?))
}

/// The vdso was moved or unmapped: any executable mapping will do.
fn find_in_code(pid: Pid) -> Result<Option<u64>, Error> {
    let maps = procfs::maps(pid).map_err(|source| Error::Proc {
        pid,
        file: "maps",
        source,
    })?;
    Ok(maps
        .iter()
        .filter(|map| map.protection & libc::PROT_EXEC != 0 && map.name != "[vsyscall]")
        .find_map(|map| find_in(pid, map.start, (map.end - map.start).min(4 << 20) as usize)))
}

fn find_in(pid: Pid, start: u64, bytes: usize) -> Option<u64> {
    let mut code = vec![0u8; bytes];
    let got = crate::memory::read(pid, start, &mut code).ok()?;
    let at = code[..got]
        .windows(2)
        .position(|window| window == SYSCALL_INSTRUCTION)?;
    Some(start + at as u64)
}
