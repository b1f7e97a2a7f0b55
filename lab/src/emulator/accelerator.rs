//! Whether hardware virtualisation can run a machine that has System Management Mode.
//!
//! A device node proves little: a nested or restricted KVM may lack SMM, and firmware that
//! needs SMM then hangs. So its capability is queried and then tried.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What executes the machine's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Hardware virtualisation.
    Kvm,
    /// Emulation of each instruction.
    Tcg,
}

/// The processor that is emulated:
///
/// - Without fast strings: Linux would copy and clear pages with `rep movsb`, fast on hardware, but
///   TCG executes it byte after byte (measured: migration takes 1.7 times as long).
/// - Without `cmpxchg16b`, with which Linux allocates memory: QEMU 7.2 computes its flags from those of
///   an instruction before the last one, and may leave an address in them. Mostly nobody sees that,
///   because the next instructions set all flags. An interrupt just then saves them, and the return from
///   it loads them: the kernel then traps after an instruction, or copies memory backwards, and dies.
pub const TCG_PROCESSOR: &str = "max,-erms,-fsrm,-cx16";

impl fmt::Display for Accelerator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        })
    }
}

const KVM_CREATE_VM: libc::c_ulong = 0xae01;
const KVM_CHECK_EXTENSION: libc::c_ulong = 0xae03;
const KVM_CREATE_VCPU: libc::c_ulong = 0xae41;
const KVM_CAP_X86_SMM: libc::c_int = 117;

/// KVM where it offers SMM and lets us have a processor, otherwise emulation.
pub fn probe() -> Accelerator {
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(device) if kvm_works(&device) => Accelerator::Kvm,
        _ => Accelerator::Tcg,
    }
}

fn kvm_works(device: &File) -> bool {
    // SAFETY: the request takes a number and writes no memory.
    let smm = unsafe { libc::ioctl(device.as_raw_fd(), KVM_CHECK_EXTENSION, KVM_CAP_X86_SMM) };
    if smm <= 0 {
        return false;
    }
    let Some(machine) = ioctl_fd(device.as_raw_fd(), KVM_CREATE_VM) else {
        return false;
    };
    ioctl_fd(machine.as_raw_fd(), KVM_CREATE_VCPU).is_some()
}

/// A request with argument 0 that gives a new file descriptor.
fn ioctl_fd(fd: libc::c_int, request: libc::c_ulong) -> Option<OwnedFd> {
    // SAFETY: both requests used here take a number and write no memory.
    let new = unsafe { libc::ioctl(fd, request, 0) };
    // SAFETY: the kernel has just returned this descriptor; it has no other owner.
    (new >= 0).then(|| unsafe { OwnedFd::from_raw_fd(new) })
}
