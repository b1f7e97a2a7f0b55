//! The tasks of a simulation in one word: `2xreader:max=1.5:weight=3,38xcompute`.

use std::str::FromStr;

use crate::curve::GIB;
use crate::simulate::kaemmerer::READER;
use crate::simulate::task::{Pulse, Spec, Work};

/// Tasks of all kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSet(pub Vec<Spec>);

/// More tasks would take too long.
const MAX_TASKS: usize = 10_000;

impl FromStr for TaskSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut tasks = Vec::new();
        for part in text.split(',') {
            let (count, spec) = parse(part.trim()).map_err(|why| format!("{part:?}: {why}"))?;
            if tasks.len() + count > MAX_TASKS {
                return Err(format!("more than {MAX_TASKS} tasks"));
            }
            tasks.resize(tasks.len() + count, spec);
        }
        if tasks.iter().any(|task| task.work != Work::Compute) {
            Ok(Self(tasks))
        } else {
            Err("no reader among them".to_owned())
        }
    }
}

fn parse(part: &str) -> Result<(usize, Spec), String> {
    let (count, kind) = part
        .split_once('x')
        .ok_or("not COUNTxKIND, for instance 5xreader")?;
    let count: usize = count
        .parse()
        .ok()
        .filter(|count| *count <= MAX_TASKS)
        .ok_or_else(|| format!("the count is a number up to {MAX_TASKS}"))?;
    let mut words = kind.split(':');
    let mut spec = match words.next() {
        Some("reader") => Spec::new(Work::Memory {
            access: READER,
            max_bytes_s: None,
        }),
        Some("compute") => Spec::new(Work::Compute),
        _ => return Err("the kind is reader or compute".to_owned()),
    };
    for word in words {
        option(&mut spec, word)?;
    }
    if spec.until_ns <= spec.from_ns {
        return Err("it ends before it begins".to_owned());
    }
    Ok((count, spec))
}

/// The pulse of a task; one second in two until it is set.
fn pulse_of(spec: &mut Spec) -> &mut Pulse {
    spec.pulse.get_or_insert(Pulse {
        period_ns: 2_000_000_000,
        on_ns: 1_000_000_000,
        offset_ns: 0,
    })
}

fn option(spec: &mut Spec, word: &str) -> Result<(), String> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let number = || {
        let value: Option<f64> = value.parse().ok();
        value
            .filter(|value| value.is_finite() && *value >= 0.0 && *value <= 1e6)
            .ok_or_else(|| format!("{name} is a number from 0 to 1000000"))
    };
    let positive = || match number()? {
        0.0 => Err(format!("{name} is above 0")),
        value => Ok(value),
    };
    match (name, &mut spec.work) {
        ("max" | "most", Work::Memory { max_bytes_s, .. }) => {
            *max_bytes_s = Some(positive()? * GIB)
        }
        ("weight", Work::Memory { .. }) => spec.weight = positive()?,
        ("protected", Work::Memory { .. }) => spec.protected = true,
        ("period", Work::Memory { .. }) => pulse_of(spec).period_ns = (positive()? * 1e9) as i64,
        ("on", Work::Memory { .. }) => pulse_of(spec).on_ns = (positive()? * 1e9) as i64,
        ("offset", Work::Memory { .. }) => pulse_of(spec).offset_ns = (number()? * 1e9) as i64,
        ("from", _) => spec.from_ns = (number()? * 1e9) as i64,
        ("until", _) => spec.until_ns = (number()? * 1e9) as i64,
        _ => return Err(format!("it has no option {name:?}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read() {
        let set: TaskSet = "2xreader:max=1.5:weight=3:protected,1xcompute:from=2:until=5"
            .parse()
            .unwrap();
        assert_eq!(set.0.len(), 3);
        assert_eq!(set.0[0], set.0[1]);
        assert!(set.0[0].protected && set.0[0].weight == 3.0);
        assert!(
            matches!(set.0[0].work, Work::Memory { max_bytes_s: Some(max), .. } if max == 1.5 * GIB)
        );
        assert_eq!(
            (set.0[2].from_ns, set.0[2].until_ns),
            (2_000_000_000, 5_000_000_000)
        );
    }

    #[test]
    fn the_old_name_of_a_readers_demand_is_accepted() {
        let set = |text: &str| text.parse::<TaskSet>().unwrap();
        assert_eq!(set("1xreader:most=0.3"), set("1xreader:max=0.3"));
    }

    #[test]
    fn an_invalid_task_is_rejected_with_the_reason() {
        let refused = |text: &str, why: &str| {
            let said = text.parse::<TaskSet>().unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        };
        refused("reader", "COUNTxKIND");
        refused("3xwriter", "reader or compute");
        refused("ax", "count");
        refused("1xreader:max=0", "above 0");
        refused("1xreader:speed=1", "no option");
        refused("1xcompute:weight=1", "no option");
        refused("1xreader:from=3:until=2", "ends before");
        refused("4xcompute", "no reader");
        refused("9999xreader,9999xreader", "more than");
    }
}
