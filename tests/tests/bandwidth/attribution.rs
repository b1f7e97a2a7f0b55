//! Attribution in the lab: programs in an emulated machine know their own traffic, and the daemon
//! attributes it with cache-line samples of the device.

use dormouse_tests::dormouse;

const USERS: [&str; 4] = ["users/heavy", "users/light", "users/mild", "users/other"];

#[test]
#[ignore = "make test-full: it measures for two minutes; samples against known traffic are in the quick gate on the host"]
fn tasks_with_known_traffic_are_charged_within_five_percent() {
    let words = "lab bandwidth --json --enforce quota --kernel stock --briefest \
                 --machine bandwidth-attribution";
    let words: Vec<&str> = words.split_whitespace().collect();
    let said = dormouse(&words);
    assert_eq!(said.code, 0, "{}", said.all());
    let report = said.report();
    assert_eq!(report["attribution"], "device", "{report}");
    // Limits change how much each program moves, and when.
    for name in ["free", "limited"] {
        let phases = report["phases"].as_array().expect("phases");
        let phase = phases.iter().find(|phase| phase["name"] == name);
        let phase = phase.unwrap_or_else(|| panic!("no phase {name}: {report}"));
        for user in USERS {
            let user = &phase["users"][user];
            let moved = user["truth_mib_s"].as_f64().expect("what was moved");
            let charged = user["charged_mib_s"].as_f64().expect("what was charged");
            assert!(moved > 0.0, "{report}");
            assert!((charged / moved - 1.0).abs() <= 0.05, "{name}: {phase}");
        }
    }
}
