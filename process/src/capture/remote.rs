//! State that only the process itself can read: signal handlers, alternate stacks, timers, and the
//! like. All threads execute their remote system calls as one batch.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::query::{Query, query, result, written};
use super::task::parse_timers;
use super::thread::{self, queue};
use super::{Builder, Error, settings};
use crate::procfs;
use crate::ptrace::{ANSWER_BYTES_MAX, Answers, Batch, FrozenProcess, sys};
use crate::state;
use crate::store::PAGE_BYTES;

const PR_GET_PDEATHSIG: u64 = 2;
const PR_GET_DUMPABLE: u64 = 3;
const PR_GET_CHILD_SUBREAPER: u64 = 37;
const PR_GET_TID_ADDRESS: u64 = 40;
const MEMBARRIER_CMD_GET_REGISTRATIONS: u64 = 1 << 9;

/// The queries to one thread.
struct ThreadQueries {
    stack: Query,
    clear_tid: Query,
    death_signal: Query,
    settings: settings::OfThread,
}

/// The queries about one timer.
struct TimerQueries {
    time: Query,
    overrun: Query,
}

/// All questions to one process.
struct Queries {
    batch: Batch,
    brk: Query,
    dumpable: Query,
    settings: settings::OfProcess,
    subreaper: Query,
    membarrier: Query,
    interval_timers: [Query; 3],
    actions: Vec<(u8, Query)>,
    threads: Vec<ThreadQueries>,
    timers: Vec<(state::Timer, TimerQueries)>,
}

impl Queries {
    fn new(threads: usize, handlers: u64, timers: Vec<state::Timer>) -> Self {
        let mut batch = Batch::default();
        let all = &mut batch;
        let prctl = (0, libc::SYS_prctl);
        let brk = result(all, (0, libc::SYS_brk), &[0], "read its break");
        let dumpable = result(
            all,
            prctl,
            &[PR_GET_DUMPABLE],
            "read whether it is dumpable",
        );
        let settings = settings::OfProcess::new(all);
        let subreaper = written(
            all,
            0,
            PR_GET_CHILD_SUBREAPER,
            "read whether it is a subreaper",
        );
        let barriers = [MEMBARRIER_CMD_GET_REGISTRATIONS];
        let membarrier = result(
            all,
            (0, libc::SYS_membarrier),
            &barriers,
            "read its barriers",
        );
        let interval_timers = [0u64, 1, 2].map(|kind| {
            let answer = all.answer(32);
            let arguments = [kind.into(), answer.into()];
            let call = (0, libc::SYS_getitimer);
            query(all, call, &arguments, answer, "read its timers")
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
                let action = "read its signal handlers";
                (signal, query(all, call, &arguments, answer, action))
            })
            .collect();
        let threads = (0..threads)
            .map(|thread| {
                let answer = all.answer(24);
                let arguments = [0.into(), answer.into()];
                let call = (thread, libc::SYS_sigaltstack);
                let action = "read its signal stack";
                ThreadQueries {
                    stack: query(all, call, &arguments, answer, action),
                    clear_tid: written(
                        all,
                        thread,
                        PR_GET_TID_ADDRESS,
                        "read its thread id address",
                    ),
                    death_signal: written(all, thread, PR_GET_PDEATHSIG, "read its death signal"),
                    settings: settings::OfThread::new(all, thread),
                }
            })
            .collect();
        let timers = timers
            .into_iter()
            .map(|timer| {
                let id = timer.id as u64;
                let answer = all.answer(32);
                let arguments = [id.into(), answer.into()];
                let action = "read a POSIX timer";
                let call = (0, libc::SYS_timer_gettime);
                let time = query(all, call, &arguments, answer, action);
                let overrun = result(all, (0, libc::SYS_timer_getoverrun), &[id], action);
                (timer, TimerQueries { time, overrun })
            })
            .collect();
        Self {
            brk,
            dumpable,
            settings,
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

/// Locked memory, as `/proc/PID/status` has it.
fn locked_kib(status: &str) -> u64 {
    let field = procfs::field(status, "VmLck").unwrap_or("");
    let mut words = field.split_ascii_whitespace();
    words.next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

impl Builder<'_> {
    /// Reads the state of a process and of its threads by remote system calls.
    pub(super) fn query_inside(
        &mut self,
        process: &mut state::Process,
        frozen: &mut FrozenProcess,
    ) -> Result<(), Error> {
        let pid = self.pid;
        let status = procfs::status(pid, pid).map_err(self.failed("read its status"))?;
        if !self.may_call(frozen)? {
            return Ok(());
        }
        let set =
            |name| procfs::field(&status, name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        // Only handlers that differ from the default, and SIGCHLD's, whose default action may
        // carry flags.
        let handlers =
            set("SigCgt").unwrap_or(!0) | set("SigIgn").unwrap_or(!0) | 1 << (libc::SIGCHLD - 1);
        let timers = match procfs::text(format!("/proc/{pid}/timers")) {
            Ok(text) => parse_timers(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.failed("read its POSIX timers")(error)),
        };
        let queries = Queries::new(frozen.threads.len(), handlers, timers);
        let spare = self.spare_address(process, frozen)?;
        let answers = frozen.run(&queries.batch, spare)?;
        if locked_kib(&status) > 0 {
            process.locks_future = self.locks_future(frozen)?;
        }
        self.take(process, queries, &answers, frozen)?;
        self.memory_nodes(process, frozen, spare)
    }

    /// Whether new mappings are locked (`MCL_FUTURE`), which nothing shows but a new mapping. Only a program
    /// with locked memory is asked.
    fn locks_future(&self, frozen: &mut FrozenProcess) -> Result<i32, Error> {
        const PRESENT: u64 = 1 << 63;
        let pid = self.pid;
        let failed = || self.failed("read whether it locks new memory");
        let locked =
            || -> io::Result<u64> { Ok(locked_kib(&procfs::text(format!("/proc/{pid}/status"))?)) };
        let before = locked().map_err(failed())?;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let arguments = [0, PAGE_BYTES, libc::PROT_READ as u64, flags, u64::MAX, 0];
        let address = match frozen.syscall(0, libc::SYS_mmap, arguments)? {
            Ok(address) => address,
            // More than it may lock.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                return Ok(libc::MCL_FUTURE);
            }
            // There is no room for a mapping, now or later.
            Err(_) => return Ok(0),
        };
        let after = locked();
        let mut entry = [0; 8];
        let pagemap = File::open(format!("/proc/{pid}/pagemap"));
        let read =
            pagemap.and_then(|pagemap| pagemap.read_exact_at(&mut entry, address / PAGE_BYTES * 8));
        let unmapped = frozen.syscall(0, libc::SYS_munmap, [address, PAGE_BYTES, 0, 0, 0, 0])?;
        unmapped.map_err(failed())?;
        read.map_err(failed())?;
        let present = u64::from_ne_bytes(entry) & PRESENT != 0;
        Ok(match after.map_err(failed())? > before {
            false => 0,
            true if present => libc::MCL_FUTURE,
            true => libc::MCL_FUTURE | libc::MCL_ONFAULT,
        })
    }

    /// A filter may end the process for any unexpected call. Threads may have their own. False: it was
    /// refused.
    pub(super) fn may_call(&mut self, frozen: &mut FrozenProcess) -> Result<bool, Error> {
        let pid = self.pid;
        let mut filtered = false;
        for thread in &frozen.threads {
            let status =
                procfs::status(pid, thread.tid).map_err(self.failed("read a thread's status"))?;
            filtered |= procfs::has_own_filter(thread.tid, &status);
            self.statuses.insert(thread.tid, status);
        }
        // Calls for us would be dispatched as well.
        let dispatching = frozen.threads.iter().map(|thread| thread.tid);
        if let Some(tid) = dispatching
            .into_iter()
            .find(|tid| sys::dispatches_calls(*tid))
        {
            self.refuse(format!(
                "thread {tid} dispatches its system calls to itself"
            ));
            return Ok(false);
        }
        Ok(!filtered || self.suspend_filters(frozen))
    }

    /// Readable and writable bytes that are surely there and private: where the main thread's
    /// stack pointer points, or else the first page that may be written.
    pub(super) fn spare_address(
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
        queries: Queries,
        answers: &Answers,
        frozen: &FrozenProcess,
    ) -> Result<(), Error> {
        let pid = self.pid;
        let value = |query: &Query| {
            answers.result(query.call).map_err(|source| Error::Read {
                pid,
                action: query.action.to_owned(),
                source,
            })
        };
        process.layout.brk = value(&queries.brk)?;
        process.dumpable = value(&queries.dumpable)? as i32;
        self.settings_of_process(process, &queries.settings, answers);
        value(&queries.subreaper)?;
        let [subreaper] = answers.words::<1>(queries.subreaper.answer);
        process.subreaper = subreaper as u32 != 0;
        // Kernels before 6.3 do not know this query: then nothing is restored.
        process.membarrier = value(&queries.membarrier).unwrap_or(0) as u32;
        for (timer, query) in process
            .interval_timers
            .iter_mut()
            .zip(&queries.interval_timers)
        {
            value(query)?;
            let [interval_s, interval_us, value_s, value_us] = answers.words::<4>(query.answer);
            *timer = (
                value_s * 1_000_000 + value_us,
                interval_s * 1_000_000 + interval_us,
            );
        }
        for (signal, query) in &queries.actions {
            value(query)?;
            let [handler, flags, restorer, mask] = answers.words::<4>(query.answer);
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
        for (at, of) in queries.threads.iter().enumerate() {
            for query in [&of.stack, &of.clear_tid, &of.death_signal] {
                value(query)?;
            }
            let [address, flags, bytes] = answers.words::<3>(of.stack.answer);
            let [clear_tid] = answers.words::<1>(of.clear_tid.answer);
            let [death_signal] = answers.words::<1>(of.death_signal.answer);
            let reported = thread::Reported {
                alternate_stack: (address, flags as i32, bytes),
                clear_tid,
                parent_death_signal: death_signal as u32 as i32,
                securebits: of.settings.securebits(answers),
                settings: self.settings(&of.settings, frozen.threads[at].tid, answers),
            };
            let thread = self.thread(&frozen.threads[at], reported)?;
            process.threads.push(thread);
        }
        process.pending = queue(pid, true)?;
        let timers = queries.timers.iter().map(|(timer, _)| timer);
        self.check_timers(process, timers);
        for (mut timer, of) in queries.timers {
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
