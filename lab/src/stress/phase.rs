//! Where in the cycle the machine is, by the messages that the host has received.

use dormouse_guest::protocol::FromGuest;
use dormouse_report::event::{Clock, Kind};
use serde::{Deserialize, Serialize};

use crate::emulator::power::{Signal, What};

/// The steps of one sleep and wake, in order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Preflight, the node goes online, user space stops, caches are dropped.
    #[default]
    Preparing,
    Migrating,
    /// Linux suspends: devices, the module.
    KernelDown,
    /// Firmware checks, saves, commits.
    FirmwareDown,
    Off,
    /// Firmware starts, checks, restores, consumes.
    FirmwareUp,
    /// Linux resumes; user space does not run yet.
    KernelUp,
    /// User space runs, pages migrate back.
    #[serde(alias = "coming-home")]
    MigratingBack,
    /// Everything is over.
    Awake,
}

impl Phase {
    pub const ALL: [Phase; 9] = [
        Phase::Preparing,
        Phase::Migrating,
        Phase::KernelDown,
        Phase::FirmwareDown,
        Phase::Off,
        Phase::FirmwareUp,
        Phase::KernelUp,
        Phase::MigratingBack,
        Phase::Awake,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Preparing => "preparing",
            Phase::Migrating => "migrating",
            Phase::KernelDown => "kernel-down",
            Phase::FirmwareDown => "firmware-down",
            Phase::Off => "off",
            Phase::FirmwareUp => "firmware-up",
            Phase::KernelUp => "kernel-up",
            Phase::MigratingBack => "migrating-back",
            Phase::Awake => "awake",
        }
    }

    /// Whether user space has run since the image was made: it must never be resumed again.
    pub fn has_run_on(self) -> bool {
        self >= Phase::MigratingBack
    }
}

/// Follows the machine's messages; steps only forward.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    phase: Phase,
    /// The last event received: finer than the phase.
    step: String,
}

impl Tracker {
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The last event received.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Goes to a phase that the host itself knows of.
    pub fn enter(&mut self, phase: Phase) {
        self.phase = self.phase.max(phase);
    }

    pub fn receive(&mut self, signal: &Signal) {
        match &signal.what {
            What::Agent(FromGuest::Awake { .. }) => self.enter(Phase::MigratingBack),
            What::Agent(FromGuest::Event { event }) => {
                let (name, kind) = (
                    event["name"].as_str().unwrap_or_default(),
                    event["kind"].as_str().unwrap_or_default(),
                );
                self.step = format!("{name} {kind}");
                match (name, kind) {
                    ("migrate", "begin") => self.enter(Phase::Migrating),
                    ("enter", _) => self.enter(Phase::KernelDown),
                    // The first instruction of user space after waking.
                    ("resumed", _) | ("thaw", _) => self.enter(Phase::MigratingBack),
                    _ => {}
                }
            }
            What::ConsoleEvent(event) => {
                self.step = format!(
                    "{} {}",
                    event.name,
                    match event.kind {
                        Kind::Begin => "begin",
                        Kind::End => "end",
                        Kind::Mark => "mark",
                    }
                );
                if event.clock == Clock::Firmware && !event.detail.contains_key("source") {
                    self.hear_firmware(&event.name);
                }
            }
            _ => {}
        }
    }

    fn hear_firmware(&mut self, name: &str) {
        if name == "wake" {
            self.enter(Phase::KernelUp);
        } else if self.phase < Phase::Off {
            self.enter(Phase::FirmwareDown);
        } else {
            self.enter(Phase::FirmwareUp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_report::event::parse_console_line;
    use serde_json::json;

    fn guest(name: &str, kind: &str) -> Signal {
        let event = json!({"t_ns":1,"clock":"guest","phase":"suspend","name":name,"kind":kind});
        Signal {
            at_ns: 0,
            what: What::Agent(FromGuest::Event { event }),
        }
    }

    fn console(line: &str) -> Signal {
        let event = parse_console_line(line).expect("an event");
        Signal {
            at_ns: 0,
            what: What::ConsoleEvent(event),
        }
    }

    #[test]
    fn a_whole_cycle_goes_through_every_phase_in_order() {
        let mut tracker = Tracker::default();
        let mut seen = vec![tracker.phase()];
        let mut step = |tracker: &mut Tracker, signal: Option<Signal>, host: Option<Phase>| {
            if let Some(signal) = signal {
                tracker.receive(&signal);
            }
            if let Some(phase) = host {
                tracker.enter(phase);
            }
            if seen.last() != Some(&tracker.phase()) {
                seen.push(tracker.phase());
            }
        };
        for signal in [
            guest("preflight", "begin"),
            guest("migrate", "begin"),
            guest("migrate", "end"),
            guest("enter", "mark"),
            console("[   12.0] dormouse: event t_ns=5 phase=suspend name=prepare kind=begin"),
            console("dormouse: event t_ns=9 phase=suspend name=save-copy kind=begin"),
        ] {
            step(&mut tracker, Some(signal), None);
        }
        step(&mut tracker, None, Some(Phase::Off));
        for signal in [
            console("dormouse: event t_ns=1 phase=resume name=restore-copy kind=begin"),
            console("dormouse: event t_ns=2 phase=resume name=wake kind=mark"),
            guest("resumed", "mark"),
        ] {
            step(&mut tracker, Some(signal), None);
        }
        step(&mut tracker, None, Some(Phase::Awake));
        assert_eq!(seen, Phase::ALL);
    }

    #[test]
    fn what_comes_late_does_not_turn_time_back() {
        let mut tracker = Tracker::default();
        tracker.enter(Phase::Off);
        tracker.receive(&guest("migrate", "begin"));
        assert_eq!(tracker.phase(), Phase::Off);
        assert_eq!(tracker.step(), "migrate begin");
    }
}
