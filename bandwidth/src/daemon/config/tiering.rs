//! Configuration of the traffic of the kernel's memory tiering.

use std::path::PathBuf;

use serde::Deserialize;

/// Promotion, demotion and DAMON as a user of their own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TieringConfig {
    /// Its weight in fair shares; 1 is that of an ordinary user.
    #[serde(default = "one")]
    pub weight: f64,
    /// Whether promotion and DAMON are limited; otherwise their traffic is accounted only.
    #[serde(default = "yes")]
    pub limit: bool,
    /// Where /proc and /sys are.
    #[serde(default = "root")]
    pub root: PathBuf,
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn root() -> PathBuf {
    "/".into()
}

impl TieringConfig {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        match self.weight > 0.0 && self.weight.is_finite() {
            true => Ok(()),
            false => Err("tiering: weight must be above 0"),
        }
    }
}
