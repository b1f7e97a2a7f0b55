//! Stacked bars: what a whole is made of, phase by phase.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::{Plan, Scale};
use super::frame::{self, Entry, Frame, Grid, PX, PlotError};
use super::{in_order, label, palette};

/// A bar made of named parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Left of the bar.
    pub name: String,
    /// In order; a part of the same name has the same colour in each bar. What is negative or
    /// not finite is left out.
    pub parts: Vec<(String, f64)>,
    /// Right of the bar, for instance the total with its unit; may be empty.
    pub text: String,
}

impl Stack {
    /// A bar without a text.
    pub fn new<'a>(
        name: impl Into<String>,
        parts: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Stack {
        Stack {
            name: name.into(),
            parts: parts
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            text: String::new(),
        }
    }

    /// With a text at its end.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Stack {
        let text = text.into();
        Stack { text, ..self }
    }

    fn shown_parts(&self) -> impl Iterator<Item = (&str, f64)> {
        let parts = self
            .parts
            .iter()
            .map(|(name, value)| (name.as_str(), *value));
        parts.filter(|(_, value)| value.is_finite() && *value >= 0.0)
    }

    fn total(&self) -> f64 {
        self.shown_parts().map(|part| part.1).sum()
    }
}

/// The height at which `count` bars have a comfortable thickness, in pixels; for
/// [`Frame::size`].
fn comfortable_height(count: usize) -> u32 {
    130 + 34 * count.min(200) as u32
}

/// Lying bars, the first on top; the value axis is the frame's x and starts at zero. The height
/// follows from the number of bars.
///
/// # Errors
/// The drawing fails.
pub fn stacked_bars(frame: &Frame, stacks: &[Stack]) -> Result<String, PlotError> {
    let mut frame = frame.clone();
    // Lengths that add up have no other scale.
    frame.x.scale = Scale::FromZero;
    frame.height = comfortable_height(stacks.len());
    let names = in_order(
        stacks
            .iter()
            .flat_map(|s| s.shown_parts().map(|part| part.0)),
    );
    let longest_px = stacks
        .iter()
        .map(|s| frame::text_width_px(&s.text))
        .max()
        .unwrap_or(0);
    let most = stacks.iter().map(Stack::total).fold(0.0, f64::max);
    // Room for the longest text to the right of the longest bar.
    let room = f64::from(longest_px) / f64::from(frame.width.max(1)) * 1.8;
    let x = frame.x.plan([most * (1.0 + room)]);
    let bar_names: Vec<String> = stacks
        .iter()
        .map(|stack| frame::shown(&stack.name))
        .collect();
    let y = Plan::of_names(bar_names.iter().map(String::as_str)).reversed();
    let legend: Vec<Entry> = names
        .iter()
        .enumerate()
        .map(|(index, name)| Entry {
            name,
            colour: palette::series(index),
            dash: None,
        })
        .collect();
    frame::draw(&frame, &legend, &x, &y, Grid::Vertical, |chart| {
        let gap = RGBColor::from(palette::GROUND).stroke_width(PX as u32);
        for (stack, (middle, _)) in stacks.iter().zip(&y.ticks) {
            let mut from = 0.0;
            for (name, value) in stack.shown_parts() {
                let number = names.iter().position(|n| *n == name).unwrap_or(0);
                let colour = RGBColor::from(palette::series(number));
                let corners = [(from, middle - 0.32), (from + value, middle + 0.32)];
                chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                chart.draw_series([Rectangle::new(corners, gap)])?;
                from += value;
            }
            if !stack.text.is_empty() {
                let text = frame::shown(&stack.text);
                label(
                    chart,
                    &text,
                    (from, *middle),
                    (6, 0),
                    (HPos::Left, VPos::Center),
                )?;
            }
        }
        Ok(())
    })
}
