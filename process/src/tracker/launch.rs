//! Starting the program: as which user, with which capabilities, and above which PID.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::str::FromStr;

use caps::Capability;

/// In a container, numbers below this one are left to the trackers that restore the program: they
/// have threads when it gets its numbers back. The kernel's own count starts again at 300.
const FIRST_PID_IN_CONTAINER: i32 = 64;

/// The user and groups that the program starts with, in place of the tracker's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// Further groups.
    pub supplementary: Vec<u32>,
}

impl FromStr for User {
    type Err = String;

    /// `UID:GID[,GID…]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not UID:GID[,GID…], all of them numbers");
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        let (user, groups) = text.split_once(':').ok_or_else(wrong)?;
        let mut groups = groups.split(',').map(number);
        Ok(Self {
            user: number(user)?,
            group: groups.next().ok_or_else(wrong)??,
            supplementary: groups.collect::<Result<_, _>>()?,
        })
    }
}

/// The kernel's number of a capability; none if there is no such one.
pub fn number_of(name: &str) -> Option<u8> {
    name.parse::<Capability>()
        .ok()
        .map(|capability| capability.index())
}

/// What the program is, compared with its tracker.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Another user; none: the tracker's.
    pub user: Option<User>,
    /// Capabilities that it must never have.
    pub without: Vec<Capability>,
}

/// Starts it. It has the tracker's environment, directory and descriptors 0, 1 and 2, and stands
/// in the tracker's process group, so that the terminal's keys reach it.
///
/// # Errors
/// It cannot be executed.
pub fn start(command: &[OsString], identity: &Identity) -> io::Result<Child> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // What the program leaves behind when it ends becomes the tracker's child: the tree is all
    // of the tracker's descendants.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    if super::isolate::in_container() {
        pass_low_numbers()?;
    }
    let mut command = Command::new(program);
    command.args(arguments);
    if identity.user.is_some() || !identity.without.is_empty() {
        let identity = identity.clone();
        // SAFETY: system calls alone; nothing is allocated, no lock is taken.
        unsafe { command.pre_exec(move || become_it(&identity)) };
    }
    command.spawn()
}

/// Gives descriptors 0, 1 and 2 to the program's user, so that it can open them anew (through
/// `/dev/stdout`); a container's runtime does the same for its own user.
pub fn hand_over_output(user: &User) {
    for number in 0..3 {
        // SAFETY: the descriptor is only looked at and given away.
        unsafe {
            let mut about = std::mem::zeroed::<libc::stat>();
            let null = libc::makedev(1, 3);
            if libc::fstat(number, &raw mut about) != 0 || about.st_rdev == null {
                continue;
            }
            if libc::fchown(number, user.user, libc::gid_t::MAX) != 0 {
                let error = io::Error::last_os_error();
                tracing::warn!("descriptor {number} stays the tracker's user's: {error}");
            }
        }
    }
}

/// Makes the kernel hand out higher numbers.
fn pass_low_numbers() -> io::Result<()> {
    loop {
        // SAFETY: the child does nothing but end.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: as above.
            0 => unsafe { libc::_exit(0) },
            // SAFETY: no memory involved.
            _ => unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) },
        };
        if child + 1 >= FIRST_PID_IN_CONTAINER {
            return Ok(());
        }
    }
}

/// In the child, before it executes the program.
fn become_it(identity: &Identity) -> io::Result<()> {
    let done = |result: libc::c_long| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    let call = |number, arguments: [u64; 3]| {
        let [a, b, c] = arguments;
        // SAFETY: pointers among the arguments are to what lives in the caller.
        done(unsafe { libc::syscall(number, a, b, c) })
    };
    // The bounding set decides what an execution as root gives.
    for capability in &identity.without {
        let drop = [
            libc::PR_CAPBSET_DROP as u64,
            u64::from(capability.index()),
            0,
        ];
        call(libc::SYS_prctl, drop)?;
    }
    if let Some(user) = &identity.user {
        // Ambient capabilities, which the container's configuration gives, are to stay.
        call(libc::SYS_prctl, [libc::PR_SET_KEEPCAPS as u64, 1, 0])?;
        let groups = &user.supplementary;
        let list = groups.as_ptr() as u64;
        call(libc::SYS_setgroups, [groups.len() as u64, list, 0])?;
        call(libc::SYS_setresgid, [u64::from(user.group); 3])?;
        call(libc::SYS_setresuid, [u64::from(user.user); 3])?;
    }
    // Where no_new_privs is set, an execution gives no more than there is.
    drop_capabilities(identity)
}

fn drop_capabilities(identity: &Identity) -> io::Result<()> {
    /// _LINUX_CAPABILITY_VERSION_3, this process.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: the header and both halves of the three sets live.
    let got = unsafe { libc::syscall(libc::SYS_capget, HEADER.as_ptr(), sets.as_mut_ptr()) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    for capability in &identity.without {
        let (half, bit) = (capability.index() / 32, capability.index() % 32);
        for set in &mut sets[usize::from(half)] {
            *set &= !(1 << bit);
        }
    }
    // SAFETY: as above.
    match unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), sets.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_numbers_and_nothing_else() {
        let user: User = "999:1000,4,27".parse().expect("a user");
        assert_eq!((user.user, user.group), (999, 1000));
        assert_eq!(user.supplementary, [4, 27]);
        for wrong in ["", "999", "999:", "redis:redis", "1:2,", "-1:0"] {
            assert!(wrong.parse::<User>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_program_never_gets_the_capabilities_that_only_its_tracker_needs() {
        let identity = Identity {
            user: None,
            without: vec![Capability::CAP_SYS_PTRACE, Capability::CAP_SYS_ADMIN],
        };
        let script = "grep ^Cap /proc/self/status > \"$0\"";
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("status");
        let command: Vec<OsString> = ["sh", "-c", script]
            .into_iter()
            .map(OsString::from)
            .chain([file.clone().into_os_string()])
            .collect();
        let mut child = start(&command, &identity).expect("started");
        assert!(child.wait().expect("its end").success());
        let status = std::fs::read_to_string(file).expect("what it wrote");
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let mask = crate::procfs::field(&status, name).expect(name);
            let mask = u64::from_str_radix(mask, 16).expect("a mask");
            assert_eq!(mask & (1 << 19 | 1 << 21), 0, "{name}: {mask:x}");
        }
    }
}
