//! Settings of a thread or of a process that only it can read, and that are easily forgotten. They are
//! read with the batch of remote system calls that reads all else.

use std::sync::OnceLock;

use super::query::{Query, query, result, written};
use super::thread::PR_GET_SECUREBITS;
use super::{Builder, Error};
use crate::procfs;
use crate::ptrace::{Answers, Batch, CallId, FrozenProcess};
use crate::state::{self, Settings};

const PR_GET_TSC: u64 = 25;
const PR_GET_TIMERSLACK: u64 = 30;
const PR_MCE_KILL_GET: u64 = 34;
const PR_GET_THP_DISABLE: u64 = 42;
const PR_GET_MDWE: u64 = 66;
const PR_GET_MEMORY_MERGE: u64 = 68;
const ARCH_GET_CPUID: u64 = 0x1011;
const KEYCTL_GET_KEYRING_ID: u64 = 0;
/// `PR_THP_DISABLE_EXCEPT_ADVISED`, as the answer has it.
const EXCEPT_ADVISED: u64 = 2;
/// A call that does nothing but tell the personality.
const PERSONALITY_QUERY: u64 = 0xffff_ffff;
/// Nodes that one call tells of: more than any kernel has.
const NODES: u64 = 512;

/// Rings of keys that a thread or a process has for itself. The third one, that of a session, cannot
/// be asked for: a thread that has none would get one.
const KEYRINGS: [(&str, i64); 2] = [("thread", -1), ("process", -2)];

/// The queries to one thread.
pub(super) struct OfThread {
    securebits: Query,
    timer_slack: Query,
    personality: Query,
    machine_check: Query,
    time_stamp: Query,
    cpuid: Query,
    rare: Option<Rare>,
}

/// Queries by system calls that a filter of the tracker's own may end us for.
struct Rare {
    memory_policy: Query,
    keyrings: [Query; 2],
}

/// The queries to a process.
pub(super) struct OfProcess {
    huge_pages: Query,
    no_new_code: Query,
    merged: Query,
    segments: Option<Query>,
}

impl OfThread {
    pub(super) fn new(batch: &mut Batch, thread: usize) -> Self {
        let prctl = (thread, libc::SYS_prctl);
        let slack = "read the slack of its timers";
        let persona = (thread, libc::SYS_personality);
        let checks = "read what it does at machine checks";
        let arch = (thread, libc::SYS_arch_prctl);
        Self {
            securebits: result(batch, prctl, &[PR_GET_SECUREBITS], "read its securebits"),
            timer_slack: result(batch, prctl, &[PR_GET_TIMERSLACK], slack),
            personality: result(batch, persona, &[PERSONALITY_QUERY], "read its personality"),
            machine_check: result(batch, prctl, &[PR_MCE_KILL_GET, 0, 0, 0, 0], checks),
            time_stamp: written(
                batch,
                thread,
                PR_GET_TSC,
                "read whether it may read the TSC",
            ),
            cpuid: result(
                batch,
                arch,
                &[ARCH_GET_CPUID],
                "read whether it may use CPUID",
            ),
            rare: rare_calls_are_allowed().then(|| Rare::new(batch, thread)),
        }
    }

    pub(super) fn securebits(&self, answers: &Answers) -> u32 {
        answers.result(self.securebits.call).unwrap_or(0) as u32
    }
}

impl Rare {
    fn new(batch: &mut Batch, thread: usize) -> Self {
        let mode = batch.answer(8);
        let arguments = [mode.into(), 0.into(), 0.into(), 0.into(), 0.into()];
        let call = (thread, libc::SYS_get_mempolicy);
        let action = "read its memory policy";
        let memory_policy = query(batch, call, &arguments, mode, action);
        let keyrings = KEYRINGS.map(|(_, number)| {
            let arguments = [KEYCTL_GET_KEYRING_ID, number as u64, 0];
            result(
                batch,
                (thread, libc::SYS_keyctl),
                &arguments,
                "read its keyrings",
            )
        });
        Self {
            memory_policy,
            keyrings,
        }
    }
}

impl OfProcess {
    pub(super) fn new(batch: &mut Batch) -> Self {
        let prctl = (0, libc::SYS_prctl);
        let huge = "read whether it has huge pages";
        let code = "read whether it may make memory executable";
        let merged = "read whether its memory is merged";
        let segments = rare_calls_are_allowed().then(|| {
            let answer = batch.answer(8);
            let arguments = [0.into(), answer.into(), 8.into()];
            let call = (0, libc::SYS_modify_ldt);
            query(batch, call, &arguments, answer, "read its segments")
        });
        Self {
            huge_pages: result(batch, prctl, &[PR_GET_THP_DISABLE, 0, 0, 0, 0], huge),
            no_new_code: result(batch, prctl, &[PR_GET_MDWE, 0, 0, 0, 0], code),
            merged: result(batch, prctl, &[PR_GET_MEMORY_MERGE, 0, 0, 0, 0], merged),
            segments,
        }
    }
}

impl Builder<'_> {
    /// What a thread has answered. A kernel that does not know a query has nothing to tell.
    pub(super) fn settings(&mut self, of: &OfThread, tid: i32, answers: &Answers) -> Settings {
        let number = |query: &Query, other: u64| answers.result(query.call).unwrap_or(other);
        let [time_stamp] = answers.words::<1>(of.time_stamp.answer);
        let mut memory_policy = 0;
        if let Some(rare) = &of.rare {
            for (query, (name, _)) in rare.keyrings.iter().zip(KEYRINGS) {
                if answers.result(query.call).is_ok() {
                    self.refuse(format!("thread {tid} has a {name} keyring"));
                }
            }
            memory_policy = answers.words::<1>(rare.memory_policy.answer)[0] as u32;
        }
        Settings {
            timer_slack_ns: number(&of.timer_slack, 0),
            personality: number(&of.personality, 0) as u32,
            machine_check: number(&of.machine_check, libc::PR_MCE_KILL_DEFAULT as u64) as u32,
            time_stamp: time_stamp as u32 != libc::PR_TSC_SIGSEGV as u32,
            cpuid: number(&of.cpuid, 1) != 0,
            memory_policy,
            memory_nodes: Vec::new(),
        }
    }

    pub(super) fn settings_of_process(
        &mut self,
        process: &mut state::Process,
        of: &OfProcess,
        answers: &Answers,
    ) {
        let number = |query: &Query| answers.result(query.call).unwrap_or(0);
        process.huge_pages_only_advised = number(&of.huge_pages) & EXCEPT_ADVISED != 0;
        process.no_new_code = number(&of.no_new_code) as u32;
        process.memory_merged = number(&of.merged) != 0;
        if of.segments.as_ref().is_some_and(|query| number(query) != 0) {
            self.refuse("it has segments of its own (modify_ldt)");
        }
    }

    /// The nodes of memory policies: few programs have one, so it is a second batch.
    pub(super) fn memory_nodes(
        &mut self,
        process: &mut state::Process,
        frozen: &mut FrozenProcess,
        spare: u64,
    ) -> Result<(), Error> {
        let mut batch = Batch::default();
        let mut asked: Vec<(usize, CallId, crate::ptrace::Answer)> = Vec::new();
        for (at, thread) in process.threads.iter().enumerate() {
            if thread.settings.memory_policy != 0 {
                let answer = batch.answer(NODES as usize / 8);
                let arguments = [0.into(), answer.into(), NODES.into(), 0.into(), 0.into()];
                let call = batch.call(at, libc::SYS_get_mempolicy, &arguments);
                asked.push((at, call, answer));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let answers = frozen.run(&batch, spare)?;
        for (at, call, answer) in asked {
            let known = answers.result(call);
            known.map_err(self.failed("read the nodes of its memory policy"))?;
            let mut nodes = answers.words::<{ NODES as usize / 64 }>(answer).to_vec();
            nodes.truncate(
                nodes
                    .iter()
                    .rposition(|word| *word != 0)
                    .map_or(0, |last| last + 1),
            );
            process.threads[at].settings.memory_nodes = nodes;
        }
        Ok(())
    }
}

/// Whether calls that few programs make end nobody: a filter that the program has from its tracker may
/// end it for them, but ends us just as well. So a child of ours makes them first.
fn rare_calls_are_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let own = std::process::id().cast_signed();
        let status = procfs::status(own, own).unwrap_or_default();
        procfs::field(&status, "Seccomp") == Some("0") || a_child_survives_them()
    })
}

fn a_child_survives_them() -> bool {
    // SAFETY: the child has its own memory, makes only system calls, takes no lock, allocates nothing,
    // and ends.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
        if child == 0 {
            libc::syscall(libc::SYS_get_mempolicy, 0, 0, 0, 0, 0);
            libc::syscall(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, -1i64, 0);
            libc::syscall(libc::SYS_modify_ldt, 0, 0, 0);
            libc::syscall(libc::SYS_exit_group, 0);
        }
        let mut status = 0;
        child > 0 && libc::waitpid(child as i32, &raw mut status, 0) == child as i32 && status == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_calls_are_harmless_where_no_filter_is() {
        assert!(a_child_survives_them());
        assert!(rare_calls_are_allowed());
    }
}
