//! The plots: durations, their parts, and the time until all pages are back in DRAM.

use std::fs;
use std::path::Path;

use dormouse_lab::CycleLine;
use dormouse_report::plot::{
    Axis, Bar, Frame, PlotError, Sample, Stack, bars, stacked_bars, violins,
};

use crate::plan::OURS;
use crate::results::{All, Field, Results, home, resume, suspend};

/// A phase's name and where its seconds are.
pub type Phase = (&'static str, Field);

/// In the order of events. What is not in one of them is `other`.
pub const PHASES_DOWN: [Phase; 6] = [
    ("migrate", |cycle| cycle.suspend_s.migrate),
    ("free memory", |cycle| cycle.suspend_s.shrink),
    ("devices", |cycle| cycle.suspend_s.devices),
    ("copy", |cycle| cycle.suspend_s.copy),
    ("firmware", |cycle| cycle.suspend_s.firmware),
    ("write image", |cycle| cycle.suspend_s.write),
];
pub const PHASES_UP: [Phase; 5] = [
    ("firmware", |cycle| {
        Some((cycle.resume_s.firmware? - cycle.resume_s.restore.unwrap_or_default()).max(0.0))
    }),
    ("restore", |cycle| cycle.resume_s.restore),
    ("boot kernel", |cycle| cycle.resume_s.boot),
    ("load image", |cycle| cycle.resume_s.load),
    ("kernel", |cycle| cycle.resume_s.kernel),
];

/// File names and what is in them; the same for `docs/evaluation/figures`.
pub const FIGURES: [&str; 5] = [
    "machine-resume.svg",
    "machine-suspend.svg",
    "machine-resume-phases.svg",
    "machine-suspend-phases.svg",
    "machine-home.svg",
];

/// Draws all of them into `folder`.
///
/// # Errors
/// A drawing fails, or cannot be written.
pub fn write(all: &All, folder: &Path) -> Result<(), String> {
    let drawings = [
        latency(all, "Resume: power-on to programs running", resume),
        latency(all, "Suspend: request to power off", suspend),
        phases(all, "Resume, median of each phase", &PHASES_UP, resume),
        phases(all, "Suspend, median of each phase", &PHASES_DOWN, suspend),
        pages_home(all),
    ];
    for (name, drawing) in FIGURES.iter().zip(drawings) {
        let drawing = drawing.map_err(|error| format!("{name}: {error}"))?;
        fs::write(folder.join(name), drawing).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// The modes of figures: ours with other settings is in tables only.
fn shown(all: &All) -> impl Iterator<Item = &Results> {
    all.0
        .iter()
        .filter(|results| !results.case.mode.is_variant() && !results.good.is_empty())
}

/// Hibernation and Suspend-to-CXL are an order of magnitude apart: a linear axis would show a line.
fn latency(all: &All, title: &str, field: Field) -> Result<String, PlotError> {
    let samples: Vec<Sample> = shown(all)
        .map(|results| {
            Sample::new(
                mib(&results.case.fill),
                results.case.mode.title,
                &results.values(field),
            )
        })
        .collect();
    let y = Axis::new("time [s]").logarithmic();
    violins(&Frame::new(title, Axis::new("user memory"), y), &samples)
}

fn phases(all: &All, title: &str, phases: &[Phase], total: Field) -> Result<String, PlotError> {
    let stacks: Vec<Stack> = shown(all)
        .filter_map(|results| {
            let total_s = results.median(total)?;
            let name = format!("{}, {}", mib(&results.case.fill), results.case.mode.title);
            let parts = parts(&results.good, phases, total_s);
            let parts = parts.iter().map(|(name, seconds)| (*name, *seconds));
            Some(Stack::new(name, parts).text(format!("{total_s:.2} s")))
        })
        .collect();
    let frame = Frame::new(title, Axis::new("time [s]"), Axis::new(""));
    stacked_bars(&frame, &stacks)
}

/// The median of each phase that happened, and what the total has besides.
pub fn parts(cycles: &[CycleLine], phases: &[Phase], total_s: f64) -> Vec<(&'static str, f64)> {
    let mut parts: Vec<(&'static str, f64)> = phases
        .iter()
        .filter_map(|(name, field)| {
            let values = cycles.iter().filter_map(field);
            Some((*name, dormouse_report::stats::median(values)?))
        })
        .collect();
    let known: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
    parts.push(("other", (total_s - known).max(0.0)));
    parts
}

fn pages_home(all: &All) -> Result<String, PlotError> {
    let bars_of: Vec<Bar> = shown(all)
        .filter(|results| results.case.mode.name == OURS || moved(results))
        .filter_map(|results| {
            let title = results.case.mode.title;
            let bar = Bar::of_median(mib(&results.case.fill), title, &results.summary(home)?);
            let text = format!("{:.2} s", bar.value);
            Some(bar.text(text))
        })
        .collect();
    let frame = Frame::new(
        "Until all pages are back in DRAM, after resume",
        Axis::new("user memory"),
        Axis::new("time [s]"),
    );
    bars(&frame, &bars_of)
}

/// Whether pages were elsewhere after waking.
fn moved(results: &Results) -> bool {
    results.good.iter().any(|cycle| cycle.home_bytes > 0)
}

/// `448M` for people.
pub fn mib(fill: &str) -> String {
    let unit = fill.strip_suffix('M').map(|number| format!("{number} MiB"));
    let giga = || fill.strip_suffix('G').map(|number| format!("{number} GiB"));
    unit.or_else(giga).unwrap_or_else(|| fill.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::cycle;

    #[test]
    fn phases_and_the_rest_make_up_the_total() {
        let cycles = [cycle(r#"{"total":10.0,"migrate":6.0,"devices":1.0}"#, "{}")];
        let parts = parts(&cycles, &PHASES_DOWN, 10.0);
        assert_eq!(parts, [("migrate", 6.0), ("devices", 1.0), ("other", 3.0)]);
    }

    #[test]
    fn restoring_is_a_part_of_firmware_and_drawn_once() {
        let up = r#"{"total":1.0,"firmware":0.5,"restore":0.2,"kernel":0.5}"#;
        let parts = parts(&[cycle("{}", up)], &PHASES_UP, 1.0);
        assert_eq!(
            parts,
            [
                ("firmware", 0.3),
                ("restore", 0.2),
                ("kernel", 0.5),
                ("other", 0.0)
            ]
        );
    }

    #[test]
    fn a_fill_is_shown_with_its_unit() {
        assert_eq!(mib("448M"), "448 MiB");
        assert_eq!(mib("1G"), "1 GiB");
        assert_eq!(mib("4096"), "4096");
    }
}
