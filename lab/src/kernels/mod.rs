//! `dormouse lab kernels`: which capabilities work on which of the distribution's stock kernels.
//!
//! ```text
//! for each kernel:  build its module ─▶ boot ─▶ loaded? ─▶ redis is tracked ─▶ power is cut
//!                     ─▶ boot ─▶ redis is restored ─▶ scheduler attaches ─▶ devices are recorded
//!                     ─▶ graph order
//!                     ─▶ another machine: fill memory, sleep, lose power, wake, compare
//! ```
//!
//! Each result is stored at once; the next run reuses it while kernel and version are the same.

mod features;
mod machine;
mod page;
mod results;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::build::{BuildOptions, StockKernel, stock_kernels};
use crate::error::LabError;
use crate::machine::machine_folder;
use crate::terminal::Terminal;
use crate::terminal::print_json;
use dormouse_system::arguments::Size;
use results::{Results, Row, Verdict};

pub use features::lacks;
pub use results::Check;

/// Arguments of `lab kernels`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dormouse lab kernels --list                    the kernels that the archive has\n  \
    dormouse lab kernels --kernel 7. --check sleep --check scheduler\n  \
    dormouse lab kernels --publish                 all checks, and the table of the documentation\n\n\
    Checks: module (it builds and loads), sleep (one sleep and wake, every page compared), process\n\
    (redis is persisted and restored across a power cut), scheduler (the sched_ext scheduler\n\
    attaches), devices (a suspend is recorded), order (devices suspend in graph order by\n\
    the module dormouse_dpm, and it is undone). A check that fails on a kernel without the feature\n\
    that it needs is not available there; the feature is named.\n\n\
    Exit codes: 0 nothing failed; 1 something failed; 2 wrong usage; 3 this machine lacks\n\
    something.")]
pub struct KernelsArgs {
    /// Folder of the machines and results; a name means out/lab/NAME
    #[arg(long, value_name = "DIR", default_value = "kernels")]
    pub machine: PathBuf,
    /// Only kernels with this in their release, distribution or flavour; can be given several
    /// times
    #[arg(long, value_name = "PATTERN")]
    pub kernel: Vec<String>,
    /// Only these checks; can be given several times
    #[arg(long, value_enum, value_name = "NAME")]
    pub check: Vec<Check>,
    /// Print the kernels and the results so far, and run nothing
    #[arg(long)]
    pub list: bool,
    /// Also kernels of testing, experimental and older backports
    #[arg(long)]
    pub all: bool,
    /// Repeat checks that already have a result
    #[arg(long)]
    pub again: bool,
    /// Memory to fill and compare
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub fill: Size,
    /// Write the table into this page, between its markers
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = page::PAGE)]
    pub publish: Option<PathBuf>,
}

/// Runs the verb.
///
/// # Errors
/// The archive cannot be asked, or files cannot be written; a check that fails is a result.
pub fn run(args: &KernelsArgs, json: bool) -> Result<ExitCode, LabError> {
    let terminal = Terminal::new();
    let options = BuildOptions::default();
    let all = stock_kernels(&options, &terminal)?;
    let kernels = chosen(&all, &args.kernel, args.all);
    if kernels.is_empty() {
        return Err(LabError::Usage(
            "no such kernel: `dormouse lab kernels --list --all` prints them".into(),
        ));
    }
    let folder = machine_folder(&args.machine);
    let mut results = Results::open(&folder)?;
    if !args.list {
        for (number, stock) in kernels.iter().enumerate() {
            let title = format!("{} of {}: {}", number + 1, kernels.len(), stock.release());
            one_kernel(stock, args, &folder, &title, &mut results, &terminal)?;
        }
    }
    terminal.finish();
    let rows: Vec<Row> = kernels.iter().map(|stock| results.row(stock)).collect();
    if let Some(file) = &args.publish {
        // The page has every kernel, also when only some were checked now.
        let kernels = chosen(&all, &[], args.all);
        let rows: Vec<Row> = kernels.iter().map(|stock| results.row(stock)).collect();
        page::publish(file, &rows)?;
    }
    if json {
        print_json(&serde_json::json!({ "kernels": rows }))?;
    } else {
        print!("{}", page::table(&rows));
        for reason in page::reasons(&rows) {
            println!("{reason}");
        }
    }
    let failed = rows.iter().any(Row::has_failed) && !args.list;
    Ok(ExitCode::from(u8::from(failed)))
}

/// The kernels that a pattern names; without one the usual ones, or all.
fn chosen<'a>(kernels: &'a [StockKernel], patterns: &[String], all: bool) -> Vec<&'a StockKernel> {
    let wanted = |stock: &&StockKernel| {
        let name = format!(
            "{} {} {}",
            stock.distribution,
            stock.release(),
            stock.flavour()
        );
        // A pattern says by itself which kernels are meant, unusual ones too.
        match patterns.is_empty() {
            true => stock.usual || all,
            false => patterns.iter().any(|pattern| name.contains(pattern)),
        }
    };
    kernels.iter().filter(wanted).collect()
}

/// The one kernel that a pattern names, as `--kernel` of `lab kernels` does.
///
/// # Errors
/// None has it in its name, or several have; the archive cannot be asked.
pub(crate) fn named(
    pattern: &str,
    options: &BuildOptions,
    terminal: &Terminal,
) -> Result<StockKernel, LabError> {
    let all = stock_kernels(options, terminal)?;
    match chosen(&all, &[pattern.to_owned()], true)[..] {
        [one] => Ok(one.clone()),
        [] => Err(LabError::Usage(format!(
            "no kernel has {pattern:?} in its name: `dormouse lab kernels --list --all` prints them"
        ))),
        ref several => {
            let names: Vec<&str> = several.iter().map(|stock| stock.release()).collect();
            Err(LabError::Usage(format!(
                "{pattern:?} is in the names of several kernels: {}",
                names.join(", ")
            )))
        }
    }
}

/// All wanted checks of one kernel whose result is not known.
fn one_kernel(
    stock: &StockKernel,
    args: &KernelsArgs,
    folder: &Path,
    title: &str,
    results: &mut Results,
    terminal: &Terminal,
) -> Result<(), LabError> {
    let wanted: Vec<Check> = Check::ALL
        .into_iter()
        .filter(|check| args.check.is_empty() || args.check.contains(check))
        .filter(|check| args.again || !results.knows(stock, *check))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut record = |check: Check, verdict: Verdict| {
        terminal.line(&format!("{title}: {check}: {verdict}"));
        results.put(stock, check, verdict)
    };
    let say = |what: &str| terminal.now(&format!("{title}: {what}"));
    let folder = folder.join(stock.release());
    machine::run_checks(
        stock,
        &wanted,
        args.fill,
        &folder,
        terminal,
        &say,
        &mut record,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Whole {
        #[command(flatten)]
        args: KernelsArgs,
    }

    #[test]
    fn publish_names_the_page_of_the_documentation_unless_another_is_given() {
        let parse = |words: &[&str]| {
            let words = ["kernels"].iter().chain(words);
            Whole::try_parse_from(words).unwrap().args.publish
        };
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&["--publish"]), Some(PathBuf::from(page::PAGE)));
        assert_eq!(parse(&["--publish", "x.md"]), Some(PathBuf::from("x.md")));
    }
}
