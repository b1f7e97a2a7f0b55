//! Lines and steps: how values change, over time for instance.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{self, Dash, Entry, Frame, Grid, PX, PlotError};
use super::{label, palette};

/// Values in the order of x.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// (x, y); what is not finite, or has no place on a logarithmic axis, interrupts the line.
    pub points: Vec<(f64, f64)>,
    /// The value holds until the next point, instead of a straight line to it.
    pub step: bool,
}

impl Line {
    /// Points joined by straight lines.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        Line {
            name: name.into(),
            points,
            step: false,
        }
    }

    /// Each value holds until the next one.
    #[must_use]
    pub fn stepped(self) -> Line {
        Line { step: true, ..self }
    }
}

/// An upright line at a value of x, with a name: where two lines cross, or where a phase ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker {
    /// Place on the x axis.
    pub x: f64,
    /// The name in the legend.
    pub name: String,
}

/// Lines differ by colour and by pattern.
const DASHES: [Dash; 4] = [(1, 0), (8, 4), (2, 3), (14, 4)];
/// Lines of more points do not show them.
const MAX_POINTS: usize = 25;

/// All lines in one frame.
///
/// # Errors
/// The drawing fails.
pub fn lines(frame: &Frame, lines: &[Line], markers: &[Marker]) -> Result<String, PlotError> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let x = frame
        .x
        .plan(points().map(|p| p.0).chain(markers.iter().map(|m| m.x)));
    let y = frame.y.plan(points().map(|p| p.1));
    let legend: Vec<Entry> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.name.is_empty())
        .map(|(index, line)| Entry {
            name: &line.name,
            colour: palette::series(index),
            dash: Some(DASHES[index % DASHES.len()]),
        })
        .collect();
    frame::draw(frame, &legend, &x, &y, Grid::Both, |chart| {
        let soft = RGBColor::from(palette::SOFT).stroke_width(PX as u32);
        for (index, marker) in markers.iter().enumerate() {
            let Some(at) = frame.x.place(marker.x) else {
                continue;
            };
            let upright = vec![(at, y.low), (at, y.high)];
            frame::draw_path(chart.plotting_area(), upright, (3, 3), soft)?;
            // One below the other, so that close ones can be read; on the side that has room.
            let down_px = 4 + 15 * (index % 6) as i32;
            let (right_px, side) = match at > (x.low + x.high) / 2.0 {
                true => (-5, HPos::Right),
                false => (5, HPos::Left),
            };
            let name = frame::shown(&marker.name);
            label(
                chart,
                &name,
                (at, y.high),
                (right_px, down_px),
                (side, VPos::Top),
            )?;
        }
        for (index, line) in lines.iter().enumerate() {
            let style = RGBColor::from(palette::series(index)).stroke_width(2 * PX as u32);
            for piece in pieces(frame, line) {
                let marked: Vec<(f64, f64)> = match piece.len() {
                    0..=MAX_POINTS => piece.clone(),
                    _ => Vec::new(),
                };
                let path = if line.step { steps(&piece) } else { piece };
                let dash = DASHES[index % DASHES.len()];
                frame::draw_path(chart.plotting_area(), path, dash, style)?;
                let dot = |point| Circle::new(point, 3 * PX, style.filled());
                chart.draw_series(marked.into_iter().map(dot))?;
            }
        }
        Ok(())
    })
}

/// The line's places, cut where one is missing.
fn pieces(frame: &Frame, line: &Line) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for &(x, y) in &line.points {
        match (frame.x.place(x), frame.y.place(y)) {
            (Some(x), Some(y)) => pieces.last_mut().expect("never empty").push((x, y)),
            _ => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corners = points
        .windows(2)
        .flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    corners.chain(points.last().copied()).collect()
}
