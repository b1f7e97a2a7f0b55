//! Adjustments of semaphores that the processes of a tree have (`SEM_UNDO`): see [`crate::sem_undo`].

use std::io;

use super::super::{Builder, Error};
use super::{read, tables};
use crate::memory;
use crate::procfs;
use crate::ptrace::{FrozenProcess, FrozenTree, Pid};
use crate::sem_undo::{MOVES_MAX, OPERATION_BYTES, VALUE_MAX, adjustment, moves, never};
use crate::state::Adjustment;

/// Room for operations, in memory of the process that makes them.
const ROOM: usize = 4096;
/// Operations of the longest moves that tell whether an adjustment is zero.
const ZERO_MOVES: usize = 6;

/// A set as it was read.
struct Set {
    id: i32,
    values: Vec<u16>,
}

/// Those of all sets on which a process has operated.
fn read_operated(all: &[(i32, bool)]) -> Vec<Set> {
    let ids = all.iter().filter(|(_, operated)| *operated);
    let set = |&(id, _): &(i32, bool)| {
        // Without the right to read it, a process of ours can neither have operated on it.
        let (_, values) = read::semaphores(id).ok()?;
        Some(Set { id, values })
    };
    ids.filter_map(set).collect()
}

impl Builder<'_> {
    /// Describes the adjustments of all processes, given the kernel's table of sets.
    pub(super) fn adjustments(
        &mut self,
        frozen: &mut FrozenTree,
        table: &str,
    ) -> Result<(), Error> {
        let all = tables::all_semaphores(table);
        if all.is_empty() {
            return Ok(());
        }
        // Read for the first process with a list of adjustments: few have one.
        let mut sets: Option<Vec<Set>> = None;
        let unadjusted = read::Unadjusted::new().map_err(self.failed("make a process"))?;
        let mut with_list: Vec<Pid> = Vec::new();
        for at in 0..self.tree.processes.len() {
            let process = &self.tree.processes[at];
            if process.zombie.is_some() {
                continue;
            }
            let pid = process.pid;
            let tids: Vec<Pid> = process.threads.iter().map(|thread| thread.tid).collect();
            self.turn_to(pid);
            for tid in tids {
                if read::differ(pid, tid) {
                    self.refuse(format!(
                        "thread {tid} has adjustments of System V semaphores (SEM_UNDO) of its own"
                    ));
                }
            }
            if !unadjusted.differs(pid) {
                continue;
            }
            if let Some(other) = with_list.iter().find(|other| !read::differ(pid, **other)) {
                self.refuse(format!(
                    "it shares its adjustments of System V semaphores (SEM_UNDO) with process {other}"
                ));
                continue;
            }
            with_list.push(pid);
            let Some(stopped) = frozen.process_mut(pid) else {
                continue;
            };
            let sets = sets.get_or_insert_with(|| read_operated(&all));
            self.adjustments_of(at, stopped, sets)?;
        }
        // Processes outside of the tree may have changed a value meanwhile.
        for set in sets.iter().flatten() {
            let adjusted = |a: &Adjustment| a.set == set.id;
            let mut all = self.tree.processes.iter().flat_map(|p| &p.adjustments);
            if !all.any(adjusted) {
                continue;
            }
            let now = read::semaphores(set.id).map(|(_, values)| values);
            if now.ok().as_ref() != Some(&set.values) {
                self.refuse(format!(
                    "another process uses the System V semaphore set {} at the same time",
                    set.id
                ));
            }
        }
        Ok(())
    }

    /// Whether the set is the tree's.
    fn is_own(&self, set: i32) -> bool {
        self.tree.semaphores.iter().any(|own| own.ipc.id == set)
    }

    fn adjustments_of(
        &mut self,
        at: usize,
        stopped: &mut FrozenProcess,
        sets: &[Set],
    ) -> Result<(), Error> {
        let spare = self.spare_address(&self.tree.processes[at], stopped)?;
        let saved = memory::read_array::<ROOM>(self.pid, spare)
            .map_err(self.failed("read memory of it"))?;
        let mut found = Vec::new();
        let mut result = Ok(());
        for set in sets {
            result = self.adjustments_in(stopped, spare, set, &mut found);
            // Others remove theirs at any time, and with them all adjustments.
            if result.is_err() && super::is_gone(read::existing_semaphores(set.id)) {
                found.retain(|adjustment| adjustment.set != set.id);
                self.tree.semaphores.retain(|own| own.ipc.id != set.id);
                result = Ok(());
            }
            if result.is_err() {
                break;
            }
        }
        memory::write(self.pid, spare, &saved).map_err(self.failed("write its memory back"))?;
        stopped.end_injections();
        result?;
        for adjustment in &found {
            if !self.is_own(adjustment.set) {
                self.refuse(format!(
                    "it has an adjustment (SEM_UNDO) of the System V semaphore set {}, which \
                     processes of outside use",
                    adjustment.set
                ));
            }
        }
        self.tree.processes[at].adjustments = found;
        Ok(())
    }

    /// Those that a process has in one set.
    fn adjustments_in(
        &mut self,
        stopped: &mut FrozenProcess,
        spare: u64,
        set: &Set,
        found: &mut Vec<Adjustment>,
    ) -> Result<(), Error> {
        let operations_max = operations_max().min(ROOM / OPERATION_BYTES);
        if operations_max <= MOVES_MAX {
            self.refuse(format!(
                "the sysctl kernel.sem allows too few operations (SEMOPM {operations_max}) to find its \
                 adjustments of System V semaphores (SEM_UNDO)"
            ));
            return Ok(());
        }
        let action = format!(
            "ask for its adjustments of the System V semaphore set {}",
            set.id
        );
        let mut forbidden = false;
        let mut leaves = |bytes: Vec<u8>| -> Result<bool, Error> {
            let failed = |source| Error::Read {
                pid: self.pid,
                action: action.clone(),
                source,
            };
            memory::write(self.pid, spare, &bytes).map_err(failed)?;
            let count = (bytes.len() / OPERATION_BYTES) as u64;
            let arguments = [set.id as u64, spare, count, 0, 0, 0];
            let done = stopped.syscall(0, libc::SYS_semop, arguments)?;
            match done.map_err(|error| (error.raw_os_error(), error)) {
                Err((Some(libc::ERANGE), _)) => Ok(true),
                Err((Some(libc::EAGAIN), _)) => Ok(false),
                Err((Some(libc::EACCES), _)) => {
                    forbidden = true;
                    Ok(false)
                }
                Err((_, error)) => Err(failed(error)),
                Ok(_) => Err(failed(io::Error::other("an impossible operation was done"))),
            }
        };
        let numbers: Vec<u16> = (0..set.values.len() as u16).collect();
        for some in numbers.chunks((operations_max - 1) / ZERO_MOVES) {
            let value = |semaphore: u16| set.values[usize::from(semaphore)];
            let mut any = false;
            // Above zero, and below.
            for by in [VALUE_MAX, -VALUE_MAX - 1] {
                let all = some.iter().map(|it| moves(*it, value(*it), by));
                let bytes = all.chain([never(some[0]).to_vec()]).collect::<Vec<_>>();
                any |= leaves(bytes.concat())?;
            }
            for semaphore in some.iter().copied().filter(|_| any) {
                let by = adjustment(|by| {
                    let lifted = moves(semaphore, value(semaphore), by);
                    leaves([lifted, never(semaphore).to_vec()].concat())
                })?;
                if by != 0 {
                    found.push(Adjustment {
                        set: set.id,
                        semaphore,
                        by,
                    });
                }
            }
        }
        // Of a set that the tree does not use, it has never had the right.
        if forbidden && self.is_own(set.id) {
            self.refuse(format!(
                "it may have adjustments (SEM_UNDO) of the System V semaphore set {}, and has no right \
                 to operate on it any more",
                set.id
            ));
        }
        Ok(())
    }
}

/// Most operations of one call.
fn operations_max() -> usize {
    let text = procfs::text("/proc/sys/kernel/sem").unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    words.nth(2).and_then(|word| word.parse().ok()).unwrap_or(0)
}
