//! Samples of one event on every CPU, from the rings that the kernel fills.

use std::io;
use std::path::Path;

use perf_event::{Builder, Counter, SampleFlag, SampleSkid, Sampler};

use super::decode::{Access, Decoded, decode};
use super::pmu::{Pmu, PmuEvent};
use super::presets::{Op, Place, SampledEvent};

/// Room for some 2,000 samples of one CPU between two passes.
pub const RING_BYTES: usize = 128 << 10;

/// Counts of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples of memory accesses.
    pub accesses: u64,
    /// Samples of cache hits or without a process.
    pub elsewhere: u64,
    /// Samples for which the ring had no room.
    pub lost: u64,
    /// How often the kernel paused sampling.
    pub throttled: u64,
    /// Records that cannot be parsed.
    pub damaged: u64,
}

/// The rings of one event.
pub struct Rings {
    op: Op,
    place: Place,
    samplers: Vec<Sampler>,
    /// Group leaders that the processor needs.
    _leaders: Vec<Counter>,
}

/// This machine's CPUs.
pub fn online() -> Vec<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online");
    super::numbers(&list.unwrap_or_else(|_| "0".to_owned()))
}

/// The CPUs on which a PMU's events are opened.
pub fn cpus(pmu: &Pmu) -> Vec<u32> {
    if pmu.cpus.is_empty() {
        online()
    } else {
        pmu.cpus.clone()
    }
}

/// An event for all tasks of one CPU. It includes the kernel, which copies data for programs.
pub fn builder(event: PmuEvent, cpu: u32) -> Builder<'static> {
    let mut builder = Builder::new(event);
    builder
        .any_pid()
        .one_cpu(cpu as usize)
        .exclude_kernel(false)
        .exclude_hv(false);
    builder
}

impl Rings {
    /// Samples one in `period` events from now on.
    ///
    /// # Errors
    /// The PMU does not have the event, or the kernel refuses it.
    pub fn open(
        devices: &Path,
        sampled: &SampledEvent,
        period: u64,
        ring_bytes: usize,
    ) -> io::Result<Self> {
        let pmu = Pmu::open(devices, &sampled.pmu).map_err(io::Error::other)?;
        let event = pmu.event(&sampled.event).map_err(io::Error::other)?;
        let leader = sampled.leader.as_deref().filter(|name| pmu.has(name));
        let leader = leader.map(|name| pmu.event(name)).transpose();
        let leader = leader.map_err(io::Error::other)?;
        let mut rings = Self {
            op: sampled.op,
            place: sampled.place,
            samplers: Vec::new(),
            _leaders: Vec::new(),
        };
        for cpu in cpus(&pmu) {
            let mut sample = builder(event, cpu);
            sample
                .sample_period(period)
                .precise_ip(skid(sampled.precise))
                .sample(SampleFlag::TID | SampleFlag::ADDR | SampleFlag::PHYS_ADDR);
            if sampled.pmu != "software" {
                sample.sample(SampleFlag::DATA_SRC);
            }
            let counter = match leader {
                None => sample.build()?,
                Some(event) => {
                    let mut leader = builder(event, cpu).build()?;
                    let counter = sample.build_with_group(&mut leader)?;
                    leader.enable()?;
                    rings._leaders.push(leader);
                    counter
                }
            };
            let mut sampler = counter.sampled(ring_bytes)?;
            sampler.enable()?;
            rings.samplers.push(sampler);
        }
        Ok(rings)
    }

    /// Reads the records since the last call.
    pub fn drain(&mut self, tally: &mut Tally, mut each: impl FnMut(Access)) {
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                let Ok(record) = record.parse_record() else {
                    tally.damaged += 1;
                    continue;
                };
                match decode(&record, self.op, self.place) {
                    Decoded::Access(access) => {
                        tally.accesses += 1;
                        each(access);
                    }
                    Decoded::Elsewhere => tally.elsewhere += 1,
                    Decoded::Lost(lost) => tally.lost += lost,
                    Decoded::Throttled => tally.throttled += 1,
                    Decoded::Other => (),
                }
            }
        }
    }
}

fn skid(precise: u8) -> SampleSkid {
    match precise {
        0 => SampleSkid::Arbitrary,
        1 => SampleSkid::Constant,
        2 => SampleSkid::RequestZero,
        _ => SampleSkid::RequireZero,
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
