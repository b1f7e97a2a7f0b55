//! Whether the real-time clock wakes the machine from suspend to idle, tried before it is relied on.
//!
//! With ACPI, rtc_cmos leaves waking to a fixed event of the platform, not to the clock's interrupt.
//! Not every platform raises that event while it is on: QEMU does so only in S3. There the alarm
//! passes unnoticed, and the machine sleeps for ever.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::check::Lack;
use crate::sysfs;

/// What counts the alarms that reached ACPI, below /sys.
const EVENT: &str = "firmware/acpi/interrupts/ff_rt_clk";
/// The alarm of the attempt: a clock counts whole seconds, so `+1` may be over when it is set.
const ALARM: &str = "+2";
/// The alarm is due well within this time.
const LIMIT: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(20);

/// Sets an alarm and waits until it reaches ACPI; none: it does, or ACPI has no part in waking.
pub fn fails_to_wake(sys: &Path, alarm: &Path, interrupted: &AtomicBool) -> Option<Lack> {
    let event = sys.join(EVENT);
    let before = count(&event)?;
    // Where the kernel does not let the event be switched, nothing can be tried.
    fs::write(&event, "enable\n").ok()?;
    let is_set = fs::write(alarm, "0").and_then(|()| fs::write(alarm, ALARM));
    let reaches = is_set.is_err() || changes(|| count(&event), before, LIMIT, interrupted);
    // The driver's handler switches it off when the alarm comes; both are as they were, then.
    let _ = fs::write(alarm, "0");
    let _ = fs::write(&event, "disable\n");
    (!reaches && !interrupted.load(Ordering::SeqCst)).then(|| lack(&event))
}

/// Whether the counter leaves this value in time.
fn changes(
    mut count: impl FnMut() -> Option<u64>,
    before: u64,
    limit: Duration,
    interrupted: &AtomicBool,
) -> bool {
    let begin = Instant::now();
    loop {
        if count() != Some(before) {
            return true;
        }
        if begin.elapsed() >= limit || interrupted.load(Ordering::SeqCst) {
            return false;
        }
        thread::sleep(GLANCE);
    }
}

fn lack(event: &Path) -> Lack {
    Lack {
        what: format!(
            "the real-time clock does not wake this machine from suspend to idle: an alarm did \
             not reach ACPI ({} did not count it; QEMU is like that)",
            event.display()
        ),
        todo: "use --test devices, which needs no waking, or --wake-after never and wake it by \
               another device (its power/wakeup in /sys says enabled); --trust-clock sleeps all \
               the same"
            .into(),
    }
}

/// None where there is no such event, or no driver that handles it.
fn count(event: &Path) -> Option<u64> {
    let text = sysfs::read(event)?;
    if text.contains("invalid") {
        return None;
    }
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn an_alarm_that_acpi_does_not_count_in_time_is_no_way_to_wake() {
        assert!(!changes(|| Some(3), 3, Duration::ZERO, &NEVER));
        let mut calls = 0;
        let counts_at_last = || {
            calls += 1;
            Some(if calls < 3 { 3 } else { 4 })
        };
        assert!(changes(counts_at_last, 3, LIMIT, &NEVER));
        let text = lack(Path::new("/sys").join(EVENT).as_path()).to_string();
        for word in ["ff_rt_clk", "--test devices", "--trust-clock"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn ctrl_c_ends_the_attempt() {
        assert!(!changes(|| Some(3), 3, LIMIT, &AtomicBool::new(true)));
    }

    #[test]
    fn without_acpi_or_a_driver_that_handles_the_event_the_interrupt_wakes() {
        let folder = tempfile::tempdir().unwrap();
        let alarm = folder.path().join("wakealarm");
        assert_eq!(fails_to_wake(folder.path(), &alarm, &NEVER), None);
        let event = folder.path().join(EVENT);
        fs::create_dir_all(event.parent().unwrap()).unwrap();
        fs::write(&event, "       0         invalid      unmasked\n").unwrap();
        assert_eq!(fails_to_wake(folder.path(), &alarm, &NEVER), None);
        assert!(!alarm.exists(), "nothing was changed");
    }
}
