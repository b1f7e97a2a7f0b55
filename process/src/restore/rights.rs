//! Capabilities and limits of the tracker.

use std::fs;

use crate::procfs;

pub(super) const CAP_SETGID: u32 = 6;
pub(super) const CAP_SETUID: u32 = 7;
pub(super) const CAP_SETPCAP: u32 = 8;
pub(super) const CAP_NET_BIND_SERVICE: u32 = 10;
pub(super) const CAP_SYS_CHROOT: u32 = 18;
pub(super) const CAP_SYS_PTRACE: u32 = 19;
pub(crate) const CAP_SYS_ADMIN: u32 = 21;
pub(super) const CAP_SYS_NICE: u32 = 23;
pub(super) const CAP_SYS_RESOURCE: u32 = 24;
pub(super) const CAP_SYS_TIME: u32 = 25;
pub(super) const CAP_MKNOD: u32 = 27;
pub(super) const CAP_AUDIT_CONTROL: u32 = 30;
pub(super) const CAP_CHECKPOINT_RESTORE: u32 = 40;

/// Whether the tracker has a capability.
pub(crate) fn capable(capability: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = procfs::field(&status, "CapEff")
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(0);
    effective & 1 << capability != 0
}

/// What a child of ours inherits.
pub(super) fn own_limit(resource: u32) -> (u64, u64) {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit lives.
    unsafe { libc::getrlimit64(resource, &raw mut limit) };
    (limit.rlim_cur, limit.rlim_max)
}
