//! A number of a process that is taken: what stands in the way of a restore.

use std::fs;
use std::process::{Child, Command};

const LAST: &str = "/proc/sys/kernel/ns_last_pid";

/// A `sleep` with a number of the test's choice. It ends when this is dropped.
pub struct Occupied(Child);

impl Occupied {
    /// Starts it. Afterwards the kernel counts on from where it was: numbers behind this one are those that
    /// other restored programs want.
    ///
    /// # Panics
    /// Not root.
    pub fn number(pid: i32) -> Self {
        let last = fs::read_to_string(LAST).expect("it can be read");
        let sleep = loop {
            fs::write(LAST, (pid - 1).to_string()).expect("root");
            let mut sleep = Command::new("sleep").arg("600").spawn().expect("sleep");
            if sleep.id() as i32 == pid {
                break sleep;
            }
            // Somebody else was quicker.
            let _ = sleep.kill();
            let _ = sleep.wait();
        };
        let _ = fs::write(LAST, last.trim());
        Self(sleep)
    }

    /// Whether it has been left alone.
    pub fn lives(&mut self) -> bool {
        self.0.try_wait().expect("our child").is_none()
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
