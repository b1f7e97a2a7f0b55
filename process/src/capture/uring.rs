//! Rings of io_uring.
//!
//! A ring is described when no request is under way in it. Requests that end by themselves (those of
//! worker threads and of the block layer) are waited for while the tree stands, before anything of it is
//! read: their ends change files and memory. Others are refused. So is a ring that something outside the
//! tree holds, unless it lets go in time: a process that forks has a copy of our descriptor until it
//! executes its program, and whoever reads `/proc/PID/fd` holds the file while the kernel looks at it.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::files::Open;
use super::{Builder, Error};
use crate::procfs::{self, MapsLine};
use crate::ptrace::{FrozenProcess, Pid, sys::take_fd};
use crate::state::{Backing, FileKind, IoUring};
use crate::uring::{self, Context, Counters, Unreadable, setup};

/// How long the tree stands for the sake of holders of a ring that let go by themselves.
const LET_GO_LIMIT: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_micros(200);

/// Flags with which a ring can be set up again.
const SUPPORTED: u32 = setup::CQSIZE
    | setup::CLAMP
    | setup::SUBMIT_ALL
    | setup::COOP_TASKRUN
    | setup::TASKRUN_FLAG
    | setup::SQE128
    | setup::CQE32
    | setup::NO_SQARRAY;

/// Flags that are refused by name.
const REFUSED: [(u32, &str); 7] = [
    (setup::IOPOLL, "polls devices (IORING_SETUP_IOPOLL)"),
    (
        setup::SQPOLL,
        "has a thread that submits (IORING_SETUP_SQPOLL)",
    ),
    (
        setup::ATTACH_WQ,
        "shares worker threads (IORING_SETUP_ATTACH_WQ)",
    ),
    (
        setup::R_DISABLED,
        "is not enabled yet (IORING_SETUP_R_DISABLED)",
    ),
    (
        setup::SINGLE_ISSUER,
        "belongs to one thread (IORING_SETUP_SINGLE_ISSUER)",
    ),
    (
        setup::DEFER_TASKRUN,
        "defers work (IORING_SETUP_DEFER_TASKRUN)",
    ),
    (
        setup::NO_MMAP,
        "lies in memory of its program (IORING_SETUP_NO_MMAP)",
    ),
];

/// Rings that were met.
#[derive(Default)]
pub(super) struct Rings {
    /// By inode: index.
    index: HashMap<u64, u32>,
    /// Of each by index, where it was met first: process, descriptor.
    met: Vec<Option<(Pid, RawFd)>>,
}

impl Builder<'_> {
    /// Waits for requests that end by themselves, in all rings of a process. Their ends are work of its
    /// threads, which do it on their way out of a system call.
    pub(super) fn settle_rings(
        &mut self,
        maps: &[MapsLine],
        frozen: &mut FrozenProcess,
    ) -> Result<(), Error> {
        if !maps.iter().any(|map| map.name == uring::LINK) {
            return Ok(());
        }
        self.turn_to(frozen.pid);
        if !self.may_call(frozen)? {
            return Ok(());
        }
        let directory = format!("/proc/{}/fd", self.pid);
        let entries = fs::read_dir(directory).map_err(self.failed("list its descriptors"))?;
        let is_ring = |entry: &fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == uring::LINK)
        };
        for entry in entries.flatten().filter(is_ring) {
            let number = entry.file_name().to_string_lossy().parse().unwrap_or(-1);
            let ring = take_fd(self.pid, number).map_err(self.failed("take a ring of it"))?;
            self.settle(&ring, number, frozen)?;
        }
        Ok(())
    }

    fn settle(
        &self,
        ring: &OwnedFd,
        number: RawFd,
        frozen: &mut FrozenProcess,
    ) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            // What cannot be read is refused where it is described.
            let Ok(context) = Context::of(ring.as_fd()) else {
                return Ok(());
            };
            let stays = !context.waiting.is_empty() || polls(&self.ring_info(number)?);
            if context.under_way == 0 || stays || started.elapsed() > self.options.settle_limit {
                return Ok(());
            }
            for thread in 0..frozen.threads.len() {
                // The result does not matter.
                let _ = frozen.syscall(thread, libc::SYS_getpid, [0; 6])?;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn ring_info(&self, number: RawFd) -> Result<String, Error> {
        let path = format!("/proc/{}/fdinfo/{number}", self.pid);
        fs::read_to_string(path).map_err(self.failed("read a ring of it"))
    }

    fn ring_index(&mut self, inode: u64) -> u32 {
        let next = self.rings.met.len() as u32;
        let index = *self.rings.index.entry(inode).or_insert(next);
        if index == next {
            self.rings.met.push(None);
        }
        index
    }

    /// What is behind a mapping of a ring. The kernel maps its parts from their beginnings only.
    pub(super) fn ring_backing(&mut self, map: &MapsLine, range: &str) -> Backing {
        if !uring::OFFSETS.contains(&map.offset) {
            self.refuse(format!(
                "{range} is the rest of a mapping of an io_uring instance"
            ));
        }
        Backing::Uring(self.ring_index(map.inode))
    }

    /// A descriptor of a ring.
    pub(super) fn ring(&mut self, open: &Open<'_>) -> FileKind {
        let index = self.ring_index(open.metadata.ino());
        self.rings.met[index as usize].get_or_insert((self.pid, open.number));
        FileKind::Uring(index)
    }

    /// Describes all rings, now that all that leads to them is known.
    pub(super) fn finish_rings(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + LET_GO_LIMIT;
        for (index, met) in (0u32..).zip(std::mem::take(&mut self.rings.met)) {
            let mappings = self.tree.processes.iter().flat_map(|process| {
                let its = process.mappings.iter();
                its.filter(|mapping| mapping.backing == Backing::Uring(index))
                    .map(|mapping| (process.pid, mapping.start))
            });
            let mappings: Vec<(Pid, u64)> = mappings.collect();
            let Some((pid, number)) = met else {
                if let Some((pid, start)) = mappings.first() {
                    self.pid = *pid;
                    self.refuse(format!(
                        "mapping {start:#x} belongs to an io_uring instance of which no process of the \
                         tree has a descriptor"
                    ));
                }
                continue;
            };
            self.turn_to(pid);
            if let Some(ring) = self.describe_ring(index, number, mappings.len(), deadline)? {
                self.tree.urings.push(ring);
            }
        }
        Ok(())
    }

    /// Descriptors of processes that share their table are one.
    fn descriptors_of_ring(&self, index: u32) -> u64 {
        let processes = self.tree.processes.iter();
        let own = processes.filter(|process| !process.shares_descriptors);
        let descriptors = own.flat_map(|process| &process.descriptors);
        let kind = |file: u32| &self.tree.files[file as usize].kind;
        descriptors
            .filter(|descriptor| *kind(descriptor.file) == FileKind::Uring(index))
            .count() as u64
    }

    fn describe_ring(
        &mut self,
        index: u32,
        number: RawFd,
        mappings: usize,
        deadline: Instant,
    ) -> Result<Option<IoUring>, Error> {
        let name = format!("fd {number} is an io_uring instance");
        let ring = take_fd(self.pid, number).map_err(self.failed("take a ring of it"))?;
        // Ours is one, too.
        let known = self.descriptors_of_ring(index) + mappings as u64 + 1;
        let context = loop {
            match Context::of(ring.as_fd()) {
                // Only a holder can give the file to another one, and all that are known stand still:
                // when the numbers agree once, nothing else can hold the ring later.
                Ok(context) if context.holders == known || Instant::now() > deadline => {
                    break context;
                }
                Ok(_) => std::thread::sleep(PAUSE),
                Err(error) => {
                    self.refuse(format!("{name}, of which nothing can be known: {error}"));
                    return Ok(None);
                }
            }
        };
        let mut refusals = obstacles(&context, &self.ring_info(number)?);
        if context.holders != known {
            refusals.push(
                "that is held by something else, too (another process, a message in a socket, a \
                 registered descriptor)"
                    .to_owned(),
            );
        }
        let contents = uring::contents(ring.as_fd(), context.bytes);
        let [queues, entries] = contents.map_err(self.failed("read a ring of it"))?;
        let words = context.words(&queues);
        let words = words.filter(|[taken, _, _, completed]| {
            (*taken, *completed) == (context.taken, context.completed)
        });
        let Some([_, _, read, _]) = words else {
            self.refuse(format!("{name}: {}", Unreadable::Contradiction));
            return Ok(None);
        };
        let unread = context.completed.wrapping_sub(read);
        if unread > context.cq_entries {
            refusals.push("of which the program has written over the header".to_owned());
        }
        let described = IoUring {
            flags: context.flags,
            sq_entries: context.sq_entries,
            cq_entries: context.cq_entries,
            taken: context.taken,
            completed: context.completed,
            unread,
            skips: context.skips,
            clock: context.clock,
            queues,
            entries,
        };
        if context.under_way == 0
            && let Err(why) = Counters::of(&described).reachable()
        {
            refusals.push(why.to_owned());
        }
        if refusals.is_empty() {
            return Ok(Some(described));
        }
        for what in refusals {
            self.refuse(format!("{name} {what}"));
        }
        Ok(None)
    }
}

/// Whether requests wait for a descriptor to be ready.
fn polls(info: &str) -> bool {
    let lines = info.lines().skip_while(|line| *line != "PollList:").skip(1);
    lines
        .take_while(|line| line.starts_with([' ', '\t']))
        .next()
        .is_some()
}

/// Why a ring cannot be made again, in words that follow its name.
fn obstacles(context: &Context, info: &str) -> Vec<String> {
    let mut found: Vec<String> = REFUSED
        .iter()
        .filter(|(flag, _)| context.flags & flag != 0)
        .map(|(_, what)| format!("that {what}"))
        .collect();
    let named = REFUSED.iter().fold(0, |all, (flag, _)| all | flag);
    let unknown = context.flags & !SUPPORTED & !named;
    if unknown != 0 {
        found.push(format!("with unknown flags ({unknown:#x})"));
    }
    if !context.extras.is_empty() {
        found.push(format!("with {}", context.extras.join(", ")));
    }
    if procfs::field(info, "NAPI").is_some_and(|napi| napi != "disabled") {
        found.push("that polls network devices (NAPI)".to_owned());
    }
    if context.under_way > 0 {
        let mut waits = context.waiting.clone();
        if polls(info) {
            waits.push("a poll");
        }
        let of = match waits.is_empty() {
            true => String::new(),
            false => format!(", among them {}", waits.join(", ")),
        };
        found.push(format!(
            "with requests under way ({}{of})",
            context.under_way
        ));
    }
    // The kernel has two ways to look at it, and they must agree.
    let number = |name| procfs::field(info, name).and_then(|text| text.parse::<u32>().ok());
    if number("CachedSqHead") != Some(context.taken)
        || number("CachedCqTail") != Some(context.completed)
    {
        found.push(format!(": {}", Unreadable::Contradiction));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "SqMask:\t0x7\nCachedSqHead:\t5\nCachedCqTail:\t9\nPollList:\n\
                        CqOverflowList:\nNAPI:\tdisabled\n";

    fn quiet() -> Context {
        let mut context = Context::default();
        (context.taken, context.completed) = (5, 9);
        context
    }

    #[test]
    fn a_quiet_ring_has_no_obstacle_and_each_obstacle_is_named() {
        assert_eq!(obstacles(&quiet(), INFO), Vec::<String>::new());
        let with = |change: fn(&mut Context)| {
            let mut context = quiet();
            change(&mut context);
            obstacles(&context, INFO).join("; ")
        };
        assert!(with(|it| it.flags = setup::SQPOLL).contains("IORING_SETUP_SQPOLL"));
        assert!(with(|it| it.flags = 1 << 30).contains("unknown flags (0x40000000)"));
        assert!(with(|it| it.extras.push("registered files")).contains("registered files"));
        assert!(with(|it| it.under_way = 2).contains("requests under way (2)"));
        assert!(with(|it| it.taken = 6).contains("other numbers"));
        let napi = INFO.replace("disabled", "enabled");
        assert!(obstacles(&quiet(), &napi)[0].contains("NAPI"));
    }

    #[test]
    fn polls_are_lines_below_their_heading() {
        assert!(!polls(INFO));
        let polling = INFO.replace("PollList:\n", "PollList:\n  op=6, task_works=0\n");
        assert!(polls(&polling));
    }
}
