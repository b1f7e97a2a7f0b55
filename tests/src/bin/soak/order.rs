//! A random order of tests in each round, repeatable by its seed.

/// All items in an order that depends on seed and round only (Fisher and Yates' shuffle).
pub fn shuffled<T>(items: &[T], seed: u64, round: u32) -> Vec<&T> {
    let mut order: Vec<&T> = items.iter().collect();
    let mut state = seed ^ u64::from(round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for last in (1..order.len()).rev() {
        let other = next(&mut state) % (last as u64 + 1);
        order.swap(last, other as usize);
    }
    order
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
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
