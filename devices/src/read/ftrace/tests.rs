//! Lines of ftrace, also damaged ones.

use super::*;
use proptest::prelude::*;

fn what(text: &str) -> What<'_> {
    match parse_line(text, 1) {
        Line::Event(event) => event.what,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn events_between_the_calls_of_function_graph_are_understood() {
    let line = "   15.269302 |   1)  rtcwake-18462 |               |  /* device_pm_callback_start: ahci \
                0000:00:1f.2, parent: pci0000:00, noirq bus [suspend] */";
    let Line::Event(event) = parse_line(line, 3) else {
        panic!("no event")
    };
    assert_eq!(
        (event.t_ns, event.cpu, event.thread),
        (15_269_302_000, 1, 18462)
    );
    let What::Start { device, verb, .. } = event.what else {
        panic!("{:?}", event.what)
    };
    assert_eq!((device, verb), ("0000:00:1f.2", "suspend"));
    let line = "1.5 | 0) a|b-7 | | /* suspend_resume: dpm_suspend[2] end */";
    assert!(matches!(what(line), What::Phase { begin: false, .. }));
    let call = "   15.269310 |   1)  rtcwake-18462 |   1.234 us    |        msleep();";
    assert_eq!(parse_line(call, 4), Line::Other);
    // Without absolute times and tasks.
    let line = " 0)               |  /* suspend_resume: dpm_suspend[2] begin */";
    assert!(matches!(parse_line(line, 5), Line::Damaged(_)));
}

#[test]
fn lines_of_ftrace_and_of_trace_cmd_are_understood() {
    let line = "    kworker/u4:2-ev-123     [001] d..2. 12.345678: device_pm_callback_start: \
                    ahci 0000:00:1f.2, parent: pci0000:00, noirq bus [suspend]";
    let Line::Event(event) = parse_line(line, 9) else {
        panic!("no event")
    };
    assert_eq!(
        (event.t_ns, event.cpu, event.thread, event.line),
        (12_345_678_000, 1, 123, 9)
    );
    let start = What::Start {
        driver: "ahci",
        device: "0000:00:1f.2",
        parent: Some("pci0000:00"),
        level: "noirq bus",
        verb: "suspend",
    };
    assert_eq!(event.what, start);
    // With a thread group, no flags, nanoseconds.
    let line = "a [b] c-7 (   7) [000] 1.000000001: suspend_resume:       dpm_suspend[2] begin";
    let Line::Event(event) = parse_line(line, 1) else {
        panic!("no event")
    };
    assert_eq!((event.t_ns, event.thread), (1_000_000_001, 7));
    let begin = What::Phase {
        name: "dpm_suspend",
        value: 2,
        begin: true,
    };
    assert_eq!(event.what, begin);
}

#[test]
fn a_device_without_parent_driver_or_level_is_one() {
    assert_eq!(
        what(" x-1 [000] ..... 1.0: device_pm_callback_start:  platform, parent: none, [suspend]"),
        What::Start {
            driver: "",
            device: "platform",
            parent: None,
            level: "",
            verb: "suspend",
        }
    );
    assert_eq!(
        what(" x-1 [000] ..... 1.0: device_pm_callback_end: Generic PHY mdio:01, err=-16"),
        What::End {
            driver: "Generic PHY",
            device: "mdio:01",
            error: -16,
        }
    );
}

#[test]
fn switches_are_read_in_both_forms() {
    let expected = What::Switch {
        previous: 12,
        name: "a b prev_pid=9",
        preempted: true,
        next: 0,
    };
    assert_eq!(
        what(
            " x-12 [000] d.... 1.5: sched_switch: prev_comm=a b prev_pid=9 prev_pid=12 \
                 prev_prio=120 prev_state=R+ ==> next_comm=swapper/0 next_pid=0 next_prio=120"
        ),
        expected
    );
    assert_eq!(
        what(" x-12 [000] d.... 1.5: sched_switch: a b prev_pid:12 [120] R ==> swapper/0:0 [120]"),
        What::Switch {
            previous: 12,
            name: "a b prev_pid",
            preempted: true,
            next: 0,
        }
    );
}

#[test]
fn damaged_lines_are_reported() {
    for text in [
        " x-1 [000] ..... 1.0: device_pm_callback_start: ahci 0000:00:1f.2, par",
        " x-1 [000] ..... 1.0: suspend_resume: dpm_suspend[2] beg",
        " suspend_resume: dpm_suspend[2] begin",
        " x-1 [000] ..... 12345: suspend_resume: dpm_suspend[2] begin",
        " x-1 [000] ..... 1.0: sched_switch: prev_comm=a prev_pid=",
    ] {
        assert!(matches!(parse_line(text, 1), Line::Damaged(_)), "{text}");
    }
    for text in [
        "",
        "# tracer: nop",
        " x-1 [000] ..... 1.0: other: suspend",
        "cpus=2",
    ] {
        assert_eq!(parse_line(text, 1), Line::Other, "{text}");
    }
    assert_eq!(parse_line("CPU:1 [LOST 123 EVENTS]", 1), Line::Lost(123));
    assert_eq!(parse_line("CPU:1 [12 EVENTS DROPPED]", 1), Line::Lost(12));
}

proptest! {
    #[test]
    fn no_line_makes_the_reader_panic(
        start in ".{0,30}",
        event in proptest::sample::select(EVENTS.to_vec()),
        body in "[a-z0-9:,=\\[\\] >.-]{0,80}",
    ) {
        let _ = parse_line(&body, 1);
        let _ = parse_line(&format!("{start} {event}: {body}"), 1);
        let _ = parse_line(&format!(" x-1 [000] .. 1.5: {event}: {body}{start}"), 1);
    }
}
