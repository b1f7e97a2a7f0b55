//! Bars with error ticks, by group and series.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::{Plan, Scale};
use super::frame::{self, Frame, Grid, PX, PlotError};
use super::{Slots, label, palette};
use crate::stats::Summary;

/// A value with how far it may be off.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The group on the x axis.
    pub group: String,
    /// The series, which has a colour.
    pub series: String,
    /// The height of the bar.
    pub value: f64,
    /// Ends of the error tick; none where both are the value.
    pub low: f64,
    /// The upper end of the error tick.
    pub high: f64,
    /// Written above; may be empty.
    pub text: String,
}

impl Bar {
    /// A value without error.
    pub fn new(group: impl Into<String>, series: impl Into<String>, value: f64) -> Bar {
        Bar {
            group: group.into(),
            series: series.into(),
            value,
            low: value,
            high: value,
            text: String::new(),
        }
    }

    /// The median, with the median absolute deviation to both sides.
    pub fn of_median(
        group: impl Into<String>,
        series: impl Into<String>,
        summary: &Summary,
    ) -> Bar {
        Bar {
            low: summary.median - summary.mad,
            high: summary.median + summary.mad,
            ..Bar::new(group, series, summary.median)
        }
    }

    /// With a text above.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Bar {
        let text = text.into();
        Bar { text, ..self }
    }
}

/// Upright bars, those of one group side by side. Bars have lengths, so the axis starts at zero
/// unless it is logarithmic.
///
/// # Errors
/// The drawing fails.
pub fn bars(frame: &Frame, bars: &[Bar]) -> Result<String, PlotError> {
    let mut frame = frame.clone();
    if frame.y.scale == Scale::Fitted {
        frame.y.scale = Scale::FromZero;
    }
    let slots = Slots::of(bars.iter().map(|b| (b.group.as_str(), b.series.as_str())));
    let x = Plan::of_names(slots.groups.iter().copied());
    let y = frame
        .y
        .plan(bars.iter().flat_map(|bar| [bar.value, bar.low, bar.high]));
    let floor = 0f64.clamp(y.low, y.high);
    let floor = if frame.y.scale == Scale::Logarithmic {
        y.low
    } else {
        floor
    };
    let legend = slots.legend();
    frame::draw(&frame, &legend, &x, &y, Grid::Horizontal, |chart| {
        for bar in bars {
            let Some(top) = frame.y.place(bar.value) else {
                continue;
            };
            let centre = slots.centre(&bar.group, &bar.series);
            let reach = slots.half_width() * 0.88;
            let colour = RGBColor::from(palette::series(slots.series(&bar.series)));
            let corners = [(centre - reach, floor), (centre + reach, top)];
            chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            let ends = (frame.y.place(bar.low), frame.y.place(bar.high));
            let mut text_at = top;
            if let ((Some(low), Some(high)), true) = (ends, bar.low < bar.high) {
                let style = RGBColor::from(palette::INK).stroke_width(3 * PX as u32 / 2);
                let across = |place| {
                    let cap = reach * 0.35;
                    PathElement::new([(centre - cap, place), (centre + cap, place)], style)
                };
                let upright = PathElement::new([(centre, low), (centre, high)], style);
                chart.draw_series([upright, across(low), across(high)])?;
                text_at = high.max(top);
            }
            if !bar.text.is_empty() {
                let text = frame::shown(&bar.text);
                label(
                    chart,
                    &text,
                    (centre, text_at),
                    (0, -4),
                    (HPos::Center, VPos::Bottom),
                )?;
            }
        }
        Ok(())
    })
}
