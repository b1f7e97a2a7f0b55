//! The daemon's latency probe, a thread that measures the device's access latency between passes,
//! and the threshold that follows from it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::config::{Config, ConfigError};
use crate::allocate::latency::{LatencyTarget, PROBES};
use crate::probe::{Chase, MemoryError, NodeMemory};

/// Memory of the pointer chase on each node. Each line is flushed after it was read, so it need
/// not exceed the caches of the device.
const CHASE_BYTES: usize = 8 << 20;

/// Latency samples since the last pass.
#[derive(Debug, Default)]
struct LatencySamples {
    sum_ns: f64,
    count: u32,
}

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
    target: LatencyTarget,
    scans: Arc<Mutex<LatencySamples>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    /// Probes these nodes in turn, eight times in each interval with this many reads. The
    /// threshold starts at `max_threshold`, in bytes a second.
    ///
    /// # Errors
    /// A node has too little free memory.
    pub fn start(
        nodes: &[u32],
        reads: usize,
        interval: Duration,
        max_ns: f64,
        most: f64,
    ) -> Result<Self, MemoryError> {
        let chases = nodes.iter().map(|&node| Chase::new(node, CHASE_BYTES));
        let mut chases = chases.collect::<Result<Vec<_>, _>>()?;
        let (scans, ends) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let (to, end) = (Arc::clone(&scans), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            for at in (0..chases.len()).cycle() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                let ns = chases[at].median_ns(reads);
                add(&to, ns);
                std::thread::sleep(interval / PROBES);
            }
        });
        Ok(Self {
            target: LatencyTarget::new(max_ns, most),
            scans,
            ends,
            thread: Some(thread),
        })
    }

    /// The configured probe: for the maximum latency, or for that of the curve's working point.
    ///
    /// # Errors
    /// A node has too little free memory, or the curve cannot be used.
    pub fn of(config: &Config, threshold: f64) -> Result<Option<Self>, ProbeError> {
        let interval = Duration::from_millis(config.interval_ms);
        let start = |max_ns| {
            Self::start(
                &config.nodes,
                config.probe_reads,
                interval,
                max_ns,
                threshold,
            )
        };
        let max_ns = config.max_latency_ns()?;
        Ok(max_ns.map(start).transpose()?)
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
        let scans = self
            .scans
            .lock()
            .map(|mut scans| std::mem::take(&mut *scans));
        let scans = scans.unwrap_or_default();
        let mean = (scans.count > 0).then(|| scans.sum_ns / f64::from(scans.count));
        self.target.step(interval_ms, mean, total)
    }

    /// The latency that is kept, in nanoseconds.
    pub fn max_ns(&self) -> f64 {
        self.target.max_ns()
    }

    /// Whether the device answers too slowly at the maximum threshold.
    pub fn is_derated(&self) -> bool {
        self.target.is_derated()
    }

    /// The recent average latency, in nanoseconds.
    pub fn latency_ns(&self) -> Option<f64> {
        self.target.latency_ns()
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

fn add(scans: &Mutex<LatencySamples>, ns: f64) {
    if let Ok(mut scans) = scans.lock() {
        scans.sum_ns += ns;
        scans.count += 1;
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
        let mut probe = Probe::start(&[0], 16, interval, 1.0, 100.0 * GIB).unwrap();
        let (mut threshold, mut passes) = (100.0 * GIB, 0);
        while threshold > 2.0 * GIB && passes < 10_000 {
            std::thread::sleep(interval);
            threshold = probe.threshold(50.0, 2.0 * GIB);
            passes += 1;
        }
        assert!(threshold <= 2.0 * GIB, "{}", threshold / GIB);
        assert!(probe.latency_ns().unwrap() > 1.0);
    }

    #[test]
    fn a_node_that_is_not_there_is_named() {
        let interval = Duration::from_millis(8);
        let said = Probe::start(&[0, 999], 16, interval, 1.0, 1.0).unwrap_err();
        assert!(said.to_string().contains("no node 999"));
        let said = Probe::room(&[0, 999]).unwrap_err();
        assert!(said.to_string().contains("no node 999"));
        Probe::room(&[0]).unwrap();
    }
}
