//! Samples of one event on every CPU, from the rings that the kernel writes them into.

use std::io;
use std::path::Path;

use perf_event::{Builder, Counter, SampleFlag, SampleSkid, Sampler};

use super::decode::{Access, Told, told};
use super::pmu::{Pmu, PmuEvent};
use super::presets::{Op, Place, SampledEvent};

/// Room for samples of one CPU between two looks: some 2,000 of them.
pub const RING_BYTES: usize = 128 << 10;

/// What came out of rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples of memory.
    pub accesses: u64,
    /// Samples of which a cache had the line, or that are nobody's.
    pub elsewhere: u64,
    /// Samples that found no room.
    pub lost: u64,
    /// Times at which the kernel stopped sampling for a while.
    pub throttled: u64,
    /// Records that cannot be understood.
    pub damaged: u64,
}

/// One event's rings.
pub struct Rings {
    op: Op,
    place: Place,
    samplers: Vec<Sampler>,
    /// Events that are counted only because the processor wants them beside.
    _beside: Vec<Counter>,
}

/// This machine's CPUs.
pub fn online() -> Vec<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online");
    super::numbers(&list.unwrap_or_else(|_| "0".to_owned()))
}

/// On which CPUs a PMU's events are to be opened.
pub fn cpus(pmu: &Pmu) -> Vec<u32> {
    if pmu.cpus.is_empty() {
        online()
    } else {
        pmu.cpus.clone()
    }
}

/// An event for all of one CPU's tasks; it counts in the kernel, too, which copies for programs.
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
    /// Samples one of so many of an event, from now on.
    ///
    /// # Errors
    /// The PMU does not have it, or the kernel refuses.
    pub fn open(
        devices: &Path,
        sampled: &SampledEvent,
        period: u64,
        ring_bytes: usize,
    ) -> io::Result<Self> {
        let pmu = Pmu::open(devices, &sampled.pmu).map_err(io::Error::other)?;
        let event = pmu.event(&sampled.event).map_err(io::Error::other)?;
        let beside = sampled.beside.as_deref().filter(|name| pmu.has(name));
        let beside = beside.map(|name| pmu.event(name)).transpose();
        let beside = beside.map_err(io::Error::other)?;
        let mut rings = Self {
            op: sampled.op,
            place: sampled.place,
            samplers: Vec::new(),
            _beside: Vec::new(),
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
            let counter = match beside {
                None => sample.build()?,
                Some(event) => {
                    let mut leader = builder(event, cpu).build()?;
                    let counter = sample.build_with_group(&mut leader)?;
                    leader.enable()?;
                    rings._beside.push(leader);
                    counter
                }
            };
            let mut sampler = counter.sampled(ring_bytes)?;
            sampler.enable()?;
            rings.samplers.push(sampler);
        }
        Ok(rings)
    }

    /// Takes what came since the last time.
    pub fn drain(&mut self, tally: &mut Tally, mut each: impl FnMut(Access)) {
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                let Ok(record) = record.parse_record() else {
                    tally.damaged += 1;
                    continue;
                };
                match told(&record, self.op, self.place) {
                    Told::Access(access) => {
                        tally.accesses += 1;
                        each(access);
                    }
                    Told::Elsewhere => tally.elsewhere += 1,
                    Told::Lost(lost) => tally.lost += lost,
                    Told::Throttled => tally.throttled += 1,
                    Told::Other => (),
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
