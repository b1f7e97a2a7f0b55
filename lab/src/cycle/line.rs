//! What `dormouse lab cycle --json` prints for one cycle; others parse it, so it is stable.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cycle::hibernation_options::Mode;
use dormouse_system::arguments::Size;

/// How a cycle ended.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    /// The machine resumed.
    Resumed,
    /// The machine booted instead.
    ColdBoot,
    /// The sleep was refused, and the machine went on.
    Refused,
    /// None of these.
    Failed,
}

impl Outcome {
    /// Its name in JSON and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Seconds on the way down; null where it was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SuspendTimes {
    /// From the request until the emulator had ended.
    pub total: Option<f64>,
    /// Migrating user pages.
    pub migrate: Option<f64>,
    /// The kernel's own freezer and devices.
    pub devices: Option<f64>,
    /// Firmware, until the emulator had ended.
    pub firmware: Option<f64>,
    /// Hibernation: freeing (and swapping out) memory for the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrink: Option<f64>,
    /// Hibernation: the copy in DRAM, with devices asleep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<f64>,
    /// Hibernation: compressing and writing the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<f64>,
    /// Hibernation: from there until the emulator had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off: Option<f64>,
}

/// Seconds on the way up; null where it was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResumeTimes {
    /// From power-on (the emulator's start) until user space ran.
    pub total: Option<f64>,
    /// From power-on until firmware jumped to the wake vector (hibernation: until it went on to
    /// the kernel).
    pub firmware: Option<f64>,
    /// Copying saved pages back, a part of `firmware`.
    pub restore: Option<f64>,
    /// Hibernation: from there until the booted kernel reads the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<f64>,
    /// Hibernation: reading and decompressing the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// From that jump (hibernation: from the end of reading) until user space ran.
    pub kernel: Option<f64>,
}

/// One cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleLine {
    /// Number of the cycle, from 1.
    pub cycle: u64,
    /// `cxl`, `hibernate` or `hibernate-swap`.
    pub mode: String,
    /// Whether the outcome was expected.
    pub ok: bool,
    /// Whether all pages were compared after waking.
    pub verified: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it ended so; empty where it resumed.
    pub reason: String,
    /// DRAM of the machine.
    pub dram_bytes: u64,
    /// CXL memory of the machine.
    pub cxl_bytes: u64,
    /// Memory that the workload filled.
    pub user_bytes: u64,
    /// Bytes of the kernel's pages that firmware saved.
    pub saved_bytes: u64,
    /// Bytes that firmware restored.
    pub restored_bytes: u64,
    /// Times on the way down.
    pub suspend_s: SuspendTimes,
    /// Times on the way up.
    pub resume_s: ResumeTimes,
    /// Time of migrating back.
    pub home_s: Option<f64>,
    /// Bytes that migrated back.
    pub home_bytes: u64,
    /// Hibernation: what the image was compressed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compressor: Option<String>,
    /// Hibernation: bytes of the image on the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_bytes: Option<u64>,
    /// Pages of processes that did not move.
    #[serde(default)]
    pub pages_failed: u64,
    /// The owners of memory that stayed in DRAM, as `dormouse sleep --json` prints them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_moved: Vec<Value>,
    /// The processes with hard-to-move memory, by kind, that were compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hard_to_move: Vec<String>,
    /// The same under its former name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awkward: Vec<String>, // until 0.3
}

impl CycleLine {
    /// A cycle of which nothing is known yet.
    pub fn new(cycle: u64, dram_bytes: u64, cxl_bytes: u64) -> CycleLine {
        CycleLine {
            cycle,
            mode: Mode::Cxl.name().into(),
            ok: false,
            verified: false,
            outcome: Outcome::Failed,
            reason: String::new(),
            dram_bytes,
            cxl_bytes,
            user_bytes: 0,
            saved_bytes: 0,
            restored_bytes: 0,
            suspend_s: SuspendTimes::default(),
            resume_s: ResumeTimes::default(),
            home_s: None,
            home_bytes: 0,
            compressor: None,
            image_bytes: None,
            pages_failed: 0,
            not_moved: Vec::new(),
            hard_to_move: Vec::new(),
            awkward: Vec::new(), // until 0.3
        }
    }

    /// The line for people.
    pub fn describe(&self) -> String {
        let show = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2} s"));
        let mark = if self.ok { "ok" } else { "FAILED" };
        let head = format!("cycle {}: {mark}: {}", self.cycle, self.outcome);
        match self.outcome {
            Outcome::Resumed if self.verified && self.compressor.is_some() => format!(
                "{head}, {} compared; down {} (free {}, copy {}, write {}), up {} (firmware {}, \
                 boot {}, load {}, kernel {}), swapped in {}; image {}",
                Size(self.user_bytes),
                show(self.suspend_s.total),
                show(self.suspend_s.shrink),
                show(self.suspend_s.copy),
                show(self.suspend_s.write),
                show(self.resume_s.total),
                show(self.resume_s.firmware),
                show(self.resume_s.boot),
                show(self.resume_s.load),
                show(self.resume_s.kernel),
                show(self.home_s),
                Size(self.saved_bytes),
            ),
            Outcome::Resumed if self.verified => format!(
                "{head}, {} compared; down {} (migrate {}, firmware {}), up {} (firmware {}, \
                 restore {}, kernel {}), home {}; saved {}",
                Size(self.user_bytes),
                show(self.suspend_s.total),
                show(self.suspend_s.migrate),
                show(self.suspend_s.firmware),
                show(self.resume_s.total),
                show(self.resume_s.firmware),
                show(self.resume_s.restore),
                show(self.resume_s.kernel),
                show(self.home_s),
                Size(self.saved_bytes),
            ),
            _ => {
                let data = if self.verified {
                    ", all data as they were"
                } else {
                    ""
                };
                format!("{head}: {}{data}", self.reason)
            }
        }
    }
}

/// What a run of cycles came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number of cycles.
    pub cycles: u64,
    /// Cycles that ended as expected.
    pub ok: u64,
    /// Awake, but with other data: the worst that can happen.
    pub unverified: u64,
}

impl Summary {
    /// Counts one more cycle.
    pub fn add(&mut self, line: &CycleLine) {
        self.cycles += 1;
        self.ok += u64::from(line.ok);
        self.unverified += u64::from(line.outcome == Outcome::Resumed && !line.verified);
    }

    /// The documented exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Summary {
                unverified: 1.., ..
            } => 4,
            summary if summary.ok < summary.cycles => 1,
            _ => 0,
        }
    }
}

/// When something began and ended, by the host's clock.
#[derive(Clone, Copy, Default)]
pub(crate) struct Span {
    pub begin_ns: Option<u64>,
    pub end_ns: Option<u64>,
}

impl Span {
    pub fn seconds(&self) -> Option<f64> {
        seconds(self.begin_ns, self.end_ns)
    }
}

/// Seconds from one host time to another, to the microsecond.
pub(crate) fn seconds(from_ns: Option<u64>, to_ns: Option<u64>) -> Option<f64> {
    let ns = to_ns?.checked_sub(from_ns?)?;
    Some((ns / 1000) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(outcome: Outcome, verified: bool) -> CycleLine {
        CycleLine {
            outcome,
            verified,
            ..CycleLine::new(1, 1, 1)
        }
    }

    #[test]
    fn other_data_after_waking_has_an_exit_code_of_its_own() {
        let mut summary = Summary::default();
        let good = CycleLine {
            ok: true,
            ..line(Outcome::Resumed, true)
        };
        summary.add(&good);
        assert_eq!(summary.exit_code(), 0);
        summary.add(&line(Outcome::Refused, true));
        assert_eq!(summary.exit_code(), 1);
        summary.add(&line(Outcome::Resumed, false));
        assert_eq!(summary.exit_code(), 4);
    }

    #[test]
    fn a_line_has_exactly_the_documented_fields() {
        let mut line = CycleLine::new(1, 2, 3);
        line.outcome = Outcome::ColdBoot;
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(
            text,
            "{\"cycle\":1,\"mode\":\"cxl\",\"ok\":false,\"verified\":false,\
             \"outcome\":\"cold-boot\",\"reason\":\"\",\"dram_bytes\":2,\"cxl_bytes\":3,\
             \"user_bytes\":0,\"saved_bytes\":0,\"restored_bytes\":0,\
             \"suspend_s\":{\"total\":null,\"migrate\":null,\"devices\":null,\"firmware\":null},\
             \"resume_s\":{\"total\":null,\"firmware\":null,\"restore\":null,\"kernel\":null},\
             \"home_s\":null,\"home_bytes\":0,\"pages_failed\":0}"
        );
    }

    #[test]
    fn time_that_runs_backwards_is_unknown() {
        assert_eq!(seconds(Some(5), Some(3)), None);
        assert_eq!(seconds(Some(0), Some(1_500_000_000)), Some(1.5));
        assert_eq!(seconds(None, Some(3)), None);
    }
}
