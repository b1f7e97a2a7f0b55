//! Waiting on the small core, its clock, and what keeps interrupts away from the guest.

use super::guests::{Objects, returns};

const EVERY_MODE: [&[&str]; 3] = [&[], &["--without", "all"], &["--without", "interrupts"]];

#[test]
fn msleep_waits_that_long_and_executes_next_to_nothing() {
    let objects = Objects::new();
    // By its own clock.
    objects.run(&["waits", "1000", "--prune"], returns(1));
    let words = ["only_waits", "1000", "--prune", "--runs", "2", "--json"];
    for state in ["arm", "thumb"] {
        let object = objects.object(state);
        let elf = object.to_str().expect("paths here are text");
        let said = dormouse_tests::dormouse(&[&["offload", "run", elf], &words[..]].concat());
        assert_eq!(said.code, 0, "{}", said.all());
        // The first run translates.
        let warm = said.stdout.lines().nth(1).expect("two runs");
        let warm: serde_json::Value = serde_json::from_str(warm).expect("JSON");
        let waited = warm["counters"]["waited_us"].as_u64();
        assert!(waited > Some(999_000), "{}", said.all());
        assert!(warm["instructions"].as_u64() < Some(2000), "{}", said.all());
    }
}

#[test]
fn the_time_goes_on_from_what_the_caller_says_and_never_back() {
    let objects = Objects::new();
    for (low, high) in [(0_u32, 0_u32), (0xfff0_0000, 0x7), (123, 0x1000)] {
        let time = (u64::from(high) << 32 | u64::from(low)).to_string();
        let (low, high) = (low.to_string(), high.to_string());
        let words = ["reads_the_time", &low, &high, "--prune", "--time", &time];
        objects.run(&words, returns(1));
    }
}

#[test]
fn no_interrupt_is_taken_while_a_lock_masks_them() {
    let objects = Objects::new();
    for mode in EVERY_MODE {
        let words = ["is_not_interrupted_under_a_lock", "2000", "--prune"];
        let interrupts = ["--irq-handler", "on_device", "--irq-period", "3001"];
        objects.run(&[&words[..], &interrupts, mode].concat(), returns(1));
    }
}

/// The period is one of those that left a tick pending when the guest returned.
#[test]
fn a_tick_that_pends_when_the_guest_returns_does_not_start_it_again() {
    let objects = Objects::new();
    for period in ["3001", "4001", "5003", "6007"] {
        let words = ["is_not_interrupted_under_a_lock", "1500", "--prune"];
        let interrupts = ["--irq-handler", "on_device", "--irq-period", period];
        objects.run(&[&words[..], &interrupts].concat(), returns(1));
    }
}

#[test]
fn every_way_to_take_a_lock_is_served_and_none_stays_held() {
    let objects = Objects::new();
    objects.run(&["takes_locks_in_every_way", "--prune"], |said, run| {
        returns(1)(said, run);
        assert_eq!(run["counters"]["held"], 0, "{}", said.all());
    });
}

#[test]
fn a_wait_for_a_completion_ends_with_the_interrupt_that_completes_it() {
    let objects = Objects::new();
    let words = ["waits_for_a_completion", "--prune"];
    let interrupts = ["--irq-handler", "on_completion", "--irq-period", "100000"];
    for mode in EVERY_MODE {
        objects.run(&[&words[..], &interrupts, mode].concat(), |said, run| {
            returns(1)(said, run);
            let waited = run["counters"]["waited_us"].as_u64();
            assert!(waited > Some(1000), "{}", said.all());
        });
    }
    // Nobody can complete it: the big core must go on.
    objects.run(&words, |said, run| {
        assert_eq!(said.code, 1, "{}", said.all());
        assert_eq!(run["stop"], "fallback", "{}", said.all());
    });
}

#[test]
fn a_guest_that_is_idle_executes_nothing_until_its_next_interrupt() {
    let objects = Objects::new();
    let words = ["idles", "20", "--prune"];
    let interrupts = ["--irq-handler", "on_device", "--irq-period", "1000000"];
    for mode in EVERY_MODE {
        objects.run(&[&words[..], &interrupts, mode].concat(), |said, run| {
            assert_eq!(said.code, 0, "{}", said.all());
            assert!(run["registers"][0].as_u64() >= Some(20), "{}", said.all());
            // 20 periods of a million instructions' time.
            assert!(
                run["instructions"].as_u64() < Some(1_000_000),
                "{}",
                said.all()
            );
        });
    }
}

#[test]
fn a_delay_is_not_shorter_for_being_interrupted() {
    let objects = Objects::new();
    let words = ["is_interrupted_while_it_waits", "50", "--prune"];
    let interrupts = ["--irq-handler", "on_device", "--irq-period", "50000"];
    for mode in EVERY_MODE {
        objects.run(&[&words[..], &interrupts, mode].concat(), returns(1));
    }
}
