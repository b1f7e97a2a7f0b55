//! The energy of a pause, and the length from which one way of pausing needs less than another.
//!
//! A pause lasts from the request to sleep until programs run again. A machine that sleeps in it
//! needs `busy_s` and `fixed_j` for the way down and up, whatever the length, and `asleep_w` for
//! the rest: a straight line. So where two of them cross has a closed form:
//!
//! ```text
//! joules                 idle       A costs  fixed_a + w_a (p - busy_a)
//!   │                   ╱           B costs  fixed_b + w_b (p - busy_b)
//!   │                 ╱    ___A
//!   │       ____----╱----          equal at  p = (c_a - c_b) / (w_b - w_a)
//!   │  ---        ╱                where     c = fixed - w busy
//!   └───────────┴──────── pause
//!            break-even
//! ```

use serde::Serialize;

/// The cost of a pause of any length; all numbers finite and not negative.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PauseCost {
    /// Joules on the way down and up, and what migrating pages back takes above idling.
    pub fixed_j: f64,
    /// Seconds on the way down and up: no pause is shorter.
    pub busy_s: f64,
    /// Watts in between.
    pub asleep_w: f64,
}

/// From which pause on a way of pausing costs no more than another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BreakEven {
    /// In every pause that both can make; the shortest such, in seconds.
    Always(f64),
    /// In pauses of at least this many seconds.
    After(f64),
    /// In pauses of at most this many seconds; in longer ones the other way needs less energy.
    Until(f64),
    /// However long the pause.
    Never,
}

impl PauseCost {
    /// A machine that does not sleep at all, or whose sleep costs nothing to enter and to leave:
    /// it draws `watts` in the whole pause.
    pub fn constant(watts: f64) -> PauseCost {
        PauseCost {
            fixed_j: 0.0,
            busy_s: 0.0,
            asleep_w: watts,
        }
    }

    /// Joules of a pause; `None` where it is too short to sleep in.
    pub fn joules(&self, pause_s: f64) -> Option<f64> {
        let joules = self.fixed_j + self.asleep_w * (pause_s - self.busy_s);
        (pause_s >= self.busy_s).then_some(joules)
    }

    /// From which pause on this costs no more than `other`. Pauses too short for one of the two
    /// are not compared.
    pub fn break_even(&self, other: &PauseCost) -> BreakEven {
        let shortest_s = self.busy_s.max(other.busy_s);
        let line = |cost: &PauseCost| cost.fixed_j + cost.asleep_w * (shortest_s - cost.busy_s);
        // What it saves in the shortest pause, and in each second more.
        let saved_j = line(other) - line(self);
        let saved_w = other.asleep_w - self.asleep_w;
        if saved_j >= 0.0 && saved_w >= 0.0 {
            return BreakEven::Always(shortest_s);
        }
        if saved_j < 0.0 && saved_w <= 0.0 {
            return BreakEven::Never;
        }
        let crossing_s = shortest_s - saved_j / saved_w;
        match (saved_w > 0.0, crossing_s.is_finite()) {
            (true, true) => BreakEven::After(crossing_s),
            // The difference in power is too small for any pause there is.
            (true, false) => BreakEven::Never,
            (false, true) => BreakEven::Until(crossing_s),
            (false, false) => BreakEven::Always(shortest_s),
        }
    }
}

impl BreakEven {
    /// Stable name: `always`, `after`, `until` or `never`.
    pub fn as_str(self) -> &'static str {
        match self {
            BreakEven::Always(_) => "always",
            BreakEven::After(_) => "after",
            BreakEven::Until(_) => "until",
            BreakEven::Never => "never",
        }
    }

    /// The seconds that belong to it; none for `Never`.
    pub fn pause_s(self) -> Option<f64> {
        match self {
            BreakEven::Always(s) | BreakEven::After(s) | BreakEven::Until(s) => Some(s),
            BreakEven::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(fixed_j: f64, busy_s: f64, asleep_w: f64) -> PauseCost {
        PauseCost {
            fixed_j,
            busy_s,
            asleep_w,
        }
    }

    #[test]
    fn against_idling_it_is_the_overhead_over_the_power_saved() {
        // 1000 J to go down and up in 4 s, then nothing, against 100 W.
        let found = cost(1000.0, 4.0, 0.0).break_even(&PauseCost::constant(100.0));
        assert_eq!(found, BreakEven::After(10.0));
    }

    #[test]
    fn a_way_that_sleeps_no_cheaper_and_needs_more_never_pays() {
        let idle = PauseCost::constant(1.0);
        assert_eq!(cost(50.0, 2.0, 1.0).break_even(&idle), BreakEven::Never);
        assert_eq!(cost(50.0, 2.0, 3.0).break_even(&idle), BreakEven::Never);
    }

    #[test]
    fn a_way_that_sleeps_dearer_but_starts_cheaper_pays_until_then() {
        let dear = cost(0.0, 0.0, 3.0);
        assert_eq!(
            dear.break_even(&cost(60.0, 0.0, 1.0)),
            BreakEven::Until(30.0)
        );
    }

    #[test]
    fn a_way_that_is_cheaper_in_all_pays_always_from_the_shortest_pause_of_both() {
        let found = cost(10.0, 2.0, 0.1).break_even(&cost(100.0, 90.0, 0.1));
        assert_eq!(found, BreakEven::Always(90.0));
    }

    fn any_cost() -> impl Strategy<Value = PauseCost> {
        (0.0..1e6, 0.0..1e4, 0.0..1e3).prop_map(|(j, s, w)| cost(j, s, w))
    }

    proptest! {
        #[test]
        fn never_negative_and_never_before_both_can_sleep(a in any_cost(), b in any_cost()) {
            if let Some(pause_s) = a.break_even(&b).pause_s() {
                prop_assert!(pause_s >= a.busy_s.max(b.busy_s));
            }
        }

        #[test]
        fn both_cost_the_same_at_the_break_even(a in any_cost(), b in any_cost()) {
            if let BreakEven::After(pause_s) | BreakEven::Until(pause_s) = a.break_even(&b) {
                let (one, other) = (a.joules(pause_s).unwrap(), b.joules(pause_s).unwrap());
                prop_assert!((one - other).abs() <= 1e-6 * one.abs().max(other.abs()).max(1.0));
            }
        }

        #[test]
        fn it_holds_on_its_side_and_not_on_the_other(
            a in any_cost(), b in any_cost(), beyond in 1.0..1e5
        ) {
            let shortest_s = a.busy_s.max(b.busy_s);
            let saves = |pause_s: f64| b.joules(pause_s).unwrap() - a.joules(pause_s).unwrap();
            let slack = |pause_s: f64| 1e-6 * (1.0 + b.joules(pause_s).unwrap());
            let far_s = a.break_even(&b).pause_s().unwrap_or(shortest_s) + beyond;
            match a.break_even(&b) {
                BreakEven::Always(_) | BreakEven::After(_) => prop_assert!(saves(far_s) >= -slack(far_s)),
                BreakEven::Until(_) | BreakEven::Never => prop_assert!(saves(far_s) <= slack(far_s)),
            }
            if let BreakEven::After(_) | BreakEven::Never = a.break_even(&b) {
                prop_assert!(saves(shortest_s) <= slack(shortest_s));
            }
        }

        #[test]
        fn a_dearer_way_breaks_even_later_and_a_thirstier_opponent_sooner(
            a in any_cost(), watts in 0.1..1e3, more in 0.0..1e5
        ) {
            let at = |cost: &PauseCost, watts| match cost.break_even(&PauseCost::constant(watts)) {
                BreakEven::Always(pause_s) | BreakEven::After(pause_s) => pause_s,
                BreakEven::Until(_) | BreakEven::Never => f64::INFINITY,
            };
            let dearer = cost(a.fixed_j + more, a.busy_s, a.asleep_w);
            prop_assert!(at(&dearer, watts) >= at(&a, watts) * (1.0 - 1e-12));
            prop_assert!(at(&a, watts + more) <= at(&a, watts) * (1.0 + 1e-12));
        }
    }
}
