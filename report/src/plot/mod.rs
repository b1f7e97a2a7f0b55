//! Plots as SVG text: distributions, stacked bars, lines and bars with error ticks.
//!
//! ```
//! use dormouse_report::plot::{Axis, Frame, Sample, violins};
//!
//! let sample = |group: &str, values: &[f64]| Sample::new(group, "Suspend-to-CXL", values);
//! let frame = Frame::new("Resume", Axis::new("user memory"), Axis::new("time [s]"));
//! let svg = violins(&frame, &[sample("128 MiB", &[0.47, 0.48, 0.50])])?;
//! assert!(svg.starts_with("<svg"));
//! # Ok::<(), dormouse_report::plot::PlotError>(())
//! ```
//!
//! A drawing is one `<svg>` element that needs no font, script or file. It goes into a file of
//! its own as well as into a page, follows the reader's light or dark setting and scales. Values
//! that are not finite are left out; nothing to show gives an empty frame.

mod axis;
mod bars;
mod distribution;
mod frame;
mod lines;
mod palette;
mod stacks;

pub use axis::{Axis, Scale, Ticks};
pub use bars::{Bar, bars};
pub use distribution::{Sample, boxes, violins};
pub use frame::{Frame, PlotError};
pub use lines::{Line, Marker, lines};
pub use palette::COLOURS;
pub use stacks::{Stack, stacked_bars};

use plotters::style::text_anchor::{HPos, VPos};

/// Names in the order of their first appearance.
fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Each group's and each series' place along an axis: groups have the width 1, and the series of
/// a group share it.
struct Slots<'a> {
    groups: Vec<&'a str>,
    series: Vec<&'a str>,
}

impl<'a> Slots<'a> {
    fn of(pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Slots<'a> {
        Slots {
            groups: in_order(pairs.clone().map(|pair| pair.0)),
            series: in_order(pairs.map(|pair| pair.1)),
        }
    }

    fn series(&self, name: &str) -> usize {
        self.series.iter().position(|s| *s == name).unwrap_or(0)
    }

    /// Half of what a series has within its group.
    fn half_width(&self) -> f64 {
        0.4 / self.series.len().max(1) as f64
    }

    fn centre(&self, group: &str, series: &str) -> f64 {
        let group = self.groups.iter().position(|g| *g == group).unwrap_or(0);
        let step = 2.0 * self.half_width();
        group as f64 + 0.1 + step * (self.series(series) as f64 + 0.5)
    }

    /// One entry a series; none where there is only one without a name.
    fn legend(&self) -> Vec<frame::Entry<'a>> {
        let named = self.series.len() > 1 || self.series.iter().any(|name| !name.is_empty());
        let entry = |(index, name): (usize, &&'a str)| frame::Entry {
            name,
            colour: palette::series(index),
            dash: None,
        };
        let all = self.series.iter().enumerate().map(entry);
        if named { all.collect() } else { Vec::new() }
    }
}

/// Text at a place of the chart, moved by some pixels.
fn label(
    chart: &frame::Chart,
    text: &str,
    (x, y): (f64, f64),
    (right_px, down_px): (i32, i32),
    (horizontal, vertical): (HPos, VPos),
) -> Result<(), frame::Failure> {
    let (left, top) = chart.backend_coord(&(x, y));
    let (own_left, own_top) = chart.plotting_area().get_base_pixel();
    let style = frame::small_text(palette::INK, horizontal, vertical);
    let (left, top) = (left - own_left, top - own_top);
    let place = (left + right_px * frame::PX, top + down_px * frame::PX);
    chart
        .plotting_area()
        .strip_coord_spec()
        .draw_text(text, &style, place)
}

#[cfg(test)]
mod tests;
