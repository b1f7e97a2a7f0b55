//! Observes a stopped process tree from outside: registers by ptrace, /proc, `kcmp`. Program and copy
//! are observed by the same code, each where it has the same numbers.
//!
//! It shares no code with the capture where that would hide a mistake of the capture's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::compare::Observation;
use super::memory;
use super::sockets::Sockets;
use crate::procfs::{self, field};
use crate::ptrace::{FrozenTree, Pid, Resource, sharing, sys, waits};
use crate::restore::to_run;
use crate::state::{Registers, Tree};

/// Lines of a thread's status file.
const OF_THREADS: [&str; 18] = [
    "Name",
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "SigIgn",
    "SigCgt",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "THP_enabled",
    "Cpus_allowed",
    "Mems_allowed",
];
/// Flags of a mapping that say how its pages are tracked or counted, not how they behave.
const OF_TRACKING: [&str; 4] = ["sd", "um", "uw", "ac"];
/// Bytes of an xsave area that the kernel uses itself, and its header: which parts are in use, of which
/// the others are shown with their initial values.
const XSAVE_OWN: std::ops::Range<usize> = 464..576;

/// Collects things with their values.
struct Observed {
    things: Observation,
    what: String,
}

impl Observed {
    fn of(what: String) -> Self {
        Self {
            things: Observation::new(),
            what,
        }
    }

    fn add(&mut self, thing: impl Display, value: impl Display) {
        let thing = format!("{}: {thing}", self.what);
        self.things.insert(thing, value.to_string());
    }
}

/// Observes all of a tree. `tree` is its description; it says which sockets come back as other ones.
///
/// # Errors
/// Something that is always there cannot be read.
pub fn observe(frozen: &FrozenTree, tree: &Tree) -> io::Result<Observation> {
    let pids: HashSet<Pid> = frozen.pids().into_iter().collect();
    let mut all = Observation::new();
    let mut sockets = Sockets::of(tree);
    let living = frozen.living();
    let classes = classes_of_files(&living)?;
    for process in &frozen.processes {
        let pid = process.pid;
        let stat = procfs::stat(pid, pid)?;
        // What has ended comes back under another name.
        let name = match process.threads.is_empty() {
            true => "ended",
            false => &*stat.name,
        };
        let mut observed = Observed::of(format!("process {pid} ({name})"));
        relations(&mut observed, &stat, &pids);
        if process.threads.is_empty() {
            observed.add("has ended with", stat.exit_code);
            all.extend(observed.things);
            continue;
        }
        let tids: Vec<Pid> = process.threads.iter().map(|thread| thread.tid).collect();
        observed.add("threads", format!("{tids:?}"));
        process_files(&mut observed, pid, &stat)?;
        mappings(&mut observed, pid)?;
        if let Some(process) = tree.processes.iter().find(|process| process.pid == pid) {
            for (start, digest) in memory::protected(process)? {
                observed.add(format!("memory at {start:#x}"), format!("{digest:016x}"));
            }
        }
        descriptors(&mut observed, pid, &classes, &mut sockets)?;
        signals(&mut observed, "signals of the process", pid, true)?;
        all.extend(observed.things);
        for tid in tids {
            let mut observed = Observed::of(format!("thread {tid} of process {pid}"));
            thread(&mut observed, pid, tid)?;
            all.extend(observed.things);
        }
    }
    for (resource, name) in [
        (Resource::Memory, "memory"),
        (Resource::Descriptors, "table of descriptors"),
    ] {
        for (one, other) in sharing(&living, resource) {
            let thing = format!("process {other}: {name}");
            all.insert(thing, format!("that of process {one}"));
        }
    }
    Ok(all)
}

fn relations(observed: &mut Observed, stat: &procfs::Stat, pids: &HashSet<Pid>) {
    let inside = |pid: Pid| match pids.contains(&pid) {
        true => pid.to_string(),
        false => "outside".to_owned(),
    };
    observed.add("parent", inside(stat.parent));
    observed.add("process group", inside(stat.group));
    observed.add("session", inside(stat.session));
}

fn process_files(observed: &mut Observed, pid: Pid, stat: &procfs::Stat) -> io::Result<()> {
    let at = |name: &str| format!("/proc/{pid}/{name}");
    for name in ["cwd", "root", "exe"] {
        let link = fs::read_link(at(name))?;
        observed.add(name, without_numbers(&link.to_string_lossy()));
    }
    for line in fs::read_to_string(at("limits"))?.lines().skip(1) {
        let (name, values) = line.split_at(line.len().min(26));
        let values: Vec<&str> = values.split_ascii_whitespace().take(2).collect();
        observed.add(format!("limit of {}", name.trim()), values.join(" "));
    }
    for name in [
        "personality",
        "coredump_filter",
        "loginuid",
        "timerslack_ns",
    ] {
        if let Ok(value) = fs::read_to_string(at(name)) {
            observed.add(name, value.trim());
        }
    }
    let timers = fs::read_to_string(at("timers")).unwrap_or_default();
    observed.add("POSIX timers", timers.replace('\n', " ").trim());
    observed.add("layout", format!("{:x?}", stat.layout.addresses()));
    observed.add("auxiliary vector", format!("{:x?}", procfs::auxv(pid)?));
    Ok(())
}

fn thread(observed: &mut Observed, pid: Pid, tid: Pid) -> io::Result<()> {
    // A capture refuses a wait of which nobody knows the call.
    let stopped = sys::registers(tid)?;
    let named = waits::named(pid, tid, &stopped).unwrap_or(stopped);
    registers_of(observed, &to_run(&Registers::from_user(&named)));
    let area = sys::xstate(tid)?;
    let bytes = (0..).zip(&area).filter(|(at, _)| !XSAVE_OWN.contains(at));
    let used: Vec<String> = bytes
        .filter(|(_, byte)| **byte != 0)
        .map(|(at, byte)| format!("{at}:{byte:02x}"))
        .collect();
    observed.add("vector registers", used.join(" "));
    observed.add("blocked signals", format!("{:x}", sys::signal_mask(tid)?));
    let rseq = sys::rseq_configuration(tid).unwrap_or_default();
    let rseq = (rseq.address, rseq.bytes, rseq.signature);
    observed.add("restartable sequences", format!("{rseq:x?}"));
    signals(observed, "signals", tid, false)?;
    let status = procfs::status(pid, tid)?;
    for name in OF_THREADS {
        if let Some(value) = field(&status, name) {
            observed.add(name, value.trim());
        }
    }
    let its = crate::capture::scheduling(tid)?;
    observed.add(
        "scheduling",
        format!(
            "policy {} flags {} nice {} priority {} deadline {:?} I/O {}",
            its.policy, its.flags, its.nice, its.priority, its.deadline_ns, its.io_priority
        ),
    );
    Ok(())
}

fn registers_of(observed: &mut Observed, registers: &Registers) {
    // Each by its name, as the structure has it.
    let text = format!("{registers:x?}");
    let inner = text.split_once('{').map_or("", |(_, rest)| rest);
    for register in inner.trim_end_matches('}').split(", ") {
        if let Some((name, value)) = register.split_once(':') {
            observed.add(format!("register {}", name.trim()), value.trim());
        }
    }
}

/// Signals that wait, but those of timers, which may come at any instant.
fn signals(observed: &mut Observed, name: &str, tid: Pid, shared: bool) -> io::Result<()> {
    const TIMERS: [i32; 3] = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF];
    const SI_TIMER: i32 = -2;
    let word = |info: &[u8], at: usize| info.get(at..at + 4).and_then(|b| b.try_into().ok());
    let mut waiting: Vec<(i32, i32)> = Vec::new();
    for info in sys::pending_signals(tid, shared)? {
        let number = |at| word(&info, at).map_or(0, i32::from_ne_bytes);
        let (signal, code) = (number(0), number(8));
        if code != SI_TIMER && !TIMERS.contains(&signal) {
            waiting.push((signal, code));
        }
    }
    observed.add(name, format!("{waiting:?}"));
    Ok(())
}

/// One line of smaps with what belongs to it.
struct Mapped {
    line: procfs::MapsLine,
    flags: String,
    page_kb: String,
}

impl Mapped {
    /// Whether the kernel may show both as one.
    fn continues(&self, before: &Self) -> bool {
        let (one, other) = (&before.line, &self.line);
        let file = |line: &procfs::MapsLine| (line.inode, line.device, line.name.clone());
        one.end == other.start
            && one.protection == other.protection
            && one.shared == other.shared
            && file(one) == file(other)
            && (one.inode == 0 || one.offset + (one.end - one.start) == other.offset)
            && before.flags == self.flags
            && before.page_kb == self.page_kb
    }
}

fn mappings(observed: &mut Observed, pid: Pid) -> io::Result<()> {
    let mut merged: Vec<Mapped> = Vec::new();
    for mapped in smaps(pid)? {
        match merged.last_mut() {
            Some(last) if mapped.continues(last) => last.line.end = mapped.line.end,
            _ => merged.push(mapped),
        }
    }
    for mapped in merged {
        let line = &mapped.line;
        let bit = |flag: i32, letter| {
            if line.protection & flag != 0 {
                letter
            } else {
                '-'
            }
        };
        let kind = if line.shared { 's' } else { 'p' };
        let offset = if line.inode == 0 { 0 } else { line.offset };
        observed.add(
            format!("mapping {:x}-{:x}", line.start, line.end),
            format!(
                "{}{}{}{kind} {} at {offset:x}, pages of {}, flags {}",
                bit(libc::PROT_READ, 'r'),
                bit(libc::PROT_WRITE, 'w'),
                bit(libc::PROT_EXEC, 'x'),
                without_numbers(&line.name),
                mapped.page_kb,
                mapped.flags,
            ),
        );
    }
    Ok(())
}

fn smaps(pid: Pid) -> io::Result<Vec<Mapped>> {
    let text = procfs::text(format!("/proc/{pid}/smaps"))?;
    let mut found: Vec<Mapped> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        match (key, found.last_mut()) {
            ("VmFlags", Some(last)) => {
                let flags = value.split_ascii_whitespace();
                let flags: Vec<&str> = flags.filter(|flag| !OF_TRACKING.contains(flag)).collect();
                last.flags = flags.join(" ");
            }
            ("KernelPageSize", Some(last)) => value.trim().clone_into(&mut last.page_kb),
            // The first line of a mapping has a device number with a colon, and blanks before that.
            (key, _) if key.contains(' ') => {
                let lines = procfs::parse_maps(line.as_bytes())?.into_iter();
                found.extend(lines.map(|line| Mapped {
                    line,
                    flags: String::new(),
                    page_kb: String::new(),
                }));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Names of what has another inode after a restore: `socket:[1]`, a file that was removed, a System V
/// segment.
fn without_numbers(name: &str) -> String {
    if let Some((kind, _)) = name.split_once(":[") {
        return kind.to_owned();
    }
    match name.strip_suffix(" (deleted)") {
        Some(name) if name.starts_with("/memfd:") || name.starts_with("/SYSV") => name.to_owned(),
        Some(_) => "a removed file".to_owned(),
        None => name.to_owned(),
    }
}

/// Which descriptors are of one open file description, by `kcmp`: the first of each.
fn classes_of_files(pids: &[Pid]) -> io::Result<HashMap<(Pid, i32), (Pid, i32)>> {
    const FILE: i32 = 0;
    let order = |one: (Pid, i32), other: (Pid, i32)| {
        let index = |it: (Pid, i32)| u64::from(it.1.cast_unsigned());
        // SAFETY: no memory involved.
        let result = unsafe {
            libc::syscall(
                libc::SYS_kcmp,
                one.0,
                other.0,
                FILE,
                index(one),
                index(other),
            )
        };
        match result {
            0 => std::cmp::Ordering::Equal,
            2 => std::cmp::Ordering::Greater,
            _ => std::cmp::Ordering::Less,
        }
    };
    let mut sorted: Vec<(Pid, i32)> = Vec::new();
    let mut first = HashMap::new();
    for &pid in pids {
        for number in numbers(pid)? {
            let it = (pid, number);
            match sorted.binary_search_by(|other| order(*other, it)) {
                Ok(at) => first.insert(it, sorted[at]),
                Err(at) => {
                    sorted.insert(at, it);
                    first.insert(it, it)
                }
            };
        }
    }
    Ok(first)
}

/// Numbers of the descriptors of a process, ascending.
fn numbers(pid: Pid) -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn descriptors(
    observed: &mut Observed,
    pid: Pid,
    classes: &HashMap<(Pid, i32), (Pid, i32)>,
    sockets: &mut Sockets,
) -> io::Result<()> {
    for number in numbers(pid)? {
        let link = format!("/proc/{pid}/fd/{number}");
        let to = fs::read_link(&link)?.to_string_lossy().into_owned();
        let name = format!("descriptor {number}");
        observed.add(&name, without_numbers(&to));
        if let Some((of, first)) = classes.get(&(pid, number))
            && (*of, *first) != (pid, number)
        {
            let same = format!("that of descriptor {first} of process {of}");
            observed.add(format!("{name}: open file description"), same);
        }
        for (key, value) in fdinfo(pid, number)? {
            observed.add(format!("{name}: {key}"), value);
        }
        let mut more = super::sockets::file(pid, number, to.starts_with("/memfd:"))?;
        // Of a file of a dead process there is nothing.
        if let Ok(about) = fs::metadata(&link) {
            more.push(("mode", format!("{:o}", about.mode())));
            match about.mode() & libc::S_IFMT {
                libc::S_IFREG => {
                    more.push(("bytes", about.len().to_string()));
                    more.push(("user", about.uid().to_string()));
                }
                libc::S_IFCHR => more.push(("device", about.rdev().to_string())),
                libc::S_IFSOCK => more.extend(sockets.observe(pid, number, about.ino())?),
                libc::S_IFIFO => more.extend(super::sockets::pipe(pid, number)?),
                _ => {}
            }
        }
        for (key, value) in more {
            observed.add(format!("{name}: {key}"), value);
        }
    }
    Ok(())
}

/// What `fdinfo` reports, without numbers of inodes and mounts, and times that go on.
fn fdinfo(pid: Pid, number: i32) -> io::Result<BTreeMap<String, String>> {
    let text = procfs::text(format!("/proc/{pid}/fdinfo/{number}"))?;
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in text.lines().filter_map(fdinfo_line) {
        let entry = found.entry(key).or_default();
        if !entry.is_empty() {
            entry.push_str(", ");
        }
        entry.push_str(&value);
    }
    Ok(found)
}

fn fdinfo_line(line: &str) -> Option<(String, String)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words[..] {
        // The time that a timer has left goes on, and may end meanwhile.
        [
            "mnt_id:" | "ino:" | "eventfd-id:" | "it_value:" | "ticks:",
            ..,
        ] => None,
        // lock: number: FLOCK ADVISORY WRITE pid device:inode start end; a process for a record lock.
        ["lock:", _, kind, advice, how, pid, _, start, end] => {
            let pid = if kind == "POSIX" { pid } else { "" };
            let value = format!("{kind} {advice} {how} {pid} {start}-{end}");
            Some(("lock".to_owned(), value))
        }
        ["tfd:", number, "events:", events, "data:", data, ..] => Some((
            format!("waits for {number}"),
            format!("events {events} data {data}"),
        )),
        ["inotify", number, ..] => {
            let mask = words.iter().find(|word| word.starts_with("mask:"))?;
            Some((format!("watch {number}"), (*mask).to_owned()))
        }
        [key, ref rest @ ..] => Some((key.trim_end_matches(':').to_owned(), rest.join(" "))),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_after_every_restore_is_not_observed() {
        assert_eq!(fdinfo_line("mnt_id:\t29"), None);
        assert_eq!(fdinfo_line("ino:\t4711"), None);
        let flock = |device: &str| {
            fdinfo_line(&format!(
                "lock:\t1: FLOCK  ADVISORY  WRITE 7 {device} 0 EOF"
            ))
        };
        assert_eq!(flock("fe:00:12"), flock("00:2a:99"));
        assert!(flock("fe:00:12").is_some());
        let epoll = |inode: &str| {
            let line = format!("tfd:        5 events:       19 data:  7  pos:0 ino:{inode} sdev:9");
            fdinfo_line(&line).expect("observed")
        };
        assert_eq!(epoll("1"), epoll("2"));
        assert_eq!(epoll("1").0, "waits for 5");
        assert_eq!(without_numbers("socket:[17]"), "socket");
        assert_eq!(without_numbers("/tmp/#12 (deleted)"), "a removed file");
        assert_eq!(without_numbers("/etc/passwd"), "/etc/passwd");
    }

    #[test]
    fn what_a_program_can_see_of_a_descriptor_is_observed() {
        let line = |text: &str| fdinfo_line(text).expect("observed");
        assert_eq!(line("pos:\t17"), ("pos".to_owned(), "17".to_owned()));
        assert_eq!(line("flags:\t02004002").1, "02004002");
        let watch = line("inotify wd:1 ino:4 sdev:9 mask:fce ignored_mask:0");
        assert_eq!(watch, ("watch wd:1".to_owned(), "mask:fce".to_owned()));
    }

    #[test]
    fn mappings_that_the_kernel_may_join_are_observed_as_one() {
        let mapped = |start: u64, flags: &str| Mapped {
            line: procfs::MapsLine {
                start,
                end: start + 4096,
                protection: libc::PROT_READ,
                shared: false,
                offset: 0,
                device: (0, 0),
                inode: 0,
                name: String::new(),
            },
            flags: flags.to_owned(),
            page_kb: "4 kB".to_owned(),
        };
        assert!(mapped(0x2000, "rd").continues(&mapped(0x1000, "rd")));
        assert!(!mapped(0x2000, "rd dd").continues(&mapped(0x1000, "rd")));
        assert!(!mapped(0x3000, "rd").continues(&mapped(0x1000, "rd")));
    }
}
