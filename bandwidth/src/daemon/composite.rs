//! A composite counter: several counters of the same nodes. Where one is at fault, the next one is
//! used.

use super::counter::{Counter, Reading};
use crate::estimate::counter::{CounterSpec, Fault, Follower};
use crate::estimate::{Counts, GroupSample};

/// One counter, validated node by node.
struct Source {
    name: &'static str,
    counter: Box<dyn Counter>,
    followers: Vec<Follower>,
}

/// Counters in order of preference.
pub struct CompositeCounter {
    counter_spec: CounterSpec,
    sources: Vec<Source>,
    /// Bytes of each node, whichever counter counted them, so that changing the counter causes no
    /// jump.
    sums: Vec<Counts>,
    /// The counter in use for each node.
    chosen: Vec<Option<usize>>,
    notices: Vec<String>,
}

impl CompositeCounter {
    pub fn new(counters: Vec<(&'static str, Box<dyn Counter>)>, counter_spec: CounterSpec) -> Self {
        let sources = counters.into_iter().map(|(name, counter)| Source {
            name,
            counter,
            followers: Vec::new(),
        });
        Self {
            counter_spec,
            sources: sources.collect(),
            sums: Vec::new(),
            chosen: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn choose(&mut self, at: usize, node: u32, chosen: Option<usize>, faults: &[Option<Fault>]) {
        let before = std::mem::replace(&mut self.chosen[at], chosen);
        if before == chosen || before.is_none() && chosen == Some(0) {
            return;
        }
        let why = |(source, fault): (&Source, &Option<Fault>)| {
            fault.map(|fault| format!("{} {}", source.name, fault.as_str()))
        };
        let why: Vec<String> = self.sources.iter().zip(faults).filter_map(why).collect();
        let counts = match chosen {
            Some(at) => format!("{} counts now", self.sources[at].name),
            None => "nothing counts now".to_owned(),
        };
        let what = [why, vec![counts]].concat().join(", ");
        self.notices.push(format!("node {node}: {what}"));
    }
}

impl Counter for CompositeCounter {
    fn read(&mut self, reading: Reading) -> Vec<GroupSample> {
        let nodes = reading.nodes;
        self.sums.resize(nodes.len(), Counts::default());
        self.chosen.resize(nodes.len(), None);
        let counter_spec = self.counter_spec;
        let followed: Vec<Vec<_>> = self
            .sources
            .iter_mut()
            .map(|source| {
                source
                    .followers
                    .resize(nodes.len(), Follower::new(counter_spec));
                let samples = source.counter.read(reading);
                let follow = |(at, follower): (usize, &mut Follower)| {
                    let busy = reading.moved.get(at).is_some_and(|moved| *moved > 0.0);
                    let counts = samples.get(at).and_then(|sample| sample.counts);
                    follower.follow(reading.now_ns, counts, busy)
                };
                source
                    .followers
                    .iter_mut()
                    .enumerate()
                    .map(follow)
                    .collect()
            })
            .collect();
        let mut found = Vec::with_capacity(nodes.len());
        for (at, &node) in nodes.iter().enumerate() {
            let of_node: Vec<_> = followed.iter().map(|source| source[at]).collect();
            let chosen = of_node.iter().position(Result::is_ok);
            if let Some(Ok(Some(flow))) = chosen.map(|source| of_node[source]) {
                let sum = &mut self.sums[at];
                sum.read_bytes = sum.read_bytes.wrapping_add(flow.read_bytes);
                sum.write_bytes = sum.write_bytes.wrapping_add(flow.write_bytes);
            }
            let faults: Vec<_> = of_node.iter().map(|one| one.err()).collect();
            self.choose(at, node, chosen, &faults);
            found.push(GroupSample {
                group: node,
                counts: chosen.map(|_| self.sums[at]),
            });
        }
        found
    }

    fn why(&self) -> Option<String> {
        let why = |source: &Source| {
            let why = source.counter.why()?;
            Some(format!("{}: {why}", source.name))
        };
        let all: Vec<String> = self.sources.iter().filter_map(why).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const MS: u64 = 1_000_000;
    const SPEC: CounterSpec = CounterSpec {
        bits: 64,
        max_bytes_s: 20e9,
        stopped_after_ms: 300.0,
    };

    type Value = Arc<Mutex<Option<u64>>>;

    /// A counter of one node with given values.
    struct Told(Value);

    impl Counter for Told {
        fn read(&mut self, reading: Reading) -> Vec<GroupSample> {
            let counts = self.0.lock().unwrap().map(|read_bytes| Counts {
                read_bytes,
                write_bytes: 0,
            });
            let group = reading.nodes[0];
            vec![GroupSample { group, counts }]
        }
    }

    struct World {
        composite: CompositeCounter,
        values: [Value; 2],
        t_ns: u64,
    }

    impl World {
        fn new() -> Self {
            let values = [Some(1 << 40), Some(5000)].map(|value| Arc::new(Mutex::new(value)));
            let counter = |at: usize| Box::new(Told(values[at].clone())) as Box<dyn Counter>;
            let composite =
                CompositeCounter::new(vec![("one", counter(0)), ("two", counter(1))], SPEC);
            Self {
                composite,
                values,
                t_ns: 0,
            }
        }

        /// The bytes of a pass in which the two counters grow by these values.
        fn pass(&mut self, grown: [Option<i64>; 2]) -> Option<u64> {
            self.t_ns += 100 * MS;
            for (value, grown) in self.values.iter().zip(grown) {
                let mut value = value.lock().unwrap();
                let before = value.unwrap_or(0);
                *value = grown.map(|grown| before.wrapping_add_signed(grown));
            }
            let samples = self.composite.read(Reading {
                now_ns: self.t_ns,
                nodes: &[4],
                moved: &[1.0],
            });
            samples[0].counts.map(|counts| counts.read_bytes)
        }
    }

    #[test]
    fn the_first_valid_counter_is_used_and_a_change_causes_no_jump() {
        let mut world = World::new();
        assert_eq!(world.pass([Some(0), Some(0)]), Some(0));
        assert_eq!(world.pass([Some(100), Some(90)]), Some(100));
        assert!(world.composite.notices().is_empty());
        // The first one vanishes, returns, jumps back and reports an impossible value: the second
        // one counts each time.
        assert_eq!(world.pass([None, Some(91)]), Some(191));
        let notices = world.composite.notices();
        assert!(
            notices[0].contains("one cannot be read") && notices[0].contains("two"),
            "{notices:?}"
        );
        assert_eq!(world.pass([Some(0), Some(9)]), Some(191), "it starts anew");
        assert_eq!(world.pass([Some(100), Some(92)]), Some(291));
        assert_eq!(world.pass([Some(-50), Some(93)]), Some(384));
        assert_eq!(world.pass([Some(1 << 50), Some(94)]), Some(478));
        let notices = world.composite.notices().join("\n");
        assert!(notices.contains("jumped back"), "{notices}");
        assert_eq!(world.pass([Some(100), Some(95)]), Some(578));
    }

    #[test]
    fn one_that_stands_still_is_left_when_the_other_one_moves_on() {
        let mut world = World::new();
        for _ in 0..3 {
            world.pass([Some(1000), Some(1000)]);
        }
        assert_eq!(world.pass([Some(0), Some(1000)]), Some(2000));
        assert_eq!(world.pass([Some(0), Some(1000)]), Some(2000));
        assert_eq!(world.pass([Some(0), Some(1000)]), Some(3000), "stopped");
        assert_eq!(world.pass([Some(7), Some(1000)]), Some(3007));
    }

    #[test]
    fn without_a_valid_counter_each_fault_is_reported() {
        let mut world = World::new();
        world.pass([Some(0), Some(0)]);
        assert_eq!(world.pass([None, Some(1 << 50)]), None);
        let notices = world.composite.notices().join("\n");
        assert!(notices.contains("one cannot be read"), "{notices}");
        assert!(notices.contains("two grew by more"), "{notices}");
        assert!(notices.contains("nothing counts now"), "{notices}");
        assert_eq!(world.pass([Some(0), Some(5)]), Some(0));
    }
}
