//! Several counters of the same nodes: where one is at fault, the next one's are used.

use super::counters::{Counter, Reading};
use crate::estimate::counter::{Fault, Follower, Nature};
use crate::estimate::{Counts, GroupSample};

/// One counter, followed node by node.
struct Source {
    name: &'static str,
    counter: Box<dyn Counter>,
    followers: Vec<Follower>,
}

/// Counters in the order in which they are believed.
pub struct Several {
    nature: Nature,
    sources: Vec<Source>,
    /// Bytes of each node, whoever counted them: a change of counters is no jump.
    sums: Vec<Counts>,
    /// Which counter each node's are from.
    chosen: Vec<Option<usize>>,
    news: Vec<String>,
}

impl Several {
    pub fn new(counters: Vec<(&'static str, Box<dyn Counter>)>, nature: Nature) -> Self {
        let sources = counters.into_iter().map(|(name, counter)| Source {
            name,
            counter,
            followers: Vec::new(),
        });
        Self {
            nature,
            sources: sources.collect(),
            sums: Vec::new(),
            chosen: Vec::new(),
            news: Vec::new(),
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
        self.news.push(format!("node {node}: {what}"));
    }
}

impl Counter for Several {
    fn read(&mut self, reading: Reading) -> Vec<GroupSample> {
        let nodes = reading.nodes;
        self.sums.resize(nodes.len(), Counts::default());
        self.chosen.resize(nodes.len(), None);
        let nature = self.nature;
        let followed: Vec<Vec<_>> = self
            .sources
            .iter_mut()
            .map(|source| {
                source.followers.resize(nodes.len(), Follower::new(nature));
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

    fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const MS: u64 = 1_000_000;
    const NATURE: Nature = Nature {
        bits: 64,
        most_bytes_s: 20e9,
        stopped_after_ms: 300.0,
    };

    type Value = Arc<Mutex<Option<u64>>>;

    /// A counter of one node that says what it is told to.
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
        several: Several,
        values: [Value; 2],
        t_ns: u64,
    }

    impl World {
        fn new() -> Self {
            let values = [Some(1 << 40), Some(5000)].map(|value| Arc::new(Mutex::new(value)));
            let counter = |at: usize| Box::new(Told(values[at].clone())) as Box<dyn Counter>;
            let several = Several::new(vec![("one", counter(0)), ("two", counter(1))], NATURE);
            Self {
                several,
                values,
                t_ns: 0,
            }
        }

        /// Bytes of a pass, in which one counter grows by this and the other one by that.
        fn pass(&mut self, grown: [Option<i64>; 2]) -> Option<u64> {
            self.t_ns += 100 * MS;
            for (value, grown) in self.values.iter().zip(grown) {
                let mut value = value.lock().unwrap();
                let before = value.unwrap_or(0);
                *value = grown.map(|grown| before.wrapping_add_signed(grown));
            }
            let samples = self.several.read(Reading {
                now_ns: self.t_ns,
                nodes: &[4],
                moved: &[1.0],
            });
            samples[0].counts.map(|counts| counts.read_bytes)
        }
    }

    #[test]
    fn the_first_that_can_be_believed_counts_and_a_change_is_no_jump() {
        let mut world = World::new();
        assert_eq!(world.pass([Some(0), Some(0)]), Some(0));
        assert_eq!(world.pass([Some(100), Some(90)]), Some(100));
        assert!(world.several.news().is_empty());
        // The first one vanishes, comes back, jumps back, lies: each time the second one counts.
        assert_eq!(world.pass([None, Some(91)]), Some(191));
        let news = world.several.news();
        assert!(
            news[0].contains("one cannot be read") && news[0].contains("two"),
            "{news:?}"
        );
        assert_eq!(world.pass([Some(0), Some(9)]), Some(191), "it starts anew");
        assert_eq!(world.pass([Some(100), Some(92)]), Some(291));
        assert_eq!(world.pass([Some(-50), Some(93)]), Some(384));
        assert_eq!(world.pass([Some(1 << 50), Some(94)]), Some(478));
        let news = world.several.news().join("\n");
        assert!(news.contains("jumped back"), "{news}");
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
    fn without_any_nothing_is_counted_and_each_ones_fault_is_told() {
        let mut world = World::new();
        world.pass([Some(0), Some(0)]);
        assert_eq!(world.pass([None, Some(1 << 50)]), None);
        let news = world.several.news().join("\n");
        assert!(news.contains("one cannot be read"), "{news}");
        assert!(news.contains("two grew by more"), "{news}");
        assert!(news.contains("nothing counts now"), "{news}");
        assert_eq!(world.pass([Some(0), Some(5)]), Some(0));
    }
}
