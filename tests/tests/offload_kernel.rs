//! A whole kernel's own device suspend and resume in the virtual executor. The first time it builds that
//! kernel, which takes some minutes.

use dormouse_tests::dormouse;
use serde_json::Value;

/// Dummy platform devices of `offload/kernel/dormouse_dummy.c`.
const DEVICES: u64 = 24;

#[test]
fn a_kernels_own_device_suspend_leaves_the_memory_that_it_leaves_on_the_big_core() {
    for words in [
        &["offload", "suspend", "--json"][..],
        &["offload", "suspend", "--json", "--prune"],
    ] {
        let said = dormouse(words);
        assert_eq!(said.code, 0, "{}", said.all());
        let calls: Vec<Value> = said
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
            .collect();
        assert_eq!(calls.len(), 2, "{}", said.all());
        for (call, events) in calls.iter().zip([DEVICES, 2 * DEVICES]) {
            assert_eq!(call["stop"], "returned", "{}", said.all());
            assert_eq!(call["results"][0], 0, "{}", said.all());
            assert_eq!(call["results"][1], 0, "{}", said.all());
            assert_eq!(call["different"], 0, "{}", said.all());
            assert_eq!(call["device_events"], events, "{}", said.all());
            // Each device has 32 registers that go away or come back.
            assert!(
                call["changed"].as_u64() > Some(32 * DEVICES),
                "{}",
                said.all()
            );
        }
    }
}
