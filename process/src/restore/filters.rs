//! Installs filters of system calls (seccomp), when a process has all else.
//!
//! While it is traced and stopped its filters are suspended: calls that are made for us pass them.

use std::collections::HashMap;
use std::io;

use super::stub::Region;
use super::{Error, plan, system};
use crate::ptrace::FrozenProcess;
use crate::state::{Process, Tree};

/// What lies in the region.
#[derive(Debug, Default)]
pub struct Places {
    /// Each filter's `struct sock_fprog`.
    filters: Vec<u64>,
    /// Header and sets of the capabilities of threads that get more to install their filters, by TID.
    capabilities: HashMap<i32, (u64, u64)>,
}

impl Places {
    /// Puts all filters of the tree into the region.
    ///
    /// # Errors
    /// It is full.
    pub fn write(tree: &Tree, region: &mut Region) -> Result<Self, Error> {
        let full = system("write the seccomp filters");
        let write = |filter: &crate::state::Filter, region: &mut Region| {
            let instructions = region.words(&filter.instructions)?;
            // struct sock_fprog: length, padding, address.
            region.words(&[filter.instructions.len() as u64, instructions])
        };
        let all = |region: &mut Region| -> io::Result<Self> {
            let mut places = Self::default();
            for filter in &tree.filters {
                places.filters.push(write(filter, region)?);
            }
            let threads = tree.processes.iter().flat_map(|process| &process.threads);
            for thread in threads.filter(|thread| plan::needs_administrator(thread)) {
                let [inheritable, permitted, effective, ..] = thread.credentials.capabilities;
                let sets = plan::capability_words([effective, permitted, inheritable]);
                let header = region.words(&[plan::CAPABILITY_HEADER])?;
                let both = (header, region.words(&sets)?);
                places.capabilities.insert(thread.tid, both);
            }
            Ok(places)
        };
        all(region).map_err(full)
    }
}

/// Restricts the threads of a stopped process. Filters that all have in common are installed for all
/// at once, so that they are the same for the kernel.
pub(super) fn restrict(
    tree: &Tree,
    process: &Process,
    stopped: &mut FrozenProcess,
    places: &Places,
) -> Result<(), Error> {
    let lists: Vec<&[u32]> = process
        .threads
        .iter()
        .map(|thread| &thread.restrictions.filters[..])
        .collect();
    let strict = |at: usize| process.threads[at].restrictions.strict;
    if lists.iter().all(|list| list.is_empty()) && !(0..lists.len()).any(strict) {
        return Ok(());
    }
    stopped
        .suspend_filters()
        .map_err(system("suspend seccomp filters"))?;
    let common = common_prefix(&lists);
    let mut install = |thread: usize, filter: u32, flags: u64| {
        let log = match tree.filters[filter as usize].log {
            true => libc::SECCOMP_FILTER_FLAG_LOG,
            false => 0,
        };
        let place = places.filters[filter as usize];
        let arguments = [
            libc::SECCOMP_SET_MODE_FILTER.into(),
            flags | log,
            place,
            0,
            0,
            0,
        ];
        let failed = "install a seccomp filter";
        let result = stopped.syscall(thread, libc::SYS_seccomp, arguments)?;
        match result.map_err(system(failed))? {
            0 => Ok(()),
            // The number of a thread that could not be given the filter.
            tid => Err(Error::Description(format!(
                "thread {tid} cannot have the seccomp filters of its process"
            ))),
        }
    };
    for filter in &lists[0][..common] {
        let all = if lists.len() > 1 {
            libc::SECCOMP_FILTER_FLAG_TSYNC
        } else {
            0
        };
        install(0, *filter, all)?;
    }
    for (thread, list) in lists.iter().enumerate() {
        for filter in &list[common..] {
            install(thread, *filter, 0)?;
        }
    }
    for (at, thread) in process.threads.iter().enumerate() {
        if let Some((header, sets)) = places.capabilities.get(&thread.tid) {
            let arguments = [*header, *sets, 0, 0, 0, 0];
            let set = stopped.syscall(at, libc::SYS_capset, arguments)?;
            set.map_err(system("set the capabilities of a thread"))?;
        }
    }
    for thread in (0..lists.len()).filter(|at| strict(*at)) {
        let mode = [libc::PR_SET_SECCOMP as u64, 1, 0, 0, 0, 0];
        let set = stopped.syscall(thread, libc::SYS_prctl, mode)?;
        set.map_err(system("enter the strict mode of seccomp"))?;
    }
    // Those that are restricted only now must make calls for us, too.
    stopped
        .suspend_filters()
        .map_err(system("suspend seccomp filters"))
}

/// How many filters all threads begin with.
fn common_prefix(lists: &[&[u32]]) -> usize {
    let Some((first, others)) = lists.split_first() else {
        return 0;
    };
    let same = |at: &usize| others.iter().all(|list| list.get(*at) == first.get(*at));
    (0..first.len()).take_while(same).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_in_common_are_those_that_all_threads_begin_with() {
        assert_eq!(common_prefix(&[&[1, 2, 3], &[1, 2], &[1, 2, 4]]), 2);
        assert_eq!(common_prefix(&[&[1, 2]]), 2);
        assert_eq!(common_prefix(&[&[1], &[]]), 0);
        assert_eq!(common_prefix(&[]), 0);
    }
}
