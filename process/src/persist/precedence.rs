//! Priority of the tracker while the program is stopped or power is failing.

/// The calling thread, and threads that it starts, run first while this exists. Without the right
/// to (CAP_SYS_NICE) nothing changes.
#[derive(Debug)]
pub struct Precedence {
    before: i32,
}

const HIGHEST: i32 = -20;

fn set(nice: i32) {
    // SAFETY: no memory involved; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

impl Precedence {
    /// From now on.
    pub fn take() -> Self {
        // SAFETY: as above.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        set(HIGHEST);
        Self { before }
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        set(self.before);
    }
}
