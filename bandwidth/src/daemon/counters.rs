//! Sources of the device's traffic, node by node.

use std::fs;
use std::path::{Path, PathBuf};

use super::bar::Bar;
use super::composite::CompositeCounter;
use super::config::{Config, CounterConfig, DeviceConfig};
use super::counter::{Counter, Reading};
use crate::curve::GIB;
use crate::estimate::{CounterSpec, Counts, GroupSample};
use crate::perf::device::{NodeCounter, Wanted};
use crate::perf::pmu::DEVICES;
use crate::perf::presets::Cpu;
use crate::resctrl::{self, SlowMemory};

/// The configured counters of all devices as one, leg by leg.
pub fn of(config: &Config, counter_spec: CounterSpec) -> Box<dyn Counter> {
    if let [device] = config.devices.as_slice() {
        return of_device(device, counter_spec);
    }
    let each = config.devices.iter().map(|device| OfDevice {
        name: device.name.clone(),
        legs: device.nodes.len(),
        counter: of_device(device, counter_spec),
    });
    Box::new(OfDevices(each.collect()))
}

fn of_device(device: &DeviceConfig, counter_spec: CounterSpec) -> Box<dyn Counter> {
    if device.fallback.is_empty() {
        return one(&device.counter);
    }
    let all = device.counters();
    let all = all.map(|config| (config.kind(), one(config))).collect();
    Box::new(CompositeCounter::new(all, counter_spec))
}

/// The counter of one of several devices.
struct OfDevice {
    name: String,
    legs: usize,
    counter: Box<dyn Counter>,
}

/// The counters of several devices, device after device.
struct OfDevices(Vec<OfDevice>);

impl Counter for OfDevices {
    fn read(&mut self, reading: Reading) -> Vec<GroupSample> {
        let (mut nodes, mut moved) = (reading.nodes, reading.moved);
        let mut found = Vec::with_capacity(nodes.len());
        for device in &mut self.0 {
            let (mine, others) = nodes.split_at(device.legs.min(nodes.len()));
            let (ran, rest) = moved.split_at(device.legs.min(moved.len()));
            (nodes, moved) = (others, rest);
            let mut samples = device.counter.read(Reading {
                now_ns: reading.now_ns,
                nodes: mine,
                moved: ran,
            });
            // A counter with too few lines must not shift those of the next device.
            let lacking = mine.iter().skip(samples.len());
            samples.extend(lacking.map(|&group| GroupSample {
                group,
                counts: None,
            }));
            found.append(&mut samples);
        }
        found
    }

    fn why(&self) -> Option<String> {
        let why = |device: &OfDevice| Some(format!("{}: {}", device.name, device.counter.why()?));
        self.0.iter().find_map(why)
    }

    fn notices(&mut self) -> Vec<String> {
        let notices = self.0.iter_mut().flat_map(|device| {
            let name = &device.name;
            let named = device
                .counter
                .notices()
                .into_iter()
                .map(move |what| format!("{name}: {what}"));
            named.collect::<Vec<_>>()
        });
        notices.collect()
    }
}

/// A single counter.
pub fn one(config: &CounterConfig) -> Box<dyn Counter> {
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
        CounterConfig::Resctrl { domains, root } if domains.is_empty() => Box::new(Slow {
            root: root.clone(),
            slow: None,
            counts: resctrl::counts::Counts::default(),
            tried_ns: None,
            why: None,
        }),
        CounterConfig::Resctrl { domains, .. } => Box::new(Resctrl {
            domains: domains.clone(),
        }),
        CounterConfig::Perf {
            pmus,
            reads,
            writes,
            bytes_per_count,
            cpus,
        } => {
            let wanted = pmus.iter().map(|pmus| Wanted {
                pmus: pmus.clone(),
                reads: reads.clone(),
                writes: writes.clone(),
                bytes_per_count: *bytes_per_count as f64,
                cpus: cpus.clone(),
            });
            Box::new(Perf {
                nodes: wanted.map(PerfNode::new).collect(),
            })
        }
        CounterConfig::Assumed { gib_per_cpu_second } => Box::new(Assumed {
            bytes_per_cpu_second: gib_per_cpu_second * GIB,
            bytes: Vec::new(),
        }),
    }
}

/// Lines `read write`, under a line of headings.
struct Text {
    path: PathBuf,
}

impl Counter for Text {
    fn read(&mut self, Reading { nodes, .. }: Reading) -> Vec<GroupSample> {
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

/// Counters in a BAR; mapped again when the device returns.
struct Mapped {
    path: PathBuf,
    offset: u64,
    bytes_per_count: u64,
    bar: Option<Bar>,
}

impl Counter for Mapped {
    fn read(&mut self, Reading { nodes, .. }: Reading) -> Vec<GroupSample> {
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

/// One folder `mon_L3_*` for each node; reads and writes are not distinguished.
struct Resctrl {
    domains: Vec<PathBuf>,
}

impl Counter for Resctrl {
    fn read(&mut self, Reading { nodes, .. }: Reading) -> Vec<GroupSample> {
        let sample = |(&node, domain): (&u32, &PathBuf)| {
            let text = fs::read_to_string(domain.join("mbm_total_bytes"));
            // The kernel writes `Unavailable` or `Error` where there is no number.
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

/// Reads of slow memory of the whole machine.
struct Slow {
    root: PathBuf,
    /// Counts slow memory while it exists.
    slow: Option<SlowMemory>,
    counts: resctrl::counts::Counts,
    tried_ns: Option<u64>,
    why: Option<String>,
}

impl Slow {
    fn bytes(&mut self, now_ns: u64) -> Result<u64, String> {
        if self.slow.is_none() {
            let waits = |since: u64| now_ns.saturating_sub(since) < RETRY_AFTER_NS;
            if self.tried_ns.is_some_and(waits) {
                return Err(self.why.take().unwrap_or_default());
            }
            self.tried_ns = Some(now_ns);
            self.slow = Some(SlowMemory::count(&self.root)?);
        }
        let groups = resctrl::counts::control_groups(&self.root);
        self.counts.read(&groups).map_err(|error| error.to_string())
    }
}

impl Counter for Slow {
    fn read(&mut self, Reading { now_ns, nodes, .. }: Reading) -> Vec<GroupSample> {
        let bytes = self.bytes(now_ns);
        self.why = bytes.as_ref().err().cloned();
        let counts = bytes.ok().map(|read_bytes| Counts {
            read_bytes,
            write_bytes: 0,
        });
        let sample = |&group: &u32| GroupSample { group, counts };
        nodes.iter().map(sample).collect()
    }

    fn why(&self) -> Option<String> {
        self.why.clone()
    }
}

/// Between two attempts to open a counter.
const RETRY_AFTER_NS: u64 = 1_000_000_000;

/// Events of PMUs; opened again after a failed read.
struct Perf {
    nodes: Vec<PerfNode>,
}

struct PerfNode {
    wanted: Wanted,
    open: Option<NodeCounter>,
    tried_ns: Option<u64>,
    why: Option<String>,
}

impl PerfNode {
    fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            open: None,
            tried_ns: None,
            why: None,
        }
    }

    fn read(&mut self, now_ns: u64) -> Option<Counts> {
        let waits = |since: u64| now_ns.saturating_sub(since) < RETRY_AFTER_NS;
        if self.open.is_none() && !self.tried_ns.is_some_and(waits) {
            self.tried_ns = Some(now_ns);
            match NodeCounter::open(Path::new(DEVICES), &self.wanted, &Cpu::here()) {
                Ok(open) => self.open = Some(open),
                Err(why) => self.why = Some(why),
            }
        }
        match self.open.as_mut()?.read() {
            Ok(counts) => {
                self.why = None;
                Some(counts)
            }
            Err(error) => {
                self.why = Some(error.to_string());
                self.open = None;
                None
            }
        }
    }
}

impl Counter for Perf {
    fn read(&mut self, reading: Reading) -> Vec<GroupSample> {
        let sample = |(&node, perf): (&u32, &mut PerfNode)| GroupSample {
            group: node,
            counts: perf.read(reading.now_ns),
        };
        reading
            .nodes
            .iter()
            .zip(&mut self.nodes)
            .map(sample)
            .collect()
    }

    fn why(&self) -> Option<String> {
        self.nodes.iter().find_map(|node| node.why.clone())
    }
}

/// No counter: bytes follow from CPU time.
struct Assumed {
    bytes_per_cpu_second: f64,
    bytes: Vec<f64>,
}

impl Counter for Assumed {
    fn read(&mut self, Reading { nodes, moved, .. }: Reading) -> Vec<GroupSample> {
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

    fn at<'a>(nodes: &'a [u32], moved: &'a [f64]) -> Reading<'a> {
        Reading {
            now_ns: 0,
            nodes,
            moved,
        }
    }

    #[test]
    fn counter_text_is_read_and_damaged_lines_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counter-dump");
        let mut counter = one(&CounterConfig::Text { path: path.clone() });
        let mut read = |text: &str| {
            fs::write(&path, text).unwrap();
            let samples = counter.read(at(&[1, 2], &[]));
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
        let mut counter = one(&CounterConfig::Resctrl {
            domains,
            root: PathBuf::from("/nowhere"),
        });
        let found: Vec<_> = counter.read(at(&[1, 2], &[]));
        assert_eq!(found[0].counts.map(|counts| counts.read_bytes), Some(4096));
        assert_eq!(found[1].counts, None);
    }

    #[test]
    fn slow_memory_is_counted_on_all_sockets_and_in_all_control_groups() {
        let machine = resctrl::tests_support::Machine::new(4, 16);
        let batch = machine.control_group("batch");
        machine.put(1, &batch);
        let config = |root: &Path| CounterConfig::Resctrl {
            domains: Vec::new(),
            root: root.to_owned(),
        };
        let mut counter = one(&config(machine.root()));
        let mut read = || {
            let samples = counter.read(at(&[2], &[]));
            samples[0].counts.map(|counts| counts.read_bytes)
        };
        assert_eq!(read(), Some(0));
        for domain in 0..4 {
            machine.move_bytes(1, domain, 64);
            machine.move_bytes(2, domain, 6400);
        }
        assert_eq!(read(), Some(4 * 6464));
        let mut missing = one(&config(Path::new("/nowhere")));
        for now_ns in [0, 1, 2 * RETRY_AFTER_NS] {
            let reading = Reading {
                now_ns,
                ..at(&[2], &[])
            };
            assert_eq!(missing.read(reading)[0].counts, None);
            assert!(missing.why().unwrap().contains("resctrl"));
        }
    }

    #[test]
    fn a_device_that_comes_back_is_mapped_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resource2");
        let mut counter = one(&CounterConfig::Bar {
            path: path.clone(),
            offset: 8,
            bytes_per_count: 1,
        });
        assert_eq!(counter.read(at(&[1], &[]))[0].counts, None);
        let words = [0u64, 3, 4].map(u64::to_le_bytes).concat();
        fs::write(&path, words).unwrap();
        let expected = Counts {
            read_bytes: 3,
            write_bytes: 4,
        };
        assert_eq!(counter.read(at(&[1], &[]))[0].counts, Some(expected));
        fs::write(&path, "").unwrap();
        assert_eq!(counter.read(at(&[1], &[]))[0].counts, None);
    }

    #[test]
    fn without_a_counter_cpu_time_is_used() {
        let mut counter = one(&CounterConfig::Assumed {
            gib_per_cpu_second: 2.0,
        });
        counter.read(at(&[1], &[0.5]));
        let samples = counter.read(at(&[1], &[0.25]));
        let expected = Some(Counts {
            read_bytes: (1.5 * GIB) as u64,
            write_bytes: 0,
        });
        assert_eq!(samples[0].counts, expected);
    }

    #[test]
    fn a_perf_counter_that_is_not_there_says_why_and_is_tried_again_later() {
        let mut counter = one(&CounterConfig::Perf {
            pmus: vec![vec!["cxl_pmu_mem77.0".to_owned()]],
            reads: Vec::new(),
            writes: Vec::new(),
            bytes_per_count: 64,
            cpus: Vec::new(),
        });
        for now_ns in [0, 1, 2 * RETRY_AFTER_NS] {
            let reading = Reading {
                now_ns,
                ..at(&[1], &[0.0])
            };
            assert_eq!(counter.read(reading)[0].counts, None);
            assert!(counter.why().unwrap().contains("cxl_pmu_mem77.0"));
        }
    }
}
