//! Ctrl-C and termination: every wait of the lab ends, and nothing is left running.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::LabError;

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on a first signal only makes waits end with [`LabError::Interrupted`], so that
/// values are dropped in order; a second one ends the process (the kernel then kills QEMU).
pub fn watch() {
    INTERRUPTED.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Registering fails only for signals that cannot be caught; these can.
            let _ =
                signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag));
            let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
        }
        flag
    });
}

/// An error once a signal has come.
pub fn check() -> Result<(), LabError> {
    match INTERRUPTED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(LabError::Interrupted),
        _ => Ok(()),
    }
}
