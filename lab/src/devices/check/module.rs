//! What is checked around the module: a kernel whose functions differ is refused by name and nothing
//! is changed; before it is loaded and after it is unloaded, the stock order is the same.
//!
//! ```text
//! stock order ─▶ refused loads ─▶ load ─▶ graphs, injections ─▶ unload ─▶ the same stock order
//! ```

use dormouse_guest::protocol::device_job::{Cycle, Step};

use super::{Check, Expect, THRESHOLD_US};
use crate::devices::form::{Form, FormArgs, MODULE, TRACES, load, unload};
use crate::devices::graph::{Graph, PHASES};
use crate::devices::order::Order;
use crate::devices::switches::{Mode, Scope, set_mode, set_pm_async, set_scope, set_threshold};
use crate::stress::Dice;

/// Parameters with which the module has to refuse, and what its reason names: a version that it does
/// not know, a function that is called and the one that is replaced, declared as no kernel has them.
const REFUSALS: [(&str, &str); 3] = [
    ("release=6.13.1", "Linux 6.13.1 is not among the versions"),
    (
        "expect=\"int device_resume_early(struct device *, long)\"",
        "expected \"int device_resume_early(struct device *, long)\"",
    ),
    (
        "expect=\"void device_pm_wait_for_dev(struct device *)\"",
        "expected \"void device_pm_wait_for_dev(struct device *)\"",
    ),
];

#[derive(Debug, Clone, Copy)]
pub(super) enum ModuleExpect {
    Loaded,
    /// Refused, with this in the reason.
    Refused(&'static str),
    /// Nothing of the module is there.
    Absent(&'static str),
    Present(&'static str),
    Unloaded,
    /// The order of this graph's devices in the stock kernel, and again later.
    StockBefore {
        graph: usize,
    },
    StockAfter {
        graph: usize,
    },
    /// What has to be in order is, and what went down comes up.
    Ordered {
        graph: usize,
    },
}

impl Check {
    fn expect_module(&mut self, step: Step, expect: ModuleExpect) {
        self.push(step, Expect::Module(expect));
    }

    /// The stock kernel with a graph of its own, one device after the other.
    fn add_stock_cycle(&mut self, expect: impl Fn(usize) -> ModuleExpect) {
        let mut dice = Dice::new(self.seed, u64::MAX);
        let graph = Graph::random(&mut dice).without_unordered_links();
        let text = graph.text(false);
        let number = self.graphs.len();
        self.graphs.push(graph);
        self.push(Step::Graph { text }, Expect::Nothing);
        self.push(set_pm_async(false), Expect::Nothing);
        self.expect_module(Step::Cycle { order: true }, expect(number));
        self.push(set_pm_async(true), Expect::Nothing);
    }

    fn look_for_traces(&mut self, expect: impl Fn(&'static str) -> ModuleExpect) {
        for path in TRACES {
            let step = Step::Exists { path: path.into() };
            self.expect_module(step, expect(path));
        }
    }

    /// Everything up to the loaded module; with `refusals` also what comes before it.
    pub(super) fn begin_module(&mut self, refusals: bool) {
        let form = FormArgs {
            form: Form::Module,
            kernel: None,
        };
        for step in form.first_steps() {
            let expect = match step {
                Step::Load { .. } => Expect::Module(ModuleExpect::Loaded),
                _ => Expect::Nothing,
            };
            self.push(step, expect);
        }
        if refusals {
            self.add_stock_cycle(|graph| ModuleExpect::StockBefore { graph });
            for (parameters, reason) in REFUSALS {
                let step = load(MODULE, parameters);
                self.expect_module(step, ModuleExpect::Refused(reason));
                self.look_for_traces(ModuleExpect::Absent);
            }
        }
        self.expect_module(load(MODULE, ""), ModuleExpect::Loaded);
        self.look_for_traces(ModuleExpect::Present);
        self.push(set_threshold(THRESHOLD_US), Expect::Nothing);
    }

    pub(super) fn unload(&mut self) {
        self.expect_module(unload(), ModuleExpect::Unloaded);
        self.look_for_traces(ModuleExpect::Absent);
    }

    /// The module goes while graph order is on.
    pub(super) fn end_module(&mut self) {
        self.set_mode(Mode::Graph);
        self.unload();
        self.mode = Mode::Async;
        self.add_stock_cycle(|graph| ModuleExpect::StockAfter { graph });
    }

    /// Graphs with links that order nothing, in graph mode alone: on these the stock kernel may
    /// hang, and need not take the same devices through each phase.
    pub(super) fn add_unordered_graphs(&mut self, count: u64) {
        for _ in 0..count {
            let number = self.graphs.len();
            let mut dice = Dice::new(self.seed ^ 0x5EED, number as u64);
            let graph = Graph::random(&mut dice);
            let text = graph.text(false);
            self.graphs.push(graph);
            self.push(Step::Graph { text }, Expect::Nothing);
            self.push(set_scope(*dice.pick(&Scope::ALL)), Expect::Nothing);
            self.set_mode(Mode::Graph);
            for _ in 0..2 {
                let expect = ModuleExpect::Ordered { graph: number };
                self.expect_module(Step::Cycle { order: true }, expect);
            }
            self.push(set_mode(Mode::Async), Expect::Nothing);
        }
    }

    pub(super) fn hear_module(&mut self, expect: ModuleExpect, text: &str) {
        let right = match expect {
            ModuleExpect::Loaded => text == "loaded",
            ModuleExpect::Unloaded => text == "unloaded",
            ModuleExpect::Absent(_) => text == "no",
            ModuleExpect::Present(_) => text == "yes",
            ModuleExpect::Refused(reason) => text.contains("not loaded: ") && text.contains(reason),
            // These are cycles.
            ModuleExpect::StockBefore { .. }
            | ModuleExpect::StockAfter { .. }
            | ModuleExpect::Ordered { .. } => false,
        };
        match expect {
            ModuleExpect::Refused(_) => self.report.refusals += 1,
            ModuleExpect::Unloaded => self.report.unloads += 1,
            _ => {}
        }
        let wanted = match expect {
            ModuleExpect::Absent(path) => format!("no {path}"),
            ModuleExpect::Present(path) => path.to_owned(),
            other => format!("{other:?}"),
        };
        if !right {
            let seed = self.seed;
            let breach = format!("seed {seed}: expected {wanted}, but: {text:?}");
            self.report.breaches.push(breach);
        }
    }

    pub(super) fn hear_cycle_beside_module(
        &mut self,
        expect: ModuleExpect,
        order: &Order,
        cycle: &Cycle,
    ) -> (usize, Vec<String>) {
        let phases = || (0..PHASES.len()).map(|phase| order.begun(phase)).collect();
        let (graph, mut breaches) = match expect {
            ModuleExpect::StockBefore { graph } => {
                self.stock = phases();
                (graph, self.order_breaches(order, graph, false))
            }
            ModuleExpect::StockAfter { graph } => {
                let now: Vec<Vec<usize>> = phases();
                let breaches = match now == self.stock {
                    true => Vec::new(),
                    false => vec![format!(
                        "after unloading, the stock order is {now:?}, and was {:?}",
                        self.stock
                    )],
                };
                (graph, breaches)
            }
            ModuleExpect::Ordered { graph } => {
                self.report.graphs += 1;
                (graph, self.order_breaches(order, graph, false))
            }
            other => (0, vec![format!("a transition instead of {other:?}")]),
        };
        if cycle.errno != 0 {
            breaches.push(format!("the transition failed with {}", cycle.errno));
        }
        (graph, breaches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module_expects(check: &Check) -> Vec<ModuleExpect> {
        let expects = check.expects.iter().filter_map(|expect| match expect {
            Expect::Module(expect) => Some(*expect),
            _ => None,
        });
        expects.collect()
    }

    #[test]
    fn a_refused_load_is_followed_by_a_search_for_what_it_may_have_left() {
        let expects = module_expects(&Check::new(1, Form::Module, 1, 0));
        for (at, expect) in expects.iter().enumerate() {
            if matches!(expect, ModuleExpect::Refused(_)) {
                let after = &expects[at + 1..=at + TRACES.len()];
                assert!(
                    after
                        .iter()
                        .all(|one| matches!(one, ModuleExpect::Absent(_)))
                );
            }
        }
        let refused = |expect: &&ModuleExpect| matches!(expect, ModuleExpect::Refused(_));
        assert_eq!(expects.iter().filter(refused).count(), REFUSALS.len());
    }

    #[test]
    fn the_stock_order_is_compared_on_the_same_graph() {
        let check = Check::new(1, Form::Module, 2, 10);
        let mut graphs = module_expects(&check)
            .into_iter()
            .filter_map(|expect| match expect {
                ModuleExpect::StockBefore { graph } | ModuleExpect::StockAfter { graph } => {
                    Some(graph)
                }
                _ => None,
            });
        let (before, after) = (graphs.next().unwrap(), graphs.next().unwrap());
        let text = |graph: usize| check.graphs[graph].text(false);
        assert_eq!(text(before), text(after));
        assert!(graphs.next().is_none());
    }

    #[test]
    fn a_load_that_succeeds_although_it_should_be_refused_is_a_breach() {
        let mut check = Check::new(1, Form::Module, 1, 0);
        check.hear_module(ModuleExpect::Refused(REFUSALS[0].1), "loaded");
        check.hear_module(ModuleExpect::Absent(TRACES[0]), "yes");
        assert_eq!(check.report.breaches.len(), 2);
    }
}
