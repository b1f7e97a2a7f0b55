//! Process 1: from the initrd to the root disk, then parent of everything and reaper of orphans.
//!
//! ```text
//! initrd:        /init  /modules/load-order  /modules/*.ko
//!   load modules → wake what sleeps under stock firmware → resume what hibernated, if anything did → mount root disk and payload disk
//!   → free the initrd
//! root disk:     the distribution's packages
//! payload disk:  /run/payload/{bin/dormouse,bin/dormouse-guest,modules/load-order,modules/*.ko}
//!                /run/dormouse/{bin,modules} point to it; the folder itself can be written to
//!   mount the kernel's file systems → load modules → control groups → start the agent
//! ```

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{WaitOptions, wait};

use crate::error::{Doing, GuestError};
use crate::jobs::{bandwidth, devices};
use crate::sleep::hibernate;
use crate::system::console::say;
use crate::system::mounts::mount_at;
use crate::system::{PAYLOAD, cgroups, disk, modules, nvdimm, power};

/// Serial numbers of the virtio disks.
const ROOT_DISK: &str = "dormouse-root";
const PAYLOAD_DISK: &str = "dormouse-payload";
/// Where programs look for it, and where `dormouse` keeps its state.
const STATE: &str = "/run/dormouse";
const OUR_MODULE: &str = "dormouse.ko";
/// The one for stock firmware.
const SNAPSHOT_MODULE: &str = "dormouse_snapshot.ko";
const PATH: &str = "/run/dormouse/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Present from the second stage on, because the first one is called `/init`.
const SECOND_STAGE: &str = "second-stage";

/// Never returns: when init cannot go on, the machine is switched off with the reason on the
/// console.
pub fn run() -> ! {
    if devices::is_asked() {
        devices::run();
    }
    if bandwidth::is_asked() {
        bandwidth::run();
    }
    let second = std::env::args().nth(1).as_deref() == Some(SECOND_STAGE);
    let result = if second {
        second_stage()
    } else {
        first_stage()
    };
    if let Err(error) = result {
        say(&format!("init failed: {error}"));
    }
    power::off();
}

fn first_stage() -> Result<(), GuestError> {
    mount_at("devtmpfs", "/dev", "devtmpfs", "")?;
    mount_at("proc", "/proc", "proc", "")?;
    mount_at("sysfs", "/sys", "sysfs", "")?;
    for complaint in modules::load_all(Path::new("/modules")) {
        say(&complaint);
    }
    // What is left for later systems goes along to the root disk's /run.
    mount_at("tmpfs", "/run", "tmpfs", "mode=755")?;
    wake();
    let root = disk::wait_for(ROOT_DISK)?;
    // The swap area is the disk before the root disk. What hibernated has that one mounted.
    hibernate::resume();
    mount_at(&root, "/newroot", "ext4", "")?;
    mount_move("/run", "/newroot/run").doing("move /run")?;
    let payload = disk::wait_for(PAYLOAD_DISK)?;
    let payload_mount = format!("/newroot{PAYLOAD}");
    fs::create_dir_all(&payload_mount).doing(format!("create {payload_mount}"))?;
    mount(
        &payload,
        &payload_mount,
        "ext4",
        MountFlags::RDONLY,
        c"noload",
    )
    .doing(format!("mount {payload} on {payload_mount}"))?;
    let state = format!("/newroot{STATE}");
    fs::create_dir_all(&state).doing(format!("create {state}"))?;
    for part in ["bin", "modules"] {
        symlink(format!("{PAYLOAD}/{part}"), format!("{state}/{part}"))
            .doing(format!("point {state}/{part} to the payload disk"))?;
    }
    for busy in ["/dev", "/proc", "/sys"] {
        let target = format!("/newroot{busy}");
        fs::create_dir_all(&target).doing(format!("create {target}"))?;
        mount_move(busy, &target).doing(format!("move {busy}"))?;
    }
    free_initrd();
    std::env::set_current_dir("/newroot").doing("enter the new root")?;
    mount_move(".", "/").doing("move the new root to /")?;
    rustix::process::chroot(".").doing("change root")?;
    std::env::set_current_dir("/").doing("enter /")?;
    let error = Command::new(format!("{PAYLOAD}/bin/dormouse-guest"))
        .arg(SECOND_STAGE)
        .exec();
    Err(GuestError::Io {
        what: "run init from the payload disk".into(),
        source: error,
    })
}

/// Under stock firmware, as a distribution's initramfs does it by our hook.
fn wake() {
    const FOLDER: &str = "/wake";
    if !Path::new(FOLDER).exists() {
        return;
    }
    for complaint in modules::load_all(Path::new(FOLDER)) {
        say(&complaint);
    }
    // Returns unless the machine slept.
    if let Err(error) = Command::new("/wake/dormouse-wake").status() {
        say(&format!("dormouse-wake: {error}"));
    }
}

fn second_stage() -> Result<(), GuestError> {
    mount_at("devpts", "/dev/pts", "devpts", "")?;
    mount_at("tmpfs", "/dev/shm", "tmpfs", "")?;
    mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", "")?;
    // Tracing and debugging are a help for tests; a kernel without them is fine.
    let _ = mount_at("tracefs", "/sys/kernel/tracing", "tracefs", "");
    let _ = mount_at("debugfs", "/sys/kernel/debug", "debugfs", "");
    let _ = fs::write("/proc/sys/kernel/hostname", "dormouse");
    // SAFETY: process 1 has one thread here; nothing reads the environment meanwhile.
    unsafe { std::env::set_var("PATH", PATH) };
    // SAFETY: as above.
    unsafe { std::env::set_var("HOME", "/root") };

    let directory = Path::new(PAYLOAD).join("modules");
    let complaints = modules::load_all(&directory);
    for complaint in complaints {
        say(&complaint);
    }
    // Under stock firmware it would only say that there is none of ours.
    if !nvdimm::is_there()
        && let Some(complaint) = modules::load(&directory.join(OUR_MODULE), "")
    {
        say(&complaint);
    }
    if nvdimm::is_there() && !nvdimm::is_swap() {
        let module = directory.join(SNAPSHOT_MODULE);
        for complaint in modules::load(&module, "")
            .into_iter()
            .chain(nvdimm::set_up())
        {
            say(&complaint);
        }
    }
    loopback_up()?;
    cgroups::prepare()?;
    let agent = Command::new("/proc/self/exe")
        .arg("agent")
        .spawn()
        .doing("start the agent")?;
    say("agent started");
    reap_until(agent.id())?;
    Err(GuestError::Other("the agent has ended".into()))
}

/// Programs in the machine talk to each other over 127.0.0.1.
fn loopback_up() -> Result<(), GuestError> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").doing("open a socket")?;
    // SAFETY: all bytes of this C structure may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is a valid ifreq with a terminated name.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing("bring up the loopback interface"),
    }
}

/// Reaps every child; returns when the child `last` has ended.
fn reap_until(last: u32) -> Result<(), GuestError> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if pid.as_raw_nonzero().get() as u32 == last => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).doing("wait for children"),
        }
    }
}

/// What stays in the initrd's file system would be kernel memory that every sleep saves.
fn free_initrd() {
    let _ = fs::remove_dir_all("/modules");
    let _ = fs::remove_dir_all("/wake");
    let _ = fs::remove_file("/init");
}
