//! The files of a cgroup with the cpu controller, of version 2 or 1.
//!
//! | | version 2 | version 1 |
//! |---|---|---|
//! | limit | `cpu.max` | `cpu.cfs_quota_us`, `cpu.cfs_period_us` |
//! | held back | `cpu.stat`: `nr_throttled` | the same |
//! | CPU time | `cpu.stat`: `usage_usec` | its tasks' `schedstat` |
//! | weight | `cpu.weight` (100 is ordinary) | `cpu.shares` (1024 is ordinary) |

use std::fs;
use std::path::PathBuf;

pub use dormouse_system::cgroup::{Hierarchy, Version};
use dormouse_system::{Root, proc};
use serde::{Deserialize, Serialize};

use super::EnforceError;
use super::quota::Quota;

/// The hierarchy of this machine that has the cpu controller.
///
/// # Errors
/// There is none, or the mounts cannot be read.
pub fn cpu_hierarchy() -> Result<Hierarchy, EnforceError> {
    Hierarchy::with_controller(&Root::host(), "cpu")
        .map_err(EnforceError::file("/proc/self/mounts"))?
        .ok_or(EnforceError::NoHierarchy)
}

/// What limits a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Max {
    /// `None`: no limit.
    pub quota_us: Option<u64>,
    /// The period, in microseconds.
    pub period_us: u64,
}

impl Max {
    /// The limit in CPUs.
    pub fn cpu(&self) -> Option<f64> {
        self.quota_us
            .map(|quota_us| quota_us as f64 / self.period_us as f64)
    }
}

impl From<Quota> for Max {
    fn from(quota: Quota) -> Self {
        Self {
            quota_us: Some(quota.quota_us),
            period_us: quota.period_us,
        }
    }
}

/// What a cgroup has used since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Periods in which it was throttled.
    pub nr_throttled: u64,
}

/// One cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its directory.
    pub path: PathBuf,
    /// The version of the hierarchy.
    pub version: Version,
}

impl Cgroup {
    /// The cgroup in this directory; nothing is read.
    pub fn new(path: impl Into<PathBuf>, version: Version) -> Self {
        Self {
            path: path.into(),
            version,
        }
    }

    fn read(&self, name: &str) -> Result<String, EnforceError> {
        let path = self.path.join(name);
        proc::text(&path).map_err(EnforceError::file(path))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), EnforceError> {
        let path = self.path.join(name);
        // Not `fs::write`, which would create a file where the cgroup is gone.
        let mut file = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .map_err(EnforceError::file(&path))?;
        std::io::Write::write_all(&mut file, text.as_bytes()).map_err(EnforceError::file(path))
    }

    fn number(&self, name: &str) -> Result<i64, EnforceError> {
        let text = self.read(name)?;
        text.trim().parse().map_err(|_| self.unknown(name, &text))
    }

    fn unknown(&self, name: &str, text: &str) -> EnforceError {
        EnforceError::Text {
            path: self.path.join(name),
            text: text.trim().to_owned(),
        }
    }

    /// The limit in force.
    ///
    /// # Errors
    /// It cannot be read, the cgroup is gone.
    pub fn max(&self) -> Result<Max, EnforceError> {
        match self.version {
            Version::V2 => {
                let text = self.read("cpu.max")?;
                parse_max(&text).ok_or_else(|| self.unknown("cpu.max", &text))
            }
            Version::V1 => Ok(Max {
                quota_us: u64::try_from(self.number("cpu.cfs_quota_us")?).ok(),
                period_us: self.number("cpu.cfs_period_us")?.max(1) as u64,
            }),
        }
    }

    /// Sets the limit.
    ///
    /// # Errors
    /// The kernel refuses it, the cgroup is gone.
    pub fn set_max(&self, max: Max) -> Result<(), EnforceError> {
        match self.version {
            Version::V2 => {
                let quota = max
                    .quota_us
                    .map_or_else(|| "max".to_owned(), |quota_us| quota_us.to_string());
                self.write("cpu.max", &format!("{quota} {}", max.period_us))
            }
            Version::V1 => {
                self.write("cpu.cfs_period_us", &max.period_us.to_string())?;
                let quota = max
                    .quota_us
                    .map_or_else(|| "-1".to_owned(), |quota_us| quota_us.to_string());
                self.write("cpu.cfs_quota_us", &quota)
            }
        }
    }

    /// Its usage since it was created.
    ///
    /// # Errors
    /// It cannot be read, or the cgroup is gone.
    pub fn usage(&self) -> Result<Usage, EnforceError> {
        let text = self.read("cpu.stat")?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse::<u64>().ok())
        };
        let cpu_ns = match self.version {
            Version::V2 => value("usage_usec ")
                .map(|usec| usec * 1000)
                .ok_or_else(|| self.unknown("cpu.stat", &text))?,
            Version::V1 => self.cpu_ns_of_tasks()?,
        };
        Ok(Usage {
            cpu_ns,
            nr_throttled: value("nr_throttled ").unwrap_or(0),
        })
    }

    /// CPU time of all its live tasks.
    fn cpu_ns_of_tasks(&self) -> Result<u64, EnforceError> {
        let tasks = self.read("tasks")?;
        let time = |task: &str| {
            let text = proc::text(format!("/proc/{task}/schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        Ok(tasks.lines().filter_map(time).sum())
    }

    /// Its weight relative to the default (1).
    ///
    /// # Errors
    /// It cannot be read, or the cgroup is gone.
    pub fn weight(&self) -> Result<f64, EnforceError> {
        let (name, ordinary) = match self.version {
            Version::V2 => ("cpu.weight", 100.0),
            Version::V1 => ("cpu.shares", 1024.0),
        };
        Ok((self.number(name)? as f64 / ordinary).max(0.01))
    }

    /// Its processes.
    ///
    /// # Errors
    /// They cannot be read, or the cgroup is gone.
    pub fn processes(&self) -> Result<Vec<i32>, EnforceError> {
        let text = self.read("cgroup.procs")?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }
}

fn parse_max(text: &str) -> Option<Max> {
    let (quota, period) = text.trim().split_once(' ')?;
    let quota_us = match quota {
        "max" => None,
        number => Some(number.parse().ok()?),
    };
    Some(Max {
        quota_us,
        period_us: period.parse().ok().filter(|period| *period > 0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let max = parse_max("max 100000\n").unwrap();
        assert_eq!((max.quota_us, max.cpu()), (None, None));
        assert_eq!(parse_max("25000 100000\n").unwrap().cpu(), Some(0.25));
        for bad in ["", "max", "5 0", "x 100", "5 x"] {
            assert_eq!(parse_max(bad), None, "{bad}");
        }
    }

    #[test]
    fn nothing_is_created_where_a_cgroup_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let cgroup = Cgroup::new(folder.path(), Version::V2);
        let max = Max {
            quota_us: Some(1000),
            period_us: 10_000,
        };
        assert!(cgroup.set_max(max).unwrap_err().is_gone());
        assert!(cgroup.max().unwrap_err().is_gone());
        assert!(!folder.path().join("cpu.max").exists());
    }
}
