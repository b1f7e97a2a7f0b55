//! Devices that go and come while a transition is on its way: in each phase, the callback of one device
//! removes another one, and in a later transition adds one, as the driver of a hub does.
//!
//! ```text
//! transition:   d3 removes d9      whole      d3 adds d14      whole, with d14      …
//! ```
//!
//! The one that is removed may run in the phase in which it goes, and in none after it. One that is added
//! takes part from the next transition on. All others run as if nothing had happened.

use dormouse_guest::protocol::device_job::{Cycle, Step};

use super::{Check, Expect, able_devices, keeps_list};
use crate::devices::graph::{Device, Duration, PHASES, device_name};
use crate::devices::order::Order;
use crate::devices::switches::Mode;

/// The longest that a callback of a device that goes takes.
const MAX_US: u64 = 2000;

/// What a device's callback does to the others in one phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    phase: usize,
    /// Whose callback does it.
    by: usize,
    /// Which device goes or comes.
    other: usize,
    goes: bool,
}

impl Change {
    /// The line that the test module reads.
    fn line(self) -> String {
        let what = if self.goes { "remove" } else { "add" };
        let (by, other) = (device_name(self.by), device_name(self.other));
        format!("{what} {by} {} {other}", PHASES[self.phase])
    }
}

impl Check {
    /// Six devices go and six come, one in each phase.
    pub(super) fn add_changes(&mut self) {
        let (mut graph, scope, mut dice) = self.random_graph();
        for device in &mut graph.devices {
            // What is below it keeps it from being left alone, and may go.
            device.direct = false;
        }
        // At least one has callbacks.
        graph.devices.push(Device::default());
        let injectors = able_devices(&graph.devices);
        let first = graph.devices.len();
        for _ in PHASES {
            let mut phases = [Duration::default(); 6];
            for phase in &mut phases {
                phase.us = dice.between(0, MAX_US);
            }
            graph.devices.push(Device {
                parent: Some(*dice.pick(&injectors)),
                permitted: dice.chance(0.7),
                phases,
                ..Device::default()
            });
        }
        let mut number = self.build(graph.clone(), scope);
        self.cycle_in_each_mode(number, scope);
        let keeps_list = keeps_list(Mode::Graph, scope);
        for phase in 0..PHASES.len() {
            for goes in [true, false] {
                let by = *dice.pick(&injectors);
                let other = if goes {
                    first + phase
                } else {
                    graph.devices.len()
                };
                let change = Change {
                    phase,
                    by,
                    other,
                    goes,
                };
                let line = change.line();
                self.push(Step::Inject { line }, Expect::Nothing);
                self.cycle(Expect::Changed {
                    graph: number,
                    keeps_list,
                    change,
                });
                if !goes {
                    let permitted = graph.devices[by].permitted;
                    graph.devices.push(Device {
                        permitted,
                        ..Device::default()
                    });
                    self.graphs.push(graph.clone());
                    number = self.graphs.len() - 1;
                }
                self.cycle(Expect::Whole {
                    graph: number,
                    keeps_list,
                });
            }
        }
    }

    /// All devices but the one that goes are taken through all phases; it is in none that follows.
    pub(super) fn hear_change(
        &mut self,
        mut order: Order,
        cycle: &Cycle,
        (graph, keeps_list): (usize, bool),
        change: Change,
    ) -> Vec<String> {
        self.report.changes += 1;
        let other = change.other;
        let what = if change.goes {
            self.list.retain(|&device| device != other);
            "went"
        } else {
            "came"
        };
        let first_without = if change.goes { change.phase + 1 } else { 0 };
        let mut breaches: Vec<String> = (first_without..PHASES.len())
            .filter(|&phase| order.of_phase(phase).contains_key(&other))
            .map(|phase| {
                let (name, then) = (PHASES[phase], PHASES[change.phase]);
                format!("{name}: {} ran, which {what} in {then}", device_name(other))
            })
            .collect();
        order.calls.retain(|call| call.device != other);
        breaches.extend(self.whole(&order, cycle, graph, keeps_list));
        if !change.goes {
            // At the end of the kernel's list.
            self.list.push(other);
        }
        breaches
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::form::Form;
    use super::*;
    use crate::devices::graph::Graph;

    /// Breaches of a change in `suspend` by d0 in this order, in a check whose list is d0, d1.
    fn breaches(goes: bool, other: usize, order: &str) -> Vec<String> {
        let mut check = Check::empty(1, Form::Module);
        check.graphs.push(Graph {
            devices: vec![Device::default(); 2],
            links: Vec::new(),
        });
        check.list = vec![0, 1];
        let change = Change {
            phase: 0,
            by: 0,
            other,
            goes,
        };
        let order = Order::parse(order).unwrap();
        check.hear_change(order, &Cycle::default(), (0, false), change)
    }

    /// Both devices through all phases, in pairs of numbers from `at` on.
    fn whole(devices: &[usize]) -> String {
        let mut lines = Vec::new();
        for phase in PHASES {
            for device in devices {
                let at = 2 * lines.len();
                lines.push(format!("{phase} d{device} {} {} 0 0 0", at + 1, at + 2));
            }
        }
        lines.join("\n")
    }

    #[test]
    fn a_device_that_went_runs_in_no_later_phase() {
        assert_eq!(breaches(true, 1, &whole(&[0])), [""; 0]);
        let in_its_phase = format!("{}\nsuspend d1 90 91 0 0 0", whole(&[0]));
        assert_eq!(breaches(true, 1, &in_its_phase), [""; 0]);
        let later = format!("{in_its_phase}\nresume d1 92 93 0 0 0");
        assert_eq!(
            breaches(true, 1, &later),
            ["resume: d1 ran, which went in suspend"]
        );
        let another = whole(&[]);
        assert_eq!(breaches(true, 1, &another).len(), PHASES.len());
    }

    #[test]
    fn a_device_that_came_takes_part_from_the_next_transition_on() {
        assert_eq!(breaches(false, 2, &whole(&[0, 1])), [""; 0]);
        let at_once = format!("{}\nresume d2 90 91 0 0 0", whole(&[0, 1]));
        assert_eq!(
            breaches(false, 2, &at_once),
            ["resume: d2 ran, which came in suspend"]
        );
    }
}
