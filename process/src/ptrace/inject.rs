//! Running system calls in a stopped thread.
//!
//! The thread's own `syscall` instruction (every process has one in its vdso) is run with our
//! registers; nothing is written to its memory. All signals are blocked meanwhile, so that no
//! handler runs. At the end the thread gets its registers and its mask back and is taken to a
//! stop of the same kind as before: only there does the kernel restart a system call that the
//! freeze has interrupted (it looks for `-ERESTART*` in `rax` where it looks for signals).

use libc::user_regs_struct;

use super::freeze::request;
use super::{Error, FrozenProcess, FrozenThread, Pid, sys};
use crate::procfs;

/// What a thread had before we used it.
#[derive(Debug)]
pub struct Injection {
    registers: user_regs_struct,
    mask: sys::SignalMask,
}

/// Segment selector of 64-bit user code.
const USER_CS_64: u64 = 0x33;
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

    fn begin(&mut self, pid: Pid) -> Result<(), Error> {
        let registers = self.registers()?;
        if registers.cs != USER_CS_64 {
            return Err(Error::Not64Bit { pid });
        }
        let mask = self.signal_mask()?;
        sys::set_signal_mask(self.tid, !0)
            .map_err(|source| request("block the signals of", self.tid, source))?;
        self.injection = Some(Injection { registers, mask });
        Ok(())
    }

    /// Gives the thread its registers and mask back. Afterwards it is stopped as it was.
    fn end(&mut self) -> Result<(), Error> {
        let Some(injection) = self.injection.take() else {
            return Ok(());
        };
        let tid = self.tid;
        sys::set_registers(tid, &injection.registers)
            .map_err(|source| request("set the registers of", tid, source))?;
        sys::set_signal_mask(tid, injection.mask)
            .map_err(|source| request("set the signal mask of", tid, source))?;
        sys::interrupt(tid).map_err(|source| request("interrupt", tid, source))?;
        sys::cont(tid, 0).map_err(|source| request("continue", tid, source))?;
        match self.wait()? {
            sys::Event::Gone => Err(Error::Gone { tid }),
            _ => Ok(()),
        }
    }

    fn step_to_syscall_stop(&self) -> Result<(), Error> {
        let tid = self.tid;
        loop {
            sys::cont_to_syscall(tid).map_err(|source| request("continue", tid, source))?;
            match self.wait()? {
                sys::Event::Syscall => return Ok(()),
                sys::Event::Gone => return Err(Error::Gone { tid }),
                // A stop signal that arrived meanwhile: its process stays marked as stopped, and
                // the thread joins it when we detach.
                _ => {}
            }
        }
    }

    /// Waits for the next stop. It comes within microseconds: sooner than we would sleep and wake.
    fn wait(&self) -> Result<sys::Event, Error> {
        const LOOKS: u32 = 64;
        let failed = |source| request("wait for", self.tid, source);
        for _ in 0..LOOKS {
            match sys::wait(self.tid, false).map_err(failed)? {
                sys::Event::Nothing => std::thread::yield_now(),
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
        let pid = self.pid;
        let thread = &mut self.threads[thread];
        if thread.injection.is_none() {
            thread.begin(pid)?;
        }
        let Some(injection) = &thread.injection else {
            return Err(Error::Gone { tid: thread.tid });
        };
        let mut registers = injection.registers;
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
        sys::set_registers(thread.tid, &registers)
            .map_err(|source| request("set the registers of", thread.tid, source))?;
        thread.step_to_syscall_stop()?;
        thread.step_to_syscall_stop()?;
        let result = sys::registers(thread.tid)
            .map_err(|source| request("read the registers of", thread.tid, source))?
            .rax as i64;
        Ok(if (-4095..0).contains(&result) {
            Err(std::io::Error::from_raw_os_error(-result as i32))
        } else {
            Ok(result as u64)
        })
    }

    /// Gives all threads their registers back that ran system calls for us. Thawing does it, too.
    pub fn end_injections(&mut self) {
        for thread in &mut self.threads {
            // A thread that has ended needs nothing any more.
            let _ = thread.end();
        }
    }

    /// Address of a `syscall` instruction in the process.
    pub fn syscall_instruction(&mut self) -> Result<u64, Error> {
        if let Some(address) = self.syscall_instruction {
            return Ok(address);
        }
        let pid = self.pid;
        let address = match find_in_vdso(pid) {
            Some(address) => address,
            None => find_in_code(pid)?.ok_or(Error::NoSyscallInstruction { pid })?,
        };
        self.syscall_instruction = Some(address);
        Ok(address)
    }
}

fn find_in_vdso(pid: Pid) -> Option<u64> {
    let auxv = procfs::auxv(pid).ok()?;
    let &(_, vdso) = auxv.iter().find(|(kind, _)| *kind == AT_SYSINFO_EHDR)?;
    find_in(pid, vdso, VDSO_BYTES_MAX)
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
