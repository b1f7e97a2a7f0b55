//! `dormouse bandwidth probe`: measures a node's latency curve.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dormouse_report::output;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::arguments::ProbeArguments;
use super::{CliError, DONE};
use crate::curve::{Curve, CurveError, GIB};
use crate::probe::memory::HUGE;
use crate::probe::sweep::{self, Plan, Point, ROUND};

/// A bar of the largest latency, in characters.
const WIDTH: f64 = 40.0;
/// The exit code after SIGINT.
const INTERRUPTED: u8 = 130;

pub fn run(arguments: &ProbeArguments) -> Result<u8, CliError> {
    let plan = plan(arguments)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| CliError::Failed(format!("signals: {error}")))?;
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    let bar = ProgressBar::new(sweep::steps() as u64)
        .with_style(style.expect("a template that is known"));
    let measured = sweep::sweep(&plan, &stop, |_, point| {
        bar.set_message(format!(
            "{:.2} GiB/s, {:.0} ns",
            point.bytes_s / GIB,
            point.ns
        ));
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let Some(measured) = measured else {
        return Ok(INTERRUPTED);
    };
    let points = sweep::shaped(&measured);
    let lines = sweep::lines(&points);
    let curve = Curve::parse(&format!("node {}", arguments.node), &lines);
    if let (Ok(_), Some(path)) = (&curve, &arguments.out) {
        let text = format!("{}{lines}", heading(&plan));
        std::fs::write(path, text)
            .map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))?;
    }
    if arguments.json {
        output::json(&json!({
            "node": plan.node,
            "threads": plan.cpus.len() - 1,
            "points": points.iter().map(|one| [one.bytes_s / GIB, one.ns]).collect::<Vec<_>>(),
            "working_point_gib_s": curve.as_ref().ok().map(|curve| curve.working_point() / GIB),
            "threshold_gib_s": curve.as_ref().ok().map(|curve| curve.threshold() / GIB),
        }))?;
    } else {
        output::text(&rendered(&points, curve.as_ref().ok()))?;
    }
    curve.map_err(|error| not_a_curve(&error, &plan, &points))?;
    if let Some(path) = arguments.out.as_deref().filter(|_| !arguments.json) {
        output::text(&next(path))?;
    }
    Ok(DONE)
}

fn plan(arguments: &ProbeArguments) -> Result<Plan, CliError> {
    let set = rustix::thread::sched_getaffinity(None)
        .map_err(|error| CliError::Failed(format!("processors: {error}")))?;
    let mut cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect();
    if let Some(threads) = arguments.threads {
        cpus.truncate(usize::from(threads) + 1);
    }
    let wanted = arguments.threads.map_or(1, usize::from);
    if cpus.len() <= wanted {
        return Err(CliError::Failed(format!(
            "{wanted} threads that load and one that measures need {} processors; this process \
             may use {}",
            wanted + 1,
            cpus.len()
        )));
    }
    let threads = cpus.len() - 1;
    let bytes = arguments.mib.map(|mib| bytes_each(mib as usize, threads));
    Ok(Plan {
        node: arguments.node,
        bytes: bytes.unwrap_or_else(|| Ok(sweep::bytes_for(threads)))?,
        writes: sixteenths(arguments.writes),
        step: Duration::from_millis(arguments.step.into()),
        cpus,
    })
}

/// The memory of each thread, in huge pages; together at most this many MiB.
fn bytes_each(mib: usize, threads: usize) -> Result<usize, CliError> {
    let bytes = (mib << 20) / threads / HUGE * HUGE;
    if bytes == 0 {
        let least = threads * (HUGE >> 20);
        return Err(CliError::Failed(format!(
            "--mib: each thread that loads needs 2 MiB; for {threads} that is {least} MiB together"
        )));
    }
    Ok(bytes)
}

/// The percentage in sixteenths, rounded; at least 1 unless it is 0.
fn sixteenths(percent: u8) -> usize {
    let nearest = (usize::from(percent) * ROUND + 50) / 100;
    nearest.max(usize::from(percent > 0))
}

fn heading(plan: &Plan) -> String {
    format!(
        "# Measured by `dormouse bandwidth probe`: node {}, threads that loaded it: {}, of 16 lines \
         written: {}\n# GiB/s,ns\n",
        plan.node,
        plan.cpus.len() - 1,
        plan.writes
    )
}

fn not_a_curve(error: &CurveError, plan: &Plan, points: &[Point]) -> CliError {
    let most = points.last().map_or(0.0, |point| point.bytes_s / GIB);
    CliError::Failed(format!(
        "{error}. Loaded by threads on {} processors the device moves {most:.2} GiB/s and still \
         answers as fast: its knee is beyond that, or something else disturbed the measurement. \
         Try more processors, a longer --step, or a quieter machine",
        plan.cpus.len() - 1
    ))
}

fn rendered(points: &[Point], curve: Option<&Curve>) -> String {
    let most = points.iter().map(|point| point.ns).fold(0.0, f64::max);
    let mut text = format!("{:>8} {:>8}\n", "GiB/s", "ns");
    for point in points {
        let bar = "█".repeat((point.ns / most * WIDTH).round() as usize);
        let _ = writeln!(text, "{:>8.2} {:>8.0} {bar}", point.bytes_s / GIB, point.ns);
    }
    if let Some(curve) = curve {
        let _ = writeln!(
            text,
            "\nworking point {:.2} GiB/s (most bandwidth for its latency); threshold, four fifths \
             of it: {:.2} GiB/s",
            curve.working_point() / GIB,
            curve.threshold() / GIB
        );
        if curve.working_point() >= curve.max_bandwidth() {
            text.push_str(
                "that is the most that these threads could move: with more of them the knee may be \
                 further on\n",
            );
        }
    }
    text
}

fn next(path: &Path) -> String {
    let path = path.display();
    format!(
        "written to {path}; next: `curve = \"{path}\"` in the daemon's configuration, or \
         `dormouse bandwidth simulate --curve {path}`\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> ProbeArguments {
        ProbeArguments {
            node: 0,
            out: None,
            threads: None,
            writes: 50,
            mib: Some(16),
            step: 10,
            json: false,
        }
    }

    #[test]
    fn a_curve_is_drawn_with_its_working_point() {
        let point = |gib_s: f64, ns| Point {
            bytes_s: gib_s * GIB,
            ns,
        };
        let points = [point(1.0, 100.0), point(5.0, 200.0), point(6.0, 800.0)];
        let curve = Curve::parse("x", &sweep::lines(&points)).unwrap();
        let text = rendered(&points, Some(&curve));
        assert!(text.contains("    5.00      200 ██████████\n"), "{text}");
        assert!(text.contains("working point 5.00") && text.contains("4.00"));
    }

    #[test]
    fn the_written_fraction_is_rounded_and_never_zero_unless_requested() {
        let all = [0, 1, 6, 7, 50, 53, 99, 100].map(sixteenths);
        assert_eq!(all, [0, 1, 1, 1, 8, 8, 16, 16]);
    }

    #[test]
    fn threads_share_the_memory_that_they_may_have() {
        assert_eq!(bytes_each(16, 4).unwrap(), 4 << 20);
        assert_eq!(bytes_each(15, 4).unwrap(), 2 << 20, "no more than 15");
        let said = bytes_each(7, 4).unwrap_err().to_string();
        assert!(said.contains("8 MiB together"), "{said}");
    }

    #[test]
    fn more_threads_than_processors_are_refused() {
        let threads = Some(5000);
        let said = plan(&ProbeArguments {
            threads,
            ..arguments()
        });
        assert!(said.unwrap_err().to_string().contains("5001 processors"));
    }
}
