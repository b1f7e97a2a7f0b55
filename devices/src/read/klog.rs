//! One line of a kernel log: the event of a suspend in it.
//!
//! ```text
//! [   41.123456] ahci 0000:00:1f.2: PM: calling pci_pm_suspend @ 123, parent: pci0000:00
//! [   41.123999] ahci 0000:00:1f.2: PM: pci_pm_suspend returned 0 after 512 usecs
//! [   41.200000] PM: suspend of devices complete after 76.543 msecs
//! ```
//!
//! Timings of devices appear with `pm_print_times` (or `initcall_debug`), passes with
//! `pm_debug_messages`. Kernels before 5.1 wrote `calling  DEVICE+ @ PID, parent: …` and
//! `call DEVICE+ returned 0 after 512 usecs`. Text before the time stamp (a priority, what
//! journalctl or syslog puts there) is skipped.

use crate::model::DevicePhase;

use super::ftrace::nanoseconds;

/// The event in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent<'a> {
    /// `PM: suspend entry (deep)`
    Entry {
        /// The value.
        state: &'a str,
    },
    /// `PM: suspend exit`
    Exit,
    /// A callback begins.
    Calling {
        /// The driver.
        driver: &'a str,
        /// The name of the device.
        device: &'a str,
        /// The parent.
        parent: Option<&'a str>,
        /// Missing in old kernels.
        function: Option<&'a str>,
        /// The thread.
        thread: u32,
    },
    /// A callback has returned.
    Returned {
        /// The name of the device.
        device: &'a str,
        /// The return value; 0 is success.
        error: i64,
        /// Duration, ns.
        duration_ns: u64,
    },
    /// A pass over the devices has ended, well or not.
    Pass {
        /// The pass.
        phase: DevicePhase,
        /// Duration, ns.
        duration_ns: u64,
        /// Whether no device failed.
        ended_well: bool,
    },
    /// Another step with its duration: name as in the trace.
    Step {
        /// The name.
        name: &'static str,
        /// Duration, ns.
        duration_ns: u64,
    },
    /// Another step begins or ends here.
    Mark {
        /// The value.
        name: &'static str,
        /// The value.
        begin: bool,
    },
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLine<'a> {
    /// An event of a suspend, with its time in ns.
    Event(u64, LogEvent<'a>),
    /// Not about a suspend.
    Other,
    /// About a suspend, but not parsable; says why.
    Damaged(String),
}

/// Reads a line.
pub fn parse_line(line: &str) -> LogLine<'_> {
    let line = line.trim_end();
    let Some((stamp, text)) = split_stamp(line) else {
        // Only a line about a device is missed.
        return if line.contains(" usecs") && line.contains(" returned ") {
            LogLine::Damaged(
                "no time stamp in seconds before a timing (boot with printk.time=1; dmesg \
                 without -T)"
                    .to_owned(),
            )
        } else {
            LogLine::Other
        };
    };
    match event(text) {
        Some(Ok(event)) => LogLine::Event(stamp, event),
        Some(Err(what)) => LogLine::Damaged(what),
        None => LogLine::Other,
    }
}

/// The time stamp `[   41.123456]`, and what follows it and the caller `[  T123]`.
fn split_stamp(line: &str) -> Option<(u64, &str)> {
    let mut rest = line;
    loop {
        let open = rest.find('[')?;
        let close = open + rest[open..].find(']')?;
        if let Some(t_ns) = nanoseconds(rest[open + 1..close].trim()) {
            let mut text = rest[close + 1..].trim_start();
            if let Some((caller, after)) = text.strip_prefix('[').and_then(|t| t.split_once(']')) {
                let caller = caller.trim();
                let number = caller.trim_start_matches(['T', 'C']);
                if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
                    text = after.trim_start();
                }
            }
            return Some((t_ns, text));
        }
        rest = &rest[close + 1..];
    }
}

/// None: the line is not about a suspend. An error: it is, and cannot be parsed.
fn event(text: &str) -> Option<Result<LogEvent<'_>, String>> {
    if let Some((subject, call)) = text.split_once(": PM: calling ") {
        return Some(calling(subject, call).ok_or_else(|| damaged("calling", text)));
    }
    if let Some(call) = text.strip_prefix("calling ") {
        // Boot's initcalls look alike but have no parent.
        return call
            .contains(", parent: ")
            .then(|| old_calling(call).ok_or_else(|| damaged("calling", text)));
    }
    if text.contains(" returned ") && text.contains(" usecs") {
        let old = text.strip_prefix("call ");
        let (subject, outcome) = match (old, text.split_once(": PM: ")) {
            (Some(call), _) => call.split_once("+ returned ")?,
            (None, Some((subject, rest))) => {
                let (_, device) = driver_and_device(subject);
                (device, rest.split_once(" returned ")?.1)
            }
            // `initcall … returned`, `probe of … returned`
            (None, None) => return None,
        };
        return Some(returned(subject, outcome).ok_or_else(|| damaged("returned", text)));
    }
    let text = text.strip_prefix("PM: ").unwrap_or(text);
    if let Some(state) = text.strip_prefix("suspend entry (") {
        return Some(Ok(LogEvent::Entry {
            state: state.trim_end_matches(')'),
        }));
    }
    if text == "suspend exit" {
        return Some(Ok(LogEvent::Exit));
    }
    if let Some(pass) = pass(text) {
        return Some(Ok(pass));
    }
    step(text).map(Ok)
}

fn damaged(what: &str, text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    format!("{what}: cannot be parsed: {short:?}")
}

/// `ahci 0000:00:1f.2` as printed by dev_info.
fn driver_and_device(subject: &str) -> (&str, &str) {
    subject
        .trim()
        .rsplit_once(' ')
        .unwrap_or(("", subject.trim()))
}

/// `pci_pm_suspend @ 123, parent: pci0000:00`; the function may be followed by `+0x0/0x50 [mod]`.
fn calling<'a>(subject: &'a str, call: &'a str) -> Option<LogEvent<'a>> {
    let (driver, device) = driver_and_device(subject);
    let (function, thread, parent) = call_parts(call)?;
    (!device.is_empty()).then_some(LogEvent::Calling {
        driver,
        device,
        parent,
        function: Some(function.split(['+', ' ']).next().unwrap_or(function)),
        thread,
    })
}

fn old_calling(call: &str) -> Option<LogEvent<'_>> {
    let (device, thread, parent) = call_parts(call)?;
    let device = device.strip_suffix('+').unwrap_or(device);
    (!device.is_empty()).then_some(LogEvent::Calling {
        driver: "",
        device,
        parent,
        function: None,
        thread,
    })
}

fn call_parts(call: &str) -> Option<(&str, u32, Option<&str>)> {
    let (left, parent) = call.split_once(", parent: ")?;
    let (what, thread) = left.rsplit_once(" @ ")?;
    let parent = parent.trim();
    Some((
        what.trim(),
        thread.trim().parse().ok()?,
        (parent != "none").then_some(parent),
    ))
}

/// `0 after 512 usecs`
fn returned<'a>(device: &'a str, outcome: &str) -> Option<LogEvent<'a>> {
    let (error, rest) = outcome.split_once(" after ")?;
    let usecs: u64 = rest.split_once(" usecs")?.0.trim().parse().ok()?;
    Some(LogEvent::Returned {
        device: device.trim(),
        error: error.trim().parse().ok()?,
        duration_ns: usecs.checked_mul(1_000)?,
    })
}

/// `late suspend of devices complete after 1.234 msecs`
fn pass(text: &str) -> Option<LogEvent<'_>> {
    let (which, rest) = text.split_once(" of devices ")?;
    let (how, time) = rest.split_once(" after ")?;
    let phase = match which {
        "suspend" => DevicePhase::Suspend,
        "late suspend" => DevicePhase::SuspendLate,
        "noirq suspend" => DevicePhase::SuspendNoirq,
        "noirq resume" => DevicePhase::ResumeNoirq,
        "early resume" => DevicePhase::ResumeEarly,
        "resume" => DevicePhase::Resume,
        _ => return None,
    };
    Some(LogEvent::Pass {
        phase,
        duration_ns: decimal_ns(time.split_once(" msecs")?.0, 1_000_000)?,
        ended_well: how == "complete",
    })
}

/// Parses a decimal such as `76.543` in a unit of `unit` nanoseconds.
fn decimal_ns(text: &str, unit_ns: u64) -> Option<u64> {
    let (whole, part) = text.trim().split_once('.')?;
    let digits = |t: &str| !t.is_empty() && t.len() < 12 && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return None;
    }
    let scale = 10u64.pow(part.len() as u32);
    let value = whole.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    let part = u128::from(part.parse::<u64>().ok()?) * u128::from(unit_ns) / u128::from(scale);
    value.checked_add(part as u64)
}

fn step(text: &str) -> Option<LogEvent<'_>> {
    if let Some(time) = text.strip_prefix("Filesystems sync: ") {
        let duration_ns = decimal_ns(time.split_once(" seconds")?.0, 1_000_000_000)?;
        return Some(LogEvent::Step {
            name: "sync_filesystems",
            duration_ns,
        });
    }
    if text.starts_with("Freezing ") {
        let (_, time) = text.split_once("(elapsed ")?;
        let duration_ns = decimal_ns(time.split_once(" seconds")?.0, 1_000_000_000)?;
        return Some(LogEvent::Step {
            name: "freeze_processes",
            duration_ns,
        });
    }
    let mark = |name, begin| Some(LogEvent::Mark { name, begin });
    match text.trim_end_matches([' ', '.']) {
        "Disabling non-boot CPUs" => mark("CPU_OFF", true),
        "Enabling non-boot CPUs" => mark("CPU_ON", true),
        text if text.starts_with("Restarting tasks: Starting") => mark("thaw_processes", true),
        text if text.starts_with("Restarting tasks: Done") => mark("thaw_processes", false),
        // Old kernels finish the line later.
        text if text.starts_with("Restarting tasks") => mark("thaw_processes", true),
        text if text.ends_with("is now offline") => mark("CPU_OFF", false),
        text if text.starts_with("CPU") && text.ends_with(" is up") => mark("CPU_ON", false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event_of(line: &str) -> (u64, LogEvent<'_>) {
        match parse_line(line) {
            LogLine::Event(t_ns, event) => (t_ns, event),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn callbacks_are_read_as_new_and_old_kernels_print_them() {
        let (t_ns, event) = event_of(
            "<6>[   41.123456][  T123] ahci 0000:00:1f.2: PM: calling pci_pm_suspend+0x0/0x160 @ \
             123, parent: pci0000:00",
        );
        assert_eq!(t_ns, 41_123_456_000);
        let expected = LogEvent::Calling {
            driver: "ahci",
            device: "0000:00:1f.2",
            parent: Some("pci0000:00"),
            function: Some("pci_pm_suspend"),
            thread: 123,
        };
        assert_eq!(event, expected);
        let (_, event) = event_of("Nov 22 h kernel: [ 1.5] calling  sda+ @ 9, parent: none");
        let expected = LogEvent::Calling {
            driver: "",
            device: "sda",
            parent: None,
            function: None,
            thread: 9,
        };
        assert_eq!(event, expected);
        for line in [
            "[ 1.5] ahci 0000:00:1f.2: PM: pci_pm_suspend+0x0/0x160 returned -16 after 512 usecs",
            "[ 1.5] call 0000:00:1f.2+ returned -16 after 512 usecs",
        ] {
            let expected = LogEvent::Returned {
                device: "0000:00:1f.2",
                error: -16,
                duration_ns: 512_000,
            };
            assert_eq!(event_of(line).1, expected);
        }
    }

    #[test]
    fn passes_and_steps_tell_what_they_took() {
        let (_, event) =
            event_of("[ 2.000000] PM: late suspend of devices complete after 1.250 msecs");
        let expected = LogEvent::Pass {
            phase: DevicePhase::SuspendLate,
            duration_ns: 1_250_000,
            ended_well: true,
        };
        assert_eq!(event, expected);
        let (_, event) = event_of("[ 2.0] Filesystems sync: 0.021 seconds");
        let expected = LogEvent::Step {
            name: "sync_filesystems",
            duration_ns: 21_000_000,
        };
        assert_eq!(event, expected);
    }

    #[test]
    fn lines_of_boot_and_of_others_tell_nothing() {
        for line in [
            "",
            "[ 1.5] calling  init_module+0x0/0x50 @ 1",
            "[ 1.5] initcall init_module+0x0/0x50 returned 0 after 12 usecs",
            "[ 1.5] probe of 0000:00:1f.2 returned 0 after 12 usecs",
            "[ 1.5] usb 1-1: new device",
        ] {
            assert_eq!(parse_line(line), LogLine::Other, "{line}");
        }
        for line in [
            "[ 1.5] ahci x: PM: calling pci_pm_suspend @",
            "[ 1.5] call x+ returned 0 after x usecs",
            "[Sun Nov 22 05:27:53 2026] call x+ returned 0 after 1 usecs",
        ] {
            assert!(matches!(parse_line(line), LogLine::Damaged(_)), "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_the_reader_panic(
            text in ".{0,60}",
            part in proptest::sample::select(vec![
                "PM: calling ", "calling ", ", parent: ", " returned ", " usecs", " of devices ",
                " after ", " msecs", "Freezing x (elapsed ", " seconds", "[ 1.5] ", "call ",
                "Filesystems sync: ", "99999999999999999999.9",
            ]),
            rest in "[a-z0-9 .:+@,-]{0,60}",
        ) {
            for line in [format!("[ 1.5] {text}{part}{rest}"), format!("{part}{rest}{text}"),
                         format!("[ 1.5] {rest}{part}{text}")] {
                let _ = parse_line(&line);
            }
        }
    }
}
