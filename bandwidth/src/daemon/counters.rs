//! What the device has carried, node by node.

use std::fs;
use std::path::PathBuf;

use super::bar::Bar;
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
        CounterConfig::Bar {
            path,
            offset,
            bytes_per_count,
        } => Box::new(Mapped {
            path: path.clone(),
            offset: *offset,
            bytes_per_count: *bytes_per_count,
            bar: None,
        }),
        CounterConfig::Resctrl { domains } => Box::new(Resctrl {
            domains: domains.clone(),
        }),
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

/// A BAR; it is mapped again after the device was gone.
struct Mapped {
    path: PathBuf,
    offset: u64,
    bytes_per_count: u64,
    bar: Option<Bar>,
}

impl Counter for Mapped {
    fn read(&mut self, nodes: &[u32], _moved: &[f64]) -> Vec<GroupSample> {
        if self.bar.is_none() {
            let bar = Bar::map(&self.path, self.offset, nodes.len(), self.bytes_per_count);
            self.bar = bar.ok();
        }
        let found = self.bar.as_ref().map(Bar::read).unwrap_or_default();
        if found.iter().all(Option::is_none) {
            self.bar = None;
        }
        let mut found = found.into_iter();
        let sample = |&node: &u32| GroupSample {
            group: node,
            counts: found.next().flatten(),
        };
        nodes.iter().map(sample).collect()
    }
}

/// One folder `mon_L3_*` for each node; what is written is not told apart from what is read.
struct Resctrl {
    domains: Vec<PathBuf>,
}

impl Counter for Resctrl {
    fn read(&mut self, nodes: &[u32], _moved: &[f64]) -> Vec<GroupSample> {
        let sample = |(&node, domain): (&u32, &PathBuf)| {
            let text = fs::read_to_string(domain.join("mbm_total_bytes"));
            // `Unavailable` and `Error` are what the kernel writes where there is no number.
            let bytes = text.ok().and_then(|text| text.trim().parse().ok());
            GroupSample {
                group: node,
                counts: bytes.map(|read_bytes| Counts {
                    read_bytes,
                    write_bytes: 0,
                }),
            }
        };
        nodes.iter().zip(&self.domains).map(sample).collect()
    }
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
    fn resctrl_is_read_and_what_is_no_number_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let domains = ["mon_L3_00", "mon_L3_01"].map(|name| folder.path().join(name));
        for (domain, text) in domains.iter().zip(["4096\n", "Unavailable\n"]) {
            fs::create_dir(domain).unwrap();
            fs::write(domain.join("mbm_total_bytes"), text).unwrap();
        }
        let domains = domains.to_vec();
        let mut counter = of(&CounterConfig::Resctrl { domains });
        let found: Vec<_> = counter.read(&[1, 2], &[]);
        assert_eq!(found[0].counts.map(|counts| counts.read_bytes), Some(4096));
        assert_eq!(found[1].counts, None);
    }

    #[test]
    fn a_device_that_comes_back_is_mapped_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resource2");
        let mut counter = of(&CounterConfig::Bar {
            path: path.clone(),
            offset: 8,
            bytes_per_count: 1,
        });
        assert_eq!(counter.read(&[1], &[])[0].counts, None);
        let words = [0u64, 3, 4].map(u64::to_le_bytes).concat();
        fs::write(&path, words).unwrap();
        let expected = Counts {
            read_bytes: 3,
            write_bytes: 4,
        };
        assert_eq!(counter.read(&[1], &[])[0].counts, Some(expected));
        fs::write(&path, "").unwrap();
        assert_eq!(counter.read(&[1], &[])[0].counts, None);
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
