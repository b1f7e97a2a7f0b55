//! Progress for people: one moving line on standard error, and a line for each thing done.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::build::{BuildEvent, BuildProgress};
use crate::error::{Doing, LabError};
use dormouse_system::arguments::Size;

/// Standard error; a spinner where it is a terminal, plain lines where it is not.
pub struct Terminal {
    spinner: ProgressBar,
    is_terminal: bool,
}

impl Terminal {
    pub fn new() -> Terminal {
        let is_terminal = std::io::stderr().is_terminal();
        let spinner = if is_terminal {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}");
        spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        if is_terminal {
            spinner.enable_steady_tick(Duration::from_millis(120));
        }
        Terminal {
            spinner,
            is_terminal,
        }
    }

    /// What is being done now.
    pub fn now(&self, text: &str) {
        if self.is_terminal {
            self.spinner.set_message(text.to_owned());
        } else {
            eprintln!("{text}");
        }
    }

    /// Something that stays on the screen.
    pub fn line(&self, text: &str) {
        self.spinner.suspend(|| eprintln!("{text}"));
    }

    /// Runs `print` (to standard output) without the moving line in its way.
    pub fn aside(&self, print: impl FnOnce()) {
        self.spinner.suspend(print);
    }

    /// Removes the moving line.
    pub fn finish(&self) {
        self.spinner.finish_and_clear();
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Terminal::new()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.finish();
    }
}

impl BuildProgress for Terminal {
    fn event(&self, event: BuildEvent) {
        match event {
            BuildEvent::Waiting => self.now("another build is running; waiting for it"),
            BuildEvent::Started { step } => self.now(&format!("build: {}", step.title())),
            BuildEvent::Activity { step, activity } => {
                self.now(&format!("build: {}: {activity}", step.title()));
            }
            BuildEvent::Bytes {
                step,
                done_bytes,
                total_bytes,
            } => {
                // Lines of a log would be too many.
                if self.is_terminal {
                    let (done, total) = (Size(done_bytes), Size(total_bytes));
                    self.now(&format!("build: {}: {done} of {total}", step.title()));
                }
            }
            BuildEvent::Finished(report) if report.cached => {}
            BuildEvent::Finished(report) => self.line(&format!(
                "built {} in {:.1} s: {}",
                report.step.title(),
                report.seconds,
                report.detail
            )),
            BuildEvent::Warning { message } => self.line(&format!("warning: {message}")),
        }
    }
}

/// Prints one JSON object on one line.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), LabError> {
    let text =
        serde_json::to_string(value).map_err(|error| LabError::Unexpected(error.to_string()))?;
    writeln!(std::io::stdout(), "{text}").doing("print")
}
