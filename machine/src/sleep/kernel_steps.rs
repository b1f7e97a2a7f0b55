//! What the kernel itself does between the write to /sys/power/state and its return: each pass over
//! the devices, the other CPUs off and on. The kernel reports it through `power:suspend_resume`.

use std::collections::{BTreeMap, HashMap};

use dormouse_report::Kind;
use dormouse_system::Root;

use crate::system::tracepoint::{Field, Stamp, TRACEFS, Tracepoint, describe, parse_field};

const EVENT: &str = "power/suspend_resume";
/// Addresses and texts of the kernel's tracepoint strings: a record holds only the address.
const STRINGS: &str = "printk_formats";
/// Some hundred records of 40 bytes; with hundreds of CPUs, two for each of them both ways.
const RING_BYTES: usize = 1 << 17;

/// The kernel's names of what it does on the way down, without what is part of a later step or
/// ends only after waking.
const DOWN: &[&str] = &[
    "sync_filesystems",
    "freeze_processes",
    "dpm_prepare",
    "dpm_suspend",
    "dpm_suspend_late",
    "dpm_suspend_noirq",
    "CPU_OFF",
];
const UP: &[&str] = &[
    "CPU_ON",
    "dpm_resume_noirq",
    "dpm_resume_early",
    "dpm_resume",
    "dpm_complete",
    "thaw_processes",
];

/// On which way a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Down,
    Up,
}

/// Beginning or end of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// On CLOCK_MONOTONIC, which stands still while the machine sleeps.
    pub t_ns: u64,
    pub way: Way,
    /// The kernel's own name.
    pub name: &'static str,
    pub kind: Kind,
}

/// Watches what this thread makes the kernel do.
pub struct KernelSteps {
    tracepoint: Tracepoint,
    fields: Fields,
    names: HashMap<u64, &'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    action: Field,
    start: Field,
}

impl KernelSteps {
    /// Begins. None where the kernel has no such tracepoint or does not show it: a
    /// timeline without these steps is no reason to disturb a sleep.
    pub fn watch(root: &Root) -> Option<KernelSteps> {
        let (number, format) = describe(root, EVENT)?;
        let fields = Fields {
            action: parse_field(&format, "action")?,
            start: parse_field(&format, "start")?,
        };
        let names = parse_strings(&root.read(&format!("{TRACEFS}/{STRINGS}")).ok()?);
        let tracepoint = Tracepoint::open(number, 0, None, Stamp::Monotonic, RING_BYTES).ok()?;
        Some(KernelSteps {
            tracepoint,
            fields,
            names,
        })
    }

    /// Ends; what was seen, in the order of time.
    pub fn finish(mut self) -> Vec<Mark> {
        let mut seen = Vec::new();
        let (fields, names) = (self.fields, &self.names);
        self.tracepoint.read(&mut |t_ns, record| {
            let name = fields.action.of(record).and_then(|at| names.get(&at));
            if let (Some(name), Some(start)) = (name, fields.start.of(record)) {
                seen.push((t_ns, *name, start != 0));
            }
        });
        steps(&seen)
    }
}

/// `0xffffffff82a1b2c3 : "dpm_suspend"`, one a line: those that we know, by address.
fn parse_strings(text: &str) -> HashMap<u64, &'static str> {
    let known = |line: &str| {
        let (address, text) = line.split_once(" : ")?;
        let address = u64::from_str_radix(address.trim().strip_prefix("0x")?, 16).ok()?;
        let text = text.trim().strip_prefix('"')?.strip_suffix('"')?;
        let name = DOWN.iter().chain(UP).find(|name| **name == text)?;
        Some((address, *name))
    };
    text.lines().filter_map(known).collect()
}

/// One span for each step, from its first begin to its last end: CPUs come and go one by one.
fn steps(seen: &[(u64, &'static str, bool)]) -> Vec<Mark> {
    let mut spans: BTreeMap<&'static str, (Option<u64>, Option<u64>)> = BTreeMap::new();
    for &(t_ns, name, start) in seen {
        let span = spans.entry(name).or_default();
        if start {
            span.0.get_or_insert(t_ns);
        } else {
            span.1 = Some(t_ns);
        }
    }
    let mut marks = Vec::new();
    for (name, span) in spans {
        let (Some(begin_ns), Some(end_ns)) = span else {
            continue;
        };
        if end_ns < begin_ns {
            continue;
        }
        let way = if DOWN.contains(&name) {
            Way::Down
        } else {
            Way::Up
        };
        for (t_ns, kind) in [(begin_ns, Kind::Begin), (end_ns, Kind::End)] {
            marks.push(Mark {
                t_ns,
                way,
                name,
                kind,
            });
        }
    }
    marks.sort_by_key(|mark| mark.t_ns);
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strings_are_found_by_their_address_and_unknown_ones_left_out() {
        let names = parse_strings(
            "0xffffffff81a0 : \"dpm_suspend\"\n0xffffffff81b0 : \"something else\\n\"\n\
             garbage\n0xzz : \"dpm_resume\"\n0xffffffff81c0 : \"thaw_processes\"\n",
        );
        assert_eq!(names.len(), 2);
        assert_eq!(names[&0xffff_ffff_81a0], "dpm_suspend");
        assert_eq!(names[&0xffff_ffff_81c0], "thaw_processes");
    }

    #[test]
    fn cpus_that_go_one_by_one_are_one_step_and_a_step_without_an_end_is_none() {
        let marks = steps(&[
            (10, "dpm_suspend", true),
            (20, "dpm_suspend", false),
            (30, "CPU_OFF", true),
            (40, "CPU_OFF", false),
            (50, "CPU_OFF", true),
            (60, "CPU_OFF", false),
            (70, "dpm_resume", true),
        ]);
        let reported: Vec<_> = marks
            .iter()
            .map(|mark| (mark.t_ns, mark.name, mark.kind))
            .collect();
        assert_eq!(
            reported,
            [
                (10, "dpm_suspend", Kind::Begin),
                (20, "dpm_suspend", Kind::End),
                (30, "CPU_OFF", Kind::Begin),
                (60, "CPU_OFF", Kind::End),
            ]
        );
        assert!(marks.iter().all(|mark| mark.way == Way::Down));
    }

    proptest! {
        #[test]
        fn no_list_of_strings_makes_the_parser_panic(text in "([ -~]|\n){0,300}") {
            let _ = parse_strings(&text);
        }
    }
}
