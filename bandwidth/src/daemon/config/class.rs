//! Configuration of latency classes.

use serde::Deserialize;

/// Users whose accesses may take so long.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassConfig {
    /// Its name, which the annotations of pods use.
    pub name: String,
    /// The maximum latency of an access on each device that its users use.
    pub max_latency_ns: f64,
    /// Cgroups of the class, with all below, relative to the hierarchy's root.
    #[serde(default)]
    pub cgroups: Vec<std::path::PathBuf>,
}

impl ClassConfig {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.name.is_empty() {
            return Err("class: name the class");
        }
        if !(self.max_latency_ns > 0.0 && self.max_latency_ns.is_finite()) {
            return Err("class: max_latency_ns must be above 0");
        }
        let outside = |path: &std::path::PathBuf| {
            path.is_absolute() || path.components().any(|part| part.as_os_str() == "..")
        };
        match self.cgroups.iter().any(outside) {
            true => Err("class: cgroups are relative to the hierarchy's root, without .."),
            false => Ok(()),
        }
    }
}
