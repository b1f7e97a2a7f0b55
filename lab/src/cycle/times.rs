//! Times of the events on the way down and up, as the host received them.

use dormouse_guest::protocol::FromGuest;
use dormouse_report::event::{Clock, Kind};

use crate::cycle::line::{ResumeTimes, SuspendTimes, seconds};
use crate::emulator::power::{Signal, What};

/// Host times of the events on the way down and up.
#[derive(Default)]
pub(crate) struct Times {
    pub requested_ns: u64,
    pub enter_ns: Option<u64>,
    pub migrate_begin_ns: Option<u64>,
    pub migrate_end_ns: Option<u64>,
    pub firmware_begin_ns: Option<u64>,
    pub off_ns: Option<u64>,
    pub power_on_ns: u64,
    pub jump_ns: Option<u64>,
    pub restore_begin_ns: Option<u64>,
    pub restore_end_ns: Option<u64>,
    pub awake_ns: Option<u64>,
    pub thawed_ns: Option<u64>,
}

impl Times {
    pub fn hear_suspend(&mut self, signal: &Signal) {
        let at_ns = Some(signal.at_ns);
        match &signal.what {
            What::Agent(FromGuest::Event { event }) => {
                let is = |name: &str, kind: &str| event["name"] == name && event["kind"] == kind;
                if is("migrate", "begin") {
                    self.migrate_begin_ns = at_ns;
                } else if is("migrate", "end") {
                    self.migrate_end_ns = at_ns;
                } else if is("enter", "begin") {
                    self.enter_ns = at_ns;
                }
            }
            What::ConsoleEvent(event) if event.clock == Clock::Firmware => {
                self.firmware_begin_ns = self.firmware_begin_ns.or(at_ns);
            }
            // Under stock firmware: the kernel's snapshot is made, and goes to persistent memory.
            What::Console(line) if line.contains("dormouse: saving a snapshot") => {
                self.firmware_begin_ns = self.firmware_begin_ns.or(at_ns);
            }
            _ => {}
        }
    }

    pub fn hear_resume(&mut self, signal: &Signal) {
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
                self.restore_begin_ns = self.restore_begin_ns.or(at_ns);
            }
            What::Console(line) if line.contains("dormouse: over to the system that slept") => {
                self.restore_end_ns = at_ns;
            }
            What::ConsoleEvent(event) if event.clock == Clock::Firmware => {
                match (event.name.as_str(), event.kind) {
                    ("restore-copy", Kind::Begin) => self.restore_begin_ns = Some(event.t_ns),
                    ("restore-copy", Kind::End) => self.restore_end_ns = Some(event.t_ns),
                    ("wake", _) => self.jump_ns = self.jump_ns.or(at_ns),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// The way down.
    pub fn suspend(&self) -> SuspendTimes {
        SuspendTimes {
            total: seconds(Some(self.requested_ns), self.off_ns),
            migrate: seconds(self.migrate_begin_ns, self.migrate_end_ns),
            devices: seconds(self.enter_ns, self.firmware_begin_ns),
            firmware: seconds(self.firmware_begin_ns, self.off_ns),
            ..SuspendTimes::default()
        }
    }

    /// The way up.
    pub fn resume(&self) -> ResumeTimes {
        let running_ns = self.thawed_ns.or(self.awake_ns);
        ResumeTimes {
            total: seconds(Some(self.power_on_ns), running_ns),
            firmware: seconds(Some(self.power_on_ns), self.jump_ns),
            restore: seconds(self.restore_begin_ns, self.restore_end_ns),
            kernel: seconds(self.jump_ns, running_ns),
            ..ResumeTimes::default()
        }
    }
}
