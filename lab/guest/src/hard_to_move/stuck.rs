//! A process in uninterruptible sleep: it waits for a file server that never answers.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};

use super::children::fork_with;
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

const MOUNT: &str = "/run/hard-to-move-stuck";
const TIMEOUT: Duration = Duration::from_secs(20);

pub struct Stuck {
    waiter: libc::pid_t,
    /// The file server's end; closing it lets the waiter go.
    _server: File,
}

/// The state in /proc/PID/stat.
fn state(pid: libc::pid_t) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

pub fn uninterruptible(_: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    fs::create_dir_all(MOUNT).doing(format!("create {MOUNT}"))?;
    let server = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .doing("open /dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0",
        server.as_raw_fd()
    );
    let options = std::ffi::CString::new(options).expect("our own text");
    mount(
        "hard-to-move",
        MOUNT,
        "fuse",
        MountFlags::empty(),
        options.as_c_str(),
    )
    .doing("mount a file system that never answers")?;
    let waiter = fork_with(|| {
        let _ = fs::metadata(format!("{MOUNT}/file"));
        0
    })?;
    let begin = Instant::now();
    while state(waiter) != Some('D') {
        if begin.elapsed() > TIMEOUT {
            let text = format!("the waiting process is in state {:?}", state(waiter));
            return Err(GuestError::Other(text));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Box::new(Stuck {
        waiter,
        _server: server,
    }))
}

impl Kind for Stuck {
    fn verify(&mut self) -> Result<(), String> {
        match state(self.waiter) {
            Some('D') => Ok(()),
            state => Err(format!("the waiting process is in state {state:?}")),
        }
    }
}
