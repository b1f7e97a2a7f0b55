//! What the device has carried, node by node.

use std::fs;
use std::path::PathBuf;

use super::config::CounterConfig;
use crate::estimate::{Counts, GroupSample};
use crate::simulate::GIB;

/// Where the counters come from.
pub trait Counter: Send {
    /// What each node's counter says now; nothing for a node where it cannot be read.
    /// `moved`: CPU time since the last call of tasks that use the node, in CPU seconds weighted
    /// with the share of their memory that is on it.
    fn read(&mut self, nodes: &[u32], moved: &[f64]) -> Vec<GroupSample>;
}

/// The one that was configured.
pub fn of(config: &CounterConfig) -> Box<dyn Counter> {
    match config {
        CounterConfig::Text { path } => Box::new(Text { path: path.clone() }),
        CounterConfig::Assumed { gib_per_cpu_second } => Box::new(Assumed {
            bytes_per_cpu_second: gib_per_cpu_second * GIB,
            bytes: Vec::new(),
        }),
    }
}

/// Lines `read write`, under headings.
struct Text {
    path: PathBuf,
}

impl Counter for Text {
    fn read(&mut self, nodes: &[u32], _moved: &[f64]) -> Vec<GroupSample> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let mut lines = text.lines().skip(1).map(parse_line);
        let mut sample = |&node: &u32| GroupSample {
            group: node,
            counts: lines.next().flatten(),
        };
        nodes.iter().map(&mut sample).collect()
    }
}

fn parse_line(line: &str) -> Option<Counts> {
    let mut words = line.split_whitespace().map(str::parse::<u64>);
    let (read, write) = (words.next()?.ok()?, words.next()?.ok()?);
    words.next().is_none().then_some(Counts {
        read_bytes: read,
        write_bytes: write,
    })
}

/// Nothing counts; CPU time stands for bytes.
struct Assumed {
    bytes_per_cpu_second: f64,
    bytes: Vec<f64>,
}

impl Counter for Assumed {
    fn read(&mut self, nodes: &[u32], moved: &[f64]) -> Vec<GroupSample> {
        self.bytes.resize(nodes.len(), 0.0);
        for (bytes, seconds) in self.bytes.iter_mut().zip(moved) {
            *bytes += seconds * self.bytes_per_cpu_second;
        }
        let sample = |(&node, bytes): (&u32, &f64)| GroupSample {
            group: node,
            counts: Some(Counts {
                read_bytes: *bytes as u64,
                write_bytes: 0,
            }),
        };
        nodes.iter().zip(&self.bytes).map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_text_is_read_and_damaged_lines_are_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counter-dump");
        let mut counter = of(&CounterConfig::Text { path: path.clone() });
        let mut read = |text: &str| {
            fs::write(&path, text).unwrap();
            let samples = counter.read(&[1, 2], &[]);
            samples
                .iter()
                .map(|sample| sample.counts)
                .collect::<Vec<_>>()
        };
        let counts = |read_bytes, write_bytes| {
            Some(Counts {
                read_bytes,
                write_bytes,
            })
        };
        let text = "read write\n7467077175424 100640100736\n714993795584 45960215552\n";
        let expected = [
            counts(7467077175424, 100640100736),
            counts(714993795584, 45960215552),
        ];
        assert_eq!(read(text), expected);
        assert_eq!(read("read write\n1 x\n2 3\n"), [None, counts(2, 3)]);
        assert_eq!(read("read write\n1 2 3\n"), [None, None]);
        assert_eq!(read(""), [None, None]);
    }

    #[test]
    fn where_nothing_counts_cpu_time_does() {
        let mut counter = of(&CounterConfig::Assumed {
            gib_per_cpu_second: 2.0,
        });
        counter.read(&[1], &[0.5]);
        let samples = counter.read(&[1], &[0.25]);
        let expected = Some(Counts {
            read_bytes: (1.5 * GIB) as u64,
            write_bytes: 0,
        });
        assert_eq!(samples[0].counts, expected);
    }
}
