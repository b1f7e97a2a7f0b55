//! Weighted max–min fair shares: no user can get more unless one that has less for its weight gets
//! less.
//!
//! ```text
//!  bandwidth ▲            ┌──┐ wanted, not given
//!            │            │░░│
//!  level ────┼────────────┼──┼───┬──┬──
//!            │      ┌──┐  │██│   │██│
//!            │ ┌──┐ │██│  │██│   │██│      below the level: everything that it wants
//!            └─┴──┴─┴──┴──┴──┴───┴──┴──▶ users
//! ```
//!
//! Source: progressive filling (Bertsekas and Gallager, *Data Networks*, 1992, section 6.5.2).

/// The demand of one user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Bandwidth; infinite where a limit hides the demand.
    pub wanted: f64,
    /// Relative share; above 0.
    pub weight: f64,
}

/// The division of a capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// Bandwidth for a weight of 1; infinite when every demand is met.
    pub level: f64,
    /// In the order of the demands.
    pub shares: Vec<f64>,
}

/// Divides the capacity. The shares add up to the smaller of capacity and demand.
pub fn shares(capacity: f64, demands: &[Demand]) -> Shares {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    let per_weight = |at: usize| demands[at].wanted / demands[at].weight;
    order.sort_by(|&a, &b| per_weight(a).total_cmp(&per_weight(b)));
    // Summed from the end, so that no remainder is a difference of large numbers.
    let mut weights = vec![0.0; order.len()];
    let mut sum = 0.0;
    for (slot, &at) in weights.iter_mut().zip(&order).rev() {
        sum += demands[at].weight;
        *slot = sum;
    }
    let mut left = capacity.max(0.0);
    let mut level = f64::INFINITY;
    for (&at, weights) in order.iter().zip(weights) {
        if per_weight(at) * weights > left {
            level = left / weights;
            break;
        }
        left = (left - demands[at].wanted).max(0.0);
    }
    let shares = demands
        .iter()
        .map(|demand| demand.wanted.min(demand.weight * level))
        .collect();
    Shares { level, shares }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demand(wanted: f64, weight: f64) -> Demand {
        Demand { wanted, weight }
    }

    #[test]
    fn shares_that_light_users_leave_go_to_heavy_ones() {
        let all = [demand(0.5, 1.0), demand(3.0, 1.0), demand(9.0, 1.0)];
        assert_eq!(shares(4.5, &all).shares, [0.5, 2.0, 2.0]);
        assert_eq!(shares(20.0, &all).level, f64::INFINITY);
        assert_eq!(shares(20.0, &all).shares, [0.5, 3.0, 9.0]);
        assert!(shares(1.0, &[]).shares.is_empty());
    }

    #[test]
    fn hidden_demands_share_by_weight() {
        let all = [demand(f64::INFINITY, 1.0), demand(f64::INFINITY, 3.0)];
        assert_eq!(shares(4.0, &all).shares, [1.0, 3.0]);
    }

    fn demands() -> impl Strategy<Value = Vec<Demand>> {
        let one = (
            prop_oneof![9 => 0.0..10.0, 1 => Just(f64::INFINITY)],
            0.1..10.0,
        )
            .prop_map(|(wanted, weight)| demand(wanted, weight));
        prop::collection::vec(one, 1..40)
    }

    proptest! {
        #[test]
        fn the_shares_add_up_to_the_smaller_of_capacity_and_demand(
            all in demands(), capacity in 0.0..50.0,
        ) {
            let given: f64 = shares(capacity, &all).shares.iter().sum();
            let wanted: f64 = all.iter().map(|demand| demand.wanted).sum();
            prop_assert!((given - wanted.min(capacity)).abs() < 1e-9);
        }

        #[test]
        fn no_user_below_the_level_is_slowed_and_all_others_are_at_it(
            all in demands(), capacity in 0.0..50.0,
        ) {
            let Shares { level, shares } = shares(capacity, &all);
            for (demand, share) in all.iter().zip(shares) {
                if demand.wanted <= demand.weight * level {
                    prop_assert_eq!(share, demand.wanted);
                } else {
                    prop_assert_eq!(share, demand.weight * level);
                }
            }
        }

        #[test]
        fn more_load_never_gives_others_more(
            all in demands(), capacity in 0.0..50.0, at in any::<prop::sample::Index>(),
            more in 0.0..5.0,
        ) {
            let before = shares(capacity, &all);
            let at = at.index(all.len());
            let mut grown = all.clone();
            grown[at].wanted += more;
            let after = shares(capacity, &grown);
            for other in 0..all.len() {
                let (now, then) = (after.shares[other], before.shares[other]);
                if other == at {
                    prop_assert!(now >= then - 1e-9);
                } else {
                    prop_assert!(now <= then + 1e-9);
                }
            }
        }
    }
}
