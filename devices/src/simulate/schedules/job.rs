//! A callback as a sequence of steps: half of its busy time, its sleep, the other half; all of it
//! with its bus, if it has one.

use super::super::engine::{Step, World};
use super::super::problem::Job;

/// Where a thread stands within a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Handling the list entry.
    Enter,
    /// Waits for its bus.
    Bus,
    /// First half of the work.
    FirstHalf,
    /// Sleeps.
    Asleep,
    /// Second half of the work.
    SecondHalf,
    /// Done.
    Over,
}

/// A device that a thread is working on.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// The number of the device.
    pub device: usize,
    /// How far it is.
    pub stage: Stage,
}

impl Running {
    /// At its beginning.
    pub fn new(device: usize) -> Running {
        Running {
            device,
            stage: Stage::Enter,
        }
    }

    /// The next step, or none when the callback has returned.
    pub fn next(&mut self, job: &Job, per_device_ns: u64, world: &mut World) -> Option<Step> {
        let first_ns = if job.wait_ns == 0 {
            job.busy_ns
        } else {
            job.busy_ns / 2
        };
        let (step, stage) = match self.stage {
            Stage::Enter => (Step::Overhead(per_device_ns), Stage::Bus),
            Stage::Bus => {
                world.begin(self.device);
                let step = match job.bus {
                    Some(bus) if job.has_callback => Step::Acquire(bus),
                    _ => Step::Overhead(0),
                };
                (step, Stage::FirstHalf)
            }
            Stage::FirstHalf => (Step::Work(first_ns), Stage::Asleep),
            Stage::Asleep => (Step::Sleep(job.wait_ns), Stage::SecondHalf),
            Stage::SecondHalf => (Step::Work(job.busy_ns - first_ns), Stage::Over),
            Stage::Over => {
                if let Some(bus) = job.bus.filter(|_| job.has_callback) {
                    world.release(bus);
                }
                return None;
            }
        };
        self.stage = stage;
        Some(step)
    }
}
