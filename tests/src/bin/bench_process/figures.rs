//! The plots, after Figures 6.1 to 6.4 of Streicher 2024, and restore, which it did not measure.

use std::fs;
use std::path::Path;

use dormouse_report::plot::{Axis, Bar, Frame, Line, PlotError, bars, lines};

use crate::plan::{Case, DICTIONARIES, PASS_SIZES, PAYLOADS, Party, REDIS_TESTS, SIZES};
use crate::rows::{Measured, size};

/// File names and what is in them; the same for `docs/evaluation/figures`.
pub const FIGURES: [(&str, &str); 7] = [
    (
        "process-passes.svg",
        "A pass of mapping, filling and unmapping memory (Streicher 2024, Figure 6.1). The axis is logarithmic.",
    ),
    (
        "process-redis-set.svg",
        "redis-benchmark, SET (Streicher 2024, Figure 6.2).",
    ),
    ("process-redis-lpush.svg", "LPUSH, likewise."),
    (
        "process-redis-lrange.svg",
        "LRANGE_600, likewise. The axis is logarithmic.",
    ),
    (
        "process-7z.svg",
        "7z's benchmark beside a program that writes 32 MiB a second (Streicher 2024, Figure 6.3).",
    ),
    (
        "process-persist.svg",
        "Persist by size (Streicher 2024, Figure 6.4). Both axes are logarithmic.",
    ),
    (
        "process-restore.svg",
        "Restore until the program runs, by size. Both axes are logarithmic.",
    ),
];

const PARTIES: [(Party, &str); 3] = [
    (Party::Untracked, "untracked"),
    (Party::Tracked, "tracked"),
    (Party::Budgeted, "tracked, budget 64 MiB"),
];

/// Draws all of them into `folder`.
///
/// # Errors
/// A drawing fails, or cannot be written.
pub fn write(measured: &Measured<'_>, folder: &Path) -> Result<(), String> {
    let [set, lpush, lrange] = REDIS_TESTS;
    let drawings = [
        passes(measured),
        redis(measured, set, false),
        redis(measured, lpush, false),
        redis(measured, lrange, true),
        seven_zip(measured),
        persist(measured),
        restore(measured),
    ];
    for ((name, _), drawing) in FIGURES.iter().zip(drawings) {
        let drawing = drawing.map_err(|error| format!("{name}: {error}"))?;
        fs::write(folder.join(name), drawing).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn bar(measured: &Measured<'_>, case: Case, value: &str, group: &str) -> Vec<Bar> {
    let of = |(party, name): &(Party, &str)| {
        let summary = measured.summary(case, *party, value)?;
        Some(Bar::of_median(group, *name, &summary))
    };
    PARTIES.iter().filter_map(of).collect()
}

fn passes(measured: &Measured<'_>) -> Result<String, PlotError> {
    let all: Vec<Bar> = PASS_SIZES
        .iter()
        .flat_map(|mib| bar(measured, Case::Passes { mib: *mib }, "pass_ms", &size(*mib)))
        .collect();
    let y = Axis::new("time of a pass [ms]").logarithmic();
    let frame = Frame::new("Map, fill, unmap", Axis::new("memory"), y);
    bars(&frame, &all)
}

fn redis(measured: &Measured<'_>, test: &str, logarithmic: bool) -> Result<String, PlotError> {
    let value = format!("{test}_per_s");
    let all: Vec<Bar> = PAYLOADS
        .iter()
        .flat_map(|bytes| {
            let group = format!("{bytes} bytes");
            bar(measured, Case::Redis { bytes: *bytes }, &value, &group)
        })
        .collect();
    let y = Axis::new("requests a second");
    let y = if logarithmic { y.logarithmic() } else { y };
    let title = format!("redis-benchmark, {test}");
    bars(&Frame::new(&title, Axis::new("values"), y), &all)
}

fn seven_zip(measured: &Measured<'_>) -> Result<String, PlotError> {
    let mut all = Vec::new();
    // Eight groups side by side leave no room for words.
    for (way, letter) in [("compress", 'c'), ("decompress", 'd')] {
        for dictionary in DICTIONARIES {
            let value = format!("{way}_{dictionary}_mips");
            let group = format!("{letter} {}", 1 << (dictionary - 20));
            all.extend(bar(measured, Case::Beside, &value, &group));
        }
    }
    let frame = Frame::new(
        "7z benchmark, one thread",
        Axis::new("compress (c), decompress (d): dictionary [MiB]"),
        Axis::new("rating [MIPS]"),
    );
    bars(&frame, &all)
}

type CaseOf = fn(u64) -> Case;

/// Medians by size.
fn line(measured: &Measured<'_>, name: &str, of: CaseOf, party: Party, value: &str) -> Line {
    let points = SIZES.into_iter().filter_map(|mib| {
        let summary = measured.summary(of(mib), party, value)?;
        Some((mib as f64, summary.median))
    });
    Line::new(name, points.collect())
}

fn by_size(title: &str, all: &[Line]) -> Result<String, PlotError> {
    let x = Axis::new("memory [MiB]").logarithmic();
    let y = Axis::new("time [ms]").logarithmic();
    lines(&Frame::new(title, x, y), all, &[])
}

fn persist(measured: &Measured<'_>) -> Result<String, PlotError> {
    let cycle: CaseOf = |mib| Case::Cycle { mib };
    let budget: CaseOf = |mib| Case::Budget { mib };
    let (ours, criu) = (Party::Ours, Party::Criu);
    let all = [
        line(measured, "budget 64 MiB", budget, ours, "request_ms"),
        line(measured, "nothing synced", cycle, ours, "request_ms"),
        line(measured, "criu dump", cycle, criu, "persist_ms"),
    ];
    by_size("Persist", &all)
}

fn restore(measured: &Measured<'_>) -> Result<String, PlotError> {
    let cycle: CaseOf = |mib| Case::Cycle { mib };
    let all = [
        line(measured, "ours", cycle, Party::Ours, "restore_ms"),
        line(measured, "criu restore", cycle, Party::Criu, "restore_ms"),
    ];
    by_size("Restore to running", &all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::journal;

    #[test]
    fn all_figures_are_drawn_also_of_little() {
        let folder = tempfile::tempdir().unwrap();
        for value in [Some(3.0), None] {
            let journal = journal(|_, _, _| value);
            write(&Measured(&journal), folder.path()).unwrap();
            for (name, _) in FIGURES {
                let drawing = fs::read_to_string(folder.path().join(name)).unwrap();
                assert!(drawing.starts_with("<svg"), "{name}");
            }
        }
    }
}
