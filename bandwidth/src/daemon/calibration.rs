//! Compares a counter with traffic of known size before it is trusted.
//!
//! ```text
//!  idle    ─▶ background, in bytes a second
//!  reads   ─▶ counted − background × time ≈ known?
//!  writes  ─▶ the same, in both directions
//! ```

use std::time::{Duration, Instant};

use super::counter::{Counter, Reading};
use crate::curve::GIB;
use crate::estimate::Counts;
use crate::probe::{KnownTraffic, MemoryError, Moved};

/// A counter that is off by more than this is refused.
const MAX_ERROR: f64 = 0.1;
/// Bytes of the memory that is moved in a round.
const ROUND_BYTES: usize = 32 << 20;
/// Traffic of others that is more than this part of what is moved makes the comparison worthless.
const MAX_BACKGROUND: f64 = 0.5;
/// How long the background is measured.
const BACKGROUND: Duration = Duration::from_millis(500);

/// What is moved, and how many counted bytes are expected of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads.
    Reads,
    /// Writes, each of which reads its line before.
    Writes,
}

impl Direction {
    fn moved(self, traffic: &mut KnownTraffic) -> Moved {
        match self {
            Self::Reads => traffic.read(),
            Self::Writes => traffic.write(),
        }
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
        }
    }
}

/// The comparison of one direction on one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The node.
    pub node: u32,
    /// What was moved.
    pub direction: Direction,
    /// Bytes in both directions that the counter should have counted.
    pub known_bytes: f64,
    /// What it counted, without the background.
    pub counted_bytes: f64,
    /// What others move meanwhile, in bytes a second.
    pub background_bytes_s: f64,
    /// The same, relative to what was moved.
    pub background_part: f64,
}

impl Compared {
    /// The relative error of the counter.
    pub fn error(&self) -> f64 {
        self.counted_bytes / self.known_bytes - 1.0
    }

    /// Whether others move so much that the comparison says nothing.
    pub fn is_disturbed(&self) -> bool {
        self.background_part > MAX_BACKGROUND
    }

    /// Whether the counter can be trusted.
    pub fn is_right(&self) -> bool {
        !self.is_disturbed() && self.error().abs() <= MAX_ERROR
    }

    /// One line for the report.
    pub fn describe(&self) -> String {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        format!(
            "node {}, {}: counted {:.0} of {:.0} MiB ({:+.1} %); others move {:.2} GiB/s",
            self.node,
            self.direction.name(),
            mib(self.counted_bytes),
            mib(self.known_bytes),
            100.0 * self.error(),
            self.background_bytes_s / GIB,
        )
    }
}

/// Why a counter was not compared.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// No memory to move.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The counter cannot be read.
    #[error("node {node}: the counter cannot be read{why}")]
    Unreadable {
        /// The node.
        node: u32,
        /// What is known, after a colon.
        why: String,
    },
}

/// Moves `bytes` and more in each direction on each of the nodes, and compares the counter with it.
/// `counts_writes`: whether it counts writes at all. Each node has the part of its traffic that
/// the device carries: less than all of it where the node is interleaved.
///
/// # Errors
/// A node has too little free memory, or the counter cannot be read.
pub fn compare(
    counter: &mut dyn Counter,
    nodes: &[(u32, f64)],
    bytes: u64,
    counts_writes: bool,
) -> Result<Vec<Compared>, CalibrationError> {
    let mut all = Vec::new();
    let parts = nodes;
    let nodes: Vec<u32> = parts.iter().map(|(node, _)| *node).collect();
    for (at, &(node, part)) in parts.iter().enumerate() {
        let mut traffic = KnownTraffic::on(node, ROUND_BYTES)?;
        let mut read = || counts(counter, &nodes, at);
        let (began, before) = (Instant::now(), read()?);
        std::thread::sleep(BACKGROUND);
        let idle = grown(before, read()?);
        let idle_s = began.elapsed().as_secs_f64();
        for direction in [Direction::Reads, Direction::Writes] {
            let (began, before) = (Instant::now(), read()?);
            let mut known = Moved::default();
            while known.read_bytes < bytes {
                let moved = direction.moved(&mut traffic);
                known.read_bytes += moved.read_bytes;
                known.write_bytes += moved.write_bytes;
            }
            let counted = grown(before, read()?);
            let seconds = began.elapsed().as_secs_f64();
            let sum = |reads: u64, writes: u64| match counts_writes {
                true => reads as f64 + writes as f64,
                false => reads as f64,
            };
            let background_bytes_s = sum(idle.read_bytes, idle.write_bytes) / idle_s;
            let background = background_bytes_s * seconds;
            let known_bytes = part * sum(known.read_bytes, known.write_bytes);
            all.push(Compared {
                node,
                direction,
                known_bytes,
                counted_bytes: sum(counted.read_bytes, counted.write_bytes) - background,
                background_bytes_s,
                background_part: background / known_bytes,
            });
        }
    }
    Ok(all)
}

fn counts(counter: &mut dyn Counter, nodes: &[u32], at: usize) -> Result<Counts, CalibrationError> {
    let samples = counter.read(Reading {
        now_ns: super::monotonic_ns(),
        nodes,
        moved: &[],
    });
    let counts = samples.get(at).and_then(|sample| sample.counts);
    counts.ok_or_else(|| CalibrationError::Unreadable {
        node: nodes[at],
        why: counter
            .why()
            .map_or(String::new(), |why| format!(": {why}")),
    })
}

/// Since then; a counter that wraps between the two is followed, one that jumps back is far off.
fn grown(before: Counts, now: Counts) -> Counts {
    Counts {
        read_bytes: now.read_bytes.wrapping_sub(before.read_bytes),
        write_bytes: now.write_bytes.wrapping_sub(before.write_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::GroupSample;

    const BYTES: u64 = 64 << 20;

    /// Counts as if it followed what `compare` moves: at each reading after the second one, the
    /// known traffic times a factor; and background in between.
    struct Following {
        readings: u32,
        factor: f64,
        background: u64,
        counts: Counts,
        fails_at: u32,
    }

    impl Following {
        fn new(factor: f64, background: u64) -> Self {
            Self {
                readings: 0,
                factor,
                background,
                counts: Counts::default(),
                fails_at: u32::MAX,
            }
        }
    }

    impl Counter for Following {
        fn read(&mut self, reading: Reading) -> Vec<GroupSample> {
            self.readings += 1;
            // Background: 1, 2. Reads: 3, 4. Writes: 5, 6.
            let moved = (self.factor * BYTES as f64) as u64;
            match self.readings {
                2 => self.counts.read_bytes += self.background,
                4 => self.counts.read_bytes += moved,
                6 => {
                    self.counts.read_bytes += moved;
                    self.counts.write_bytes += moved;
                }
                _ => (),
            }
            let counts = (self.readings < self.fails_at).then_some(self.counts);
            vec![GroupSample {
                group: reading.nodes[0],
                counts,
            }]
        }
    }

    fn compared(mut counter: Following) -> Vec<Compared> {
        compare(&mut counter, &[(0, 1.0)], BYTES, true).unwrap()
    }

    #[test]
    fn a_counter_that_is_off_by_more_than_a_tenth_is_refused() {
        for (factor, right) in [
            (1.0, true),
            (0.92, true),
            (1.08, true),
            (0.88, false),
            (1.12, false),
            (0.0, false),
            (64.0, false),
        ] {
            let all = compared(Following::new(factor, 0));
            assert_eq!(all.len(), 2);
            for one in all {
                assert_eq!(one.is_right(), right, "{factor}: {}", one.describe());
                assert!((one.error() - (factor - 1.0)).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn a_device_of_an_interleaved_node_counts_its_part() {
        let mut counter = Following::new(0.5, 0);
        let all = compare(&mut counter, &[(0, 0.5)], BYTES, true).unwrap();
        assert!(all.iter().all(Compared::is_right), "{all:?}");
    }

    #[test]
    fn beside_much_other_traffic_no_counter_is_called_right() {
        let all = compared(Following::new(1.0, 1 << 40));
        assert!(all.iter().all(Compared::is_disturbed), "{all:?}");
        assert!(!all.iter().any(Compared::is_right), "{all:?}");
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_named_with_its_node() {
        let mut counter = Following::new(1.0, 0);
        counter.fails_at = 4;
        let error = compare(&mut counter, &[(0, 1.0)], BYTES, true).unwrap_err();
        assert!(error.to_string().contains("node 0"), "{error}");
    }

    #[test]
    fn a_counter_of_reads_alone_is_compared_with_reads() {
        let mut counter = Following::new(1.0, 0);
        let all = compare(&mut counter, &[(0, 1.0)], BYTES, false).unwrap();
        for one in all {
            assert_eq!(one.known_bytes, BYTES as f64);
            assert!(one.is_right(), "{}", one.describe());
        }
    }
}
