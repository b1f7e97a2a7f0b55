//! The seed's evaluation: its machine, its workload, and what it measured.

use super::device::Asking;
use super::engine::Setting;
use super::policy::Policy;
use super::task::{Machine, Spec, Work};
use crate::curve::{Curve, CurveError, GIB};

/// What the seed aims at (section 6.3).
pub const THRESHOLD: f64 = 4.0 * GIB;

/// Mean, standard deviation and root mean square error in GiB/s, of Table 2.
pub const TABLE: [(Policy, [f64; 3]); 4] = [
    (Policy::None, [8.04, 0.81, 4.12]),
    (Policy::SimpleCgroups, [4.14, 0.25, 0.28]),
    (Policy::Cgroups, [4.27, 0.31, 0.41]),
    (Policy::ThrottleQueue, [4.86, 0.79, 1.16]),
];

/// A reader as fio is one: lines under way and own time are inferred from one reader's 4 GiB/s, and
/// from five readers' 10 GiB/s on an otherwise idle machine (sections 6.3 and 6.3.1).
pub const READER: Asking = Asking {
    lines: 32.0,
    own_ns: 97.0,
};

/// 20 cores of two threads. Not in the seed's text, and inferred: 1000 ticks a second, because with
/// 250 blocks of 4 MiB would be interrupted for far longer than the quartiles of its Table 3; that
/// ticks are as far apart as queueing a task takes; a wakeup each millisecond; and what a computing
/// neighbour takes from a reader, which the mean and the deviation of `none` determine.
pub fn machine() -> Machine {
    Machine {
        cpus: 40,
        tick_ns: 1_000_000,
        slice_ns: 3_000_000,
        ext_slice_ns: 20_000_000,
        tick_spread_ns: 10_000.0,
        wake_ns: 1e6,
        method_ns: 1e9,
        migration_ns: 1e9,
        balance_ns: 320e6,
        lines_lost: 0.6,
        own_added_ns: 250.0,
    }
}

/// Readers beside compute tasks, for 55 s of which the last 35 count.
///
/// # Errors
/// The curve cannot be read.
pub fn setting(
    policy: Policy,
    readers: usize,
    compute: usize,
    seed: u64,
) -> Result<Setting, CurveError> {
    let reader = Spec::new(Work::Memory {
        asking: READER,
        most: None,
    });
    let mut tasks = vec![reader; readers];
    tasks.resize(readers + compute, Spec::new(Work::Compute));
    Ok(Setting {
        machine: machine(),
        curve: Curve::find("seed-fpga")?,
        tasks,
        policy,
        threshold: THRESHOLD,
        most_latency_ns: None,
        interval_ms: 50.0,
        seconds: 55.0,
        warm_up_seconds: 20.0,
        window_ms: 250.0,
        seed,
    })
}
