//! Reads in which order the made-up devices' callbacks ran, and checks it against the graph.

use std::collections::BTreeMap;

use super::graph::{Graph, PHASES, device_name, is_down};

/// One callback, as it saw itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub phase: usize,
    pub device: usize,
    /// Begins and ends of all callbacks are numbered in the order in which they happened.
    pub begin: u64,
    pub end: u64,
    pub error: i32,
}

/// All callbacks of one transition.
#[derive(Debug, Clone, Default)]
pub struct Order {
    pub calls: Vec<Call>,
}

impl Order {
    /// From the test module's lines.
    ///
    /// # Errors
    /// The line that is not understood.
    pub fn parse(text: &str) -> Result<Order, String> {
        let calls = text
            .lines()
            .map(|line| parse_call(line).ok_or_else(|| format!("not understood: {line:?}")))
            .collect::<Result<_, _>>()?;
        Ok(Order { calls })
    }

    /// The callbacks of a phase, by their devices.
    pub fn of_phase(&self, phase: usize) -> BTreeMap<usize, Call> {
        let calls = self.calls.iter().filter(|call| call.phase == phase);
        calls.map(|call| (call.device, *call)).collect()
    }

    /// Devices whose callback of a phase ran, in the order in which they began.
    pub fn begun(&self, phase: usize) -> Vec<usize> {
        let mut calls: Vec<&Call> = self.calls.iter().filter(|c| c.phase == phase).collect();
        calls.sort_by_key(|call| call.begin);
        calls.iter().map(|call| call.device).collect()
    }

    /// Everything that is wrong with a transition that may have been aborted anywhere:
    ///
    /// - a callback that began before one that it has to follow had ended, or never ended;
    /// - a device taken through one phase twice;
    /// - a device that was taken down a step and not up again, or up without having been down;
    /// - with `list`, devices without permission that did not run as the list has them.
    pub fn breaches(&self, graph: &Graph, list: Option<&[usize]>) -> Vec<String> {
        let mut breaches = Vec::new();
        let superiors = graph.superiors();
        for (phase, name) in PHASES.iter().enumerate() {
            let calls = self.of_phase(phase);
            if calls.len() != self.begun(phase).len() {
                breaches.push(format!("{name}: a device ran twice"));
            }
            for call in calls.values().filter(|call| call.end == 0) {
                breaches.push(format!("{name}: {} never ended", device_name(call.device)));
            }
            for (&device, call) in &calls {
                for (&other, other_call) in &calls {
                    if !superiors[device][other] {
                        continue;
                    }
                    let (first, then) = if is_down(phase) {
                        (call, other_call)
                    } else {
                        (other_call, call)
                    };
                    if first.end > then.begin {
                        let (first, then) = (device_name(first.device), device_name(then.device));
                        breaches.push(format!("{name}: {then} began before {first} had ended"));
                    }
                }
            }
            if let Some(list) = list {
                breaches.extend(list_breaches(name, graph, &calls, list, is_down(phase)));
            }
        }
        breaches.extend(self.pairing_breaches());
        breaches
    }

    /// Each device goes up exactly the steps that it went down.
    fn pairing_breaches(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        for (down, name) in PHASES.iter().enumerate().take(3) {
            let up = PHASES.len() - 1 - down;
            let (gone_down, gone_up) = (self.of_phase(down), self.of_phase(up));
            for call in gone_down.values().filter(|call| call.error == 0) {
                if !gone_up.contains_key(&call.device) {
                    let device = device_name(call.device);
                    breaches.push(format!("{device}: {name}, and no {}", PHASES[up]));
                }
            }
            for device in gone_up.keys() {
                if gone_down.get(device).is_none_or(|call| call.error != 0) {
                    let device = device_name(*device);
                    breaches.push(format!("{device}: {} without {name}", PHASES[up]));
                }
            }
        }
        breaches
    }
}

/// Those without permission run one after the other, as the list has them.
fn list_breaches(
    phase: &str,
    graph: &Graph,
    calls: &BTreeMap<usize, Call>,
    list: &[usize],
    down: bool,
) -> Vec<String> {
    let mut kept: Vec<&Call> = list
        .iter()
        .filter(|&&device| !graph.devices[device].permitted)
        .filter_map(|device| calls.get(device))
        .collect();
    if down {
        kept.reverse();
    }
    kept.windows(2)
        .filter(|pair| pair[0].end > pair[1].begin)
        .map(|pair| {
            let (first, then) = (device_name(pair[0].device), device_name(pair[1].device));
            format!("{phase}: {then} began before {first}, which the list has before it, had ended")
        })
        .collect()
}

fn parse_call(line: &str) -> Option<Call> {
    let mut words = line.split(' ');
    let phase = words.next()?;
    let device = words.next()?.strip_prefix('d')?.parse().ok()?;
    let begin = words.next()?.parse().ok()?;
    let end = words.next()?.parse().ok()?;
    let error = words.nth(2)?.parse().ok()?;
    Some(Call {
        phase: PHASES.iter().position(|name| *name == phase)?,
        device,
        begin,
        end,
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::super::graph::Device;
    use super::*;

    fn parent_and_child() -> Graph {
        Graph {
            devices: vec![
                Device::default(),
                Device {
                    parent: Some(0),
                    ..Device::default()
                },
            ],
            links: Vec::new(),
        }
    }

    const GOOD: &str = "suspend d1 1 2 0 10 0\nsuspend d0 3 4 11 12 0\n\
                        resume d0 5 6 20 21 0\nresume d1 7 8 22 23 0";

    fn breaches(text: &str) -> Vec<String> {
        let order = Order::parse(text).unwrap();
        order.breaches(&parent_and_child(), Some(&[0, 1]))
    }

    #[test]
    fn a_right_order_has_no_breach() {
        assert_eq!(breaches(GOOD), [""; 0]);
    }

    #[test]
    fn a_parent_that_suspends_too_early_is_seen() {
        let text = GOOD.replace("d1 1 2", "d1 1 4").replace("d0 3 4", "d0 3 2");
        assert!(breaches(&text)[0].contains("d0 began before d1 had ended"));
    }

    #[test]
    fn a_device_left_suspended_is_seen() {
        let text = GOOD.replace("\nresume d1 7 8 22 23 0", "");
        assert_eq!(breaches(&text), ["d1: suspend, and no resume"]);
    }

    #[test]
    fn a_device_that_failed_must_not_be_resumed() {
        let text = GOOD.replace("suspend d0 3 4 11 12 0", "suspend d0 3 4 11 12 -5");
        assert_eq!(breaches(&text), ["d0: resume without suspend"]);
    }

    #[test]
    fn a_callback_that_never_ended_is_seen() {
        let text = GOOD.replace("d1 7 8", "d1 7 0");
        assert!(breaches(&text).contains(&"resume: d1 never ended".to_owned()));
    }

    #[test]
    fn lost_events_are_no_order() {
        assert!(Order::parse("lost 12").is_err());
    }
}
