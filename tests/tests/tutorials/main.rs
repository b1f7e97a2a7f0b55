//! Each tutorial of the book, followed to the letter.

use dormouse_tests::tutorial::follow;
use dormouse_tests::workspace;

#[test]
#[ignore = "make test-full: runs the demo and two more cycles, which the quick gate has as tests"]
fn demo_machine_sleeps_wakes_and_refuses_a_torn_image() {
    follow("demo-machine.md", workspace());
}

#[test]
fn redis_survives_a_power_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    follow("redis-power-cut.md", folder.path());
}

#[test]
fn a_suspend_is_recorded_and_other_orders_are_simulated() {
    follow("suspend-time.md", workspace());
}

#[test]
fn a_cxl_device_is_kept_below_its_knee() {
    let folder = tempfile::tempdir().expect("a folder");
    follow("cxl-knee.md", folder.path());
}

#[test]
fn kernel_code_runs_on_a_cortex_m3() {
    follow("cortex-m3.md", workspace());
}

#[test]
fn every_tutorial_is_followed_by_a_test() {
    let folder = workspace().join("docs/tutorials");
    let mut pages: Vec<String> = std::fs::read_dir(&folder)
        .expect("the tutorials")
        .map(|entry| entry.expect("an entry").file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let this = include_str!("main.rs");
    for page in &pages {
        assert!(this.contains(&format!("follow(\"{page}\"")), "{page}");
    }
    assert_eq!(pages.len(), 5, "{pages:?}");
}
