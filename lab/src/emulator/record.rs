//! The run's timeline: every event of host, guest and firmware, in one file.
//!
//! Guest and firmware clocks start anew or stand still; each of their events therefore carries
//! when the host received it (`host_ns`) and in which power cycle (`power_on`).

use std::path::Path;
use std::time::Instant;

use dormouse_report::event::{Clock, Event, EventWriter, Kind};

use crate::error::{Doing, LabError};

/// Host time of a run, in nanoseconds since it began.
#[derive(Clone, Copy, Debug)]
pub struct HostClock(Instant);

impl HostClock {
    pub fn start() -> HostClock {
        HostClock(Instant::now())
    }

    pub fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Writes `events.jsonl`.
pub struct Recorder {
    writer: EventWriter,
    clock: HostClock,
}

impl Recorder {
    /// Starts a new file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, clock: HostClock) -> Result<Recorder, LabError> {
        let writer = EventWriter::create(path).doing(format!("create {}", path.display()))?;
        Ok(Recorder { writer, clock })
    }

    /// Something that the host did or saw now.
    pub fn host(&mut self, phase: &str, name: &str, kind: Kind) -> u64 {
        let now_ns = self.clock.now_ns();
        self.write(&Event::new(now_ns, Clock::Host, phase, name, kind));
        now_ns
    }

    /// An event with details or of another clock.
    pub fn write(&mut self, event: &Event) {
        // A full disk must not end the run whose outcome matters more than its picture.
        let _ = self.writer.write(event);
    }

    /// An event that the machine reported.
    pub fn record(&mut self, event: Event, at_ns: u64, power_on: u32) {
        self.write(&event.with("host_ns", at_ns).with("power_on", power_on));
    }
}
