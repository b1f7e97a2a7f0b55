//! The energies that the thesis on Suspend-to-CXL prints (chapter 5.5) from its own durations and
//! from powers that its text states. docs/reference/power-profiles.md says of each number where it
//! comes from.

use std::path::Path;

use dormouse_report::compare::{self, Case};
use dormouse_report::energy::{self, CaseEnergy, Energy, Profile};
use dormouse_report::read_run;

/// The durations of Tables 5.3 and 5.4 and of the text, and the powers of the built-in profile.
fn thesis() -> (Vec<Case>, Energy) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/thesis");
    let cases = compare::cases(&[read_run(&directory).unwrap()]);
    let profile = Profile::find(Path::new("xeon-cxl-fpga")).unwrap();
    let energy = energy::of_cases(&profile, &cases);
    (cases, energy)
}

fn case<'a>((cases, energy): &'a (Vec<Case>, Energy), mode: &str, gib: u64) -> &'a CaseEnergy {
    let found = cases
        .iter()
        .position(|c| c.mode == mode && c.user_bytes == Some(gib << 30));
    &energy.cases[found.expect("the example has every mode and fill")]
}

fn joules(case: &CaseEnergy, way: &str) -> f64 {
    let way = case.ways.iter().find(|found| found.way == way).unwrap();
    way.joules
        .unwrap_or_else(|| panic!("{}: {way:?}", case.label))
        .median
}

/// Joules of the idle machine over the time that migrating home takes.
fn idle_joules(thesis: &(Vec<Case>, Energy), gib: u64) -> f64 {
    let found = thesis
        .0
        .iter()
        .find(|c| c.mode == "cxl" && c.user_bytes == Some(gib << 30));
    let home_s = found.unwrap().cycles[0].home_s.unwrap();
    thesis.1.profile.exactly("idle").unwrap().watts * home_s
}

fn off_by(found: f64, printed: f64) -> f64 {
    found / printed - 1.0
}

#[track_caller]
fn within_5_percent(found: f64, printed: f64) {
    assert!(
        off_by(found, printed).abs() <= 0.05,
        "{found:.0} J, printed {printed} J"
    );
}

#[test]
fn tables_5_7_to_5_9_follow_within_5_percent_from_durations_and_stated_powers() {
    let thesis = thesis();
    for (gib, suspend_j, resume_j, home_j) in [
        (4, 472.0, 1686.0, 315.0),
        (8, 938.0, 1680.0, 770.0),
        (12, 1350.0, 1694.0, 1220.0),
    ] {
        let cxl = case(&thesis, "cxl", gib);
        within_5_percent(joules(cxl, "suspend"), suspend_j);
        within_5_percent(joules(cxl, "resume"), resume_j);
        within_5_percent(joules(cxl, "home"), home_j);
    }
    // The first of these gave the power; the others are predicted.
    for (gib, suspend_j) in [(4, 2602.0), (8, 3461.0), (12, 4351.0)] {
        within_5_percent(
            joules(case(&thesis, "hibernate", gib), "suspend"),
            suspend_j,
        );
    }
    // The text prints the duration of one resume only.
    within_5_percent(joules(case(&thesis, "hibernate", 12), "resume"), 10401.0);
    within_5_percent(idle_joules(&thesis, 12), 958.0);
}

#[test]
fn idle_cells_of_table_5_9_are_above_136_watts_times_table_5_3_by_as_much_as_the_docs_say() {
    let thesis = thesis();
    let off: Vec<String> = [(4, 287.0), (8, 636.0), (12, 958.0)]
        .map(|(gib, printed)| {
            format!(
                "{:+.1} %",
                100.0 * off_by(idle_joules(&thesis, gib), printed)
            )
        })
        .to_vec();
    assert_eq!(off, ["-8.6 %", "-5.4 %", "-2.2 %"]);
    let docs = include_str!("../../docs/reference/power-profiles.md");
    assert!(
        off.iter()
            .all(|text| docs.contains(&text.replace('-', "−")))
    );
}

#[test]
fn hibernation_at_4_and_8_gib_is_between_the_durations_that_the_text_prints() {
    let watts = thesis()
        .1
        .profile
        .exactly("hibernate.resume")
        .unwrap()
        .watts;
    for printed in [8722.0, 9552.0] {
        assert!((54.0 * watts..68.0 * watts).contains(&printed));
    }
}

#[test]
fn the_total_at_12_gib_is_3_5_times_less_than_hibernation_as_the_text_says() {
    let thesis = thesis();
    let ours = case(&thesis, "cxl", 12).total_j.unwrap().median;
    let peer = case(&thesis, "hibernate", 12).total_j.unwrap().median;
    within_5_percent(peer / ours, 3.5);
}

#[test]
fn a_pause_of_half_a_minute_pays_against_idling() {
    let thesis = thesis();
    let found = &case(&thesis, "cxl", 12).break_even[0];
    assert_eq!((found.against.as_str(), found.pays), ("idle", "after"));
    assert!((20.0..30.0).contains(&found.pause_s.unwrap()), "{found:?}");
}
