//! Overhead of taking processors offline and online compared with leaving them in the idle loop: a
//! study of suspend-to-idle on machines whose firmware can only do the former.

use std::collections::BTreeMap;

use dormouse_guest::protocol::device_job::{Answer, Step};
use dormouse_report::stats::median;
use serde::Serialize;

use super::switches::{Mode, set_mode};
use super::time::{TRACING, trace_file};
use crate::error::LabError;

/// Medians of all rounds and processors.
#[derive(Debug, Clone, Serialize)]
pub struct HotplugTimes {
    pub cpus: u32,
    /// Milliseconds that taking one processor off, and on, through sysfs took.
    pub off_ms: f64,
    pub on_ms: f64,
    /// Milliseconds of all device phases of a suspend-to-idle, both ways, with all processors, and
    /// with all but the first taken off before.
    pub devices_all_ms: f64,
    pub devices_one_ms: f64,
}

/// The steps, and what is measured with them.
pub struct Hotplug {
    pub steps: Vec<Step>,
    cpus: u32,
    /// Steps that suspend, and whether all processors are on.
    cycles: BTreeMap<usize, bool>,
    devices_ms: BTreeMap<bool, Vec<f64>>,
    trace: String,
}

impl Hotplug {
    pub fn new(cpus: u32, rounds: u64) -> Hotplug {
        let mut hotplug = Hotplug {
            steps: vec![
                set_mode(Mode::List),
                trace_file("trace_clock", "mono"),
                trace_file("tracing_on", "1"),
            ],
            cpus,
            cycles: BTreeMap::new(),
            devices_ms: BTreeMap::new(),
            trace: String::new(),
        };
        for _ in 0..rounds {
            hotplug.cycle(true);
            (1..cpus).for_each(|cpu| hotplug.switch(cpu, false));
            hotplug.cycle(false);
            (1..cpus).for_each(|cpu| hotplug.switch(cpu, true));
        }
        let path = format!("{TRACING}/trace");
        hotplug.steps.push(Step::Read { path });
        hotplug
    }

    fn cycle(&mut self, all: bool) {
        self.cycles.insert(self.steps.len(), all);
        self.steps.push(Step::Cycle { order: false });
    }

    /// Marks in the trace when it begins and ends.
    fn switch(&mut self, cpu: u32, on: bool) {
        let name = if on { "on" } else { "off" };
        self.steps.extend([
            trace_file("trace_marker", &format!("{name} begins")),
            Step::Set {
                path: format!("/sys/devices/system/cpu/cpu{cpu}/online"),
                value: u8::from(on).to_string(),
            },
            trace_file("trace_marker", &format!("{name} ends")),
        ]);
    }

    /// Takes one answer.
    ///
    /// # Errors
    /// A suspend failed.
    pub fn receive(&mut self, answer: &Answer) -> Result<(), LabError> {
        if answer.step + 1 == self.steps.len() {
            self.trace.clone_from(&answer.text);
        }
        let (Some(cycle), Some(&all)) = (&answer.cycle, self.cycles.get(&answer.step)) else {
            return Ok(());
        };
        if cycle.errno != 0 {
            let message = format!("a suspend failed with error {}", cycle.errno);
            return Err(LabError::Guest(message));
        }
        let us: u64 = cycle.phases_us.values().sum();
        self.devices_ms
            .entry(all)
            .or_default()
            .push(us as f64 / 1e3);
        Ok(())
    }

    /// Result of all rounds; NaN without a measurement, as with one processor.
    pub fn finish(self) -> HotplugTimes {
        let middle = |values: Vec<f64>| median(values).unwrap_or(f64::NAN);
        let devices = |all| middle(self.devices_ms.get(&all).cloned().unwrap_or_default());
        HotplugTimes {
            cpus: self.cpus,
            off_ms: middle(spans_ms(&self.trace, "off")),
            on_ms: middle(spans_ms(&self.trace, "on")),
            devices_all_ms: devices(true),
            devices_one_ms: devices(false),
        }
    }
}

/// Milliseconds between the marks `NAME begins` and `NAME ends`.
fn spans_ms(trace: &str, name: &str) -> Vec<f64> {
    let (begins, ends) = (format!("{name} begins"), format!("{name} ends"));
    let mut begin = None;
    let mut spans = Vec::new();
    for line in trace.lines() {
        let Some((head, mark)) = line.split_once(": tracing_mark_write: ") else {
            continue;
        };
        let seconds = head.split_whitespace().last();
        let Some(now) = seconds.and_then(|text| text.parse::<f64>().ok()) else {
            continue;
        };
        if mark.trim() == begins {
            begin = Some(now);
        } else if mark.trim() == ends
            && let Some(begin) = begin.take()
        {
            spans.push((now - begin) * 1e3);
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_between_their_marks() {
        let trace = "# tracer: nop\n\
            init-1 [000] ..... 1.000000: tracing_mark_write: off begins\n\
            init-1 [000] ..... 1.002500: tracing_mark_write: off ends\n\
            init-1 [000] ..... 2.000000: tracing_mark_write: on begins\n\
            init-1 [000] ..... 2.010000: tracing_mark_write: on ends\n";
        let off = spans_ms(trace, "off");
        assert_eq!(off.len(), 1);
        assert!((off[0] - 2.5).abs() < 1e-6);
        assert!((spans_ms(trace, "on")[0] - 10.0).abs() < 1e-6);
    }

    #[test]
    fn every_processor_but_the_first_goes_off_and_comes_back() {
        let hotplug = Hotplug::new(3, 2);
        let switched = |value: &str| {
            let is_switch = |step: &&Step| matches!(step, Step::Set { path, value: to } if path.ends_with("/online") && to == value);
            hotplug.steps.iter().filter(is_switch).count()
        };
        assert_eq!((switched("0"), switched("1")), (4, 4));
        assert_eq!(hotplug.cycles.len(), 4);
    }
}
