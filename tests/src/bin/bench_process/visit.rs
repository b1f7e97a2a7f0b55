//! One case, once, by one party.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use dormouse_system::{Root, memory};

use crate::criu::Criu;
use crate::plan::{Case, Party};
use crate::{dump, slowdown};

/// Values by name; the unit is the name's ending.
pub type Values = BTreeMap<String, f64>;

/// What all visits need.
pub struct Context {
    /// Where stores, images and what programs print go.
    pub place: PathBuf,
    /// The compiled `process/tests/programs/load.c`.
    pub load: PathBuf,
    /// The peer, or why there is none.
    pub criu: Result<Criu, String>,
}

impl Context {
    /// The place, emptied.
    pub fn fresh_directory(&self) -> Result<PathBuf, String> {
        let directory = self.place.join("visit");
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(directory)
    }
}

/// A duration in milliseconds.
pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Nanoseconds in milliseconds.
pub fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// Memory that others do not use now, bytes.
fn available_bytes() -> u64 {
    let meminfo = memory::read(&Root::host());
    meminfo.get("MemAvailable").copied().unwrap_or(0)
}

/// Measures.
///
/// # Errors
/// Why there is no result: a result, too.
pub fn visit(case: Case, party: Party, context: &Context) -> Result<Values, String> {
    let (needed, available) = (case.needed_bytes(), available_bytes());
    if needed > available {
        return Err(format!(
            "it takes {} MiB of memory, and {} MiB are free",
            needed >> 20,
            available >> 20
        ));
    }
    let result = match case {
        Case::Cycle { .. } | Case::Dirty { .. } | Case::Budget { .. } => {
            dump::measure(case, party, context)
        }
        Case::Passes { .. } | Case::Redis { .. } | Case::Epochs { .. } | Case::Beside => {
            slowdown::measure(case, party, context)
        }
    };
    let _ = fs::remove_dir_all(context.place.join("visit"));
    result
}
