//! The analysis for a terminal.

use std::fmt::Write;

use dormouse_report::format::{duration, printable};

use super::{Analysis, PhaseAnalysis, Totals};
use crate::model::Direction;

/// Columns of a bar.
const BAR: usize = 30;

/// All of it as text. Names come from outside; control characters in them are replaced.
pub fn render(analysis: &Analysis) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "cycle {}{}: {} devices, {} links, {} CPUs",
        analysis.extent.cycle,
        if analysis.extent.complete {
            ""
        } else {
            " (not all of it was seen)"
        },
        analysis.extent.devices,
        analysis.extent.links,
        analysis.extent.cpus
    );
    totals(&mut text, &analysis.totals);
    passes(&mut text, &analysis.phases);
    critical_paths(&mut text, &analysis.phases);
    slowest(&mut text, analysis);
    findings(&mut text, analysis);
    for note in &analysis.notes {
        let _ = writeln!(text, "note: {}", printable(note));
    }
    text
}

fn totals(text: &mut String, totals: &Totals) {
    let ways = [
        (
            Direction::Suspend,
            "suspend",
            totals.suspend_ns,
            totals.rest_suspend_ns,
        ),
        (
            Direction::Resume,
            "resume",
            totals.resume_ns,
            totals.rest_resume_ns,
        ),
    ];
    for (direction, name, whole_ns, rest_ns) in ways {
        let _ = writeln!(text, "\n{name:<52}{:>10}", duration(whole_ns));
        let steps = totals
            .steps
            .iter()
            .filter(|step| step.direction == direction);
        for step in steps {
            line(text, &step.name, step.share, step.duration_ns);
        }
        let share = rest_ns as f64 / whole_ns.max(1) as f64;
        if share > 0.01 {
            line(text, "(no step accounts for)", share, rest_ns);
        }
        if direction == Direction::Suspend && totals.asleep_ns > 0 {
            let _ = writeln!(text, "\n{:<52}{:>10}", "asleep", duration(totals.asleep_ns));
        }
    }
}

fn line(text: &mut String, name: &str, share: f64, ns: u64) {
    let filled = ((share * BAR as f64).round() as usize).min(BAR);
    let _ = writeln!(
        text,
        "  {name:<22}{:<BAR$}{:>8}  {:>3.0} %",
        "█".repeat(filled),
        duration(ns),
        share * 100.0
    );
}

fn passes(text: &mut String, phases: &[PhaseAnalysis]) {
    let _ = writeln!(
        text,
        "\n{:<16}{:>10}{:>10}{:>10}{:>11}{:>12}{:>8}{:>10}",
        "pass", "took", "sum", "bound", "callbacks", "at a time", "idle", "between"
    );
    for phase in phases {
        let idle = phase
            .idle_share
            .map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0));
        let _ = writeln!(
            text,
            "{:<16}{:>10}{:>10}{:>10}{:>11}{:>12.1}{:>8}{:>10}",
            phase.phase,
            duration(phase.duration_ns),
            duration(phase.sum_ns),
            duration(phase.bound_ns),
            phase.callbacks,
            phase.parallelism,
            idle,
            duration(phase.between_ns)
        );
    }
}

fn critical_paths(text: &mut String, phases: &[PhaseAnalysis]) {
    for phase in phases {
        if phase.critical_path_ns * 20 < phase.duration_ns || phase.critical_path.is_empty() {
            continue;
        }
        let links: Vec<String> = phase
            .critical_path
            .iter()
            .filter(|link| link.duration_ns * 100 >= phase.critical_path_ns)
            .map(|link| format!("{} {}", printable(&link.name), duration(link.duration_ns)))
            .collect();
        let _ = writeln!(
            text,
            "\ncritical path of {} ({}): {}",
            phase.phase,
            duration(phase.critical_path_ns),
            links.join(" → ")
        );
    }
}

fn slowest(text: &mut String, analysis: &Analysis) {
    if analysis.slowest.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n{:<44}{:>10}{:>10}  async",
        "slowest devices", "suspend", "resume"
    );
    for device in &analysis.slowest {
        let may = match device.is_async {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        let _ = writeln!(
            text,
            "{:<44}{:>10}{:>10}  {may}",
            printable(&device.name),
            duration(device.suspend_ns),
            duration(device.resume_ns)
        );
    }
}

fn findings(text: &mut String, analysis: &Analysis) {
    if analysis.findings.is_empty() {
        let _ = writeln!(text, "\nno improvement found");
        return;
    }
    for (number, finding) in analysis.findings.iter().enumerate() {
        let gain = finding
            .gain_ns
            .map_or_else(String::new, |ns| format!(" (up to {})", duration(ns)));
        let _ = writeln!(
            text,
            "\n{}. {}: {}{gain}",
            number + 1,
            finding.id,
            printable(&finding.seen)
        );
        paragraph(text, "why", finding.why);
        paragraph(text, "do", &finding.todo);
        if !finding.about.is_empty() {
            paragraph(text, "", &finding.about.join(", "));
        }
    }
}

/// A paragraph of 96 columns or fewer.
fn paragraph(text: &mut String, head: &str, body: &str) {
    let mut column = 0;
    for word in printable(body).split(' ') {
        if column == 0 {
            let _ = write!(text, "   {head:<4} {word}");
            column = 8 + word.chars().count();
        } else if column + 1 + word.chars().count() > 96 {
            let _ = write!(text, "\n        {word}");
            column = 8 + word.chars().count();
        } else {
            let _ = write!(text, " {word}");
            column += 1 + word.chars().count();
        }
    }
    text.push('\n');
}
