//! Checks that an outcome kept every dependency.

use super::{Outcome, Problem};

/// The first broken promise, in words; none where all were kept: every device ran once, for at
/// least its time, and none began before those that it waits for had ended.
pub fn broken_promise(problem: &Problem, outcome: &Outcome) -> Option<String> {
    if outcome.spans.len() != problem.jobs.len() {
        return Some(format!(
            "{} of {} devices ran",
            outcome.spans.len(),
            problem.jobs.len()
        ));
    }
    for (device, (job, &(begin_ns, end_ns))) in problem.jobs.iter().zip(&outcome.spans).enumerate()
    {
        if end_ns == u64::MAX {
            return Some(format!("device {device} never ran"));
        }
        if end_ns - begin_ns < job.duration_ns() {
            return Some(format!("device {device} ran for less than it takes"));
        }
        if end_ns > outcome.makespan_ns {
            return Some(format!("device {device} ended after the phase"));
        }
    }
    for edge in problem.edges.iter() {
        let (first, second) = match problem.direction {
            crate::model::Direction::Suspend => (edge.subordinate, edge.superior),
            crate::model::Direction::Resume => (edge.superior, edge.subordinate),
        };
        if outcome.spans[second].0 < outcome.spans[first].1 {
            return Some(format!(
                "device {second} began at {} ns, before device {first} ended at {} ns",
                outcome.spans[second].0, outcome.spans[first].1
            ));
        }
    }
    None
}
