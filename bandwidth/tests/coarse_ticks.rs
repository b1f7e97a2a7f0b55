//! Kernels with 250 ticks a second, on which quotas are overrun by up to 4 ms.

mod loads;

use dormouse_bandwidth::simulate::{Policy, simulate};
use loads::{mean, reader, setting};

#[test]
fn ten_readers_wait_no_longer_than_with_the_methods_of_the_thesis() {
    let latency = |policy| {
        let seeds = [1, 2, 3].map(|seed| {
            let mut setting = setting(policy, &[reader(); 10], seed);
            setting.machine.tick_ns = 4_000_000;
            simulate(&setting).access_ns_mean
        });
        mean(&seeds)
    };
    let ours = latency(Policy::Fair);
    for policy in [Policy::ByTotal, Policy::BalancePoints] {
        let theirs = latency(policy);
        println!("{ours:.0} ns; {}: {theirs:.0}", policy.name());
        assert!(ours <= theirs, "{ours}; {}: {theirs}", policy.name());
    }
}
