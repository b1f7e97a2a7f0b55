//! The status file for `top`; `metrics` exports the same to Prometheus.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Daemon, Device, Pass};
use crate::allocate::latency_watch::LatencyWatch;
use crate::curve::GIB;

/// The quantiles of latencies that are reported.
pub const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// One user, as `top` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserStatus {
    /// Path of the cgroup.
    pub cgroup: String,
    /// A name for people: the pod's UID, the service or scope, or the path.
    #[serde(default)]
    pub name: String,
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
    /// The time of those passes, in seconds.
    #[serde(default)]
    pub held_back_s: f64,
    /// The device that determined its limit.
    #[serde(default)]
    pub bound_by: Option<String>,
    /// The maximum latency of its class, in nanoseconds.
    #[serde(default)]
    pub class_latency_ns: Option<f64>,
    /// Bytes on the device.
    pub resident_bytes: u64,
    /// Its weight in fair shares; 1 is ordinary.
    pub weight: f64,
    /// Whether it is never limited.
    pub protected: bool,
}

impl UserStatus {
    /// The path of its cgroup, or its name where that says more.
    pub fn label(&self) -> &str {
        match self.name.is_empty() || self.cgroup.ends_with(&self.name) {
            true => &self.cgroup,
            false => &self.name,
        }
    }
}

/// One device, or one path to a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// The total bandwidth in GiB/s.
    pub total_gib_s: f64,
    /// The threshold in GiB/s.
    pub threshold_gib_s: f64,
    /// Of an access, where it is measured: the recent average.
    pub latency_ns: Option<f64>,
    /// The latencies that half, 90 % and 99 % of the recent samples do not exceed.
    pub latency_quantiles_ns: Option<[f64; 3]>,
    /// The latency that is kept, where one is.
    pub max_latency_ns: Option<f64>,
    /// What the curve says for the present total, where one is configured and latency is measured.
    pub expected_latency_ns: Option<f64>,
    /// The part of the curve's bandwidth that the device is taken to carry, where latency is
    /// compared with a curve; 1 unless it is derated.
    pub carried_part: Option<f64>,
    /// Whether it answers too slowly for its curve or at the configured threshold, so that a lower
    /// one is in force.
    pub derated: bool,
    /// Whether its counters are valid.
    pub trusted: bool,
}

impl DeviceStatus {
    fn of(device: &Device) -> Self {
        let latency = device.latency();
        Self {
            name: device.name.clone(),
            total_gib_s: device.total / GIB,
            threshold_gib_s: device.threshold() / GIB,
            latency_ns: latency.and_then(LatencyWatch::latency_ns),
            latency_quantiles_ns: latency.and_then(|watch| watch.quantiles_ns(QUANTILES)),
            max_latency_ns: latency.and_then(LatencyWatch::max_ns),
            expected_latency_ns: latency.and_then(LatencyWatch::expected_ns),
            carried_part: latency
                .filter(|latency| latency.expected_ns().is_some())
                .map(LatencyWatch::factor),
            derated: device.is_derated(),
            trusted: device.trusted,
        }
    }
}

/// The traffic of the kernel's memory tiering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TieringStatus {
    /// Bandwidth in GiB/s.
    pub gib_s: f64,
    /// GiB moved so far.
    pub moved_gib: f64,
    /// The limit in GiB/s; `None`: not limited.
    pub limit_gib_s: Option<f64>,
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
    /// How long reading them took, in nanoseconds.
    #[serde(default)]
    pub counting_ns: u64,
    /// How users' CPU times are read: "bpf" (many at once), or "files" and why.
    #[serde(default)]
    pub cpu_times: String,
    /// The threshold in GiB/s, the sum over all devices.
    pub threshold_gib_s: f64,
    /// The total bandwidth in GiB/s, the sum over all devices.
    pub total_gib_s: f64,
    /// Of an access on the slowest device, where it is measured.
    #[serde(default)]
    pub latency_ns: Option<f64>,
    /// The latency that the only device keeps; of several devices, see there.
    #[serde(default)]
    pub max_latency_ns: Option<f64>,
    /// Whether a device is derated.
    #[serde(default)]
    pub derated: bool,
    /// Each device, in the order of the configuration.
    #[serde(default)]
    pub devices: Vec<DeviceStatus>,
    /// The traffic of the kernel's memory tiering, where it is a user.
    #[serde(default)]
    pub tiering: Option<TieringStatus>,
    /// Samples of accesses that were lost, where accesses are sampled.
    #[serde(default)]
    pub samples_lost: Option<u64>,
    /// Whether the counters of all devices are valid.
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
            name: user.name.clone(),
            gib_s: user.bandwidth / GIB,
            charged_gib: user.charged_bytes / GIB,
            cpus: user.cpu,
            limit_cpus: user.limit,
            passes_held_back: user.passes_held_back,
            held_back_s: user.held_back_ns as f64 / 1e9,
            bound_by: user
                .limit
                .and(user.bound_by)
                .map(|at| daemon.devices()[at].name.clone()),
            class_latency_ns: user.class_ns,
            resident_bytes: user.resident_bytes,
            weight: user.weight,
            protected: user.protected,
        };
        let mut users: Vec<UserStatus> = daemon.users().iter().map(user).collect();
        users.sort_by(|a, b| b.gib_s.total_cmp(&a.gib_s));
        let devices: Vec<_> = daemon.devices().iter().map(DeviceStatus::of).collect();
        let latencies = devices.iter().filter_map(|device| device.latency_ns);
        let tiering = daemon.tiering().map(|tiering| TieringStatus {
            gib_s: tiering.bandwidth() / GIB,
            moved_gib: tiering.bytes / GIB,
            limit_gib_s: tiering.limit().map(|limit| limit / GIB),
        });
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            pid: std::process::id(),
            at: now.map_or(0, |time| time.as_secs()),
            counted_ns: pass.counted_ns,
            counting_ns: pass.counting_ns,
            cpu_times: match daemon.reads_at_once() {
                Ok(()) => "bpf".to_owned(),
                Err(why) => format!("files: {why}"),
            },
            threshold_gib_s: daemon.threshold() / GIB,
            total_gib_s: pass.total / GIB,
            latency_ns: latencies.reduce(f64::max),
            max_latency_ns: match devices.as_slice() {
                [device] => device.max_latency_ns,
                _ => None,
            },
            derated: daemon.is_derated(),
            tiering,
            samples_lost: daemon.samples_lost(),
            devices,
            trusted: pass.trusted,
            passes: passes.passes,
            pass_us: passes.pass_us,
            writes: passes.writes,
            users,
        }
    }

    /// In what way devices are derated, in a few words.
    pub fn derating(&self) -> String {
        let derated: Vec<&DeviceStatus> = self.devices.iter().filter(|one| one.derated).collect();
        let names: Vec<&str> = derated.iter().map(|device| device.name.as_str()).collect();
        let expected = derated
            .first()
            .and_then(|device| device.expected_latency_ns);
        match (expected, self.devices.len()) {
            (Some(ns), 1) => format!("derated: the curve has {ns:.0} ns here"),
            (_, 0 | 1) => "derated".to_owned(),
            _ => format!("derated: {}", names.join(", ")),
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
            name: cgroup.to_owned(),
            gib_s: 1.0,
            charged_gib: 3.0,
            cpus: 0.5,
            limit_cpus,
            passes_held_back: 5,
            held_back_s: 0.25,
            bound_by: None,
            class_latency_ns: None,
            resident_bytes: 1 << 20,
            weight: 1.0,
            protected: false,
        };
        Self {
            total_gib_s: 2.0,
            passes: 7,
            users: vec![user("/a\"b", Some(0.25)), user("/c", None)],
            devices: vec![DeviceStatus {
                name: "device0".to_owned(),
                total_gib_s: 2.0,
                latency_ns: Some(400.0),
                latency_quantiles_ns: Some([390.0, 420.0, 480.0]),
                max_latency_ns: Some(500.0),
                expected_latency_ns: Some(390.0),
                carried_part: Some(1.0),
                ..DeviceStatus::default()
            }],
            tiering: Some(TieringStatus {
                gib_s: 0.5,
                moved_gib: 8.0,
                limit_gib_s: Some(0.5),
            }),
            samples_lost: Some(3),
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
