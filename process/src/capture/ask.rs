//! What only a process itself can ask: handlers, alternate stacks, timers, and the like. All
//! questions of all its threads are asked in one go.

use std::fs;
use std::io;

use super::task::parse_timers;
use super::thread::{self, PR_GET_SECUREBITS, queue};
use super::{Builder, Error};
use crate::procfs;
use crate::ptrace::{ANSWER_BYTES_MAX, Answer, Answers, Argument, Batch, CallId, FrozenProcess};
use crate::state;

const PR_GET_PDEATHSIG: u64 = 2;
const PR_GET_DUMPABLE: u64 = 3;
const PR_GET_CHILD_SUBREAPER: u64 = 37;
const PR_GET_TID_ADDRESS: u64 = 40;
const MEMBARRIER_CMD_GET_REGISTRATIONS: u64 = 1 << 9;

/// A call whose answer is its result, or bytes that it writes.
struct Question {
    call: CallId,
    answer: Answer,
    action: &'static str,
}

/// What is asked of one thread.
struct OfThread {
    stack: Question,
    clear_tid: Question,
    death_signal: Question,
}

/// What is asked of one timer.
struct OfTimer {
    time: Question,
    overrun: Question,
}

/// All questions to one process.
struct Questions {
    batch: Batch,
    brk: Question,
    dumpable: Question,
    securebits: Question,
    subreaper: Question,
    membarrier: Question,
    interval_timers: [Question; 3],
    actions: Vec<(u8, Question)>,
    threads: Vec<OfThread>,
    timers: Vec<(state::Timer, OfTimer)>,
}

fn question(
    batch: &mut Batch,
    (thread, number): (usize, libc::c_long),
    arguments: &[Argument],
    answer: Answer,
    action: &'static str,
) -> Question {
    Question {
        call: batch.call(thread, number, arguments),
        answer,
        action,
    }
}

/// Asks something whose answer is the call's result.
fn result(
    batch: &mut Batch,
    call: (usize, libc::c_long),
    arguments: &[u64],
    action: &'static str,
) -> Question {
    let words: Vec<Argument> = arguments.iter().map(|word| Argument::Word(*word)).collect();
    let nothing = batch.answer(0);
    question(batch, call, &words, nothing, action)
}

/// Asks with `prctl` for something that it writes.
fn written(batch: &mut Batch, thread: usize, option: u64, action: &'static str) -> Question {
    let answer = batch.answer(8);
    let arguments = [option.into(), answer.into()];
    question(batch, (thread, libc::SYS_prctl), &arguments, answer, action)
}

impl Questions {
    fn new(threads: usize, handlers: u64, timers: Vec<state::Timer>) -> Self {
        let mut batch = Batch::default();
        let all = &mut batch;
        let prctl = (0, libc::SYS_prctl);
        let brk = result(all, (0, libc::SYS_brk), &[0], "ask for its break");
        let dumpable = result(all, prctl, &[PR_GET_DUMPABLE], "ask whether it is dumpable");
        let securebits = result(all, prctl, &[PR_GET_SECUREBITS], "ask for its securebits");
        let subreaper = written(
            all,
            0,
            PR_GET_CHILD_SUBREAPER,
            "ask whether it is a subreaper",
        );
        let barriers = [MEMBARRIER_CMD_GET_REGISTRATIONS];
        let membarrier = result(
            all,
            (0, libc::SYS_membarrier),
            &barriers,
            "ask for barriers",
        );
        let interval_timers = [0u64, 1, 2].map(|kind| {
            let answer = all.answer(32);
            let arguments = [kind.into(), answer.into()];
            let call = (0, libc::SYS_getitimer);
            question(all, call, &arguments, answer, "ask for its timers")
        });
        let unchangeable = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        let actions = (1..=64u8)
            .filter(|signal| handlers & !unchangeable & 1 << (signal - 1) != 0)
            .map(|signal| {
                let answer = all.answer(32);
                let mask_bytes = 8;
                let arguments = [
                    u64::from(signal).into(),
                    0.into(),
                    answer.into(),
                    mask_bytes.into(),
                ];
                let call = (0, libc::SYS_rt_sigaction);
                let action = "ask for its signal handlers";
                (signal, question(all, call, &arguments, answer, action))
            })
            .collect();
        let threads = (0..threads)
            .map(|thread| {
                let answer = all.answer(24);
                let arguments = [0.into(), answer.into()];
                let call = (thread, libc::SYS_sigaltstack);
                let action = "ask for its signal stack";
                OfThread {
                    stack: question(all, call, &arguments, answer, action),
                    clear_tid: written(
                        all,
                        thread,
                        PR_GET_TID_ADDRESS,
                        "ask for its thread id address",
                    ),
                    death_signal: written(
                        all,
                        thread,
                        PR_GET_PDEATHSIG,
                        "ask for its death signal",
                    ),
                }
            })
            .collect();
        let timers = timers
            .into_iter()
            .map(|timer| {
                let id = timer.id as u64;
                let answer = all.answer(32);
                let arguments = [id.into(), answer.into()];
                let action = "ask for a POSIX timer";
                let call = (0, libc::SYS_timer_gettime);
                let time = question(all, call, &arguments, answer, action);
                let overrun = result(all, (0, libc::SYS_timer_getoverrun), &[id], action);
                (timer, OfTimer { time, overrun })
            })
            .collect();
        Self {
            brk,
            dumpable,
            securebits,
            subreaper,
            membarrier,
            interval_timers,
            actions,
            threads,
            timers,
            batch,
        }
    }
}

impl Builder<'_> {
    /// Asks the process and describes what it says, and what else is known of its threads.
    pub(super) fn ask_inside(
        &mut self,
        process: &mut state::Process,
        frozen: &mut FrozenProcess,
    ) -> Result<(), Error> {
        let pid = self.pid;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(self.failed("read its status"))?;
        // A filter may end the process for any call that it does not expect: nothing is asked.
        if procfs::field(&status, "Seccomp").is_some_and(|mode| mode != "0") {
            self.refuse("it runs under seccomp");
            return Ok(());
        }
        let set =
            |name| procfs::field(&status, name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        // Only handlers that differ from the default, and SIGCHLD's, whose default action may
        // carry flags.
        let handlers =
            set("SigCgt").unwrap_or(!0) | set("SigIgn").unwrap_or(!0) | 1 << (libc::SIGCHLD - 1);
        let timers = match fs::read_to_string(format!("/proc/{pid}/timers")) {
            Ok(text) => parse_timers(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.failed("read its POSIX timers")(error)),
        };
        let asked = Questions::new(frozen.threads.len(), handlers, timers);
        let spare = self.spare_address(process, frozen)?;
        let answers = frozen.run(&asked.batch, spare)?;
        self.take(process, asked, &answers, frozen)
    }

    /// Readable and writable bytes that are surely there and private: where the main thread's
    /// stack pointer points, or else the first page that may be written.
    fn spare_address(
        &self,
        process: &state::Process,
        frozen: &FrozenProcess,
    ) -> Result<u64, Error> {
        const { assert!(ANSWER_BYTES_MAX <= 4096) };
        let stack = frozen.threads[0].registers()?.rsp & !4095;
        let usable = |mapping: &&state::Mapping| {
            !mapping.shared
                && i32::from(mapping.protection) & (libc::PROT_READ | libc::PROT_WRITE)
                    == libc::PROT_READ | libc::PROT_WRITE
                && !matches!(mapping.backing, state::Backing::Kernel(_))
        };
        if process
            .mappings
            .iter()
            .filter(usable)
            .any(|m| m.start <= stack && stack < m.end)
        {
            return Ok(stack);
        }
        process
            .mappings
            .iter()
            .find(usable)
            .map(|mapping| mapping.start)
            .ok_or_else(|| {
                self.failed("find writable memory in it")(io::Error::from_raw_os_error(
                    libc::EFAULT,
                ))
            })
    }

    fn take(
        &mut self,
        process: &mut state::Process,
        asked: Questions,
        answers: &Answers,
        frozen: &FrozenProcess,
    ) -> Result<(), Error> {
        let pid = self.pid;
        let value = |question: &Question| {
            answers.result(question.call).map_err(|source| Error::Read {
                pid,
                action: question.action.to_owned(),
                source,
            })
        };
        process.layout.brk = value(&asked.brk)?;
        process.dumpable = value(&asked.dumpable)? as i32;
        let securebits = value(&asked.securebits)? as u32;
        value(&asked.subreaper)?;
        let [subreaper] = answers.words::<1>(asked.subreaper.answer);
        process.subreaper = subreaper as u32 != 0;
        // Kernels before 6.3 do not know this question: then nothing is restored.
        process.membarrier = value(&asked.membarrier).unwrap_or(0) as u32;
        for (timer, question) in process
            .interval_timers
            .iter_mut()
            .zip(&asked.interval_timers)
        {
            value(question)?;
            let [interval_s, interval_us, value_s, value_us] = answers.words::<4>(question.answer);
            *timer = (
                value_s * 1_000_000 + value_us,
                interval_s * 1_000_000 + interval_us,
            );
        }
        for (signal, question) in &asked.actions {
            value(question)?;
            let [handler, flags, restorer, mask] = answers.words::<4>(question.answer);
            if [handler, flags, mask] != [0; 3] {
                process.actions.push(state::Action {
                    signal: *signal,
                    handler,
                    flags,
                    restorer,
                    mask,
                });
            }
        }
        for (at, of) in asked.threads.iter().enumerate() {
            for question in [&of.stack, &of.clear_tid, &of.death_signal] {
                value(question)?;
            }
            let [address, flags, bytes] = answers.words::<3>(of.stack.answer);
            let [clear_tid] = answers.words::<1>(of.clear_tid.answer);
            let [death_signal] = answers.words::<1>(of.death_signal.answer);
            let told = thread::Told {
                alternate_stack: (address, flags as i32, bytes),
                clear_tid,
                parent_death_signal: death_signal as u32 as i32,
                securebits,
            };
            let thread = self.thread(&frozen.threads[at], &told)?;
            process.threads.push(thread);
        }
        process.pending = queue(pid, true)?;
        for (mut timer, of) in asked.timers {
            value(&of.time)?;
            let [interval_s, interval_ns, value_s, value_ns] = answers.words::<4>(of.time.answer);
            timer.interval_ns = interval_s * 1_000_000_000 + interval_ns;
            timer.remaining_ns = value_s * 1_000_000_000 + value_ns;
            timer.overrun = value(&of.overrun)? as i32;
            process.timers.push(timer);
        }
        Ok(())
    }
}
