//! Processes with hard-to-move memory. Each kind is a process in a control group of its own; it
//! sets its memory up, and compares it on request.

mod children;
mod crowd;
mod files;
mod groups;
mod hugetlb;
mod ksm;
mod locked;
mod memory;
mod pinned;
mod poison;
mod private;
mod queues;
mod shared;
mod storms;
mod stuck;
mod swap;
mod thp;
mod uffd;

use std::io::Write;

use dormouse_guest::protocol::hard_to_move_kinds::{HARD_TO_MOVE_KINDS, by_name};
use dormouse_guest::protocol::{HardToMovePlan, HardToMoveStatus, HardToMoveVerdict};

use crate::error::{Doing, GuestError};
use crate::workload::dialogue::Dialogue;
use memory::PAGE;

/// What a process is to set up.
struct Plan {
    name: String,
    /// Whole pages.
    bytes: usize,
    seed: u64,
}

impl Plan {
    fn group(&self) -> String {
        group(&self.name)
    }
}

fn group(kind: &str) -> String {
    format!("hard-{kind}")
}

/// Hard-to-move memory that is set up.
trait Kind {
    /// Compares everything with what it must be; a sentence if it is not.
    fn verify(&mut self) -> Result<(), String>;
}

impl<F: FnMut() -> Result<(), String>> Kind for F {
    fn verify(&mut self) -> Result<(), String> {
        self()
    }
}

type SetUp = fn(&Plan) -> Result<Box<dyn Kind>, GuestError>;

fn set_up(kind: &str) -> Option<SetUp> {
    Some(match kind {
        "hugetlb" => hugetlb::mapped,
        "thp" => thp::transparent,
        "mlock" => locked::mlock,
        "map-locked" => locked::map_locked,
        "pinned" => pinned::io_uring,
        "file-private" => files::private,
        "file-shared" => files::shared,
        "sysv" => shared::sysv,
        "posix" => shared::posix,
        "tmpfs" => shared::tmpfs,
        "memfd" => shared::sealed_memfd,
        "pipe" => queues::pipe,
        "socket" => queues::socket,
        "ksm" => ksm::merged,
        "uffd" => uffd::registered,
        "cpuset" => groups::dram_only,
        "memcg" => groups::at_limit,
        "dontfork" => private::dont_fork,
        "secret" => private::secret,
        "poison" => poison::poisoned,
        "swap" => swap::disk,
        "zram" => swap::zram,
        "fork" => storms::fork,
        "exec" => storms::exec,
        "mmap" => storms::mmap,
        "stuck" => stuck::uninterruptible,
        "dram-full" => crowd::dram_full,
        _ => return None,
    })
}

/// The process itself: sets up, says so, and compares for each line of its input until that ends.
pub fn run(kind: &str, bytes: &str, seed: &str) -> Result<(), GuestError> {
    let wrong = |what: &str| GuestError::Other(format!("hard-to-move: wrong {what}"));
    let set_up = set_up(kind).ok_or_else(|| wrong("kind"))?;
    let bytes: usize = bytes.parse().map_err(|_| wrong("size"))?;
    let plan = Plan {
        name: kind.to_owned(),
        bytes: (bytes / PAGE).max(1) * PAGE,
        seed: seed.parse().map_err(|_| wrong("seed"))?,
    };
    let name = std::ffi::CString::new(kind).map_err(|_| wrong("kind"))?;
    rustix::thread::set_name(&name).doing("set the process's name")?;
    let mut hard_to_move = match set_up(&plan) {
        Ok(hard_to_move) => hard_to_move,
        Err(error) => {
            say(&Err::<(), String>(error.to_string()))?;
            return Err(error);
        }
    };
    say(&Ok::<(), String>(()))?;
    for line in std::io::stdin().lines() {
        line.doing("read an order")?;
        say(&hard_to_move.verify())?;
    }
    Ok(())
}

fn say(result: &Result<(), String>) -> Result<(), GuestError> {
    let line = serde_json::to_string(result).expect("plain data");
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .doing("answer")
}

/// The agent's end of such a process.
pub struct HardToMove {
    kind: String,
    process: Dialogue,
}

/// Starts them one after the other, in the order of [`HARD_TO_MOVE_KINDS`].
pub fn start(plans: &[HardToMovePlan], seed: u64) -> Result<Vec<HardToMove>, GuestError> {
    if let Some(plan) = plans.iter().find(|plan| by_name(&plan.kind).is_none()) {
        let text = format!("there is no hard-to-move memory `{}`", plan.kind);
        return Err(GuestError::Other(text));
    }
    HARD_TO_MOVE_KINDS
        .iter()
        .filter_map(|kind| plans.iter().find(|plan| plan.kind == kind.name))
        .map(|plan| HardToMove::start(plan, seed))
        .collect()
}

impl HardToMove {
    fn start(plan: &HardToMovePlan, seed: u64) -> Result<HardToMove, GuestError> {
        let (bytes, seed) = (plan.bytes.to_string(), seed.to_string());
        let arguments = ["hard-to-move", plan.kind.as_str(), &bytes, &seed];
        let mut process = Dialogue::start(&arguments, &group(&plan.kind))?;
        process
            .receive::<Result<(), String>>()?
            .map_err(|why| GuestError::Other(format!("{}: {why}", plan.kind)))?;
        Ok(HardToMove {
            kind: plan.kind.clone(),
            process,
        })
    }

    pub fn status(&self) -> HardToMoveStatus {
        HardToMoveStatus {
            kind: self.kind.clone(),
            pid: self.process.pid(),
        }
    }

    pub fn verify(&mut self) -> HardToMoveVerdict {
        let answer = self.process.query::<Result<(), String>>(&"verify");
        HardToMoveVerdict {
            kind: self.kind.clone(),
            complaint: answer
                .map_err(|error| error.to_string())
                .and_then(|r| r)
                .err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_kind_can_be_set_up() {
        for kind in HARD_TO_MOVE_KINDS {
            assert!(set_up(kind.name).is_some(), "{}", kind.name);
        }
        assert!(set_up("nothing").is_none());
    }
}
