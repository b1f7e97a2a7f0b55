//! One line of the journal: one run of `dormouse lab cycle`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use dormouse_lab::CycleLine;
use dormouse_tests::bench::journal::{Head, Headed};

/// One run of the command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Entry {
    #[serde(flatten)]
    pub head: Head,
    pub words: Vec<String>,
    pub seconds: f64,
    pub exit_code: i32,
    /// The last line on stderr, where the command failed.
    pub error: String,
    /// The lines of `lab cycle --json`.
    pub cycles: Vec<Value>,
}

impl Headed for Entry {
    fn head(&self) -> &Head {
        &self.head
    }
}

impl Entry {
    /// Cycles that can be read; the others are as good as failed.
    pub fn read_cycles(&self) -> impl Iterator<Item = CycleLine> + '_ {
        self.cycles
            .iter()
            .filter_map(|line| serde_json::from_value(line.clone()).ok())
    }

    /// Whether the machine lacks what the case needs: it is not tried again.
    pub fn is_lacking(&self) -> bool {
        self.exit_code == 3
    }
}
