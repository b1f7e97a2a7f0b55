//! Times of the events on the way down and up, as the host received them.

use dormouse_guest::protocol::FromGuest;
use dormouse_report::event::{Clock, Kind};

use crate::cycle::line::{ResumeTimes, Span, SuspendTimes, seconds};
use crate::emulator::power::{Signal, What};

/// Host times of the way down.
#[derive(Default)]
pub(crate) struct Down {
    pub requested_ns: u64,
    migrate: Span,
    enter_ns: Option<u64>,
    /// Until the emulator had ended.
    pub firmware: Span,
}

/// Host times of the way up.
#[derive(Default)]
pub(crate) struct Up {
    pub power_on_ns: u64,
    restore: Span,
    jump_ns: Option<u64>,
    awake_ns: Option<u64>,
    pub thawed_ns: Option<u64>,
}

impl Down {
    pub fn receive(&mut self, signal: &Signal) {
        let at_ns = Some(signal.at_ns);
        match &signal.what {
            What::Agent(FromGuest::Event { event }) => {
                let is = |name: &str, kind: &str| event["name"] == name && event["kind"] == kind;
                if is("migrate", "begin") {
                    self.migrate.begin_ns = at_ns;
                } else if is("migrate", "end") {
                    self.migrate.end_ns = at_ns;
                } else if is("enter", "begin") {
                    self.enter_ns = at_ns;
                }
            }
            What::ConsoleEvent(event) if event.clock == Clock::Firmware => {
                self.firmware.begin_ns = self.firmware.begin_ns.or(at_ns);
            }
            // Under stock firmware: the kernel's snapshot is made, and goes to persistent memory.
            What::Console(line) if line.contains("dormouse: saving a snapshot") => {
                self.firmware.begin_ns = self.firmware.begin_ns.or(at_ns);
            }
            _ => {}
        }
    }

    pub fn times(&self) -> SuspendTimes {
        SuspendTimes {
            total: seconds(Some(self.requested_ns), self.firmware.end_ns),
            migrate: self.migrate.seconds(),
            devices: seconds(self.enter_ns, self.firmware.begin_ns),
            firmware: self.firmware.seconds(),
            ..SuspendTimes::default()
        }
    }
}

impl Up {
    pub fn receive(&mut self, signal: &Signal) {
        let at_ns = Some(signal.at_ns);
        match &signal.what {
            What::Agent(FromGuest::Awake { .. }) => self.awake_ns = at_ns,
            What::Agent(FromGuest::Event { event })
                if event["name"] == "thaw" && event["kind"] == "end" =>
            {
                self.thawed_ns = self.thawed_ns.or(at_ns);
            }
            // Under stock firmware: up to here everything belongs to the boot of a kernel.
            What::Console(line) if line.contains("dormouse: waking from ") => {
                self.jump_ns = self.jump_ns.or(at_ns);
                self.restore.begin_ns = self.restore.begin_ns.or(at_ns);
            }
            What::Console(line) if line.contains("dormouse: over to the system that slept") => {
                self.restore.end_ns = at_ns;
            }
            What::ConsoleEvent(event) if event.clock == Clock::Firmware => {
                match (event.name.as_str(), event.kind) {
                    ("restore-copy", Kind::Begin) => self.restore.begin_ns = Some(event.t_ns),
                    ("restore-copy", Kind::End) => self.restore.end_ns = Some(event.t_ns),
                    ("wake", _) => self.jump_ns = self.jump_ns.or(at_ns),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    pub fn times(&self) -> ResumeTimes {
        let running_ns = self.thawed_ns.or(self.awake_ns);
        ResumeTimes {
            total: seconds(Some(self.power_on_ns), running_ns),
            firmware: seconds(Some(self.power_on_ns), self.jump_ns),
            restore: self.restore.seconds(),
            kernel: seconds(self.jump_ns, running_ns),
            ..ResumeTimes::default()
        }
    }
}
