//! A kernel log's events to cycles.
//!
//! A log has the end and the duration of a pass, not its begin; callbacks belong to
//! the pass whose end comes next. What follows the last such line is placed by the name of the
//! callback's function.

use super::klog::{LogEvent, LogLine, parse_line};
use super::names::{Description, Names};
use super::{Damage, Read};
use crate::model::{Callback, Cycle, DevicePhase, Graph, PhaseSpan, Recording};

/// Reads a whole log.
pub fn read(text: &str) -> Read {
    read_with_graph(text, Graph::default())
}

/// Reads a whole log; finds the devices in the machine's graph.
pub fn read_with_graph(text: &str, graph: Graph) -> Read {
    let mut log = Log {
        names: Names::new(graph),
        ..Log::default()
    };
    for (index, line) in text.lines().enumerate() {
        match parse_line(line) {
            LogLine::Event(t_ns, event) => log.add(t_ns, index + 1, event),
            LogLine::Other => {}
            LogLine::Damaged(what) => log.damages.push(Damage {
                line: index + 1,
                what,
            }),
        }
    }
    log.close_cycle();
    let mut recording = Recording {
        cycles: log.cycles,
        ..Recording::default()
    };
    if log.names.ambiguous > 0 {
        recording.notes.push(format!(
            "{} devices have the same name and parent as others; the first of each stands for all",
            log.names.ambiguous
        ));
    }
    recording.graph = log.names.into_graph();
    log.damages.sort_by_key(|damage| damage.line);
    Read {
        recording,
        damages: log.damages,
    }
}

struct Open<'a> {
    device: usize,
    name: &'a str,
    begin_ns: u64,
    thread: u32,
    function: Option<&'a str>,
    line: usize,
}

#[derive(Default)]
struct Log<'a> {
    names: Names,
    cycles: Vec<Cycle>,
    current: Option<Cycle>,
    open: Vec<Open<'a>>,
    /// Callbacks whose pass has not ended yet.
    pending: Vec<(Callback, Option<&'a str>)>,
    marks: Vec<(&'static str, u64)>,
    damages: Vec<Damage>,
}

impl<'a> Log<'a> {
    fn cycle(&mut self) -> &mut Cycle {
        self.current.get_or_insert_with(Cycle::default)
    }

    fn add(&mut self, t_ns: u64, line: usize, event: LogEvent<'a>) {
        match event {
            LogEvent::Entry { .. } => {
                self.close_cycle();
                self.cycle().complete = true;
                self.marks.push(("suspend_enter", t_ns));
            }
            LogEvent::Exit => {
                if self.current.is_some() {
                    let complete = self.cycle().complete;
                    self.close_cycle();
                    if let (Some(cycle), true) = (self.cycles.last_mut(), complete) {
                        cycle.complete = true;
                    }
                }
            }
            LogEvent::Calling {
                driver,
                device,
                parent,
                function,
                thread,
            } => {
                let index = self.names.find(Description {
                    name: device,
                    parent,
                    driver,
                });
                self.open.push(Open {
                    device: index,
                    name: device,
                    begin_ns: t_ns,
                    thread,
                    function,
                    line,
                });
            }
            LogEvent::Returned {
                device,
                error,
                duration_ns,
            } => self.returned(t_ns, line, device, error, duration_ns),
            LogEvent::Pass {
                phase, duration_ns, ..
            } => {
                let span = span(phase.span_name(), t_ns, duration_ns);
                self.cycle().phases.push(span);
                let callbacks = std::mem::take(&mut self.pending);
                let callbacks = callbacks.into_iter().map(|(mut callback, _)| {
                    callback.phase = phase;
                    callback
                });
                self.cycle().callbacks.extend(callbacks);
            }
            LogEvent::Step { name, duration_ns } => {
                let span = span(name, t_ns, duration_ns);
                self.cycle().phases.push(span);
            }
            LogEvent::Mark { name, begin: true } => self.marks.push((name, t_ns)),
            LogEvent::Mark { name, begin: false } => {
                // Each CPU has such a line; the last one ends the step.
                let Some(&(_, begin_ns)) = self.marks.iter().rev().find(|mark| mark.0 == name)
                else {
                    return;
                };
                let cycle = self.cycle();
                cycle.phases.retain(|span| span.name != name);
                cycle.phases.push(PhaseSpan {
                    name: name.to_owned(),
                    value: 0,
                    begin_ns,
                    end_ns: t_ns.max(begin_ns),
                });
            }
        }
    }

    fn returned(&mut self, t_ns: u64, line: usize, device: &str, error: i64, duration_ns: u64) {
        let Some(place) = self.open.iter().rposition(|open| open.name == device) else {
            if self.current.is_some() {
                self.damages.push(Damage {
                    line,
                    what: format!("a callback of {device} returns and never began"),
                });
            }
            return;
        };
        let open = self.open.remove(place);
        // Both stamps are taken beside the callback; its own time is the better one.
        let begin_ns = open.begin_ns.max(t_ns.saturating_sub(duration_ns));
        let callback = Callback {
            device: open.device,
            phase: DevicePhase::Suspend,
            begin_ns,
            end_ns: begin_ns.saturating_add(duration_ns),
            level: String::new(),
            thread: open.thread,
            busy_ns: None,
            delayed_ns: 0,
            error,
        };
        self.pending.push((callback, open.function));
    }

    fn close_cycle(&mut self) {
        for open in self.open.drain(..) {
            self.damages.push(Damage {
                line: open.line,
                what: format!("a callback of {} begins and never returns", open.name),
            });
        }
        self.marks.clear();
        let pending = std::mem::take(&mut self.pending);
        let Some(mut cycle) = self.current.take() else {
            return;
        };
        for (mut callback, function) in pending {
            callback.phase = phase_by_function(function.unwrap_or_default(), &cycle);
            cycle.callbacks.push(callback);
        }
        let thawed = cycle.phase("thaw_processes").is_some();
        cycle.complete &= thawed || cycle.phase("dpm_resume").is_some();
        cycle.phases.sort_by_key(|span| span.begin_ns);
        cycle.callbacks.sort_by_key(|callback| callback.begin_ns);
        if !cycle.callbacks.is_empty() || cycle.phases.len() > 1 {
            self.cycles.push(cycle);
        }
    }
}

fn span(name: &str, end_ns: u64, duration_ns: u64) -> PhaseSpan {
    PhaseSpan {
        name: name.to_owned(),
        value: 0,
        begin_ns: end_ns.saturating_sub(duration_ns),
        end_ns,
    }
}

/// Drivers name their callbacks after the phase: `pci_pm_suspend_noirq`.
fn phase_by_function(function: &str, cycle: &Cycle) -> DevicePhase {
    let up = function.contains("resume");
    let down = function.contains("suspend");
    // The name is the same in both directions: the passes that have ended decide.
    let up = up || (!down && cycle.phase("dpm_suspend_noirq").is_some());
    match (
        up,
        function.contains("noirq"),
        function.contains("late") || function.contains("early"),
    ) {
        (false, true, _) => DevicePhase::SuspendNoirq,
        (false, _, true) => DevicePhase::SuspendLate,
        (false, ..) => DevicePhase::Suspend,
        (true, true, _) => DevicePhase::ResumeNoirq,
        (true, _, true) => DevicePhase::ResumeEarly,
        (true, ..) => DevicePhase::Resume,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOG: &str = "\
[   10.000000] PM: suspend entry (s2idle)
[   10.020000] Filesystems sync: 0.018 seconds
[   10.025000] Freezing user space processes completed (elapsed 0.004 seconds)
[   10.030000] sd 0:0:0:0: PM: calling scsi_bus_suspend @ 50, parent: target0:0:0
[   10.030100] ahci 0000:00:1f.2: PM: calling pci_pm_suspend @ 51, parent: pci0000:00
[   10.035000] ahci 0000:00:1f.2: PM: pci_pm_suspend returned 0 after 4800 usecs
[   10.040000] sd 0:0:0:0: PM: scsi_bus_suspend returned 0 after 9900 usecs
[   10.041000] PM: suspend of devices complete after 12.500 msecs
[   10.042000] ahci 0000:00:1f.2: PM: calling pci_pm_suspend_noirq @ 51, parent: pci0000:00
[   10.043000] ahci 0000:00:1f.2: PM: pci_pm_suspend_noirq returned 0 after 900 usecs
[   10.044000] PM: noirq suspend of devices complete after 3.000 msecs
[   11.000000] ahci 0000:00:1f.2: PM: calling pci_pm_resume @ 51, parent: pci0000:00
[   11.003000] ahci 0000:00:1f.2: PM: pci_pm_resume returned 0 after 2900 usecs
[   11.004000] PM: resume of devices complete after 4.000 msecs
[   11.004100] Restarting tasks ... done.
[   11.010000] PM: suspend exit
";

    #[test]
    fn callbacks_belong_to_the_pass_that_ends_next() {
        let Read { recording, damages } = read(LOG);
        assert!(damages.is_empty(), "{damages:?}");
        assert_eq!(recording.cycles.len(), 1);
        let cycle = &recording.cycles[0];
        assert!(cycle.complete);
        let of = |phase| -> Vec<u64> {
            cycle
                .callbacks_of(phase)
                .map(Callback::duration_ns)
                .collect()
        };
        assert_eq!(of(DevicePhase::Suspend), [9_900_000, 4_800_000]);
        assert_eq!(of(DevicePhase::SuspendNoirq), [900_000]);
        assert_eq!(of(DevicePhase::Resume), [2_900_000]);
        let sync = cycle.phase("sync_filesystems").unwrap();
        assert_eq!(sync.duration_ns(), 18_000_000);
        let pass = cycle.device_phase(DevicePhase::Suspend).unwrap();
        assert_eq!(
            (pass.begin_ns, pass.end_ns),
            (10_028_500_000, 10_041_000_000)
        );
    }

    #[test]
    fn a_log_that_ends_in_the_middle_gives_what_there_is() {
        let cut = &LOG[..LOG.find("PM: pci_pm_suspend returned").unwrap()];
        let Read { recording, damages } = read(cut);
        assert_eq!(damages.len(), 2);
        assert!(damages[0].what.contains("never returns"));
        assert!(recording.cycles.iter().all(|cycle| !cycle.complete));
    }

    proptest! {
        #[test]
        fn lines_in_any_order_any_number_of_times_never_panic(
            order in proptest::collection::vec(0..16usize, 0..60)
        ) {
            let lines: Vec<&str> = LOG.lines().collect();
            let text: Vec<&str> = order.iter().map(|&at| lines[at % lines.len()]).collect();
            let Read { recording, .. } = read(&text.join("\n"));
            for callback in recording.cycles.iter().flat_map(|cycle| &cycle.callbacks) {
                prop_assert!(callback.end_ns >= callback.begin_ns);
                prop_assert!(callback.device < recording.graph.devices.len());
            }
        }
    }
}
