//! What a machine needs to be recorded, and what it lacks.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::trace::{EVENTS, SWITCHES, tracefs};
use super::{Options, State, Test};
use crate::sysfs;

/// Something that is not there, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What is missing.
    pub what: String,
    /// What to do about it.
    pub todo: String,
}

impl fmt::Display for Lack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}; {}", self.what, self.todo)
    }
}

fn lack(what: impl Into<String>, todo: impl Into<String>) -> Lack {
    Lack {
        what: what.into(),
        todo: todo.into(),
    }
}

/// Everything that stands in the way; nothing is changed by looking.
pub fn lacks(options: &Options) -> Vec<Lack> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push(lack("the rights of root are missing", "run it as root"));
    }
    missing.extend(states(options));
    missing.extend(tests(options));
    missing.extend(tracing(options));
    missing.extend(waking(options));
    missing
}

fn states(options: &Options) -> Option<Lack> {
    let power = options.sys.join("power");
    let Some(states) = sysfs::read(&power.join("state")) else {
        return Some(lack(
            format!("there is no {}", power.join("state").display()),
            "the kernel needs CONFIG_SUSPEND; a container cannot change that",
        ));
    };
    let word = options.state.word();
    if !states.split_whitespace().any(|state| state == word) {
        return Some(lack(
            format!("the kernel has no state `{word}` (it has: {states})"),
            "choose another --state",
        ));
    }
    let modes = sysfs::read(&power.join("mem_sleep")).unwrap_or_default();
    let has_deep = modes
        .split_whitespace()
        .any(|mode| mode.trim_matches(['[', ']']) == State::Deep.as_str());
    (options.state == State::Deep && !modes.is_empty() && !has_deep).then(|| {
        lack(
            format!("the machine has no suspend to RAM (it has: {modes})"),
            "use --state s2idle",
        )
    })
}

fn tests(options: &Options) -> Option<Lack> {
    let test = options.test?;
    let path = options.sys.join("power/pm_test");
    let Some(levels) = sysfs::read(&path) else {
        return Some(lack(
            format!("there is no {}", path.display()),
            "--test needs a kernel with CONFIG_PM_DEBUG (Debian: not the cloud flavour)",
        ));
    };
    let known = levels
        .split_whitespace()
        .any(|level| level.trim_matches(['[', ']']) == test.as_str());
    if !known {
        return Some(lack(
            format!(
                "the kernel has no test `{}` (it has: {levels})",
                test.as_str()
            ),
            "choose another --test",
        ));
    }
    let needs_deep = matches!(test, Test::Processors | Test::Core);
    // With suspend to idle the kernel sleeps before it comes to these.
    (needs_deep && options.state == State::S2idle).then(|| {
        lack(
            format!("suspend to idle has no test `{}`", test.as_str()),
            "use --state deep, or --test platform",
        )
    })
}

fn tracing(options: &Options) -> Option<Lack> {
    let Some((root, is_mounted)) = tracefs(&options.sys) else {
        return Some(lack(
            "there is no tracefs",
            "the kernel needs CONFIG_TRACING and CONFIG_EVENT_TRACING",
        ));
    };
    if !is_mounted {
        // It is mounted for the recording; what it has is seen then.
        return None;
    }
    let wanted = EVENTS
        .into_iter()
        .chain(options.switches.then_some(SWITCHES));
    for event in wanted {
        if !root.join("events").join(event).is_dir() {
            return Some(lack(
                format!("the kernel has no event {event}"),
                "it needs CONFIG_PM_SLEEP and CONFIG_EVENT_TRACING (scheduling events: \
                 --no-switches does without)",
            ));
        }
    }
    (!root.join("instances").is_dir()).then(|| {
        lack(
            format!("{} has no instances", root.display()),
            "use Linux 3.10 or newer",
        )
    })
}

fn waking(options: &Options) -> Option<Lack> {
    if options.test.is_some() || options.wake_after_s.is_none() {
        return None;
    }
    wake_alarm(&options.sys).is_none().then(|| {
        lack(
            "no real-time clock can wake the machine",
            "use --wake-after never and wake it by hand, or --test devices, which needs no waking",
        )
    })
}

/// The alarm of the first real-time clock that has one.
pub fn wake_alarm(sys: &Path) -> Option<PathBuf> {
    let mut clocks: Vec<PathBuf> = fs::read_dir(sys.join("class/rtc"))
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("wakealarm"))
        .filter(|path| path.is_file())
        .collect();
    clocks.sort();
    clocks.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn options(sys: &Path) -> Options {
        Options {
            state: State::S2idle,
            test: Some(Test::Devices),
            wake_after_s: Some(5),
            trust_clock: false,
            cycles: 1,
            pause: Duration::ZERO,
            switches: true,
            buffer_kib: 1024,
            directory: sys.join("out"),
            sys: sys.to_owned(),
        }
    }

    fn write(sys: &Path, name: &str, text: &str) {
        let path = sys.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn said(options: &Options) -> String {
        let lacks = lacks(options);
        let lines: Vec<String> = lacks.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }

    #[test]
    fn a_machine_without_suspend_is_told_all_that_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let said = said(&options(folder.path()));
        for word in ["CONFIG_SUSPEND", "CONFIG_PM_DEBUG", "tracefs"] {
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn a_state_test_or_clock_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        write(sys, "power/state", "freeze mem\n");
        write(sys, "power/mem_sleep", "[s2idle]\n");
        write(
            sys,
            "power/pm_test",
            "[none] core processors platform devices freezer\n",
        );
        for event in EVENTS.into_iter().chain([SWITCHES]) {
            fs::create_dir_all(sys.join("kernel/tracing/events").join(event)).unwrap();
        }
        fs::create_dir_all(sys.join("kernel/tracing/instances")).unwrap();
        let ready = options(sys);
        let without_root = |options: &Options| -> Vec<Lack> {
            let all = lacks(options).into_iter();
            all.filter(|lack| !lack.what.contains("root")).collect()
        };
        assert_eq!(without_root(&ready), []);
        let deep = Options {
            state: State::Deep,
            ..ready.clone()
        };
        assert!(said(&deep).contains("no suspend to RAM"));
        let core = Options {
            test: Some(Test::Core),
            ..ready.clone()
        };
        assert!(said(&core).contains("--state deep"));
        let asleep = Options {
            test: None,
            ..ready
        };
        assert!(said(&asleep).contains("real-time clock"));
        write(sys, "class/rtc/rtc0/wakealarm", "");
        assert_eq!(without_root(&asleep), []);
    }
}
