//! The daemon's latency probe, a thread that measures the device's access latency between passes,
//! and the threshold that follows from it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::config::{Config, ConfigError, DeviceConfig};
use crate::allocate::latency_watch::{LatencyWatch, PROBES};
use crate::probe::{Chase, MemoryError, NodeMemory};
use crate::random::Random;

/// Memory of the pointer chase on each node. Each line is flushed after it was read, so it need
/// not exceed the caches of the device.
const CHASE_BYTES: usize = 8 << 20;

/// Latency samples that wait for a pass; a delayed one needs no more.
const MAX_SAMPLES: usize = 64;

/// Why latency cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A node has too little free memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The curve cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A latency probe, and the threshold at which accesses take the configured time.
#[derive(Debug)]
pub struct Probe {
    watch: LatencyWatch,
    samples: Arc<Mutex<Vec<f64>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    /// Probes these nodes in turn, eight times in each interval with this many reads, for this
    /// watch.
    ///
    /// # Errors
    /// A node has too little free memory.
    pub fn start(
        nodes: &[u32],
        reads: usize,
        interval: Duration,
        watch: LatencyWatch,
    ) -> Result<Self, MemoryError> {
        let chases = nodes.iter().map(|&node| Chase::new(node, CHASE_BYTES));
        let mut chases = chases.collect::<Result<Vec<_>, _>>()?;
        let (samples, ends) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let (to, end) = (Arc::clone(&samples), Arc::clone(&ends));
        let mut random = Random::new(0x1a7e);
        let thread = std::thread::spawn(move || {
            for at in (0..chases.len()).cycle() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                let ns = chases[at].median_ns(reads);
                add(&to, ns);
                // Not in step with the periods of quotas.
                std::thread::sleep((interval / PROBES).mul_f64(0.5 + random.unit()));
            }
        });
        Ok(Self {
            watch,
            samples,
            ends,
            thread: Some(thread),
        })
    }

    /// The configured probe of a device: for the maximum latency, or for a comparison with the
    /// curve, or both.
    ///
    /// # Errors
    /// A node has too little free memory, or the curve cannot be used.
    pub fn of(
        config: &Config,
        device: &DeviceConfig,
        threshold: f64,
    ) -> Result<Option<Self>, ProbeError> {
        if !device.measures_latency() && config.classes.is_empty() {
            return Ok(None);
        }
        let interval = Duration::from_millis(config.interval_ms);
        let watch = LatencyWatch::new(device.max_latency_ns, threshold, device.latency_curve()?);
        Ok(Some(Self::start(
            &device.nodes,
            config.probe_reads,
            interval,
            watch,
        )?))
    }

    /// Whether these nodes have free memory for the probe.
    ///
    /// # Errors
    /// One of them has not.
    pub fn room(nodes: &[u32]) -> Result<(), MemoryError> {
        let all = nodes.iter().map(|&node| NodeMemory::on(node, CHASE_BYTES));
        all.collect::<Result<Vec<_>, _>>().map(drop)
    }

    /// The threshold after an interval in which the device moved `total` bytes a second.
    pub fn threshold(&mut self, interval_ms: f64, total: f64) -> f64 {
        let samples = self.samples.lock();
        let samples = samples.map(|mut samples| std::mem::take(&mut *samples));
        for ns in samples.unwrap_or_default() {
            self.watch.sample(ns);
        }
        self.watch.step(interval_ms, total)
    }

    /// What the samples say so far.
    pub fn watch(&self) -> &LatencyWatch {
        &self.watch
    }

    pub(super) fn watch_mut(&mut self) -> &mut LatencyWatch {
        &mut self.watch
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn add(samples: &Mutex<Vec<f64>>, ns: f64) {
    if let Ok(mut samples) = samples.lock()
        && samples.len() < MAX_SAMPLES
    {
        samples.push(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::GIB;

    #[test]
    fn a_memory_that_answers_too_slowly_gets_a_lower_threshold() {
        let interval = Duration::from_millis(8);
        // No memory answers in a nanosecond.
        let watch = LatencyWatch::new(Some(1.0), 100.0 * GIB, None);
        let mut probe = Probe::start(&[0], 16, interval, watch).unwrap();
        let (mut threshold, mut passes) = (100.0 * GIB, 0);
        while threshold > 2.0 * GIB && passes < 10_000 {
            std::thread::sleep(interval);
            threshold = probe.threshold(50.0, 2.0 * GIB);
            passes += 1;
        }
        assert!(threshold <= 2.0 * GIB, "{}", threshold / GIB);
        assert!(probe.watch().latency_ns().unwrap() > 1.0);
    }

    #[test]
    fn a_node_that_is_not_there_is_named() {
        let interval = Duration::from_millis(8);
        let watch = LatencyWatch::new(Some(1.0), 1.0, None);
        let said = Probe::start(&[0, 999], 16, interval, watch).unwrap_err();
        assert!(said.to_string().contains("no node 999"));
        let said = Probe::room(&[0, 999]).unwrap_err();
        assert!(said.to_string().contains("no node 999"));
        Probe::room(&[0]).unwrap();
    }
}
