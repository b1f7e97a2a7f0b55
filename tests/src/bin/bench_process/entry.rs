//! One line of the journal: one case, once, by one party.

use std::collections::BTreeMap;

use dormouse_tests::bench::journal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What one visit gave.
#[derive(Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Digest of the programs that were measured.
    pub inputs: String,
    pub date: String,
    /// What it ran on.
    pub machine: Value,
    pub case: String,
    /// The measured party; see [`crate::plan::Party`].
    #[serde(alias = "who")]
    pub party: String,
    pub round: usize,
    pub seconds: f64,
    /// Measured values, by name; the unit is the name's ending.
    pub values: BTreeMap<String, f64>,
    /// Why there are none.
    pub failure: Option<String>,
}

impl journal::Entry for Entry {
    fn inputs(&self) -> &str {
        &self.inputs
    }

    fn case(&self) -> &str {
        &self.case
    }
}
