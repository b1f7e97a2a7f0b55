//! Tries the states after a power loss at every moment of one sleep and one wake.

use dormouse_medium::{Contents, choices};

use crate::judge::{Wrong, judge};
use crate::machine::{End, Machine, Mutation, Step, Tracked};
use crate::memory::{Content, Shape};

/// Where something went wrong: enough to run it again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{part}, power cut before the fence of step {step} ({steps}): {wrong}")]
pub struct Violation {
    /// The part of the machine's life.
    pub part: &'static str,
    /// Number of the step.
    pub step: usize,
    /// The steps around it.
    pub steps: String,
    /// What happened.
    pub wrong: Wrong,
}

/// What a search went through.
#[derive(Clone, Debug, Default)]
pub struct Searched {
    /// Moments at which power was cut.
    pub cuts: u64,
    /// States after them, each judged by a power-on.
    pub states: u64,
    /// Moments of which each possible state was tried.
    pub exhaustive: u64,
    /// The steps of: first power-on, sleep, wake.
    pub steps: Vec<(&'static str, Vec<Step>)>,
}

/// Where a mutation applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first power-on, with an empty device.
    First,
    /// Programs run, then the machine sleeps.
    Sleep,
    /// It wakes, and programs run on.
    Wake,
}

/// The contents of the pages: before the sleep, and after the wake.
const SLEPT: Content = Content(11);
const AFTER: Content = Content(22);

/// A machine's life: switched on for the first time, sleep, wake, programs run on; power is cut
/// at each fence of it, and at the end. `limit`: states to try at each; `mutation`: what to break.
///
/// # Errors
/// The first state after which the machine does what it must never do.
pub fn search(
    shape: &Shape,
    limit: u64,
    seed: u64,
    mutation: Option<(Part, Mutation)>,
) -> Result<Searched, Box<Violation>> {
    let mut machine = Machine::new(shape.clone());
    let mut searched = Searched::default();
    let mut empty = Contents::default();
    let broken = |part| mutation.and_then(|(at, what)| (at == part).then_some(what));

    let end = machine.power_on(&empty, Some(Tracked::all(broken(Part::First))));
    assert_eq!(end, End::Returned, "an empty device is a cold boot");
    let record = machine.take_record();
    try_all(
        &mut machine,
        "first power-on",
        &record,
        SLEPT,
        limit,
        seed,
        &mut searched,
    )?;

    // As it went on: the same power-on again, and this time programs run.
    machine.power_on(&empty, Some(Tracked::all(None)));
    let record = machine.take_record();
    empty = record.durable().clone();
    machine.power_on(&empty, Some(Tracked::all(broken(Part::Sleep))));
    machine.programs_run(SLEPT);
    let end = machine.sleep();
    assert_eq!(end, End::Off, "it sleeps: {:?}", machine.console());
    let slept = machine.take_record();
    try_all(
        &mut machine,
        "sleep",
        &slept,
        SLEPT,
        limit,
        seed,
        &mut searched,
    )?;

    let end = machine.power_on(slept.durable(), Some(Tracked::all(broken(Part::Wake))));
    if end == End::Resumed {
        machine.programs_run(AFTER);
    }
    let woken = machine.take_record();
    try_all(
        &mut machine,
        "wake",
        &woken,
        SLEPT,
        limit,
        seed,
        &mut searched,
    )?;
    Ok(searched)
}

fn try_all(
    machine: &mut Machine,
    part: &'static str,
    record: &Tracked,
    content: Content,
    limit: u64,
    seed: u64,
    searched: &mut Searched,
) -> Result<(), Box<Violation>> {
    for cut in &record.cuts {
        let uncertain = cut.medium.uncertain();
        let allowed = cut.expected();
        searched.cuts += 1;
        let all = dormouse_medium::count(&uncertain).is_some_and(|all| all <= limit);
        searched.exhaustive += u64::from(all);
        for choice in choices(&uncertain, limit, seed) {
            let left = cut.medium.after_power_loss(&uncertain, &choice);
            let end = machine.power_on(&left, None);
            searched.states += 1;
            if let Err(wrong) = judge(machine, end, &allowed, content) {
                let around = cut.step.saturating_sub(2)..record.steps.len().min(cut.step + 1);
                return Err(Box::new(Violation {
                    part,
                    step: cut.step,
                    steps: format!("{:?}", &record.steps[around]),
                    wrong,
                }));
            }
        }
    }
    searched.steps.push((part, record.steps.clone()));
    Ok(())
}
