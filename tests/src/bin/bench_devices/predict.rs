//! The simulator's prediction for a cycle that was recorded in list order, beside the measurement.

use dormouse_devices::simulate::table::{Table, table, variants};
use dormouse_devices::simulate::{Schedule, Setting};
use dormouse_lab::devices::Mode;

use crate::cases::{Kernel, Measured};
use crate::overheads::{Costs, of_case};
use crate::recording::recording;

/// Modes of the lab and the simulator's names for them: stock async starts with leaves since 6.17.
pub fn modes(kernel: Kernel) -> [(Mode, &'static str); 3] {
    let stock = match kernel {
        Kernel::Series => "async-all",
        Kernel::Newest => "leaves-first",
    };
    [
        (Mode::List, "list"),
        (Mode::Async, stock),
        (Mode::Graph, "graph"),
    ]
}

/// One graph in one of the [`modes`], both ways together.
#[derive(Debug, Clone)]
pub struct Prediction {
    pub case: String,
    pub kernel: String,
    pub predicted_ms: f64,
    pub measured_ms: f64,
}

impl Prediction {
    /// Of what was measured; below 0: predicted too short.
    pub fn error(&self) -> f64 {
        self.predicted_ms / self.measured_ms - 1.0
    }
}

/// Predicts all.
pub fn all(measured: &[Measured], costs: &Costs) -> Result<Vec<Prediction>, String> {
    let mut all = Vec::new();
    for one in measured {
        let table = simulated(one, costs)?;
        for (mode, variant) in modes(one.case.kernel) {
            let predicted_ns: u64 = table
                .totals
                .iter()
                .flat_map(|total| &total.predictions)
                .filter(|prediction| prediction.name == variant)
                .map(|prediction| prediction.makespan_ns)
                .sum();
            all.push(Prediction {
                case: one.case.name(),
                kernel: one.version(),
                predicted_ms: predicted_ns as f64 / 1e6,
                measured_ms: one.mode(mode)?.sum_median_ms,
            });
        }
    }
    Ok(all)
}

fn simulated(measured: &Measured, costs: &Costs) -> Result<Table, String> {
    let mut setting = Setting::new(Schedule::List, measured.times.cpus as usize);
    setting.one_clock = true;
    setting.overheads = of_case(costs, &measured.case)?;
    let mut recording = recording(measured)?;
    recording.overheads = Some(setting.overheads);
    let cycle = recording.cycles.last().ok_or("the trace has no suspend")?;
    Ok(table(
        &recording,
        cycle,
        &variants(setting.wake_threshold_ns, false),
        &setting,
    ))
}
