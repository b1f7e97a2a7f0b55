//! Energy of suspend and resume with and without the small core: the formula and the powers of
//! Zhai et al. 2017 (docs/references.md), Section 5.4, Table 1.
//!
//! The paper's durations are in a figure whose numbers are not printed. What it prints is the
//! saving on each platform; from that and its overhead follows the share of busy time that is
//! execution, and with that share our own overhead gives our saving.

use serde::Serialize;

/// Milliwatts of the big core, OMAP4's Cortex-A9 at 1200 MHz.
pub const BIG_BUSY_MW: f64 = 672.0;
/// The same, idle.
pub const BIG_IDLE_MW: f64 = 25.2;
/// Milliwatts of the small core, OMAP4's Cortex-M3 at 200 MHz.
pub const SMALL_BUSY_MW: f64 = 21.1;
/// The same, idle.
pub const SMALL_IDLE_MW: f64 = 3.8;
/// Clock of the big core over that of the small one (F).
pub const CLOCK_RATIO: f64 = 6.0;
/// The paper's overhead in cycles over the big core (X): it says below 2 × M3-native, which is
/// below 2 × A9-native. Its figure's exact value is not printed.
pub const PAPER_OVERHEAD: f64 = 4.0;

/// The paper's Figure 3b: platform and percentage of energy saved.
pub const PAPER_SAVINGS: [(&str, f64); 4] = [
    ("Nexus 5", 67.1),
    ("Gear Live", 47.9),
    ("Note 4", 79.2),
    ("PandaBoard", 48.6),
];

/// Shares of the time that suspend and resume take on the big core; they add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shares {
    /// Executing instructions.
    pub executing: f64,
    /// Waiting for memory or devices.
    pub waiting: f64,
    /// Idle.
    pub idle: f64,
}

/// Part of the energy that offloading saves, for overhead `x` (in cycles, over the big core).
pub fn saving(shares: Shares, x: f64) -> f64 {
    let big = (shares.executing + shares.waiting) * BIG_BUSY_MW + shares.idle * BIG_IDLE_MW;
    let small = x * CLOCK_RATIO * shares.executing * SMALL_BUSY_MW
        + shares.waiting * SMALL_BUSY_MW
        + shares.idle * SMALL_IDLE_MW;
    (big - small) / big
}

/// The shares at which overhead `x` saves this part, when the processor is never idle. `None` if
/// no shares do.
pub fn shares_for(saved: f64, x: f64) -> Option<Shares> {
    // saving() is linear in the share of execution when idle is 0.
    let none = saving(
        Shares {
            executing: 0.0,
            waiting: 1.0,
            idle: 0.0,
        },
        x,
    );
    let all = saving(
        Shares {
            executing: 1.0,
            waiting: 0.0,
            idle: 0.0,
        },
        x,
    );
    let executing = (none - saved) / (none - all);
    (0.0..=1.0).contains(&executing).then_some(Shares {
        executing,
        waiting: 1.0 - executing,
        idle: 0.0,
    })
}

/// One platform of Figure 3b.
#[derive(Debug, Clone, Serialize)]
pub struct Platform {
    /// Name of the platform.
    pub name: &'static str,
    /// Percent, as the paper prints it, and from the formula with the implied shares.
    pub paper_percent: f64,
    /// Percent from the formula with the implied shares.
    pub reproduced_percent: f64,
    /// The implied shares of time.
    pub shares: Shares,
    /// Percent, with our overhead.
    pub ours_percent: f64,
}

/// All four platforms, for our overhead over the big core.
pub fn platforms(x: f64) -> Vec<Platform> {
    PAPER_SAVINGS
        .iter()
        .filter_map(|(name, percent)| {
            let shares = shares_for(percent / 100.0, PAPER_OVERHEAD)?;
            Some(Platform {
                name,
                paper_percent: *percent,
                reproduced_percent: 100.0 * saving(shares, PAPER_OVERHEAD),
                shares,
                ours_percent: 100.0 * saving(shares, x),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_four_savings_are_reproduced() {
        let all = platforms(PAPER_OVERHEAD);
        assert_eq!(all.len(), 4);
        for platform in all {
            assert!((platform.paper_percent - platform.reproduced_percent).abs() < 1e-9);
        }
    }

    #[test]
    fn less_overhead_saves_more() {
        for (better, worse) in platforms(1.5).iter().zip(platforms(3.0)) {
            assert!(better.ours_percent > worse.ours_percent);
        }
    }
}
