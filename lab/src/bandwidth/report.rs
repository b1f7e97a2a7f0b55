//! The measurements in the machine, phase by phase.

use std::collections::BTreeMap;

use dormouse_guest::protocol::bandwidth_job::{Answer, Device, Traffic};
use serde::Serialize;
use serde_json::Value;

use super::Attribution;
use super::device::Model;
use super::held::Held;

pub const HEAVY: &str = "users/heavy";
pub const LIGHT: &str = "users/light";
pub const MILD: &str = "users/mild";
pub const OTHER: &str = "users/other";
pub const COMPUTE: &str = "compute";
pub const USERS: [&str; 4] = [HEAVY, LIGHT, MILD, OTHER];
/// Programs that move known traffic, and the cgroup of each.
pub const PROGRAMS: [(&str, &str); 5] = [
    (HEAVY, "heavy-1"),
    (HEAVY, "heavy-2"),
    (LIGHT, "light"),
    (MILD, "mild"),
    (OTHER, "other"),
];

/// Of `--latency`: programs that read all the time, each on a processor of its own.
pub const READERS: [(&str, &str); 4] = [
    ("users/a", "reader-a"),
    ("users/b", "reader-b"),
    ("users/c", "reader-c"),
    ("users/d", "reader-d"),
];

const MIB: f64 = 1048576.0;

/// One cgroup in one phase.
#[derive(Debug, Clone, Default, Serialize)]
pub struct User {
    pub cpus: f64,
    /// What its programs did, by their own account; nothing for those that only compute.
    pub truth_mib_s: f64,
    /// What the daemon charged it with.
    pub charged_mib_s: Option<f64>,
    /// Of the charge, relative to the truth.
    pub error: Option<f64>,
    /// The part of the daemon's passes before which its limit held it back.
    pub held_back: Option<f64>,
}

/// What happened in a while.
#[derive(Debug, Default, Serialize)]
pub struct Phase {
    pub name: &'static str,
    /// The program that watched or limited, and the numbers of its passes before and at the end.
    pub daemon: Option<String>,
    pub passes: [u64; 2],
    /// How far apart the truth and the charges were read, in nanoseconds: before and at the end.
    pub apart_ns: [u64; 2],
    /// What the device counted before, while limits settled.
    pub settling_mib_s: f64,
    /// While the heavy user was held back: nothing without a daemon.
    pub held: Option<Held>,
    pub users: BTreeMap<String, User>,
    /// What the device counted.
    pub total_mib_s: f64,
    /// What programs did, by their own account.
    pub truth_mib_s: f64,
    /// Of a read.
    pub latency_ns: f64,
    /// Processors that waited for the device.
    pub waiting_cpus: f64,
}

impl Phase {
    /// `programs`: those that move traffic; `settling`: the outcome of the time before.
    pub fn of(
        name: &'static str,
        programs: &[(&str, &str)],
        daemon: Option<String>,
        settling: Option<Answer>,
        answer: Answer,
    ) -> Self {
        let settling = settling.and_then(|answer| answer.device);
        let device = answer.device.unwrap_or_default();
        let mut users: BTreeMap<String, User> = BTreeMap::new();
        for (group, cpus) in &answer.cpus {
            users.entry(group.clone()).or_default().cpus = *cpus;
        }
        for &(group, program) in programs {
            let moved = answer.traffic.get(program).map_or(0.0, Traffic::bytes_s);
            users.entry(group.into()).or_default().truth_mib_s += moved / MIB;
        }
        for (group, charged) in &answer.charged {
            let user = users.entry(group.clone()).or_default();
            let charged = charged / MIB;
            user.charged_mib_s = Some(charged);
            user.error = (user.truth_mib_s > 0.0).then(|| charged / user.truth_mib_s - 1.0);
        }
        for (group, part) in &answer.held_back {
            users.entry(group.clone()).or_default().held_back = Some(*part);
        }
        Self {
            name,
            daemon,
            passes: answer.passes,
            apart_ns: answer.apart_ns,
            held: None,
            settling_mib_s: settling.as_ref().map_or(0.0, Device::bytes_s) / MIB,
            total_mib_s: Device::bytes_s(&device) / MIB,
            truth_mib_s: users.values().map(|user| user.truth_mib_s).sum(),
            latency_ns: device.latency_ns,
            waiting_cpus: device.waiting_cpus,
            users,
        }
    }
}

/// What was seen.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub enforce: &'static str,
    pub attribution: Attribution,
    pub kernel: String,
    pub threshold_mib_s: f64,
    pub capacity_mib_s: f64,
    /// What the device can do.
    pub device: Model,
    pub phases: Vec<Phase>,
    /// The scheduler that was in force meanwhile; empty: the kernel's own.
    pub scheduler: String,
    /// What the daemon reported after the kernel had ended the scheduler, and what it used then.
    pub ejected: String,
    /// After the daemon was killed: sched_ext's state, and the heavy user's limit.
    pub state_after_kill: String,
    pub limit_after_kill: String,
    /// Of the phase to come, while limits settle.
    #[serde(skip)]
    pub settling: Option<Answer>,
    /// Daemons and what they traced.
    #[serde(skip)]
    pub traces: Vec<(String, String)>,
    /// Overhead of the BPF calls: of our scheduler and of an empty one.
    pub costs: Vec<Value>,
}

impl Report {
    pub fn print(&self) {
        println!(
            "{} on Linux {}; the device carries {:.0} MiB/s, the threshold is {:.0}",
            self.enforce, self.kernel, self.capacity_mib_s, self.threshold_mib_s
        );
        for phase in &self.phases {
            println!(
                "\n{}: {:.1} MiB/s in all ({:+.1} % of the threshold; {:.1} while it settled), a read \
                 takes {:.1} µs, {:.2} CPUs wait",
                phase.name,
                phase.total_mib_s,
                100.0 * (phase.total_mib_s / self.threshold_mib_s - 1.0),
                phase.settling_mib_s,
                phase.latency_ns / 1000.0,
                phase.waiting_cpus
            );
            if let Some(Held { passes, mib_s, .. }) = phase.held.filter(|held| held.passes > 0) {
                println!(
                    "while the heavy user was held back ({passes} passes): {mib_s:.1} MiB/s \
                     ({:+.1} %)",
                    100.0 * (mib_s / self.threshold_mib_s - 1.0)
                );
            }
            print_users(phase);
        }
        if !self.ejected.is_empty() {
            println!("{}", self.ejected);
        }
        for cost in &self.costs {
            println!("{cost}");
        }
    }
}

fn print_users(phase: &Phase) {
    println!(
        "{:14} {:>6} {:>13} {:>9} {:>8} {:>9}",
        "", "CPUs", "moved, MiB/s", "charged", "error", "held back"
    );
    for (group, user) in &phase.users {
        let number =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
        let error = user
            .error
            .map_or(String::new(), |error| format!("{:+.1} %", 100.0 * error));
        let held = user
            .held_back
            .map_or(String::new(), |part| format!("{:.0} %", 100.0 * part));
        println!(
            "{group:14} {:>6.2} {:>13} {:>9} {error:>8} {held:>9}",
            user.cpus,
            number((user.truth_mib_s > 0.0).then_some(user.truth_mib_s)),
            number(user.charged_mib_s),
        );
    }
}
