//! What one cycle does: drawn from seed and cycle number, so that it can be repeated alone.

use dormouse_guest::protocol::stress::{Place, StressPlan};

use super::dice::Dice;
use super::inject::Injection;
use dormouse_system::arguments::Size;

/// When pages migrate back after waking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    Wait,
    Background,
    /// The machine runs on CXL pages for a while; then `dormouse home`.
    Later,
}

/// One cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct CyclePlan {
    pub cycle: u64,
    pub fill: Size,
    pub load: StressPlan,
    /// How long the load runs before the sleep is asked for.
    pub warm_up_ms: u64,
    pub home: Home,
    /// Further arguments of `dormouse sleep`.
    pub sleep_arguments: Vec<String>,
    /// How long the machine has no power.
    pub off_ms: u64,
    /// Where in the expected span of the cycle power is cut, 0 to 1.
    pub cut: Option<f64>,
    /// A fault put in on purpose.
    pub inject: Option<Injection>,
}

/// Small enough for quick cycles, large enough for every path of the migration.
const MIN_FILL_MIB: u64 = 32;
const MAX_FILL_MIB: u64 = 384;
const MAX_WARM_UP_MS: u64 = 1500;
const MAX_OFF_MS: f64 = 3000.0;

/// In a run of power cuts these cycles are left undisturbed: they measure how long one takes, and
/// so over what span power is to be cut.
fn is_measured(cycle: u64) -> bool {
    cycle == 2 || cycle % 16 == 1
}

/// stress-ng's stressors, one process each, small: many different ones make more of a mess than
/// one large one.
const STRESSORS: [&[&str]; 10] = [
    &["--vm", "1", "--vm-bytes", "24M"],
    &["--vm", "2", "--vm-bytes", "32M", "--vm-keep"],
    &["--fork", "1"],
    &["--pipe", "1"],
    &["--mmap", "1", "--mmap-bytes", "16M"],
    &["--mmap", "1", "--mmap-bytes", "8M", "--mmap-file"],
    &["--shm", "1", "--shm-bytes", "4M"],
    &["--futex", "1"],
    &["--hdd", "1", "--hdd-bytes", "8M"],
    &["--sync-file", "1", "--sync-file-bytes", "4M"],
];
const READAHEAD: &[&str] = &["--readahead", "1", "--readahead-bytes", "4M"];

impl CyclePlan {
    /// Draws a cycle.
    pub fn draw(seed: u64, cycle: u64, power_cuts: bool) -> CyclePlan {
        let mut dice = Dice::new(seed, cycle);
        // Mostly small: the square of a fraction.
        let fill = {
            let fraction = dice.fraction();
            let span = (MAX_FILL_MIB - MIN_FILL_MIB) as f64;
            // Not only whole huge pages.
            Size::mib(MIN_FILL_MIB + (fraction * fraction * span) as u64)
                .0
                .saturating_add(4096 * dice.between(0, 255))
        };
        let load = draw_load(&mut dice);
        let warm_up_ms = dice.between(0, MAX_WARM_UP_MS);
        let home = *dice.pick(&[Home::Wait, Home::Wait, Home::Background, Home::Later]);
        let sleep_arguments = draw_sleep_arguments(&mut dice, home);
        let off = dice.fraction();
        let off_ms = (off * off * off * MAX_OFF_MS) as u64;
        let cut = dice.fraction();
        CyclePlan {
            cycle,
            fill: Size(fill),
            load,
            warm_up_ms,
            home,
            sleep_arguments,
            off_ms,
            inject: None,
            cut: (power_cuts && !is_measured(cycle)).then_some(cut),
        }
    }

    /// The same cycle with a fault, and with a load that every fault finds.
    #[must_use]
    pub fn with_fault(mut self, injection: Injection) -> CyclePlan {
        self.inject = Some(injection);
        self.load.stress_ng.clear();
        self.load.files = Place::ALL.to_vec();
        self.load.redis = true;
        self
    }

    /// The load in a few words.
    pub fn describe_load(&self) -> String {
        let ng = self.load.stress_ng.iter().map(|(place, words)| {
            let names: Vec<&str> = words
                .windows(2)
                .filter(|pair| pair[1].parse::<u32>().is_ok())
                .map(|pair| pair[0].trim_start_matches('-'))
                .collect();
            format!("stress-ng on {} ({})", place.name(), names.join(" "))
        });
        let files = self.load.files.iter();
        let files = files.map(|place| format!("files on {}", place.name()));
        let redis = self.load.redis.then(|| "redis".to_owned());
        ng.chain(files).chain(redis).collect::<Vec<_>>().join(", ")
    }
}

fn draw_load(dice: &mut Dice) -> StressPlan {
    let mut plan = StressPlan {
        seed: dice.word(),
        ..StressPlan::default()
    };
    for place in Place::ALL {
        if dice.chance(0.7) {
            let mut words = Vec::new();
            for stressor in STRESSORS.iter().chain([&READAHEAD]) {
                let name = stressor[0].to_owned();
                if dice.chance(0.25) && !words.contains(&name) {
                    words.extend(stressor.iter().map(|&word| word.to_owned()));
                }
            }
            if !words.is_empty() {
                plan.stress_ng.push((place, words));
            }
        }
        if dice.chance(0.6) {
            plan.files.push(place);
        }
    }
    plan.redis = dice.chance(0.6);
    if plan.stress_ng.is_empty() && plan.files.is_empty() && !plan.redis {
        plan.files.push(Place::Scratch);
    }
    plan
}

fn draw_sleep_arguments(dice: &mut Dice, home: Home) -> Vec<String> {
    let home = match home {
        Home::Wait => "wait",
        Home::Background => "background",
        Home::Later => "never",
    };
    let mut words = vec!["--home".to_owned(), home.to_owned()];
    let jobs = *dice.pick(&["0", "0", "1", "2", "4"]);
    words.extend(["--jobs".to_owned(), jobs.to_owned()]);
    let rate = *dice.pick(&["", "", "", "64M", "512M"]);
    if !rate.is_empty() {
        words.extend(["--rate".to_owned(), rate.to_owned()]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans() -> impl Iterator<Item = CyclePlan> {
        (1..=300).map(|cycle| CyclePlan::draw(1, cycle, true))
    }

    #[test]
    fn a_cycle_can_be_repeated_alone() {
        for cycle in [1, 17, 300] {
            assert_eq!(
                CyclePlan::draw(5, cycle, true),
                CyclePlan::draw(5, cycle, true)
            );
        }
        // The same cycle without its power cut is otherwise the same.
        let without = CyclePlan::draw(5, 9, false);
        let with = CyclePlan {
            cut: None,
            ..CyclePlan::draw(5, 9, true)
        };
        assert_eq!(with, without);
    }

    #[test]
    fn every_kind_of_load_and_of_way_home_comes_up() {
        let all: String = plans().map(|plan| plan.describe_load() + "\n").collect();
        for stressor in STRESSORS.iter().chain([&READAHEAD]) {
            assert!(
                all.contains(stressor[0].trim_start_matches('-')),
                "{stressor:?}"
            );
        }
        for what in [
            "files on root",
            "files on scratch",
            "redis",
            "stress-ng on scratch",
        ] {
            assert!(all.contains(what), "{what}");
        }
        for home in [Home::Wait, Home::Background, Home::Later] {
            assert!(plans().any(|plan| plan.home == home), "{home:?}");
        }
    }

    #[test]
    fn no_cycle_is_idle_or_larger_than_the_smallest_machine_bears() {
        for plan in plans() {
            assert!(!plan.describe_load().is_empty());
            assert!((Size::mib(32)..=Size::mib(385)).contains(&plan.fill));
            assert!(plan.off_ms <= 3000);
            assert!(plan.cut.is_none_or(|cut| (0.0..1.0).contains(&cut)));
        }
        assert_eq!(plans().filter(|plan| plan.cut.is_none()).count(), 20);
        for tenth in 0..10 {
            let (low, high) = (f64::from(tenth) / 10.0, f64::from(tenth + 1) / 10.0);
            let mut cuts = plans().filter_map(|plan| plan.cut);
            assert!(cuts.any(|cut| (low..high).contains(&cut)), "{low}");
        }
    }

    #[test]
    fn no_stressor_is_given_twice() {
        for plan in plans() {
            for (_, words) in &plan.load.stress_ng {
                for word in words.iter().filter(|word| word.starts_with("--")) {
                    let count = words.iter().filter(|other| *other == word).count();
                    assert_eq!(count, 1, "{words:?}");
                }
            }
        }
    }
}
