//! The kernel's switches for suspend and resume of devices.

use std::fmt;

use dormouse_guest::protocol::device_job::Step;
use serde::{Deserialize, Serialize};

/// How a transition goes.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    strum::Display,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    /// One device after the other
    List,
    /// The stock kernel with power/async set for every device
    Async,
    /// power/async set for slow devices and those that depend on them or that they depend on
    Threshold,
    /// Workers that take devices as they become ready
    Graph,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 4] = [Mode::List, Mode::Async, Mode::Threshold, Mode::Graph];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether devices have permission to leave the list's order before it begins.
    pub fn permits(self) -> bool {
        matches!(self, Mode::Async | Mode::Graph)
    }
}

/// Which devices may leave the list's order in graph mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Those with permission (power/async)
    Async,
    /// Also those with a link to a supplier
    Declared,
    /// All
    All,
}

impl Scope {
    pub const ALL: [Scope; 3] = [Scope::Async, Scope::Declared, Scope::All];
}

fn set(name: &str, value: impl fmt::Display) -> Step {
    Step::Set {
        path: format!("/sys/power/{name}"),
        value: value.to_string(),
    }
}

/// Whether the stock kernel starts async devices.
pub fn set_pm_async(is_on: bool) -> Step {
    set("pm_async", u8::from(is_on))
}

pub fn set_mode(mode: Mode) -> Step {
    // Stock: none of ours runs.
    let value = if mode == Mode::Async {
        "off"
    } else {
        mode.name()
    };
    set("pm_graph", value)
}

pub fn set_scope(scope: Scope) -> Step {
    let value = match scope {
        Scope::Async => "async",
        Scope::Declared => "declared",
        Scope::All => "all",
    };
    set("pm_graph_scope", value)
}

pub fn set_threshold(threshold_us: u32) -> Step {
    set("pm_graph_threshold_us", threshold_us)
}

pub fn set_timeout(timeout_ms: u32) -> Step {
    set("pm_graph_timeout_ms", timeout_ms)
}

pub fn set_sleepers(workers: u32) -> Step {
    set("pm_graph_sleepers", workers)
}
