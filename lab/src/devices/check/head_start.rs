//! Two devices of one bus, of which one has another device behind it: the kernel has to learn that they
//! hold each other up, and then gives it a head start.
//!
//! ```text
//! d0 ◀── d1            d1 and d2: one at a time
//!  ▲
//!  └──── d2 ◀── d3
//! ```
//!
//! In the first transition d1 comes first, because it takes longer.

use dormouse_guest::protocol::device_job::Step;

use super::{Check, Expect};
use crate::devices::graph::{Device, Duration, Graph, PHASES};
use crate::devices::switches::{Mode, Scope};

/// The costs of devices; written to, it forgets them.
const COSTS: &str = "/sys/kernel/debug/pm_graph/costs";
/// What the kernel says of the phases of the last transition.
const STATUS: &str = "/sys/kernel/debug/pm_graph/phases";
/// Long beside a head start, so that one that ends too late would be seen.
const LEADER_US: u64 = 500_000;
const HELD_US: u64 = 800_000;
const BEHIND_US: u64 = 200_000;
/// The kernel learns from the first two. On a starved host more may be needed.
const TRANSITIONS: usize = 8;
const RESUME: usize = PHASES.len() - 1;
const LEADER: usize = 2;
const HELD: usize = 1;

fn device(parent: usize, bus: Option<usize>, us: u64) -> Device {
    let mut phases = [Duration::default(); 6];
    phases[RESUME].us = us;
    Device {
        parent: Some(parent),
        permitted: true,
        bus,
        phases,
        ..Device::default()
    }
}

fn graph() -> Graph {
    let root = Device {
        permitted: true,
        ..Device::default()
    };
    let shared = Some(0);
    Graph {
        devices: vec![
            root,
            device(0, shared, HELD_US),
            device(0, shared, LEADER_US),
            device(LEADER, None, BEHIND_US),
        ],
        links: Vec::new(),
    }
}

/// Of the last phase; the last word of its line.
fn have_waited(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find(|line| line.split(' ').next() == Some(PHASES[RESUME]))?;
    line.split(' ').next_back()?.parse().ok()
}

impl Check {
    pub(super) fn add_head_start(&mut self) {
        let graph = self.build(graph(), Scope::Async);
        // A device of an earlier graph may have had its name and address.
        let (path, value) = (COSTS.into(), "0".into());
        self.push(Step::Set { path, value }, Expect::Nothing);
        let whole = Expect::Whole {
            graph,
            keeps_list: false,
        };
        self.set_mode(Mode::List);
        self.cycle(Expect::List { graph });
        self.set_mode(Mode::Graph);
        for number in 1..=TRANSITIONS {
            self.cycle(whole.clone());
            let path = STATUS.into();
            let last = number == TRANSITIONS;
            self.push(Step::Read { path }, Expect::HeadStart { last });
        }
    }

    /// A device waited, and began while the other one still ran.
    pub(super) fn hear_head_start(&mut self, status: &str, last: bool) {
        let calls = self.order.of_phase(RESUME);
        let begins_beside = match (calls.get(&LEADER), calls.get(&HELD)) {
            (Some(leader), Some(held)) => leader.begin < held.begin && held.begin < leader.end,
            _ => false,
        };
        if begins_beside && have_waited(status) == Some(1) {
            self.report.head_starts += 1;
        }
        if last && self.report.head_starts == 0 {
            self.report.breaches.push(format!(
                "no device had a head start in {TRANSITIONS} transitions: {status:?}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::form::Form;
    use super::super::super::order::Order;
    use super::*;

    fn head_starts(order: &str, status: &str) -> (u64, usize) {
        let mut check = Check::empty(1, Form::Module);
        check.order = Order::parse(order).unwrap();
        check.hear_head_start(status, true);
        (check.report.head_starts, check.report.breaches.len())
    }

    #[test]
    fn a_head_start_is_one_that_ends_before_the_device_does() {
        let order = "resume d2 1 3 0 500 0\nresume d1 2 4 9 900 0";
        let status = "resume_early 4 4 1 20 0\nresume 4 4 2 900 1\n";
        assert_eq!(head_starts(order, status), (1, 0));
        let late = "resume d2 1 2 0 500 0\nresume d1 3 4 501 900 0";
        assert_eq!(head_starts(late, status), (0, 1));
        let other = "resume d1 1 3 0 500 0\nresume d2 2 4 9 900 0";
        assert_eq!(head_starts(other, status), (0, 1));
        let none = "resume 4 4 2 900 0\n";
        assert_eq!(head_starts(order, none), (0, 1));
    }
}
