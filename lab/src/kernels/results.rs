//! Results for each kernel: a verdict for each check, in a file.
//!
//! ```text
//! kernels.json   {"kernels": {"6.12.117+deb12-amd64": {"version": …, "checks": {"sleep": …}}}}
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::build::StockKernel;
use crate::error::{Doing, LabError};

/// The project's version: results of another one are not taken over.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One thing that a kernel must let Dormouse do.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ValueEnum,
    strum::Display,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Check {
    /// The kernel module builds and loads
    Module,
    /// A sleep and a wake without power in between, every page compared
    Sleep,
    /// Redis is persisted and restored across a power cut
    Process,
    /// The sched_ext scheduler attaches
    Scheduler,
    /// A suspend of the devices is recorded
    Devices,
    /// Devices suspend in graph order by the module, and it is taken back
    Order,
}

impl Check {
    /// Every check.
    pub const ALL: [Check; 6] = [
        Check::Module,
        Check::Sleep,
        Check::Process,
        Check::Scheduler,
        Check::Devices,
        Check::Order,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Verdict {
    Ok {
        /// A few words on what was seen.
        detail: String,
    },
    Failed {
        reason: String,
    },
    /// The kernel lacks what the check needs.
    NotAvailable {
        missing: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Ok { detail } => write!(formatter, "ok ({detail})"),
            Verdict::Failed { reason } => write!(formatter, "failed: {reason}"),
            Verdict::NotAvailable { missing } => write!(formatter, "not available: {missing}"),
        }
    }
}

/// A kernel with its verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub distribution: String,
    pub flavour: String,
    /// What `uname -r` prints.
    pub release: String,
    /// Version of the package.
    pub package: String,
    /// Version of Dormouse that the checks were run with.
    pub dormouse: String,
    /// Date of the newest verdict; empty where there is none.
    pub date: String,
    pub checks: BTreeMap<Check, Verdict>,
}

impl Row {
    fn new(stock: &StockKernel) -> Row {
        Row {
            distribution: stock.distribution.clone(),
            flavour: stock.flavour().to_string(),
            release: stock.release().to_owned(),
            package: stock.version.clone(),
            dormouse: VERSION.to_owned(),
            date: String::new(),
            checks: BTreeMap::new(),
        }
    }

    pub fn has_failed(&self) -> bool {
        let mut verdicts = self.checks.values();
        verdicts.any(|verdict| matches!(verdict, Verdict::Failed { .. }))
    }

    fn is_of(&self, stock: &StockKernel) -> bool {
        self.package == stock.version && self.dormouse == VERSION
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    kernels: BTreeMap<String, Row>,
}

/// All verdicts, and their file.
pub struct Results {
    file: PathBuf,
    kept: Kept,
}

impl Results {
    /// Those of earlier runs in this folder; none where the file is missing or damaged.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(folder: &Path) -> Result<Results, LabError> {
        fs::create_dir_all(folder).doing(format!("create {}", folder.display()))?;
        let file = folder.join("kernels.json");
        let text = fs::read(&file).unwrap_or_default();
        let kept = serde_json::from_slice(&text).unwrap_or_default();
        Ok(Results { file, kept })
    }

    pub fn row(&self, stock: &StockKernel) -> Row {
        let known = self.kept.kernels.get(stock.release());
        let known = known.filter(|row| row.is_of(stock)).cloned();
        known.unwrap_or_else(|| Row::new(stock))
    }

    pub fn knows(&self, stock: &StockKernel, check: Check) -> bool {
        self.row(stock).checks.contains_key(&check)
    }

    /// Keeps a verdict at once.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn put(
        &mut self,
        stock: &StockKernel,
        check: Check,
        verdict: Verdict,
    ) -> Result<(), LabError> {
        let mut row = self.row(stock);
        row.date = jiff::Zoned::now().date().to_string();
        row.checks.insert(check, verdict);
        self.kept.kernels.insert(stock.release().to_owned(), row);
        let text = serde_json::to_vec_pretty(&self.kept).expect("verdicts are plain data");
        let unfinished = self.file.with_extension("new");
        fs::write(&unfinished, text)
            .and_then(|()| fs::rename(&unfinished, &self.file))
            .doing(format!("write {}", self.file.display()))
    }
}
