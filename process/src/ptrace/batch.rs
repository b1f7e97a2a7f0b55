//! Remote syscall batches: many system calls in stopped threads, with one stop for each thread.
//!
//! A single remote system call costs two context switches, and on a busy machine a wait for a
//! processor with each. So all calls are collected first. The process maps memory that it shares
//! with the tracker, and all threads execute their lists of calls at the same time.
//!
//! ```text
//!  ┌──────┬─────────────────────────────────────────────────┬─────────┐
//!  │ loop │ lists: number, six arguments, result; … end     │ answers │   shared, unmapped after it
//!  └──────┴─────────────────────────────────────────────────┴─────────┘
//! ```
//!
//! Where that memory cannot be had (limits, no executable memory, a program that ignores the
//! signal of breakpoints) the calls are made one by one, with borrowed bytes of its memory.

use std::arch::global_asm;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use super::frozen::request;
use super::{Error, FrozenProcess, sys};
use crate::memory;

const PAGE: usize = 4096;
/// The loop's room; lists begin after it.
const LOOP_BYTES: usize = 64;
/// Number, six arguments, result.
const CALL_BYTES: usize = 64;
const RESULT: usize = 56;
const END: u64 = u64::MAX;
/// Fewer calls than this are made one by one: shared memory takes some itself.
const FEW: usize = 6;
/// Most bytes of an answer.
pub const ANSWER_BYTES_MAX: usize = 64;

global_asm!(
    ".pushsection .text.dormouse_calls,\"ax\",@progbits",
    ".globl dormouse_calls_start",
    ".globl dormouse_calls_end",
    "dormouse_calls_start:",
    // rbx: the list. No stack, no other memory.
    "20:",
    "mov rax, [rbx]",
    "cmp rax, -1",
    "je 21f",
    call_at_rbx!(),
    "mov [rbx + 56], rax",
    "add rbx, 64",
    "jmp 20b",
    "21:",
    "int3",
    "dormouse_calls_end:",
    ".popsection",
);

unsafe extern "C" {
    static dormouse_calls_start: u8;
    static dormouse_calls_end: u8;
}

fn code() -> &'static [u8] {
    // SAFETY: the two symbols bound the loop in our text.
    unsafe {
        let start = &raw const dormouse_calls_start;
        let bytes = (&raw const dormouse_calls_end).offset_from(start) as usize;
        std::slice::from_raw_parts(start, bytes)
    }
}

/// Room for what a call writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    at: usize,
    bytes: usize,
}

/// An argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// This word.
    Word(u64),
    /// The address of this room.
    Answer(Answer),
}

impl From<u64> for Argument {
    fn from(word: u64) -> Self {
        Self::Word(word)
    }
}

impl From<Answer> for Argument {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

/// Names a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallId(usize);

#[derive(Debug)]
struct Call {
    thread: usize,
    number: u64,
    arguments: [Argument; 6],
}

/// Calls to be made, in the order of each thread.
#[derive(Debug, Default)]
pub struct Batch {
    calls: Vec<Call>,
    answer_bytes: usize,
}

impl Batch {
    /// Room for an answer of at most [`ANSWER_BYTES_MAX`] bytes, zeroed. A call may have one such
    /// argument.
    pub fn answer(&mut self, bytes: usize) -> Answer {
        assert!(bytes <= ANSWER_BYTES_MAX, "an answer of {bytes} bytes");
        let at = self.answer_bytes;
        self.answer_bytes += bytes.next_multiple_of(8);
        Answer { at, bytes }
    }

    /// Adds a call in thread number `thread` of [`FrozenProcess::threads`]. It must not block.
    pub fn call(&mut self, thread: usize, number: libc::c_long, arguments: &[Argument]) -> CallId {
        let mut all = [Argument::Word(0); 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.calls.push(Call {
            thread,
            number: number as u64,
            arguments: all,
        });
        CallId(self.calls.len() - 1)
    }

    /// How many threads it may have calls of: those up to the last that has one.
    fn threads(&self) -> usize {
        let last = self.calls.iter().map(|call| call.thread).max();
        last.unwrap_or(0) + 1
    }
}

/// The outcome of a batch.
#[derive(Debug)]
pub struct Answers {
    results: Vec<i64>,
    bytes: Vec<u8>,
}

impl Answers {
    /// What the kernel returned.
    ///
    /// # Errors
    /// The error number that it returned.
    pub fn result(&self, call: CallId) -> io::Result<u64> {
        match self.results[call.0] {
            error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            result => Ok(result as u64),
        }
    }

    /// An answer as words.
    ///
    /// # Panics
    /// When it is shorter.
    pub fn words<const N: usize>(&self, answer: Answer) -> [u64; N] {
        assert!(answer.bytes >= N * 8, "an answer of {} bytes", answer.bytes);
        let mut words = [0; N];
        for (word, bytes) in words
            .iter_mut()
            .zip(self.bytes[answer.at..].chunks_exact(8))
        {
            let mut whole = [0; 8];
            whole.copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        words
    }
}

/// Memory of a process that the tracker has, too.
struct Shared {
    file: File,
    /// In the process.
    address: u64,
    bytes: u64,
}

impl FrozenProcess {
    /// Makes all calls. `spare` is the address of [`ANSWER_BYTES_MAX`] readable and writable bytes
    /// of the process, which are as before afterwards.
    ///
    /// # Errors
    /// A thread has ended, runs 32-bit code, there is no `syscall` instruction, or the spare
    /// bytes cannot be used.
    pub fn run(&mut self, batch: &Batch, spare: u64) -> Result<Answers, Error> {
        if batch.calls.len() >= FEW
            && let Some(shared) = self.share(batch)?
        {
            let answers = self.run_together(batch, &shared);
            let unmap = [shared.address, shared.bytes, 0, 0, 0, 0];
            let unmapped = self.syscall(0, libc::SYS_munmap, unmap);
            let answers = answers?;
            let pid = self.pid;
            unmapped?.map_err(|source| Error::Memory { pid, source })?;
            return Ok(answers);
        }
        self.run_singly(batch, spare)
    }

    fn run_singly(&mut self, batch: &Batch, spare: u64) -> Result<Answers, Error> {
        let pid = self.pid;
        let failed = |source| Error::Memory { pid, source };
        let saved = memory::read_array::<ANSWER_BYTES_MAX>(pid, spare).map_err(failed)?;
        let mut answers = Answers {
            results: Vec::with_capacity(batch.calls.len()),
            bytes: vec![0; batch.answer_bytes],
        };
        let mut made = Ok(());
        for call in &batch.calls {
            made = self.run_one(call, spare, &mut answers);
            if made.is_err() {
                break;
            }
        }
        memory::write(pid, spare, &saved).map_err(failed)?;
        made.map(|()| answers)
    }

    fn run_one(&mut self, call: &Call, spare: u64, answers: &mut Answers) -> Result<(), Error> {
        let pid = self.pid;
        let failed = |source| Error::Memory { pid, source };
        let answer = call.arguments.iter().find_map(|argument| match argument {
            Argument::Answer(answer) => Some(*answer),
            Argument::Word(_) => None,
        });
        if answer.is_some() {
            memory::write(pid, spare, &[0; ANSWER_BYTES_MAX]).map_err(failed)?;
        }
        let arguments = call.arguments.map(|argument| match argument {
            Argument::Word(word) => word,
            Argument::Answer(_) => spare,
        });
        let result = self.syscall(call.thread, call.number as libc::c_long, arguments)?;
        answers.results.push(match result {
            Ok(value) => value as i64,
            Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
        });
        if let Some(answer) = answer {
            let bytes = memory::read_array::<ANSWER_BYTES_MAX>(pid, spare).map_err(failed)?;
            answers.bytes[answer.at..answer.at + answer.bytes]
                .copy_from_slice(&bytes[..answer.bytes]);
        }
        Ok(())
    }

    /// Maps memory into the process for this batch. None: it cannot be had.
    fn share(&mut self, batch: &Batch) -> Result<Option<Shared>, Error> {
        let Some(name) = self.vdso()? else {
            return Ok(None);
        };
        for call in &batch.calls {
            if !self.can_trap(call.thread)? {
                return Ok(None);
            }
        }
        let threads = batch.threads();
        // Each thread's list has an end.
        let lists = (batch.calls.len() + threads) * CALL_BYTES;
        let bytes = (LOOP_BYTES + lists + batch.answer_bytes).next_multiple_of(PAGE) as u64;
        // The name is what a vdso begins with: a short string, as it happens.
        let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_EXEC);
        let made = self.syscall(0, libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0])?;
        let made = match made {
            // Before 6.3 there was no such flag, and all were executable.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let flags = u64::from(libc::MFD_CLOEXEC);
                self.syscall(0, libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0])?
            }
            other => other,
        };
        let Ok(remote) = made else { return Ok(None) };
        let taken = sys::take_fd(self.pid, remote as i32);
        let sized = taken.and_then(|fd: OwnedFd| {
            let file = File::from(fd);
            file.set_len(bytes)?;
            Ok(file)
        });
        let mapped = match sized {
            Ok(file) => {
                let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
                let arguments = [
                    0,
                    bytes,
                    protection as u64,
                    libc::MAP_SHARED as u64,
                    remote,
                    0,
                ];
                let mapped = self.syscall(0, libc::SYS_mmap, arguments)?;
                mapped.ok().map(|address| Shared {
                    file,
                    address,
                    bytes,
                })
            }
            Err(_) => None,
        };
        let _ = self.syscall(0, libc::SYS_close, [remote, 0, 0, 0, 0, 0])?;
        Ok(mapped)
    }

    fn run_together(&mut self, batch: &Batch, shared: &Shared) -> Result<Answers, Error> {
        let pid = self.pid;
        let failed = |source| Error::Memory { pid, source };
        let mut image = vec![0u8; shared.bytes as usize];
        image[..code().len()].copy_from_slice(code());
        let threads = batch.threads();
        let answers_at = LOOP_BYTES + (batch.calls.len() + threads) * CALL_BYTES;
        let mut at = LOOP_BYTES;
        let mut places = vec![0; batch.calls.len()];
        // Thread, and where its list begins.
        let mut lists = Vec::new();
        for thread in 0..threads {
            let mine = batch.calls.iter().enumerate();
            let mut mine = mine.filter(|(_, call)| call.thread == thread).peekable();
            if mine.peek().is_none() {
                continue;
            }
            lists.push((thread, shared.address + at as u64));
            for (index, call) in mine {
                places[index] = at;
                let arguments = call.arguments.map(|argument| match argument {
                    Argument::Word(word) => word,
                    Argument::Answer(answer) => shared.address + (answers_at + answer.at) as u64,
                });
                let words = std::iter::once(call.number).chain(arguments);
                for (place, word) in image[at..].chunks_exact_mut(8).zip(words) {
                    place.copy_from_slice(&word.to_ne_bytes());
                }
                at += CALL_BYTES;
            }
            image[at..at + 8].copy_from_slice(&END.to_ne_bytes());
            at += CALL_BYTES;
        }
        shared.file.write_all_at(&image, 0).map_err(failed)?;
        let end = shared.address + code().len() as u64;
        let mut result = Ok(());
        let mut running = Vec::new();
        for (thread, list) in lists {
            let thread = &mut self.threads[thread];
            match thread.start_loop(shared.address, list) {
                Ok(()) => running.push(thread.tid),
                Err(error) => result = result.and(Err(error)),
            }
        }
        // All of them, also after a failure: none may run on when the memory goes.
        for thread in self.threads.iter_mut() {
            if running.contains(&thread.tid) {
                result = result.and(thread.wait_for_trap(end, |tid| sys::cont(tid, 0)));
            }
        }
        result?;
        shared.file.read_exact_at(&mut image, 0).map_err(failed)?;
        let result_of = |place: &usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&image[place + RESULT..place + CALL_BYTES]);
            i64::from_ne_bytes(word)
        };
        Ok(Answers {
            results: places.iter().map(result_of).collect(),
            bytes: image[answers_at..answers_at + batch.answer_bytes].to_vec(),
        })
    }
}

impl super::FrozenThread {
    fn start_loop(&mut self, code: u64, list: u64) -> Result<(), Error> {
        let tid = self.tid;
        let mut registers = self.injected()?;
        registers.rip = code;
        registers.rbx = list;
        registers.orig_rax = u64::MAX;
        sys::set_registers(tid, &registers)
            .map_err(|source| request("set the registers of", tid, source))?;
        sys::cont(tid, 0).map_err(|source| request("continue", tid, source))
    }
}
