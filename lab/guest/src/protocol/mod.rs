//! The messages on the control channel between the lab and the agent in the machine.
//!
//! The lab sends a [`Request`]; the agent answers it once ([`FromGuest::Reply`]). It also sends a
//! message of its own when it starts, when the machine wakes, and for each timeline event.

pub mod bandwidth_job;
pub mod device_job;
pub mod frame;
pub mod hard_to_move_kinds;
pub mod real_devices;
pub mod stress;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::stress::StressCall;

/// Serial number of the virtio disk that the machine hibernates to.
pub const SWAP_DISK: &str = "dormouse-swap";
/// On the kernel's command line: it hibernates to the second NVDIMM instead.
pub const SWAP_ON_PMEM: &str = "dormouse.swap=pmem";

/// One request; `id` comes back in the reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Number of the request; no number is used twice.
    pub id: u64,
    /// What the agent does.
    pub call: Call,
}

/// What a request wants from the agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Call {
    /// Identify the running system. Answer: [`Hello`].
    Hello,
    /// Fill memory, start counters and redis. Answer: [`WorkloadStatus`].
    StartWorkload(WorkloadPlan),
    /// Compare every page and every key. Answer: [`Verdict`].
    Verify,
    /// Write new contents (of this seed) into memory and keys. Answer: [`WorkloadStatus`].
    Refill {
        /// Seed of the contents.
        seed: u64,
    },
    /// Start processes with hard-to-move memory. Answer: [`HardToMoveStatus`] of each.
    StartHardToMove {
        /// The processes.
        plans: Vec<HardToMovePlan>,
        /// Seed of the contents.
        seed: u64,
    },
    /// Let each of them compare its memory. Answer: [`HardToMoveVerdict`] of each.
    VerifyHardToMove,
    /// Run a program to its end. Answer: [`RunResult`].
    Run(RunPlan),
    /// Run `dormouse sleep` with these further arguments. Answer: [`RunResult`], after waking.
    Sleep {
        /// Further arguments.
        arguments: Vec<String>,
    },
    /// Make the swap area and the kernel ready to hibernate. Answer: [`HibernationReady`].
    PrepareHibernation(HibernationPlan),
    /// Hibernate. Answer: [`HibernationResult`], after waking.
    Hibernate,
    /// Load the machine with everything at once, and look after it.
    Stress(StressCall),
    /// Do something with the machine's devices. Answer: [`device_job::Answer`], its step 0.
    Device {
        /// What.
        step: device_job::Step,
    },
    /// Where do user pages lie? Answer: [`Placement`].
    Placement,
    /// Write (or append to) a file. Answer: null.
    PutFile(FilePart),
    /// Start an interactive shell on the first serial console. Answer: null.
    Shell,
    /// Sync and power off. There may be no answer.
    PowerOff,
}

/// What the agent sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum FromGuest {
    /// The agent has started: a boot, not a wake.
    Ready(Hello),
    /// User space runs again after a suspend.
    Awake {
        /// The kernel's boot ID.
        boot_id: String,
        /// CLOCK_MONOTONIC, in nanoseconds.
        monotonic_ns: u64,
    },
    /// A timeline event of `dormouse sleep`, as `dormouse-report` defines it.
    Event {
        /// The event.
        event: Value,
    },
    /// The answer to a request.
    Reply {
        /// Number of the request.
        id: u64,
        /// The answer, or the message of an error.
        result: Result<Value, String>,
    },
}

/// The agent's identity; `boot_id` distinguishes a resumed system from a rebooted one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The kernel's boot ID.
    pub boot_id: String,
    /// Process ID.
    pub pid: u32,
    /// Time since boot, in nanoseconds.
    pub uptime_ns: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Number of processors.
    pub cpus: usize,
}

/// What the workload is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadPlan {
    /// Anonymous memory to fill.
    pub fill_bytes: u64,
    /// Threads that fill and compare.
    pub threads: usize,
    /// Threads that count.
    pub counters: usize,
    /// Seed of the contents.
    pub seed: u64,
    /// 0: no redis.
    pub redis_keys: u64,
}

/// A kind of hard-to-move memory (see [`crate::protocol::hard_to_move_kinds`]) and how much of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardToMovePlan {
    /// Name of the kind.
    pub kind: String,
    /// Bytes of memory.
    pub bytes: u64,
}

/// A process with hard-to-move memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardToMoveStatus {
    /// Name of the kind.
    pub kind: String,
    /// Process ID.
    pub pid: u32,
}

/// What such a process found when it compared its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardToMoveVerdict {
    /// Name of the kind.
    pub kind: String,
    /// None: all as it was.
    pub complaint: Option<String>,
}

/// What the workload is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadStatus {
    /// Process ID.
    pub pid: u32,
    /// Bytes that were filled.
    pub filled_bytes: u64,
    /// The counter of each thread.
    pub counts: Vec<u64>,
    /// Process ID of redis.
    pub redis_pid: Option<u32>,
    /// Keys in redis.
    pub redis_keys: u64,
    /// Version of redis.
    pub redis_version: String,
}

/// What comparing found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The filled memory.
    pub memory: MemoryVerdict,
    /// The counting threads.
    pub counters: CounterVerdict,
    /// redis, where it runs.
    pub redis: Option<RedisVerdict>,
}

impl Verdict {
    /// Differences of the data, one sentence each; empty: none.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.memory.bad_pages > 0 {
            complaints.push(format!(
                "{} of {} memory pages differ, the first is page {}",
                self.memory.bad_pages,
                self.memory.pages,
                self.memory.first_bad_page.unwrap_or_default()
            ));
        }
        if self.counters.lost > 0 || !self.counters.running {
            complaints.push(format!(
                "counters lost {} counts and {}",
                self.counters.lost,
                if self.counters.running {
                    "go on"
                } else {
                    "stand still"
                }
            ));
        }
        if let Some(redis) = &self.redis {
            complaints.extend(redis.complaint.clone().map(|why| format!("redis: {why}")));
        }
        complaints
    }
}

/// Every page was compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryVerdict {
    /// Pages that were compared.
    pub pages: u64,
    /// Pages with wrong contents.
    pub bad_pages: u64,
    /// Number of the first of them.
    pub first_bad_page: Option<u64>,
}

/// Every counter was looked at twice, with a pause between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterVerdict {
    /// The counter of each thread.
    pub counts: Vec<u64>,
    /// How often a counter was not where its thread had left it.
    pub lost: u64,
    /// All went on during the pause.
    pub running: bool,
}

/// Every key was compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedisVerdict {
    /// Process ID.
    pub pid: u32,
    /// Keys in redis.
    pub keys: u64,
    /// None: same process, every key as it was, and it takes new ones.
    pub complaint: Option<String>,
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPlan {
    /// The command line.
    pub argv: Vec<String>,
    /// Standard input.
    #[serde(default)]
    pub stdin: String,
    /// Put it into this control group below the root (made if absent).
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Killed after this time; 0 means never.
    #[serde(default)]
    pub timeout_s: u64,
}

/// What came out of a program; output beyond 1 MiB is cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// Exit status; 128 + signal where a signal ended it.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// How to hibernate; what is None stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HibernationPlan {
    /// `/sys/power/image_size`: the kernel frees memory until the image is no larger.
    pub image_bytes: Option<u64>,
    /// `vm.swappiness`, 0 to 200.
    pub swappiness: Option<u32>,
    /// `hibernate.compressor`; None: it is not asked for one.
    pub compressor: Option<String>,
}

/// What the kernel is set to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HibernationReady {
    /// `/sys/power/image_size` as it was set.
    pub image_bytes: u64,
    /// `vm.swappiness` as it was set.
    pub swappiness: u64,
    /// Why this kernel cannot do what was asked for.
    pub lacking: Option<String>,
}

/// How hibernation went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HibernationResult {
    /// The kernel's error number; None: the machine slept and woke.
    pub errno: Option<i32>,
    /// The message of the error; empty: none.
    pub error: String,
    /// Pages that were in the swap area after waking.
    pub swapped_bytes: u64,
    /// How long it took to bring them all back into DRAM.
    pub swap_in_ns: u64,
}

/// Bytes by NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Each user process.
    pub processes: Vec<ProcessPlacement>,
    /// `/sys/devices/system/node/nodeN/meminfo`, in bytes.
    pub nodes: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl Placement {
    /// Mapped pages of all processes on `node`, or of one process.
    pub fn user_bytes(&self, node: u32, pid: Option<u32>) -> u64 {
        self.processes
            .iter()
            .filter(|process| pid.is_none_or(|pid| process.pid == pid))
            .filter_map(|process| process.node_bytes.get(&node))
            .sum()
    }

    /// The part of all mapped pages that lies on `node`, 0 to 1.
    pub fn share(&self, node: u32) -> f64 {
        let all: u64 = self
            .processes
            .iter()
            .flat_map(|process| process.node_bytes.values())
            .sum();
        if all == 0 {
            0.0
        } else {
            self.user_bytes(node, None) as f64 / all as f64
        }
    }
}

/// One process's mapped pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessPlacement {
    /// Process ID.
    pub pid: u32,
    /// Name of the program.
    pub name: String,
    /// Bytes on each NUMA node.
    pub node_bytes: BTreeMap<u32, u64>,
}

/// A part of a file; hexadecimal, because the channel carries text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// Path of the file.
    pub path: String,
    /// Append instead of replacing.
    pub append: bool,
    /// Permissions of the file.
    pub mode: u32,
    /// The bytes, in hexadecimal digits.
    pub data_hex: String,
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hexadecimal digits, or `None` if it is not that.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests;
