//! Each tutorial of the book, followed to the letter.

use dormouse_tests::tutorial::follow;
use dormouse_tests::workspace;

/// In the checkout, as the page says.
fn follow_here(page: &str) {
    follow(page, workspace());
}

/// In a folder of its own.
fn follow_anywhere(page: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    follow(page, folder.path());
}

#[test]
#[ignore = "make test-full: runs the demo and two more cycles, which the quick gate has as tests"]
fn demo_machine_sleeps_wakes_and_refuses_a_torn_image() {
    follow_here("demo-machine.md");
}

#[test]
fn redis_survives_a_power_cut() {
    follow_anywhere("redis-power-cut.md");
}

#[test]
#[ignore = "make test-full: the commands of devices are tested with the same machine"]
fn a_suspend_is_recorded_and_other_orders_are_simulated() {
    follow_here("suspend-time.md");
}

#[test]
fn a_cxl_device_is_kept_below_its_knee() {
    follow_anywhere("cxl-knee.md");
}

#[test]
fn kernel_code_runs_on_a_cortex_m3() {
    follow_here("cortex-m3.md");
}

#[test]
fn every_tutorial_is_followed_by_a_test() {
    let folder = workspace().join("docs/tutorials");
    let mut pages: Vec<String> = std::fs::read_dir(&folder)
        .expect("the tutorials")
        .map(|entry| entry.expect("an entry").file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let this = include_str!("mod.rs");
    for page in &pages {
        assert!(this.contains(&format!("(\"{page}\")")), "{page}");
    }
    assert_eq!(pages.len(), 5, "{pages:?}");
}
