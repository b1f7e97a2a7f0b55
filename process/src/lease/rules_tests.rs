//! Tests of the rules: single steps, and worlds of several nodes with clocks of different speed
//! that stand still between any two steps.

use proptest::prelude::*;

use super::*;

const TERM: u64 = 1000;

fn held(generation: u64, contents: u64) -> Sighting {
    Sighting {
        generation,
        contents,
        released: false,
        holder_is_dead: false,
        term_ns: TERM,
    }
}

/// A sighting that takes no time.
fn see(watch: &mut Watch, sighting: &Sighting, now: u64) -> Verdict {
    watch.see(sighting, (now, now), TERM)
}

#[test]
fn a_lease_that_was_given_back_is_free_at_once() {
    let mut watch = Watch::default();
    let released = Sighting {
        released: true,
        ..held(3, 1)
    };
    assert_eq!(see(&mut watch, &released, 0), Verdict::Free);
    assert_eq!(see(&mut watch, &Sighting::nothing(), 0), Verdict::Free);
}

#[test]
fn a_silent_holder_loses_it_after_its_term_and_a_quarter_and_not_before() {
    let mut watch = Watch::default();
    see(&mut watch, &held(1, 7), 500);
    let before = see(&mut watch, &held(1, 7), 500 + 1249);
    let one_left = Verdict::Wait {
        left_ns: 1,
        changed: false,
    };
    assert_eq!(before, one_left);
    assert_eq!(see(&mut watch, &held(1, 7), 500 + 1250), Verdict::Free);
}

#[test]
fn every_renewal_starts_the_wait_anew_and_is_noticed() {
    let mut watch = Watch::default();
    see(&mut watch, &held(1, 7), 0);
    let renewed = Verdict::Wait {
        left_ns: 1250,
        changed: true,
    };
    assert_eq!(see(&mut watch, &held(1, 8), 1249), renewed);
    assert!(matches!(
        see(&mut watch, &held(1, 8), 2000),
        Verdict::Wait { .. }
    ));
    assert!(matches!(
        see(&mut watch, &held(2, 8), 2600),
        Verdict::Wait { .. }
    ));
}

#[test]
fn the_longer_of_both_terms_counts() {
    let mut watch = Watch::default();
    let long = Sighting {
        term_ns: 10 * TERM,
        ..held(1, 7)
    };
    see(&mut watch, &long, 0);
    assert!(matches!(
        see(&mut watch, &long, 12_499),
        Verdict::Wait { .. }
    ));
    assert_eq!(see(&mut watch, &long, 12_500), Verdict::Free);
}

/// What is shared: for each generation its contents.
#[derive(Default)]
struct Shared {
    generations: Vec<u64>,
}

/// Where a node is. A node may stand still between any two of these.
enum At {
    Watching(Watch),
    /// It has read, and will decide.
    Read(Watch, Sighting, u64),
    /// It will try to make this generation; its term counts from the second number.
    Claiming(u64, u64),
    /// It runs the program until the time on its clock.
    Running(u64, u64),
    /// A renewal of this generation has begun; until when it runs meanwhile.
    Renewing(u64, u64, u64),
    /// The kernel has killed it; a write may still be on its way.
    Dead(Option<u64>),
}

struct Node {
    at: At,
    /// Per mille of true time.
    speed: u64,
}

impl Node {
    fn clock(&self, now: u64) -> u64 {
        now * self.speed / 1000
    }

    /// The kernel's timer: it works while everything else of the node stands still.
    fn timer(&mut self, now: u64) {
        let clock = self.clock(now);
        match self.at {
            At::Running(_, until) if clock >= until => self.at = At::Dead(None),
            At::Renewing(generation, _, until) if clock >= until => {
                self.at = At::Dead(Some(generation));
            }
            _ => {}
        }
    }

    fn runs(&self) -> bool {
        matches!(self.at, At::Running(..) | At::Renewing(..))
    }

    fn step(&mut self, shared: &mut Shared, now: u64) {
        let clock = self.clock(now);
        let at = std::mem::replace(&mut self.at, At::Dead(None));
        self.at = match at {
            At::Watching(watch) => {
                let generation = shared.generations.len() as u64;
                let sighting = match shared.generations.last() {
                    None => Sighting::nothing(),
                    Some(contents) => held(generation, *contents),
                };
                At::Read(watch, sighting, clock)
            }
            At::Read(mut watch, sighting, began) => {
                match watch.see(&sighting, (began, clock), TERM) {
                    Verdict::Free => At::Claiming(sighting.generation + 1, began),
                    Verdict::Wait { .. } => At::Watching(watch),
                }
            }
            At::Claiming(generation, began) => {
                if shared.generations.len() as u64 + 1 != generation {
                    At::Watching(Watch::default())
                } else {
                    shared.generations.push(0);
                    let until = valid_until_ns(began, TERM);
                    if clock >= until {
                        At::Dead(None)
                    } else {
                        At::Running(generation, until)
                    }
                }
            }
            At::Running(generation, until) => At::Renewing(generation, clock, until),
            At::Renewing(generation, began, _) => {
                shared.generations[generation as usize - 1] += 1;
                At::Running(generation, valid_until_ns(began, TERM))
            }
            At::Dead(Some(generation)) => {
                shared.generations[generation as usize - 1] += 1;
                At::Dead(None)
            }
            // The node is back, with a new tracker.
            At::Dead(None) => At::Watching(Watch::default()),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn never_do_two_nodes_run_the_program_whatever_stands_still_and_however_long(
        speeds in prop::collection::vec(905_u64..1095, 2..4),
        steps in prop::collection::vec((0_usize..4, prop_oneof![6 => 0_u64..50, 4 => 0_u64..500, 1 => 900_u64..1500]), 1..400),
    ) {
        let node = |&speed| Node { at: At::Watching(Watch::default()), speed };
        let mut nodes: Vec<Node> = speeds.iter().map(node).collect();
        let mut shared = Shared::default();
        let mut now = 10_000;
        let mut ran = false;
        for (which, pause) in steps {
            // The kernels' timers fire in the middle of the pause, too.
            for _ in 0..pause {
                now += 1;
                nodes.iter_mut().for_each(|node| node.timer(now));
            }
            let which = which % nodes.len();
            nodes[which].step(&mut shared, now);
            let running = nodes.iter().filter(|node| node.runs()).count();
            prop_assert!(running <= 1, "{running} programs run at {now}");
            ran |= running == 1;
        }
        let _ = ran;
    }

    #[test]
    fn a_lost_lease_is_taken_over_by_a_node_that_goes_on_looking(silent_for in 0_u64..2000) {
        let mut watch = Watch::default();
        let mut now = 0;
        let mut free_at = None;
        while free_at.is_none() && now < 10 * TERM {
            // It renews for a while, then no more.
            let contents = now.min(silent_for) / 300;
            if see(&mut watch, &held(1, contents), now) == Verdict::Free {
                free_at = Some(now);
            }
            now += 10;
        }
        let free_at = free_at.expect("it becomes free");
        prop_assert!(free_at <= silent_for + wait_ns(TERM) + 20, "free at {free_at}");
    }
}
