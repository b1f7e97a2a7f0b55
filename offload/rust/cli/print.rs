//! Prints outcomes for people and for scripts.

use std::io::Write;
use std::path::Path;

use crate::energy::{Energy, Span};
use crate::firmware::Firmware;
use crate::machine::outcome::Outcome;
use crate::suspend::Comparison;
use crate::suspend::cycle::Summary;
use crate::suspend::phase::Phase;

pub fn outcome(outcome: &Outcome, json: bool) {
    let text = if json {
        serde_json::to_string(outcome).unwrap_or_default()
    } else {
        describe(outcome)
    };
    // A reader that has gone away is not an error.
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub fn comparison(comparison: &Comparison, json: bool) {
    let text = if json {
        serde_json::to_string(comparison).unwrap_or_default()
    } else {
        let counter = |name: &str| comparison.counters.get(name).copied().unwrap_or_default();
        let mut text = format!(
            "{}: {} ({}){}\n  {} instructions on the small core; {} guest \
             instructions translated; {} interpreted, {} faults, {} calls served\n  {} device \
             events so far; {} words of memory changed by the big core; {} doublewords that depend \
             on the time; {} words otherwise in the executor",
            comparison.function,
            comparison.end.stop,
            comparison.end.explanation,
            comparison
                .results
                .map_or(String::new(), |[own, big]| format!(
                    ", {} on the big core {}",
                    own.cast_signed(),
                    big.cast_signed()
                )),
            comparison.instructions,
            counter("translated"),
            counter("interpreted"),
            counter("faults"),
            counter("natives"),
            comparison.device_events,
            comparison.changed,
            comparison.times,
            comparison.different,
        );
        if let Some(instruction) = &comparison.end.instruction {
            let at = comparison.end.registers[15];
            text.push_str(&format!("\n  at {at:08x}: {instruction}"));
        }
        for difference in &comparison.differences {
            text.push_str(&format!("\n  {difference}"));
        }
        text
    };
    // A reader that has gone away is not an error.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// "2 rtc, 5 gic accesses".
fn counts(accesses: &std::collections::BTreeMap<String, u64>) -> String {
    let each: Vec<String> = accesses
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    format!("{} accesses", each.join(", "))
}

pub fn phase(phase: &Phase, json: bool) {
    let text = if json {
        serde_json::to_string(phase).unwrap_or_default()
    } else {
        let counter = |name: &str| phase.counters.get(name).copied().unwrap_or_default();
        let mut text = format!(
            "cycle {}, {}: {} ({}); {} instructions on the small core, {} translated, {} µs \
             waiting, {} interpreted",
            phase.cycle,
            phase.function,
            phase.end.stop,
            phase.end.explanation,
            phase.instructions,
            counter("translated"),
            counter("waited_us"),
            counter("interpreted"),
        );
        if !phase.accesses.is_empty() {
            text.push_str(&format!("; {}", counts(&phase.accesses)));
        }
        if phase.idle_waits > 0 {
            text.push_str(&format!(
                "; idle {} times until an interrupt, {} µs",
                phase.idle_waits, phase.idle_us
            ));
        }
        if phase.waits > 0 {
            text.push_str(&format!(
                "; waited {} times on the big core, {} µs",
                phase.waits, phase.big_core_us
            ));
        }
        if let Some(after) = phase.cut_after {
            text.push_str(&format!("; to be cut after {after} instructions"));
        }
        if let Some(instruction) = &phase.end.instruction {
            text.push_str(&format!(
                "\n  at {:08x}: {instruction}",
                phase.end.registers[15]
            ));
        }
        text
    };
    // A reader that has gone away is not an error.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn of_energy(energy: &Energy) -> String {
    let Energy { big, small, .. } = energy;
    let percent = |span: Span| format!("{:.0} to {:.0} %", 100.0 * span.0, 100.0 * span.1);
    let mj = |span: Span| format!("{:.2} to {:.2} mJ", span.0 / 1000.0, span.1 / 1000.0);
    format!(
        "energy of {}: big core alone {} ({} instructions, {:.1} ms busy waiting, {:.1} to {:.1} ms idle); small core \
         {} ({} to {} cycles; ratio {:.1} to {:.1}), as it ran {}; saved {}, as it ran {}; saves from {:.0} to \
         {:.0} ms of idle waiting on",
        energy.function,
        mj(energy.big_uj),
        big.instructions,
        big.busy_wait_us / 1000.0,
        big.idle_us.0 / 1000.0,
        big.idle_us.1 / 1000.0,
        mj(energy.small_uj),
        small.cycles.low,
        small.cycles.high,
        energy.cycle_ratio.0,
        energy.cycle_ratio.1,
        mj(energy.as_run_uj),
        percent(energy.saving),
        percent(energy.as_run_saving),
        energy.break_even_ms.0,
        energy.break_even_ms.1,
    )
}

pub fn summary(summary: &Summary, json: bool) {
    let text = if json {
        serde_json::to_string(summary).unwrap_or_default()
    } else {
        let mut text = format!(
            "{} of {} cycles reached PM: suspend exit; files and processes were as before after {}\n{} \
             phases returned in the executor, {} were handed back and finished by the big core",
            summary.suspend_exits,
            summary.cycles,
            summary.checked,
            summary.returned,
            summary.handed_back,
        );
        if let Some(worked) = summary.devices_worked {
            text.push_str(&format!(
                "\nclock, serial line, card, disk and network worked after {worked}\nthe small core: {} \
                 instructions, {} µs in delays, idle {} times until an interrupt, {} µs, {}\nthe big core: {} times on for a thread that \
                 waits, {} µs",
                summary.instructions,
                summary.waited_us,
                summary.idle_waits,
                summary.idle_us,
                counts(&summary.accesses),
                summary.waits,
                summary.big_core_us
            ));
        }
        if let Some(from) = summary.energy_from_cycle {
            text.push_str(&format!("\nenergy: means of the cycles from {from} on"));
        }
        for energy in &summary.energy {
            text.push_str(&format!("\n{}", of_energy(energy)));
        }
        for refused in &summary.refused {
            text.push_str(&format!("\nrefused: {refused}; the big core made it"));
        }
        for complaint in &summary.complaints {
            text.push_str(&format!("\nthe kernel: {complaint}"));
        }
        text
    };
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub fn firmware(path: &Path, firmware: &Firmware) {
    let (handover, trace) = (firmware.handover, firmware.trace);
    let _ = writeln!(
        std::io::stdout(),
        "{}: {} bytes of the small core's memory\nhand-over at {:#010x}, {} bytes; trace at {:#010x}, {} bytes",
        path.display(),
        firmware.bytes,
        handover.0,
        handover.1,
        trace.0,
        trace.1,
    );
}

fn describe(outcome: &Outcome) -> String {
    let mut text = format!("{}: {}\n", outcome.stop, outcome.explanation);
    if let (Some(instruction), Some(encoding)) = (&outcome.instruction, outcome.encoding) {
        let at = outcome.registers[15];
        text.push_str(&format!("at {at:08x}  {encoding:08x}  {instruction}\n"));
    }
    if let Some(accessed) = outcome.accessed {
        text.push_str(&format!("address    {accessed:08x}\n"));
    }
    for (number, value) in outcome.registers.iter().enumerate() {
        let end = if number % 4 == 3 { '\n' } else { ' ' };
        text.push_str(&format!("r{number:<2} {value:08x}{end}"));
    }
    let counter = |name: &str| outcome.counters.get(name).copied().unwrap_or_default();
    text.push_str(&format!(
        "{} instructions on the small core; {} guest instructions translated into {} bytes",
        outcome.instructions,
        counter("translated"),
        counter("emitted"),
    ));
    text
}
