//! The two forms of graph order: the series in a kernel of our own, and the module in a
//! distribution's. What a job does with the module before and after its own steps.

use clap::{Args, ValueEnum};
use dormouse_guest::protocol::device_job::Step;

use crate::build::{
    BuildOptions, Checked, DevicesArtefacts, Flavour, StockKernel, build_devices,
    build_devices_stock, stock_kernels,
};
use crate::error::LabError;
use crate::terminal::Terminal;

/// The module, as the kernel names it.
pub const MODULE: &str = "dormouse_dpm";
const TEST_MODULE: &str = "pm_graph_test";
const WAKE: &str = "/sys/kernel/debug/pm_graph_test/wake";
/// What only the module brings.
pub const TRACES: [&str; 4] = [
    "/sys/power/pm_graph",
    "/sys/kernel/livepatch/dormouse_dpm",
    "/sys/devices/dormouse-dpm-first",
    "/sys/kernel/debug/pm_graph",
];

/// How graph order comes into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Form {
    /// Patches to a kernel of our own
    #[default]
    Series,
    /// A module that is loaded into the distribution's kernel
    Module,
}

#[derive(Debug, Clone, Args)]
pub struct FormArgs {
    /// How graph order comes into the kernel
    #[arg(long, value_enum, default_value_t)]
    pub form: Form,
    /// With --form module: the distribution's kernel whose release contains this, or `newest`, its
    /// newest cloud kernel; otherwise 6.12's (`dormouse lab kernels --list --all` prints them)
    #[arg(long, value_name = "PATTERN")]
    pub kernel: Option<String>,
}

impl FormArgs {
    /// Builds the machine's parts.
    ///
    /// # Errors
    /// They cannot be built, or the options contradict each other.
    pub fn build(
        &self,
        checked: Checked,
        terminal: &Terminal,
    ) -> Result<DevicesArtefacts, LabError> {
        let options = BuildOptions::default();
        if self.form == Form::Series {
            if self.kernel.is_some() {
                return Err(LabError::Usage("--kernel needs --form module".into()));
            }
            return Ok(build_devices(&options, checked, terminal)?);
        }
        if checked != Checked::No {
            return Err(LabError::Usage(
                "--checked needs --form series: distributions have no such kernel".into(),
            ));
        }
        let stock = match &self.kernel {
            Some(pattern) => Some(choose(
                stock_kernels(&options, terminal)?,
                pattern,
                Flavour::Cloud,
            )?),
            None => None,
        };
        Ok(build_devices_stock(&options, stock.as_ref(), terminal)?)
    }

    /// What comes before all other steps.
    pub fn first_steps(&self) -> Vec<Step> {
        match self.form {
            Form::Series => Vec::new(),
            Form::Module => vec![load_test_devices(), wake_by_itself()],
        }
    }
}

impl FormArgs {
    /// The same, and graph order can be switched on.
    pub fn loading_steps(&self) -> Vec<Step> {
        let mut steps = self.first_steps();
        if self.form == Form::Module {
            steps.push(load(MODULE, ""));
        }
        steps
    }
}

/// The newest kernel of this flavour, or the one with this in its release.
pub fn choose(
    kernels: Vec<StockKernel>,
    pattern: &str,
    flavour: Flavour,
) -> Result<StockKernel, LabError> {
    let kernels = kernels.into_iter();
    if pattern == "newest" {
        let such = kernels.filter(|kernel| kernel.flavour() == flavour);
        return such
            .max_by_key(|kernel| version_of(kernel.release()))
            .ok_or_else(|| LabError::Usage(format!("the distribution has no {flavour} kernel")));
    }
    let mut found: Vec<StockKernel> = kernels
        .filter(|kernel| kernel.release().contains(pattern))
        .collect();
    let names: Vec<String> = found.iter().map(|kernel| kernel.release().into()).collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(LabError::Usage(format!(
            "no kernel of the distribution has {pattern:?} in its release: `dormouse lab kernels \
             --list --all` prints them"
        ))),
        _ => Err(LabError::Usage(format!(
            "{pattern:?} means more than one kernel: {}",
            names.join(", ")
        ))),
    }
}

/// `7.3.4+deb13-cloud-amd64` is 7, 3, 4. What has no third number is no release (7.3-rc7).
fn version_of(release: &str) -> Option<[u32; 3]> {
    let numbers = release
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .next()?;
    let mut numbers = numbers.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

fn load_test_devices() -> Step {
    load(TEST_MODULE, "")
}

/// Not every distribution's kernel has `pm_test`: the machine really goes to sleep (suspend to
/// idle), and a made-up device wakes it at once.
fn wake_by_itself() -> Step {
    Step::Set {
        path: WAKE.into(),
        value: "Y".into(),
    }
}

pub fn load(module: &str, parameters: &str) -> Step {
    Step::Load {
        module: module.into(),
        parameters: parameters.into(),
    }
}

pub fn unload() -> Step {
    Step::Unload {
        module: MODULE.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_one_that_was_released() {
        let newest = [
            "6.12.117+deb12-cloud-amd64",
            "7.3.4+deb13-cloud-amd64",
            "7.3-cloud-amd64",
            "7.2.13+deb14-cloud-amd64",
        ]
        .into_iter()
        .max_by_key(|release| version_of(release));
        assert_eq!(newest, Some("7.3.4+deb13-cloud-amd64"));
    }
}
