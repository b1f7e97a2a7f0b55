//! Joules of a cycle: the seconds of each phase times the watts that a profile has for it.

use serde::Serialize;

use super::pause::{BreakEven, PauseCost};
use super::profile::{Power, Profile};
use crate::compare::Case;
use crate::cycle::{Cycle, Parts, Way};
use crate::format::duration_of_pause;
use crate::stats::{Summary, median};

/// One phase of a case; medians over its cycles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// As in `cycles.jsonl`; `rest` is what no part accounts for.
    pub part: String,
    /// Duration, s.
    pub seconds: f64,
    /// Power, W.
    pub watts: Option<f64>,
    /// Which power of the profile was used.
    pub power: Option<String>,
    /// Energy, J.
    pub joules: Option<f64>,
}

/// A way down, up or home.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WayEnergy {
    /// `suspend`, `resume` or `home`.
    pub way: &'static str,
    /// None where its duration, or the power of a part, is not known.
    pub joules: Option<Summary>,
    /// The phases.
    pub parts: Vec<Share>,
}

/// What a case is compared with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Opponent {
    /// `idle`, `s3`, or the label of another case.
    pub against: String,
    /// `always`, `after`, `until` or `never`; see [`BreakEven`].
    pub pays: &'static str,
    /// Seconds from the request to sleep until programs run again.
    pub pause_s: Option<f64>,
}

impl Opponent {
    /// Its name for people.
    pub fn name(&self) -> &str {
        match self.against.as_str() {
            "idle" => "staying idle",
            "s3" => "S3 (ideal)",
            other => other,
        }
    }

    /// In words: the pauses in which sleeping takes less energy.
    pub fn verdict(&self) -> String {
        let pause = self.pause_s.map(duration_of_pause).unwrap_or_default();
        match self.pays {
            "always" if self.pause_s.is_some_and(|s| s > 0.0) => {
                format!("always (any pause from {pause})")
            }
            "always" => "always".to_owned(),
            "after" => format!("from {pause} on"),
            "until" => format!("only up to {pause}"),
            _ => "never, however long the pause".to_owned(),
        }
    }
}

/// The energy of a case's cycles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseEnergy {
    /// The label of the case.
    pub label: String,
    /// Cycles that resumed.
    pub n: usize,
    /// Suspend, resume and migrating back.
    pub ways: Vec<WayEnergy>,
    /// Down, up and home; none where one of the first two is not known.
    pub total_j: Option<Summary>,
    /// The energy of a pause; none where the total, or the power of `idle` or `off` is not known.
    pub pause: Option<PauseCost>,
    /// The alternatives, each with its break-even pause.
    pub break_even: Vec<Opponent>,
    /// Why something is not known: what no cycle saw, and powers that the profile lacks.
    pub missing: Vec<String>,
}

/// The energy of all cases by one profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Energy {
    /// The power profile.
    pub profile: Profile,
    /// The energy of each case.
    pub cases: Vec<CaseEnergy>,
}

/// Joules of one cycle.
struct OfCycle {
    suspend_j: Option<f64>,
    resume_j: Option<f64>,
    home_j: f64,
    /// Of `home_j`, what the machine would not have drawn idle.
    home_above_idle_j: f64,
    busy_s: Option<f64>,
}

/// The energy of cases, which are compared with each other, too.
pub fn of_cases(profile: &Profile, cases: &[Case]) -> Energy {
    let mut found: Vec<CaseEnergy> = cases.iter().map(|case| of_case(profile, case)).collect();
    let pauses: Vec<Option<PauseCost>> = found.iter().map(|case| case.pause).collect();
    for (index, case) in found.iter_mut().enumerate() {
        let Some(own) = case.pause else { continue };
        let constant = |name: &str| {
            let power = profile.exactly(name)?;
            Some((name.to_owned(), PauseCost::constant(power.watts)))
        };
        // Another fill is another task, not another way to do it.
        let same_fill = |other: &usize| cases[*other].user_bytes == cases[index].user_bytes;
        let others = (0..cases.len())
            .filter(|other| *other != index)
            .filter(same_fill);
        let others = others.filter_map(|i| Some((cases[i].label.clone(), pauses[i]?)));
        let all = [constant("idle"), constant("s3")]
            .into_iter()
            .flatten()
            .chain(others);
        case.break_even = all
            .map(|(against, cost)| opponent(against, own.break_even(&cost)))
            .collect();
    }
    Energy {
        profile: profile.clone(),
        cases: found,
    }
}

fn opponent(against: String, found: BreakEven) -> Opponent {
    Opponent {
        against,
        pays: found.as_str(),
        pause_s: found.pause_s(),
    }
}

fn of_case(profile: &Profile, case: &Case) -> CaseEnergy {
    let cycles: Vec<OfCycle> = case
        .cycles
        .iter()
        .map(|c| of_cycle(profile, &case.mode, c))
        .collect();
    let over = |of: &dyn Fn(&OfCycle) -> Option<f64>| Summary::of(cycles.iter().filter_map(of));
    let total_of = |c: &OfCycle| Some(c.suspend_j? + c.resume_j? + c.home_j);
    let idle = profile.exactly("idle");
    let off = profile.exactly("off");
    let fixed = over(&|c| Some(c.suspend_j? + c.resume_j? + c.home_above_idle_j));
    let busy = over(&|c| c.busy_s);
    let pause = match (fixed, busy, idle, off) {
        (Some(fixed), Some(busy), Some(_), Some(off)) => Some(PauseCost {
            fixed_j: fixed.median,
            busy_s: busy.median,
            asleep_w: off.watts,
        }),
        _ => None,
    };
    let mut missing = Vec::new();
    let mut way = |way: &'static str, of: &dyn Fn(&Cycle) -> Option<Parts<'_>>, joules| {
        let parts = shares(profile, case, way, of);
        if parts.is_empty() && way != HOME {
            missing.push(format!("no cycle saw how long {way} took"));
        }
        for part in parts.iter().filter(|part| part.watts.is_none()) {
            missing.push(format!("the profile has no power of {way}.{}", part.part));
        }
        WayEnergy { way, joules, parts }
    };
    let migrated_back = over(&|c| (c.home_j > 0.0).then_some(c.home_j));
    let ways = vec![
        way(
            SUSPEND,
            &|c| c.suspend.disjoint_parts(),
            over(&|c| c.suspend_j),
        ),
        way(
            RESUME,
            &|c| c.resume.disjoint_parts(),
            over(&|c| c.resume_j),
        ),
        way(
            HOME,
            &|c| Some(vec![(HOME, c.home_s.filter(|s| *s > 0.0)?)]),
            migrated_back,
        ),
    ];
    for (name, power) in [("idle", idle), ("off", off)] {
        if power.is_none() {
            missing.push(format!("the profile has no power of {name}"));
        }
    }
    CaseEnergy {
        label: case.label.clone(),
        n: case.cycles.len(),
        ways,
        total_j: over(&total_of),
        pause,
        break_even: Vec::new(),
        missing,
    }
}

const SUSPEND: &str = "suspend";
const RESUME: &str = "resume";
const HOME: &str = "home";

fn of_cycle(profile: &Profile, mode: &str, cycle: &Cycle) -> OfCycle {
    let way_j = |name: &str, way: &Way| -> Option<f64> {
        let parts = way.disjoint_parts()?;
        let joules = |(part, part_s)| Some(profile.of_phase(mode, name, part)?.watts * part_s);
        parts.into_iter().map(joules).sum()
    };
    let home_s = cycle.home_s.unwrap_or(0.0);
    let home_w = home_power(profile, mode).map_or(0.0, |power| power.watts);
    let idle_w = profile.exactly("idle").map_or(0.0, |power| power.watts);
    OfCycle {
        suspend_j: way_j(SUSPEND, &cycle.suspend),
        resume_j: way_j(RESUME, &cycle.resume),
        home_j: home_w * home_s,
        home_above_idle_j: (home_w - idle_w).max(0.0) * home_s,
        busy_s: cycle
            .suspend
            .total_s
            .zip(cycle.resume.total_s)
            .map(|(down, up)| down + up),
    }
}

fn home_power<'a>(profile: &'a Profile, mode: &str) -> Option<&'a Power> {
    profile.of_phase(mode, HOME, HOME)
}

/// The parts of a way, each with the median of its seconds and joules over all cycles.
fn shares(
    profile: &Profile,
    case: &Case,
    way: &str,
    of: &dyn Fn(&Cycle) -> Option<Parts<'_>>,
) -> Vec<Share> {
    let share = |(part, seconds): (String, f64)| {
        let power = profile.of_phase(&case.mode, way, &part);
        Share {
            seconds,
            watts: power.map(|power| power.watts),
            power: power.map(|power| power.of.clone()),
            joules: power.map(|power| power.watts * seconds),
            part,
        }
    };
    median_parts(case, of).into_iter().map(share).collect()
}

/// The median of each part over the cycles that know their parts, in the order in which they
/// happen. A cycle that did not see a part spent nothing in it.
pub fn median_parts(case: &Case, of: &dyn Fn(&Cycle) -> Option<Parts<'_>>) -> Vec<(String, f64)> {
    let lists: Vec<Parts<'_>> = case.cycles.iter().filter_map(of).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in lists.iter().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let of_part = |part: &str| {
        let of_list = |list: &Parts<'_>| {
            let found = list.iter().find(|(name, _)| *name == part);
            found.map_or(0.0, |found| found.1)
        };
        median(lists.iter().map(of_list)).map(|seconds| (part.to_owned(), seconds))
    };
    Way::in_order(names)
        .into_iter()
        .filter_map(of_part)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare;
    use crate::run::Run;
    use proptest::prelude::*;

    fn profile(powers: &[(&str, f64)]) -> Profile {
        let mut profile = Profile::parse("name = \"t\"\npower = []", "t").unwrap();
        for (of, watts) in powers {
            profile.set(of, *watts).unwrap();
        }
        profile
    }

    fn energy(powers: &[(&str, f64)], lines: &[&str]) -> Energy {
        let cycles = lines
            .iter()
            .map(|line| Cycle::from_object(&serde_json::from_str(line).unwrap()));
        let run = Run {
            cycles: cycles.collect(),
            ..Run::default()
        };
        of_cases(&profile(powers), &compare::cases(&[run]))
    }

    const LINE: &str = r#"{"mode":"cxl","outcome":"resumed","suspend_s":{"total":4,"migrate":3},
        "resume_s":{"total":2,"firmware":1,"restore":0.5},"home_s":10}"#;
    const POWERS: [(&str, f64); 6] = [
        ("idle", 100.0),
        ("off", 0.0),
        ("suspend", 50.0),
        ("suspend.migrate", 150.0),
        ("resume", 60.0),
        ("home", 110.0),
    ];

    #[test]
    fn each_part_is_charged_with_its_own_power() {
        let found = &energy(&POWERS, &[LINE]).cases[0];
        let joules: Vec<_> = found
            .ways
            .iter()
            .map(|way| way.joules.unwrap().median)
            .collect();
        assert_eq!(joules, [500.0, 120.0, 1100.0]);
        assert_eq!(found.total_j.unwrap().median, 1720.0);
        assert_eq!(found.missing, Vec::<String>::new());
        // 500 + 120 + 10 s at 10 W above idling, over 100 W saved.
        assert_eq!(found.break_even[0].against, "idle");
        assert_eq!(
            (found.break_even[0].pays, found.break_even[0].pause_s),
            ("after", Some(7.2))
        );
    }

    #[test]
    fn what_is_not_known_is_said_and_not_guessed() {
        let found = &energy(&POWERS[..4], &[LINE]).cases[0];
        assert!(found.ways[1].joules.is_none() && found.total_j.is_none() && found.pause.is_none());
        assert!(
            found
                .missing
                .contains(&"the profile has no power of resume.rest".to_owned())
        );
        let unseen =
            r#"{"mode":"hibernate","outcome":"resumed","suspend_s":{"total":4},"resume_s":null}"#;
        let found = &energy(&POWERS, &[unseen]).cases[0];
        assert_eq!(found.ways[0].joules.unwrap().median, 200.0);
        assert!(found.total_j.is_none());
        assert_eq!(found.missing, ["no cycle saw how long resume took"]);
    }

    #[test]
    fn kinds_of_sleep_are_compared_with_each_other() {
        let slower = LINE
            .replace("cxl", "hibernate")
            .replace("\"total\":2", "\"total\":60");
        let found = energy(&POWERS, &[LINE, &slower]);
        let against: Vec<_> = found.cases[0]
            .break_even
            .iter()
            .map(|o| (o.against.as_str(), o.pays))
            .collect();
        assert_eq!(against, [("idle", "after"), ("hibernate", "always")]);
        assert_eq!(found.cases[1].break_even[1].pays, "never");
    }

    proptest! {
        #[test]
        fn parts_add_up_to_their_way_and_ways_to_the_total(
            down in 0.0..1e3, migrate in 0.0..2e3, up in 0.0..1e3, home in 0.0..1e3,
            watts in proptest::collection::vec(0.0..1e3, 6)
        ) {
            let powers: Vec<(&str, f64)> = POWERS.iter().zip(&watts).map(|(p, w)| (p.0, *w)).collect();
            let line = format!(
                r#"{{"outcome":"resumed","suspend_s":{{"total":{down},"migrate":{migrate}}},"resume_s":{{"total":{up}}},"home_s":{home}}}"#
            );
            let found = &energy(&powers, &[&line]).cases[0];
            let mut sum = 0.0;
            for way in &found.ways {
                let parts: f64 = way.parts.iter().filter_map(|part| part.joules).sum();
                let whole = way.joules.map_or(0.0, |j| j.median);
                prop_assert!(whole >= 0.0 && (parts - whole).abs() <= 1e-6 * whole.max(1.0));
                sum += whole;
            }
            let total = found.total_j.unwrap().median;
            prop_assert!((sum - total).abs() <= 1e-6 * total.max(1.0));
        }
    }
}
