//! One line of the journal: one case, once, by one party.

use std::collections::BTreeMap;

use dormouse_tests::bench::journal::{Head, Headed};
use serde::{Deserialize, Serialize};

/// What one visit gave.
#[derive(Debug, Serialize, Deserialize)]
pub struct Entry {
    #[serde(flatten)]
    pub head: Head,
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

impl Headed for Entry {
    fn head(&self) -> &Head {
        &self.head
    }
}
