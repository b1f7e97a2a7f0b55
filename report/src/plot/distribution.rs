//! Violins and boxes: how values that were measured several times spread, with every value.

use plotters::prelude::*;

use super::axis::Plan;
use super::frame::{self, Chart, Failure, Frame, Grid, PX, PlotError};
use super::{Slots, palette};
use crate::stats::{self, Summary};

/// Values measured under the same conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its place on the x axis: what was varied, for instance the size of memory.
    pub group: String,
    /// Its colour: what is compared; may be empty where it is one.
    pub series: String,
    /// The values.
    pub values: Vec<f64>,
}

impl Sample {
    /// All three.
    pub fn new(group: impl Into<String>, series: impl Into<String>, values: &[f64]) -> Sample {
        Sample {
            group: group.into(),
            series: series.into(),
            values: values.to_vec(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Violin,
    Box,
}

/// Fewer values have no shape worth drawing: their points say all.
const MIN_FOR_A_VIOLIN: usize = 5;
const MIN_FOR_A_BOX: usize = 3;
/// More points than this would be a blot.
const MAX_POINTS: usize = 400;

/// A violin for each sample: its density, every value as a point, ticks at minimum, median and
/// maximum.
///
/// # Errors
/// The drawing fails.
pub fn violins(frame: &Frame, samples: &[Sample]) -> Result<String, PlotError> {
    draw(frame, samples, Shape::Violin)
}

/// A box for each sample: from the first to the third quartile, every value as a point, ticks at
/// minimum, median and maximum.
///
/// # Errors
/// The drawing fails.
pub fn boxes(frame: &Frame, samples: &[Sample]) -> Result<String, PlotError> {
    draw(frame, samples, Shape::Box)
}

fn draw(frame: &Frame, samples: &[Sample], shape: Shape) -> Result<String, PlotError> {
    let slots = Slots::of(
        samples
            .iter()
            .map(|s| (s.group.as_str(), s.series.as_str())),
    );
    let x = Plan::of_names(slots.groups.iter().copied());
    let y = frame
        .y
        .plan(samples.iter().flat_map(|s| s.values.iter().copied()));
    let legend = slots.legend();
    frame::draw(frame, &legend, &x, &y, Grid::Horizontal, |chart| {
        for sample in samples {
            let places: Vec<f64> = sample
                .values
                .iter()
                .filter_map(|v| frame.y.place(*v))
                .collect();
            let slot = Slot {
                centre: slots.centre(&sample.group, &sample.series),
                half_width: slots.half_width() * 0.85,
                colour: palette::series(slots.series(&sample.series)).into(),
            };
            draw_sample(chart, &slot, &places, shape)?;
        }
        Ok(())
    })
}

struct Slot {
    centre: f64,
    half_width: f64,
    colour: RGBColor,
}

fn draw_sample(
    chart: &mut Chart,
    slot: &Slot,
    places: &[f64],
    shape: Shape,
) -> Result<(), Failure> {
    let Some(summary) = Summary::of(places.iter().copied()) else {
        return Ok(());
    };
    let centre = slot.centre;
    let density = match shape {
        Shape::Violin if summary.n >= MIN_FOR_A_VIOLIN => {
            stats::density(places.iter().copied(), 64)
        }
        _ => Vec::new(),
    };
    let widest = density.iter().map(|point| point.1).fold(0.0, f64::max);
    let width_at = |place: f64| {
        let after = density.partition_point(|point| point.0 < place);
        let near = density.get(after).or(density.last());
        near.map_or(slot.half_width * 0.35, |point| {
            slot.half_width * point.1 / widest
        })
    };
    let outline = RGBColor::stroke_width(&slot.colour, PX as u32);
    if !density.is_empty() {
        let side = |sign: f64| {
            move |(at, density): &(f64, f64)| {
                (centre + sign * slot.half_width * density / widest, *at)
            }
        };
        let mut body: Vec<(f64, f64)> = density.iter().map(side(1.0)).collect();
        body.extend(density.iter().rev().map(side(-1.0)));
        chart.draw_series([Polygon::new(body.clone(), slot.colour.mix(0.25).filled())])?;
        body.push(body[0]);
        chart.draw_series([PathElement::new(body, outline)])?;
    }
    if shape == Shape::Box && summary.n >= MIN_FOR_A_BOX {
        let (left, right) = (
            centre - slot.half_width * 0.7,
            centre + slot.half_width * 0.7,
        );
        let corners = [(left, summary.q1), (right, summary.q3)];
        chart.draw_series([Rectangle::new(corners, slot.colour.mix(0.25).filled())])?;
        chart.draw_series([Rectangle::new(corners, outline)])?;
        for (from, to) in [(summary.min, summary.q1), (summary.q3, summary.max)] {
            chart.draw_series([PathElement::new([(centre, from), (centre, to)], outline)])?;
        }
    }
    let radius_px = if summary.n < 20 { 3 } else { 2 };
    for (index, place) in places.iter().take(MAX_POINTS).enumerate() {
        // The golden ratio spreads neighbours; the same input gives the same drawing.
        let spread = (index as f64 * 0.618_034).fract() * 2.0 - 1.0;
        let point = (centre + spread * width_at(*place) * 0.8, *place);
        chart.draw_series([Circle::new(
            point,
            radius_px * PX,
            slot.colour.mix(0.65).filled(),
        )])?;
    }
    let tick = |place: f64, share: f64, style: ShapeStyle| {
        let reach = slot.half_width * share;
        PathElement::new([(centre - reach, place), (centre + reach, place)], style)
    };
    let ink = RGBColor::from(palette::INK);
    chart.draw_series([
        tick(summary.min, 0.45, outline),
        tick(summary.max, 0.45, outline),
        tick(summary.median, 0.9, ink.stroke_width(2 * PX as u32)),
    ])?;
    Ok(())
}
