//! `dormouse report` as a user runs it: comparison and energy.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn report(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    let command = command.arg("report").args(arguments);
    // As on a terminal that can show all signs, whatever runs the test.
    let terminal = [("COLUMNS", "100"), ("TERM", "xterm"), ("LC_ALL", "C.UTF-8")];
    let command = command.envs(terminal);
    command.output().expect("the command can be started")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn write_run(directory: &Path, mode: &str, down_s: &[f64]) {
    let lines = down_s.iter().map(|down_s| {
        format!(
            "{{\"cycle\":1,\"mode\":\"{mode}\",\"ok\":true,\"verified\":true,\"outcome\":\"resumed\",\
             \"user_bytes\":1048576,\"suspend_s\":{{\"total\":{down_s},\"migrate\":null}},\
             \"resume_s\":{{\"total\":4,\"firmware\":1,\"restore\":0.5,\"kernel\":null}},\"home_s\":null}}\n"
        )
    });
    fs::create_dir(directory).unwrap();
    fs::write(directory.join("cycles.jsonl"), lines.collect::<String>()).unwrap();
}

#[test]
fn runs_are_compared_phase_by_phase_with_ratios_and_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, peer) = (directory.path().join("ours"), directory.path().join("peer"));
    write_run(&ours, "cxl", &[2.0, 3.0, 10.0]);
    write_run(&peer, "hibernate", &[9.0]);
    let (ours, peer) = (ours.to_str().unwrap(), peer.to_str().unwrap());

    let shown = report(&[ours, peer]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(
        shown.status.success(),
        "{}",
        String::from_utf8_lossy(&shown.stderr)
    );
    for part in [
        "ours · cxl",
        "3 of 3",
        "3.00 s ±1.00 s",
        "9.00 s ×3.00",
        "comparison.html",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }

    let object = json(&report(&[ours, peer, "--json"]));
    let row = &object["rows"][0];
    assert_eq!(row["metric"], "suspend.total");
    assert_eq!(
        (&row["cells"][0]["n"], &row["cells"][0]["mad"]),
        (&3.into(), &1.0.into())
    );
    assert_eq!(row["cells"][1]["ratio_to_first"], 3.0);
    let page = fs::read_to_string(object["html"].as_str().unwrap()).unwrap();
    assert!(page.contains("<svg") && page.contains("peer · hibernate"));
    assert!(Path::new(ours).join("comparison.html").exists());
}

#[test]
fn a_power_profile_adds_joules_and_break_even_pauses() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    write_run(&run, "cxl", &[2.0]);
    let profile = directory.path().join("board.toml");
    let power = |of: &str, watts: f64| {
        format!(
            "[[power]]\nof = \"{of}\"\nwatts = {watts}\norigin = \"assumed\"\nsource = \"a test\"\n"
        )
    };
    let powers = [
        ("idle", 100.0),
        ("off", 0.0),
        ("suspend", 200.0),
        ("resume", 150.0),
    ];
    let powers: String = powers.map(|(of, watts)| power(of, watts)).concat();
    fs::write(&profile, format!("name = \"board\"\n{powers}")).unwrap();
    let (run, profile) = (run.to_str().unwrap(), profile.to_str().unwrap());

    let object = json(&report(&[run, "--json", "--power-profile", profile]));
    let case = &object["energy"]["cases"][0];
    // 2 s at 200 W and 4 s at 150 W, over the 100 W of staying idle.
    assert_eq!(case["total_j"]["median"], 1000.0);
    assert_eq!(case["break_even"][0]["against"], "idle");
    assert_eq!(case["break_even"][0]["pause_s"], 10.0);
    let page = fs::read_to_string(object["html"].as_str().unwrap()).unwrap();
    assert!(page.contains("Break-even") && page.contains("a test"));

    let never = report(&[run, "--power-profile", profile, "--watts", "off=100"]);
    assert!(String::from_utf8_lossy(&never.stdout).contains("never, however long the pause"));
}

#[test]
fn a_wrong_profile_or_power_says_what_it_should_be() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    write_run(&run, "cxl", &[2.0]);
    let run = run.to_str().unwrap();
    let missing = report(&[run, "--power-profile", "no-such-profile"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("xeon-cxl-fpga"));
    for watts in ["off", "off=many", "off=-1", "of=3"] {
        let wrong = report(&[run, "--power-profile", "xeon-cxl-fpga", "--watts", watts]);
        assert_eq!(wrong.status.code(), Some(2), "{watts}");
    }
    assert_eq!(report(&[run, "--watts", "off=1"]).status.code(), Some(2));
}
