//! Filters of system calls (seccomp).

use serde::{Deserialize, Serialize};

use super::Tree;
use super::check::{Invalid, index};

/// Instructions of a filter at most (the kernel's BPF_MAXINSNS).
const INSTRUCTIONS_MAX: usize = 4096;

/// A filter, which many threads may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Filter {
    /// Classic BPF: `struct sock_filter`, each as a word.
    pub instructions: Vec<u64>,
    /// `SECCOMP_FILTER_FLAG_LOG`.
    pub log: bool,
}

/// What restricts the system calls of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restrictions {
    /// `SECCOMP_MODE_STRICT`.
    pub strict: bool,
    /// Filters, the oldest first: indices.
    pub filters: Vec<u32>,
}

/// Checks lengths and references.
pub(super) fn validate(tree: &Tree) -> Result<(), Invalid> {
    for (at, filter) in tree.filters.iter().enumerate() {
        if filter.instructions.is_empty() || filter.instructions.len() > INSTRUCTIONS_MAX {
            return Err(Invalid::Bad {
                what: format!("the seccomp filter {at}"),
                why: "of an impossible length",
            });
        }
    }
    let threads = tree.processes.iter().flat_map(|process| &process.threads);
    for thread in threads {
        for filter in &thread.restrictions.filters {
            index(tree.filters.len(), "filter", *filter, || {
                format!("thread {}", thread.tid)
            })?;
        }
    }
    Ok(())
}
