//! The command line of the emulated machine's kernel.

/// Memory of the CXL device stays offline until a sleep asks for it, keeps its own page
/// descriptors, and is not balanced away from where a sleep put pages.
///
/// `no_timer_check`: Linux tests its timer interrupt by counting ticks for 40 ms of the time stamp
/// counter. On a busy host, which stops the emulator for longer than that, the test fails; Linux
/// then tries other ways to connect the timer, and now and then leaves its interrupt in service
/// for ever. Interrupts of disks with a vector below it are never served again, and the boot hangs.
const ALWAYS: &str = "console=ttyS0 no_timer_check memhp_default_state=offline \
                      memory_hotplug.memmap_on_memory=1 numa_balancing=disable";

/// The whole line for a machine that runs on this host, with these further words.
///
/// The emulator's time stamp counter is the host's. The kernel finds its rate by counting for
/// some milliseconds against an emulated timer; on a busy host it was seen to come out thirty
/// times too low, and with it every time that the guest measures. So the command line names it.
pub(crate) fn cmdline(more: &str) -> String {
    let mut line = ALWAYS.to_owned();
    if let Some(khz) = host_tsc_khz() {
        line += &format!(" tsc_early_khz={khz}");
    }
    if !more.is_empty() {
        line += &format!(" {more}");
    }
    line
}

/// The rate of this host's time stamp counter, rounded to MHz: the line is part of the ROM,
/// which must not be built anew for each measurement.
#[cfg(target_arch = "x86_64")]
fn host_tsc_khz() -> Option<u64> {
    use std::arch::x86_64::_rdtsc;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    // SAFETY: every x86-64 processor has the instruction; it only reads a counter.
    let tsc = || unsafe { _rdtsc() };
    // The tightest of some pairs: being scheduled out between the two readings spoils one.
    let both = || {
        (0..20)
            .map(|_| {
                let (before, now, after) = (tsc(), Instant::now(), tsc());
                (after - before, before + (after - before) / 2, now)
            })
            .min_by_key(|&(width, ..)| width)
            .expect("twenty are not none")
    };
    let (_, first_tsc, first) = both();
    sleep(Duration::from_millis(20));
    let (_, last_tsc, last) = both();
    let ticks = last_tsc.checked_sub(first_tsc)?;
    let mhz = (ticks as f64 / (last - first).as_secs_f64() / 1e6).round() as u64;
    (100..20_000).contains(&mhz).then_some(mhz * 1000)
}

#[cfg(not(target_arch = "x86_64"))]
fn host_tsc_khz() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_same_host_gives_the_same_line() {
        let lines: std::collections::HashSet<String> = (0..5).map(|_| cmdline("")).collect();
        assert_eq!(lines.len(), 1, "each other line is another ROM: {lines:?}");
    }
}
