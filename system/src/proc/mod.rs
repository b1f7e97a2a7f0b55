//! Processes and threads, from `/proc`.

pub mod numa_maps;
pub mod pagemap;
mod stat;
mod status;
mod text;

use std::io;

use rustix::io::Errno;

use crate::Root;

pub use stat::Stat;
pub use status::{Status, field};
pub use text::{bytes, text};

/// All process IDs, ascending.
pub fn pids(root: &Root) -> Vec<i32> {
    numbers(&root.list("proc"))
}

/// The threads of a process, ascending; none if it has ended.
pub fn threads(root: &Root, pid: i32) -> Vec<i32> {
    numbers(&root.list(&format!("proc/{pid}/task")))
}

/// Whether there is a process or thread with this ID; a zombie counts.
pub fn exists(root: &Root, id: i32) -> bool {
    root.exists(&format!("proc/{id}"))
}

/// The name of a process (at most 15 bytes); none if it has ended.
pub fn name(root: &Root, pid: i32) -> Option<String> {
    root.read(&format!("proc/{pid}/comm")).ok()
}

/// Whether an error of `/proc` only says that the task has ended.
pub fn has_ended(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::NOENT, Errno::SRCH]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&code)
}

/// `stat` of a process.
///
/// # Errors
/// It has ended ([`has_ended`]), or the kernel writes a line that this parser does not understand.
pub fn stat(root: &Root, pid: i32) -> io::Result<Stat> {
    read_stat(root, &format!("proc/{pid}/stat"))
}

/// `stat` of one thread.
///
/// # Errors
/// As [`stat`].
pub fn thread_stat(root: &Root, pid: i32, tid: i32) -> io::Result<Stat> {
    read_stat(root, &format!("proc/{pid}/task/{tid}/stat"))
}

fn read_stat(root: &Root, path: &str) -> io::Result<Stat> {
    let path = root.path(path);
    let text = String::from_utf8_lossy(&bytes(&path)?).into_owned();
    Stat::parse(&text).ok_or_else(|| {
        let what = format!("{}: not a line of stat: {text:?}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// `status` of a process.
///
/// # Errors
/// It has ended.
pub fn status(root: &Root, pid: i32) -> io::Result<Status> {
    root.read(&format!("proc/{pid}/status")).map(Status)
}

/// `status` of the calling process.
///
/// # Errors
/// `/proc` is not mounted.
pub fn own_status(root: &Root) -> io::Result<Status> {
    root.read("proc/self/status").map(Status)
}

fn numbers(names: &[String]) -> Vec<i32> {
    let mut numbers: Vec<i32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_with_its_threads_name_and_parent() {
        let root = Root::host();
        let own = std::process::id() as i32;
        assert!(pids(&root).contains(&own) && exists(&root, own));
        assert!(threads(&root, own).contains(&own));
        let stat = stat(&root, own).unwrap();
        assert_eq!(stat.pid, own);
        assert_eq!(stat.parent, std::os::unix::process::parent_id() as i32);
        assert_eq!(Some(stat.name), name(&root, own));
        let pid = own_status(&root).unwrap();
        assert_eq!(pid.field("Pid"), Some(own.to_string().as_str()));
    }

    #[test]
    fn a_process_that_has_ended_is_told_from_one_that_cannot_be_read() {
        let root = Root::host();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        child.wait().unwrap();
        assert!(has_ended(&stat(&root, pid).unwrap_err()));
        assert!(!has_ended(&io::Error::from(
            io::ErrorKind::PermissionDenied
        )));
        let directory = tempfile::tempdir().unwrap();
        let made_up = Root::at(directory.path());
        made_up.create("proc/7/stat", "7 (a").unwrap();
        assert!(!has_ended(&super::stat(&made_up, 7).unwrap_err()));
        assert_eq!(pids(&made_up), [7]);
    }
}
