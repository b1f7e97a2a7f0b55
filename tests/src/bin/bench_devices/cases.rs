//! What is measured: graphs on a fast and a slow processor, each in one machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use dormouse_lab::devices::{Graph, MachineShape, Mode, ModeTimes, Times};
use dormouse_tests::dormouse_path;

/// The kernel, and the form in which ours is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// The lab's own, of the distribution's 6.12 with the series.
    Series,
    /// The distribution's newest cloud kernel with the module.
    Newest,
}

impl Kernel {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Kernel::Series => &["--form", "series"],
            Kernel::Newest => &["--form", "module", "--kernel", "newest"],
        }
    }

    /// The threshold's choice (Kannan 2024) is measured on one kernel.
    fn modes(self) -> &'static str {
        match self {
            Kernel::Series => "list,async,threshold,graph",
            Kernel::Newest => "list,async,graph",
        }
    }
}

/// One graph on one processor and kernel.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub shape: &'static str,
    /// Of the random shape.
    pub seed: u64,
    /// Nanoseconds that an instruction takes.
    pub instruction_ns: u32,
    pub kernel: Kernel,
}

const fn case(shape: &'static str, seed: u64, instruction_ns: u32) -> Case {
    Case {
        shape,
        seed,
        instruction_ns,
        kernel: Kernel::Series,
    }
}

/// Random graphs up to this seed were looked at while the order was written; later ones were not.
const LAST_TUNED: u64 = 12;

/// The shapes on a processor of 1,000 million instructions a second; two of them on one of 250;
/// random graphs, the last six of them held out. All but those on the slow processor also run on the
/// newest kernel.
pub const CASES: &[Case] = &[
    case("phone", 0, 1),
    case("laptop", 0, 1),
    case("server", 0, 1),
    case("quick", 0, 1),
    case("phone", 0, 4),
    case("quick", 0, 4),
    case("random", 1, 1),
    case("random", 2, 1),
    case("random", 3, 1),
    case("random", 4, 1),
    case("random", 5, 1),
    case("random", 6, 1),
    case("random", 7, 1),
    case("random", 8, 1),
    case("random", 9, 1),
    case("random", 10, 1),
    case("random", 11, 1),
    case("random", 12, 1),
    case("random", 13, 1),
    case("random", 14, 1),
    case("random", 15, 1),
    case("random", 16, 1),
    case("random", 17, 1),
    case("random", 18, 1),
];

/// One case with what was measured.
#[derive(Debug, Clone)]
pub struct Measured {
    pub case: Case,
    pub graph: Graph,
    pub times: Times,
    /// A cycle of each mode: text of ftrace.
    pub traces: BTreeMap<Mode, String>,
    /// Devices of the machine besides those of the graph.
    pub own_devices: usize,
}

impl Measured {
    /// The times of a mode.
    pub fn mode(&self, mode: Mode) -> Result<&ModeTimes, String> {
        let found = self.times.of(mode);
        found.ok_or_else(|| format!("{mode} was not measured"))
    }

    /// `6.12` of `6.12.117-dormouse`.
    pub fn version(&self) -> String {
        let numbers: Vec<&str> = self.times.kernel.split('.').take(2).collect();
        numbers.join(".")
    }
}

impl Case {
    pub fn name(&self) -> String {
        match self.shape {
            "random" if self.is_held_out() => format!("random {}, held out", self.seed),
            "random" => format!("random {}", self.seed),
            shape => format!("{shape}, {} ns", self.instruction_ns),
        }
    }

    /// Overheads differ by these.
    pub fn processor(&self) -> (Kernel, u32) {
        (self.kernel, self.instruction_ns)
    }

    pub fn is_held_out(&self) -> bool {
        self.shape == "random" && self.seed > LAST_TUNED
    }

    /// The same on each kernel on which it is measured.
    pub fn on_kernels(self) -> impl Iterator<Item = Case> {
        let newest = Case {
            kernel: Kernel::Newest,
            ..self
        };
        [self]
            .into_iter()
            .chain((self.instruction_ns == 1).then_some(newest))
    }

    fn stem(&self) -> String {
        let Case {
            shape,
            seed,
            instruction_ns,
            kernel,
        } = self;
        let kernel = match kernel {
            Kernel::Series => "",
            Kernel::Newest => "-newest",
        };
        format!("{shape}-{seed}-{instruction_ns}ns{kernel}")
    }

    /// Measures; the results stay in the folder.
    pub fn run(&self, kept: &Path, rounds: usize) -> Result<(), String> {
        let folder = kept.join(self.stem());
        let says = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(says)?;
        eprintln!("bench: {} ({:?})", self.name(), self.kernel);
        let output = Command::new(dormouse_path())
            .args(["lab", "devices", "time", "--json", "--shape", self.shape])
            .args(["--seed", &self.seed.to_string()])
            .args(["--instruction-ns", &self.instruction_ns.to_string()])
            .args(["--rounds", &rounds.to_string(), "--cpus", "2"])
            .args(["--modes", self.kernel.modes()])
            .args(self.kernel.arguments())
            .args(["--machine", "bench-devices", "--traces"])
            .arg(&folder)
            .output()
            .map_err(|error| format!("dormouse: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {said}", self.name()));
        }
        fs::write(folder.join("times.json"), output.stdout).map_err(says)
    }

    /// What was measured last.
    pub fn read(&self, kept: &Path) -> Result<Measured, String> {
        let folder = kept.join(self.stem());
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let times: Times = serde_json::from_str(&text("times.json")?)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut traces = BTreeMap::new();
        for mode in [Mode::List, Mode::Async, Mode::Graph] {
            traces.insert(mode, text(&format!("{mode}.trace"))?);
        }
        let phases = text("graph.phases")?;
        let all: usize = phases
            .split_whitespace()
            .nth(1)
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| format!("{}: graph.phases says {phases:?}", folder.display()))?;
        let shape = MachineShape::from_str(self.shape, false)?;
        Ok(Measured {
            case: *self,
            graph: shape.graph(self.seed),
            own_devices: all.saturating_sub(times.devices),
            times,
            traces,
        })
    }
}
