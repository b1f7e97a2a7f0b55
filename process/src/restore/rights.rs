//! Capabilities and limits of the tracker.

pub(crate) use linux_raw_sys::general::CAP_SYS_ADMIN;
pub(super) use linux_raw_sys::general::{
    CAP_AUDIT_CONTROL, CAP_CHECKPOINT_RESTORE, CAP_MKNOD, CAP_NET_BIND_SERVICE, CAP_SETGID,
    CAP_SETPCAP, CAP_SETUID, CAP_SYS_CHROOT, CAP_SYS_NICE, CAP_SYS_PTRACE, CAP_SYS_RESOURCE,
    CAP_SYS_TIME,
};

/// Whether the tracker has a capability.
pub(crate) fn capable(capability: u32) -> bool {
    let sets = rustix::thread::capabilities(None);
    sets.is_ok_and(|sets| sets.effective.bits() & 1 << capability != 0)
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
