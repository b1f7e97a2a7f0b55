//! The status file for `top`; `metrics` exports the same to Prometheus.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Daemon, Pass};
use crate::allocate::latency_watch::LatencyWatch;
use crate::curve::GIB;

/// One user, as `top` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserStatus {
    /// Path of the cgroup.
    pub cgroup: String,
    /// Bandwidth in GiB/s.
    pub gib_s: f64,
    /// GiB attributed to it since it became a user.
    #[serde(default)]
    pub charged_gib: f64,
    /// CPU time in CPUs.
    pub cpus: f64,
    /// `None`: not limited.
    pub limit_cpus: Option<f64>,
    /// Passes before which its limit held it back, since it became a user.
    #[serde(default)]
    pub passes_held_back: u64,
    /// Bytes on the device.
    pub resident_bytes: u64,
    /// Its weight in fair shares; 1 is ordinary.
    pub weight: f64,
    /// Whether it is never limited.
    pub protected: bool,
}

/// Passes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passes {
    /// Number of passes.
    pub passes: u64,
    /// Limits that were written.
    pub writes: u64,
    /// Moving average of the time of a pass, in microseconds.
    pub pass_us: f64,
}

impl Passes {
    /// Adds a pass that took `time`.
    pub fn add(&mut self, pass: &Pass, time: Duration) {
        let us = time.as_secs_f64() * 1e6;
        self.pass_us = match self.passes {
            0 => us,
            _ => self.pass_us + (us - self.pass_us) / 20.0,
        };
        self.passes += 1;
        self.writes += pass.writes as u64;
    }
}

/// Everything that `top` and Prometheus show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Process ID of the daemon.
    pub pid: u32,
    /// Seconds since 1970.
    pub at: u64,
    /// When the counters were read, in nanoseconds of the kernel's monotonic clock.
    #[serde(default)]
    pub counted_ns: u64,
    /// The threshold in GiB/s.
    pub threshold_gib_s: f64,
    /// The total bandwidth in GiB/s.
    pub total_gib_s: f64,
    /// Of an access, where it is measured.
    #[serde(default)]
    pub latency_ns: Option<f64>,
    /// The latency that is kept, where it is measured.
    #[serde(default)]
    pub max_latency_ns: Option<f64>,
    /// What the curve says for the present total, where one is configured and latency is measured.
    #[serde(default)]
    pub expected_latency_ns: Option<f64>,
    /// The part of the curve's bandwidth that the device is taken to carry, where latency is
    /// compared with a curve; 1 unless it is derated.
    #[serde(default)]
    pub carried_part: Option<f64>,
    /// Whether the device answers too slowly for its curve or at the configured threshold, so that
    /// a lower one is in force.
    #[serde(default)]
    pub derated: bool,
    /// Whether the device's counters are valid.
    pub trusted: bool,
    /// Number of passes.
    pub passes: u64,
    /// Moving average of the time of a pass, in microseconds.
    pub pass_us: f64,
    /// Limits that were written.
    pub writes: u64,
    /// By bandwidth, in descending order.
    pub users: Vec<UserStatus>,
}

impl Status {
    /// After a pass.
    pub fn of(daemon: &Daemon, pass: &Pass, passes: &Passes) -> Self {
        let user = |user: &super::User| UserStatus {
            cgroup: user.cgroup.path.display().to_string(),
            gib_s: user.bandwidth / GIB,
            charged_gib: user.charged_bytes / GIB,
            cpus: user.cpu,
            limit_cpus: user.limit,
            passes_held_back: user.passes_held_back,
            resident_bytes: user.resident_bytes,
            weight: user.weight,
            protected: user.protected,
        };
        let mut users: Vec<UserStatus> = daemon.users().iter().map(user).collect();
        users.sort_by(|a, b| b.gib_s.total_cmp(&a.gib_s));
        let latency = daemon.latency();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            pid: std::process::id(),
            at: now.map_or(0, |time| time.as_secs()),
            counted_ns: pass.counted_ns,
            threshold_gib_s: daemon.threshold() / GIB,
            total_gib_s: pass.total / GIB,
            latency_ns: latency.and_then(LatencyWatch::latency_ns),
            max_latency_ns: latency.and_then(LatencyWatch::max_ns),
            expected_latency_ns: latency.and_then(LatencyWatch::expected_ns),
            carried_part: latency
                .filter(|latency| latency.expected_ns().is_some())
                .map(LatencyWatch::factor),
            derated: daemon.is_derated(),
            trusted: pass.trusted,
            passes: passes.passes,
            pass_us: passes.pass_us,
            writes: passes.writes,
            users,
        }
    }

    /// In what way the device is derated, in a few words.
    pub fn derating(&self) -> String {
        match self.expected_latency_ns {
            Some(ns) => format!("derated: the curve has {ns:.0} ns here"),
            None => "derated".to_owned(),
        }
    }

    /// Replaces the file atomically.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_string(self)?)?;
        fs::rename(new, path)
    }
}

/// Decides when the status is written next.
#[derive(Debug, Default)]
pub struct Schedule {
    due: Option<Instant>,
}

/// Minimum time between two writes.
const EVERY: Duration = Duration::from_millis(500);
/// Writes take at most one part in this many of the time: with thousands of users one takes
/// milliseconds.
const MAX_PART: u32 = 1000;
/// Maximum time between two writes: the duration of an interrupted write means nothing.
const MAX_WAIT: Duration = Duration::from_secs(2);

impl Schedule {
    /// Whether the file should be written now.
    pub fn is_due(&self) -> bool {
        self.due.is_none_or(|due| Instant::now() >= due)
    }

    /// Records that a write began then and has just ended.
    pub fn done(&mut self, began: Instant) {
        let wait = (began.elapsed() * MAX_PART).clamp(EVERY, MAX_WAIT);
        self.due = Some(began + wait);
    }
}

#[cfg(test)]
impl Status {
    /// For tests: a program with a limit whose name needs escaping, and one without a limit.
    pub fn example() -> Self {
        let user = |cgroup: &str, limit_cpus| UserStatus {
            cgroup: cgroup.to_owned(),
            gib_s: 1.0,
            charged_gib: 3.0,
            cpus: 0.5,
            limit_cpus,
            passes_held_back: 5,
            resident_bytes: 1 << 20,
            weight: 1.0,
            protected: false,
        };
        Self {
            total_gib_s: 2.0,
            passes: 7,
            users: vec![user("/a\"b", Some(0.25)), user("/c", None)],
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_long_a_write_takes_the_next_one_comes_soon() {
        let long_ago = Instant::now() - Duration::from_secs(60);
        let mut schedule = Schedule::default();
        assert!(schedule.is_due());
        schedule.done(Instant::now());
        assert!(!schedule.is_due());
        schedule.done(long_ago);
        assert!(schedule.is_due());
    }

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status.json");
        Status::example().write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            serde_json::from_str::<Status>(&text).unwrap(),
            Status::example()
        );
    }
}
