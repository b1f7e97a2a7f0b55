//! Parsers of /proc for one process, strict about the fields that they need.

use std::fs;
use std::io;

use dormouse_system::Root;
pub use dormouse_system::proc::{bytes, field, has_ended, text};

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapsLine {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    pub protection: i32,
    /// `MAP_SHARED` rather than `MAP_PRIVATE`.
    pub shared: bool,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Device of the file: major, minor.
    pub device: (u32, u32),
    /// Inode of the file; 0: none.
    pub inode: u64,
    /// The last column: a path, a name in brackets, or nothing. Escapes (`\012`) are undone.
    pub name: String,
}

/// The mappings of a process, ascending.
///
/// # Errors
/// `/proc/PID/maps` cannot be read, or has a line that we do not understand.
pub fn maps(pid: i32) -> io::Result<Vec<MapsLine>> {
    parse_maps(&bytes(format!("/proc/{pid}/maps"))?)
}

pub(crate) fn parse_maps(bytes: &[u8]) -> io::Result<Vec<MapsLine>> {
    bytes
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_maps_line(line).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "a line of maps that is not understood: {}",
                        String::from_utf8_lossy(line)
                    ),
                )
            })
        })
        .collect()
}

fn parse_maps_line(line: &[u8]) -> Option<MapsLine> {
    // A name need not be UTF-8.
    let line = String::from_utf8_lossy(line);
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let flags = fields.next()?.as_bytes();
    let offset = fields.next()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?;
    let name = fields.next().unwrap_or("").trim_start_matches(' ');
    let mut protection = 0;
    if *flags.first()? == b'r' {
        protection |= libc::PROT_READ;
    }
    if *flags.get(1)? == b'w' {
        protection |= libc::PROT_WRITE;
    }
    if *flags.get(2)? == b'x' {
        protection |= libc::PROT_EXEC;
    }
    Some(MapsLine {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        protection,
        shared: *flags.get(3)? == b's',
        offset: u64::from_str_radix(offset, 16).ok()?,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode: inode.parse().ok()?,
        name: name.replace("\\012", "\n"),
    })
}

/// Resident pages of a process that are not a file's or shared memory's.
///
/// # Errors
/// It has ended.
pub fn private_pages(pid: i32) -> io::Result<u64> {
    let text = text(format!("/proc/{pid}/statm"))?;
    let mut words = text.split_ascii_whitespace().skip(1);
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    match (number(), number()) {
        (Some(resident), Some(shared)) => Ok(resident.saturating_sub(shared)),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// The children of a process, from all of its threads: no child that lives all the while is missing.
///
/// # Errors
/// Its threads cannot be listed, or its children end faster than they can be listed.
pub fn children(pid: i32) -> io::Result<Vec<i32>> {
    const READINGS_MAX: u32 = 1000;
    for _ in 0..READINGS_MAX {
        let (children, complete) = children_once(pid)?;
        if complete {
            return Ok(children);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("the children of process {pid} end faster than they can be listed"),
    ))
}

/// The children of a process by one reading, and whether none of them can be missing.
///
/// The kernel goes on from the child that it listed last. Was that one reaped meanwhile, the kernel
/// counts from the first child again and passes over as many as are gone. So nothing is missing if all
/// that were listed are still there afterwards.
pub(crate) fn children_once(pid: i32) -> io::Result<(Vec<i32>, bool)> {
    let mut children = Vec::new();
    for tid in threads(pid)? {
        let list = match text(format!("/proc/{pid}/task/{tid}/children")) {
            Ok(list) => list,
            Err(error) if has_ended(&error) => continue,
            Err(error) => return Err(error),
        };
        children.extend(
            list.split_ascii_whitespace()
                .filter_map(|child| child.parse::<i32>().ok()),
        );
    }
    let complete = children.iter().all(|&child| is_there(child));
    Ok((children, complete))
}

/// Whether a process lives or has not been reaped.
fn is_there(pid: i32) -> bool {
    rustix::process::Pid::from_raw(pid).is_some_and(|pid| {
        // Another user's process may not be signalled, but it is there.
        rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
    })
}

/// The threads of a process, ascending; none if it has ended.
pub fn threads(pid: i32) -> io::Result<Vec<i32>> {
    let mut threads = Vec::new();
    let entries = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(entries) => entries,
        Err(error) if has_ended(&error) => return Ok(threads),
        Err(error) => return Err(error),
    };
    for entry in entries {
        match entry {
            Ok(entry) => threads.extend(
                entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<i32>().ok()),
            ),
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    threads.sort_unstable();
    Ok(threads)
}

/// Whether a thread is a worker that the kernel has made for a ring of io_uring. It executes requests and no
/// code of the program; an interruption would fail the request that it executes.
pub fn is_kernel_worker(pid: i32, tid: i32) -> bool {
    const PF_IO_WORKER: u64 = 0x10;
    const PF_USER_WORKER: u64 = 0x4000;
    // Not by its name (iou-wrk-PID), which a new one does not have yet.
    stat(pid, tid).is_ok_and(|stat| stat.flags & (PF_IO_WORKER | PF_USER_WORKER) != 0)
}

/// What we use of `/proc/PID/task/TID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The name of the thread (at most 15 bytes).
    pub name: String,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X`.
    pub state: char,
    /// Parent.
    pub parent: i32,
    /// Process group.
    pub group: i32,
    /// Session.
    pub session: i32,
    /// Device number of the controlling terminal; 0: none.
    pub terminal: i32,
    /// Process group in front of that.
    pub front: i32,
    /// The kernel's `PF_*` flags.
    pub flags: u64,
    /// When it started, in clock ticks since boot.
    pub started: u64,
    /// Resident pages.
    pub resident_pages: u64,
    /// The memory layout that the kernel reports: code, data, brk, stack, arguments, environment.
    pub layout: Layout,
    /// Signal for its parent at its end; -1: it is not the main thread.
    pub exit_signal: i32,
    /// Exit status as `waitpid` would give it (of a zombie).
    pub exit_code: i32,
}

/// Addresses that `prctl(PR_SET_MM)` sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub struct Layout {
    pub start_code: u64,
    pub end_code: u64,
    pub start_data: u64,
    pub end_data: u64,
    pub start_brk: u64,
    /// Not in `stat`: read by a remote system call.
    pub brk: u64,
    pub start_stack: u64,
    pub arg_start: u64,
    pub arg_end: u64,
    pub env_start: u64,
    pub env_end: u64,
}

impl Layout {
    /// All addresses, in the order of the kernel's `struct prctl_mm_map`.
    pub fn addresses(&self) -> [u64; 11] {
        [
            self.start_code,
            self.end_code,
            self.start_data,
            self.end_data,
            self.start_brk,
            self.brk,
            self.start_stack,
            self.arg_start,
            self.arg_end,
            self.env_start,
            self.env_end,
        ]
    }
}

/// Reads `/proc/PID/task/TID/stat`.
pub fn stat(pid: i32, tid: i32) -> io::Result<Stat> {
    let stat = dormouse_system::proc::thread_stat(&Root::host(), pid, tid)?;
    Stat::of(&stat).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "a stat line that is not understood",
        )
    })
}

impl Stat {
    fn of(stat: &dormouse_system::proc::Stat) -> Option<Stat> {
        Some(Stat {
            name: stat.name.clone(),
            state: stat.state,
            parent: stat.parent,
            group: stat.group,
            session: stat.session,
            terminal: stat.number(7)?,
            front: stat.number(8)?,
            flags: stat.number(9)?,
            started: stat.start_ticks,
            resident_pages: stat.resident_pages,
            layout: Layout {
                start_code: stat.number(26)?,
                end_code: stat.number(27)?,
                start_data: stat.number(45)?,
                end_data: stat.number(46)?,
                start_brk: stat.number(47)?,
                brk: 0,
                start_stack: stat.number(28)?,
                arg_start: stat.number(48)?,
                arg_end: stat.number(49)?,
                env_start: stat.number(50)?,
                env_end: stat.number(51)?,
            },
            exit_signal: stat.number(38)?,
            exit_code: stat.number(52)?,
        })
    }
}

/// Whether a task ends by itself soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It lives, or nothing is known of it.
    No,
    /// It was killed, or is on its way out.
    Dies,
    /// It has ended; its parent has not asked for its exit status yet.
    Zombie,
}

/// Whether a task is ending.
pub fn ending(pid: i32) -> Ending {
    const PF_EXITING: u64 = 4;
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    let Ok(stat) = stat(pid, pid) else {
        return Ending::No;
    };
    if matches!(stat.state, 'Z' | 'X') {
        return Ending::Zombie;
    }
    // The kernel gives SIGKILL to each thread when it is sent.
    let status = status(pid, pid).unwrap_or_default();
    let pending = field(&status, "SigPnd").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    if stat.flags & PF_EXITING != 0 || pending.is_some_and(|mask| mask & KILLED != 0) {
        return Ending::Dies;
    }
    Ending::No
}

/// The process of which a path in `/proc` is, and the thread, if it is one's.
pub fn owner_of_path(path: &str) -> Option<(i32, Option<i32>)> {
    let mut words = path.strip_prefix("/proc/")?.split('/');
    let pid = words.next()?.parse().ok()?;
    let tid = (words.next() == Some("task"))
        .then(|| words.next()?.parse().ok())
        .flatten();
    Some((pid, tid))
}

/// `/proc/PID/task/TID/status`. A thread may have a name that is no text; what is none of it is replaced.
///
/// # Errors
/// It has ended.
pub fn status(pid: i32, tid: i32) -> io::Result<String> {
    let status = bytes(format!("/proc/{pid}/task/{tid}/status"))?;
    Ok(String::from_utf8_lossy(&status).into_owned())
}

/// Whether a process runs under a seccomp filter of its own, which may end it for any call that it
/// does not expect. A filter that it has from us (a container's: ours as much as its) is none: the
/// tracker makes the same calls under it, and what it starts again gets it again.
pub fn is_filtered(pid: i32) -> bool {
    let status = status(pid, pid).unwrap_or_default();
    has_own_filter(pid, &status)
}

/// As [`is_filtered`], from the status file of the process or of one of its threads.
pub fn has_own_filter(pid: i32, status: &str) -> bool {
    let own = || text("/proc/self/status").unwrap_or_default();
    filter_is_own(status, own, || descends(pid, std::process::id() as i32))
}

/// Filters are only ever added, and a child starts with its parent's: where it has as many as we
/// have, and descends from us, they are ours.
fn filter_is_own(
    status: &str,
    ours: impl FnOnce() -> String,
    descends: impl FnOnce() -> bool,
) -> bool {
    const MODE_FILTER: &str = "2";
    let mode = field(status, "Seccomp").unwrap_or("0");
    if mode == "0" {
        return false;
    }
    let ours = ours();
    let count = |text| field(text, "Seccomp_filters").and_then(|count| count.parse::<u32>().ok());
    let as_ours = mode == MODE_FILTER
        && field(&ours, "Seccomp") == Some(MODE_FILTER)
        && count(status).is_some()
        && count(status) == count(&ours);
    !(as_ours && descends())
}

/// Whether a process is a descendant of another one.
fn descends(mut pid: i32, ancestor: i32) -> bool {
    // A chain that changes while it is followed may lead in a circle.
    for _ in 0..1000 {
        let status = status(pid, pid).unwrap_or_default();
        match field(&status, "PPid").and_then(|parent| parent.parse().ok()) {
            Some(parent) if parent == ancestor => return true,
            Some(parent) if parent > 0 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// The auxiliary vector of a process, as pairs of type and value.
pub fn auxv(pid: i32) -> io::Result<Vec<(u64, u64)>> {
    let bytes = bytes(format!("/proc/{pid}/auxv"))?;
    Ok(bytes
        .chunks_exact(16)
        .map(|pair| {
            let word = |at: usize| {
                u64::from_ne_bytes(pair[at..at + 8].try_into().expect("eight bytes of sixteen"))
            };
            (word(0), word(8))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maps_line_with_spaces_in_its_path_is_read_whole() {
        let line = b"7f0000000000-7f0000002000 rw-p 00001000 fe:0a 4711                       /tmp/a b (deleted)";
        let map = parse_maps_line(line).expect("a good line");
        assert_eq!((map.start, map.end), (0x7f00_0000_0000, 0x7f00_0000_2000));
        assert_eq!(map.protection, libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(
            (map.shared, map.offset, map.device, map.inode),
            (false, 0x1000, (0xfe, 10), 4711)
        );
        assert_eq!(map.name, "/tmp/a b (deleted)");
    }

    #[test]
    fn a_maps_line_that_is_cut_is_an_error() {
        assert!(parse_maps(b"7f0000000000-7f00000").is_err());
        assert!(parse_maps(b"7f00 rw-p 0 0:0 0\n").is_err());
    }

    #[test]
    fn a_filter_that_a_program_has_from_its_tracker_is_not_its_own() {
        let status = |mode: u32, count: u32| {
            format!("Name:\tx\nSeccomp:\t{mode}\nSeccomp_filters:\t{count}\n")
        };
        let own = |its: (u32, u32), ours: (u32, u32), descends| {
            filter_is_own(
                &status(its.0, its.1),
                || status(ours.0, ours.1),
                || descends,
            )
        };
        assert!(!own((0, 0), (0, 0), true));
        assert!(!own((2, 1), (2, 1), true), "the container's");
        assert!(own((2, 2), (2, 1), true), "one more of its own");
        assert!(own((2, 1), (0, 0), true), "ours has none");
        assert!(own((2, 1), (2, 1), false), "of another container");
        assert!(
            own((1, 0), (1, 0), true),
            "the strict mode is none of a container"
        );
        // A kernel that does not count them cannot tell.
        assert!(filter_is_own(
            "Seccomp:\t2\n",
            || "Seccomp:\t2\n".to_owned(),
            || true
        ));
    }

    #[test]
    fn a_child_descends_from_its_parent_and_not_the_other_way_round() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .expect("a child");
        let (its, own) = (child.id() as i32, std::process::id() as i32);
        assert!(descends(its, own) && !descends(own, its));
        child.kill().expect("killed");
        child.wait().expect("its end");
    }
}
