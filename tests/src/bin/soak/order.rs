//! A random order of tests in each round, repeatable by its seed.

use dormouse_system::random::Random;

/// All items in an order that depends on seed and round only (Fisher and Yates' shuffle).
pub fn shuffled<T>(items: &[T], seed: u64, round: u32) -> Vec<&T> {
    let mut order: Vec<&T> = items.iter().collect();
    let mut random = Random::new(seed ^ u64::from(round).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for last in (1..order.len()).rev() {
        let other = random.below(last as u64 + 1);
        order.swap(last, other as usize);
    }
    order
}

/// All items, sorted by a name of theirs.
pub fn by<T>(items: &[T], name: impl Fn(&T) -> &String) -> Vec<&T> {
    let mut order: Vec<&T> = items.iter().collect();
    order.sort_by_key(|item| name(item));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_all_tests_in_another_order_and_the_seed_repeats_it() {
        let items: Vec<u32> = (0..50).collect();
        let order = |seed, round| shuffled(&items, seed, round);
        assert_eq!(order(7, 1), order(7, 1));
        assert_ne!(order(7, 1), order(7, 2));
        assert_ne!(order(7, 1), order(8, 1));
        let mut sorted: Vec<u32> = order(7, 3).into_iter().copied().collect();
        sorted.sort_unstable();
        assert_eq!(sorted, items);
    }
}
