//! The record of one cycle: a line of the journal and of `--json`.

use serde::{Deserialize, Serialize};

use super::class::Class;
use super::phase::Phase;
use super::span::Span;
use crate::cycle::line::Outcome;
use dormouse_system::arguments::Size;

/// The power cut of a cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PowerCut {
    /// Seconds after the request to sleep at which power was to be cut.
    #[serde(rename = "cut_at_s")]
    pub at_s: Option<f64>,
    /// In which phase it was cut, and the last event before.
    #[serde(rename = "cut_phase")]
    pub phase: Option<Phase>,
    #[serde(rename = "cut_step")]
    pub step: String,
    /// State of the image's header when power had been cut; empty where none was valid.
    #[serde(rename = "cut_image", default)]
    pub image: String,
}

/// One cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StressLine {
    pub cycle: u64,
    pub ok: bool,
    pub outcome: Outcome,
    /// None when all was as it must be.
    pub class: Option<Class>,
    /// Of a failure; or why a cold boot was one.
    pub reason: String,
    /// Everything was compared and was as it must be.
    pub verified: bool,
    pub fill_bytes: u64,
    pub load: String,
    pub sleep_arguments: Vec<String>,
    #[serde(flatten)]
    pub cut: PowerCut,
    pub span_s: Span,
    /// All of the cycle, with loading and comparing.
    pub total_s: f64,
    /// Where a failed cycle's logs are.
    pub folder: Option<String>,
}

impl StressLine {
    /// A cycle of which nothing is known yet.
    pub fn new(cycle: u64) -> StressLine {
        StressLine {
            cycle,
            ok: false,
            outcome: Outcome::Failed,
            class: None,
            reason: String::new(),
            verified: false,
            fill_bytes: 0,
            load: String::new(),
            sleep_arguments: Vec::new(),
            cut: PowerCut::default(),
            span_s: Span::default(),
            total_s: 0.0,
            folder: None,
        }
    }

    /// The line for people.
    pub fn describe(&self) -> String {
        let cut = match (self.cut.phase, self.cut.at_s) {
            (Some(phase), Some(at_s)) => format!(
                ", power cut after {at_s:.2} s: {} ({})",
                phase.name(),
                self.cut.step
            ),
            _ => String::new(),
        };
        let show = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.1}"));
        let span = format!(
            "down {} up {} home {} of {:.1} s",
            show(self.span_s.down),
            show(self.span_s.up),
            show(self.span_s.home),
            self.total_s
        );
        let outcome = self.outcome.name();
        let fill = Size(self.fill_bytes);
        match self.class {
            None => {
                let reason = if self.reason.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", self.reason)
                };
                format!(
                    "cycle {}: ok: {outcome}{reason}{cut}; {fill}; {span}",
                    self.cycle
                )
            }
            Some(class) => format!(
                "cycle {}: FAILED: {}: {outcome}: {}{cut}; {fill}; {}; {span}",
                self.cycle,
                class.name(),
                self.reason,
                self.load
            ),
        }
    }
}
