//! A machine's life at random: sleeps, power cuts within sleeps and within wakes, many in a row.

use dormouse_medium::{Contents, Random};

use crate::judge::{Expected, Found, Wrong, expected, judge};
use crate::machine::{End, Machine, Tracked};
use crate::memory::{Content, Shape, Way};

/// How large and how long.
#[derive(Clone, Copy, Debug)]
pub struct LifeShape {
    /// Pages of DRAM and of the window, at most.
    pub pages: u64,
    /// Power cycles.
    pub cycles: u64,
    /// How the machine sleeps.
    pub way: Way,
}

/// What a life went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lived {
    /// Resumed and equal.
    pub resumed: u64,
    /// Cold boots with their reason.
    pub cold: u64,
    /// Of both, after a power cut.
    pub cut: u64,
}

/// Lives it. The same seed is the same life.
///
/// # Errors
/// The cycle, and what must never happen.
pub fn live(seed: u64, shape: LifeShape) -> Result<Lived, (u64, Wrong)> {
    let mut random = Random::new(seed);
    let mut machine = Machine::new(Shape::random(&mut random, shape.pages).by(shape.way));
    let mut device = Contents::default();
    let mut lived = Lived::default();
    let mut allowed = vec![Expected::AnyCold];
    let mut slept = Content(0);
    for cycle in 0..shape.cycles {
        // Whatever the power loss left: the header that counts now is one that may count.
        let header = machine.header_on(&device);
        let now = expected(header.as_ref());
        if !allowed.contains(&now) && !allowed.contains(&Expected::AnyCold) {
            let found = Found::Cold(format!("a header for {now:?}"));
            let expected = allowed;
            return Err((cycle, Wrong::Unexpected { found, expected }));
        }
        // Half of the wakes are cut somewhere; a step that does not come is no cut.
        let record = match random.below(2) {
            0 => Tracked::until(random.below(12) as usize),
            _ => Tracked::until(usize::MAX),
        };
        let end = machine.power_on(&device, Some(record));
        if end == End::Cut {
            lived.cut += 1;
            (device, allowed) = power_is_lost(&mut machine, &mut random);
            continue;
        }
        let found = judge(&machine, end, &allowed, slept).map_err(|wrong| (cycle, wrong))?;
        match found {
            Found::Resumed => lived.resumed += 1,
            Found::Cold(_) => lived.cold += 1,
        }

        // Programs run; then a sleep, which may be cut, or the power is lost without one.
        let content = Content(random.next_u64());
        machine.programs_run(content);
        if random.below(8) != 0 {
            // The record of the power-on goes on, and with it what is durable.
            let steps = if random.below(2) == 0 { 30 } else { 3000 };
            let stop = random.below(steps) as usize;
            machine.stop_after(stop);
            match machine.sleep() {
                End::Off | End::Returned => (),
                _ => lived.cut += 1,
            }
            slept = content;
        }
        (device, allowed) = power_is_lost(&mut machine, &mut random);
    }
    Ok(lived)
}

/// What is left, and what may come of it.
fn power_is_lost(machine: &mut Machine, random: &mut Random) -> (Contents, Vec<Expected>) {
    let record = machine.take_record();
    let cut = record.cuts.first().expect("where it ended");
    let uncertain = cut.medium.uncertain();
    let choice = random.choice(&uncertain);
    let left = cut.medium.after_power_loss(&uncertain, &choice);
    (left, cut.expected())
}
