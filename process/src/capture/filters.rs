//! Filters of system calls (seccomp), read by ptrace.

use super::{Builder, Error};
use crate::procfs;
use crate::ptrace::{FrozenProcess, FrozenThread, sys};
use crate::state::{Filter, Restrictions};

/// Filters of one thread at most.
const FILTERS_MAX: usize = 1024;

impl Builder<'_> {
    /// Lets a process whose threads are restricted make calls for us while it stands. False: that is
    /// not possible, and it was refused.
    pub(super) fn suspend_filters(&mut self, frozen: &mut FrozenProcess) -> bool {
        let Err(error) = frozen.suspend_filters() else {
            return true;
        };
        self.refuse(format!(
            "it runs under seccomp, and its filters cannot be suspended ({error}; the tracker \
             needs CAP_SYS_ADMIN, and no filter of its own)"
        ));
        false
    }

    /// What restricts a thread.
    pub(super) fn restrictions(
        &mut self,
        frozen: &FrozenThread,
        status: &str,
    ) -> Result<Restrictions, Error> {
        let tid = frozen.tid;
        let mut restrictions = Restrictions::default();
        if !procfs::has_own_filter(tid, status) {
            return Ok(restrictions);
        }
        if procfs::field(status, "Seccomp") == Some("1") {
            restrictions.strict = true;
            return Ok(restrictions);
        }
        for at in 0..FILTERS_MAX {
            match sys::seccomp_filter(tid, at) {
                Ok(None) => break,
                Ok(Some((instructions, log))) => {
                    let filter = Filter { instructions, log };
                    let known = self.tree.filters.iter().position(|known| *known == filter);
                    let index = known.unwrap_or_else(|| {
                        self.tree.filters.push(filter);
                        self.tree.filters.len() - 1
                    });
                    restrictions.filters.push(index as u32);
                }
                Err(error) => {
                    self.refuse(format!(
                        "thread {tid} has a seccomp filter that cannot be read: {error}"
                    ));
                    break;
                }
            }
        }
        Ok(restrictions)
    }
}
