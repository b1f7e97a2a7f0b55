//! The evaluation of Kämmerer 2025: machine, workload and measured results.

use super::device::AccessProfile;
use super::policy::Policy;
use super::setting::{Attribution, Setting};
use super::task::{Machine, Spec, Work};
use crate::curve::{Curve, CurveError, GIB};

/// The threshold of the evaluation (section 6.3).
pub const THRESHOLD: f64 = 4.0 * GIB;

/// Mean, standard deviation and root mean square error in GiB/s, of Table 2.
pub const TABLE: [(Policy, [f64; 3]); 6] = [
    (Policy::None, [8.04, 0.81, 4.12]),
    (Policy::ByTotal, [4.14, 0.25, 0.28]),
    (Policy::BalancePoints, [4.27, 0.31, 0.41]),
    (Policy::RoundRobin, [6.32, 0.68, 2.42]),
    (Policy::VirtualTime, [6.18, 0.64, 2.27]),
    (Policy::ThrottleQueue, [4.86, 0.79, 1.16]),
];

/// A reader that behaves like fio. Lines in flight and own time are inferred from 4 GiB/s of one
/// reader and 10 GiB/s of five readers on an otherwise idle machine (sections 6.3 and 6.3.1).
pub const READER: AccessProfile = AccessProfile {
    lines: 32.0,
    own_ns: 97.0,
};

/// 20 cores of two threads. The thesis does not state the following; it is inferred: 1000 ticks a
/// second, because with 250, blocks of 4 MiB would be interrupted for far longer than the
/// quartiles of its Table 3; ticks as far apart as queueing a task takes; a wakeup each
/// millisecond; and the slowdown of a reader by a computing neighbour, which the mean and the
/// deviation of `none` determine.
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

/// Readers beside compute tasks for 55 s, of which the last 35 are measured.
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
        access: READER,
        max_bytes_s: None,
    });
    let mut tasks = vec![reader; readers];
    tasks.resize(readers + compute, Spec::new(Work::Compute));
    Ok(Setting {
        machine: machine(),
        curve: Curve::find("kaemmerer-fpga")?,
        tasks,
        policy,
        threshold: THRESHOLD,
        max_latency_ns: None,
        compares_curve: false,
        derated: None,
        attribution: Attribution::default(),
        interval_ms: 50.0,
        seconds: 55.0,
        warm_up_seconds: 20.0,
        window_ms: 250.0,
        seed,
    })
}
