//! Loads of simulations that several tests share.

#![allow(dead_code, reason = "each test uses some of it")]

use dormouse_bandwidth::curve::GIB;
use dormouse_bandwidth::simulate::device::AccessProfile;
use dormouse_bandwidth::simulate::metrics::{Spread, rmse};
use dormouse_bandwidth::simulate::task::{Pulse, Spec, Work};
use dormouse_bandwidth::simulate::{Outcome, Policy, Setting, kaemmerer};

/// A task that accesses the device like this.
pub fn memory(access: AccessProfile) -> Spec {
    Spec::new(Work::Memory {
        access,
        max_bytes_s: None,
    })
}

/// A reader of the published evaluation.
pub fn reader() -> Spec {
    memory(kaemmerer::READER)
}

/// A task that runs for a part of each period.
pub fn pulsing(spec: Spec, period_ms: f64, duty: f64) -> Spec {
    Spec {
        pulse: Some(Pulse {
            period_ns: (period_ms * 1e6) as i64,
            on_ns: (duty * period_ms * 1e6) as i64,
            offset_ns: 0,
        }),
        ..spec
    }
}

/// These tasks beside 39 that compute, on the machine of the published evaluation.
pub fn setting(policy: Policy, tasks: &[Spec], seed: u64) -> Setting {
    let mut setting = kaemmerer::setting(policy, 0, 39, seed).unwrap();
    setting.tasks.splice(0..0, tasks.iter().copied());
    setting.seconds = 40.0;
    setting.window_ms = 50.0;
    setting
}

/// The totals of the measured time in windows of this length, in GiB/s.
pub fn totals(run: &Outcome, setting: &Setting, window_ms: f64) -> Vec<f64> {
    let count = (window_ms / run.window_ms).round() as usize;
    let first = (setting.warm_up_seconds * 1000.0 / run.window_ms) as usize;
    run.windows_gib_s[first..]
        .chunks_exact(count)
        .map(|windows| windows.iter().sum::<f64>() / count as f64)
        .collect()
}

/// RMSE of means of 250 ms against the threshold, and the standard deviation of means of 50 ms.
pub fn errors(run: &Outcome, setting: &Setting) -> (f64, f64) {
    let rmse = rmse(&totals(run, setting, 250.0), setting.threshold / GIB);
    (rmse, Spread::of(&totals(run, setting, 50.0)).stddev)
}

/// Mean of values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
