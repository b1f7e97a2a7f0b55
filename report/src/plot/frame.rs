//! What surrounds every plot: title, legend, axes with their ticks; and the finished drawing.

use plotters::chart::ChartContext;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Axis, Plan};
use super::palette::{self, Colour};
use crate::format::{escape_html, printable};

/// The backend has whole units only: four to a pixel keep curves smooth.
pub(super) const PX: i32 = 4;
const FONT: &str = "system-ui, 'DejaVu Sans', sans-serif";
const TITLE_PX: i32 = 15;
const TEXT_PX: i32 = 12;
/// A wide guess of a character's width; only room is reserved by it.
const CHARACTER_PX: f64 = 6.4;
const MARGIN_PX: i32 = 14;
const LEGEND_ROW_PX: i32 = 20;
const SWATCH_PX: i32 = 11;

/// Why there is no drawing.
#[derive(Debug, thiserror::Error)]
#[error(
    "the plot \u{201c}{title}\u{201d} cannot be drawn: {reason}; give it another size or other values"
)]
pub struct PlotError {
    title: String,
    reason: String,
}

pub(super) type Failure = DrawingAreaErrorKind<std::io::Error>;
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Plan, Plan>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Title, axes and size of a plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The title above the plot.
    pub title: String,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// In pixels; the drawing scales.
    pub width: u32,
    /// Height, px.
    pub height: u32,
}

impl Frame {
    /// 720 by 400 pixels. The label of an axis that has names instead of numbers may be empty.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Frame {
        Frame {
            title: title.into(),
            x,
            y,
            width: 720,
            height: 400,
        }
    }

    /// Another size; at least 200 by 150.
    #[must_use]
    pub fn size(self, width: u32, height: u32) -> Frame {
        Frame {
            width: width.clamp(200, 10_000),
            height: height.clamp(150, 10_000),
            ..self
        }
    }
}

/// A line of the legend.
pub(super) struct Entry<'a> {
    /// The name in the legend.
    pub name: &'a str,
    /// The colour in the legend.
    pub colour: Colour,
    /// Drawn as a line with this pattern, else as a square.
    pub dash: Option<Dash>,
}

/// A pattern of a line, so that lines differ by more than their colour: drawn and left out, in
/// pixels.
pub(super) type Dash = (i32, i32);

/// Lines across the plot at the ticks of an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Grid {
    Horizontal,
    Vertical,
    Both,
}

pub(super) fn text_style(size_px: i32, colour: Colour, anchor: Pos) -> TextStyle<'static> {
    (FONT, size_px * PX)
        .into_font()
        .color(&RGBColor::from(colour))
        .pos(anchor)
}

pub(super) fn small_text(colour: Colour, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    text_style(TEXT_PX, colour, Pos::new(horizontal, vertical))
}

pub(super) fn text_width_px(text: &str) -> i32 {
    (text.chars().count() as f64 * CHARACTER_PX).ceil() as i32
}

/// A name from outside, on one line and not endless.
pub(super) fn shown(name: &str) -> String {
    const MOST: usize = 60;
    let name = printable(name);
    match name.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}…", &name[..cut]),
        None => name,
    }
}

/// Draws the surroundings, then `content` into them.
pub(super) fn draw(
    frame: &Frame,
    legend: &[Entry],
    x: &Plan,
    y: &Plan,
    grid: Grid,
    content: impl FnOnce(&mut Chart) -> Result<(), Failure>,
) -> Result<String, PlotError> {
    let mut svg = String::new();
    let (width, height) = (frame.width * PX as u32, frame.height * PX as u32);
    let drawn = (|| {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&RGBColor::from(palette::GROUND))?;
        let top_px = head(&root, frame, legend)?;
        let mut chart = axes(&root, frame, x, y, grid, top_px)?;
        content(&mut chart)?;
        drop(chart);
        root.present()
    })();
    match drawn {
        Ok(()) => Ok(finish(&svg, frame)),
        Err(error) => Err(PlotError {
            title: frame.title.clone(),
            reason: error.to_string(),
        }),
    }
}

/// Title and legend; returns their height.
fn head(root: &Area, frame: &Frame, legend: &[Entry]) -> Result<i32, Failure> {
    let mut top = MARGIN_PX;
    if !frame.title.is_empty() {
        let style = text_style(TITLE_PX, palette::INK, Pos::new(HPos::Left, VPos::Top));
        root.draw_text(&shown(&frame.title), &style, (MARGIN_PX * PX, top * PX))?;
        top += TITLE_PX + 10;
    }
    if legend.is_empty() {
        return Ok(top);
    }
    let mut left = MARGIN_PX;
    for entry in legend {
        let name = shown(entry.name);
        let swatch_px = if entry.dash.is_some() { 22 } else { SWATCH_PX };
        let needed = swatch_px + 6 + text_width_px(&name);
        if left > MARGIN_PX && left + needed > frame.width as i32 - MARGIN_PX {
            left = MARGIN_PX;
            top += LEGEND_ROW_PX;
        }
        let colour = RGBColor::from(entry.colour);
        let middle = top + SWATCH_PX / 2;
        match entry.dash {
            Some(dash) => {
                let ends = [left, left + swatch_px].map(|x| (x * PX, middle * PX));
                let style = colour.stroke_width(2 * PX as u32);
                draw_path(root, ends.to_vec(), dash, style)?;
            }
            None => root.draw(&Rectangle::new(
                [
                    (left * PX, top * PX),
                    ((left + SWATCH_PX) * PX, (top + SWATCH_PX) * PX),
                ],
                colour.filled(),
            ))?,
        }
        root.draw_text(
            &name,
            &small_text(palette::INK, HPos::Left, VPos::Center),
            ((left + swatch_px + 6) * PX, middle * PX),
        )?;
        left += needed + 16;
    }
    Ok(top + LEGEND_ROW_PX)
}

/// A line with its pattern; the path's own end is always reached.
pub(super) fn draw_path<Spec, Place>(
    area: &DrawingArea<SVGBackend, Spec>,
    path: Vec<Place>,
    (on, off): Dash,
    style: ShapeStyle,
) -> Result<(), Failure>
where
    Spec: CoordTranslate<From = Place>,
    Place: Clone,
{
    if off == 0 {
        area.draw(&PathElement::new(path, style))
    } else {
        area.draw(&DashedPathElement::new(path, on * PX, off * PX, style))
    }
}

fn axes<'a, 'b>(
    root: &'a Area<'b>,
    frame: &Frame,
    x: &Plan,
    y: &Plan,
    grid: Grid,
    top_px: i32,
) -> Result<Chart<'a, 'b>, Failure> {
    let widest_px = |plan: &Plan| {
        let widths = plan.ticks.iter().map(|(_, text)| text_width_px(text));
        widths.max().unwrap_or(0)
    };
    let described = |axis: &Axis| if axis.label.is_empty() { 0 } else { 20 };
    let left_px = (widest_px(y) + 14).min(frame.width as i32 / 2) + described(&frame.y);
    let bottom_px = 26 + described(&frame.x);
    // The last tick's text reaches beyond the frame.
    let right_px = MARGIN_PX.max(
        x.ticks
            .last()
            .map_or(0, |tick| text_width_px(&tick.1) / 2 + 4),
    );
    let mut chart = ChartBuilder::on(root)
        .margin_top(top_px * PX)
        .margin_left(MARGIN_PX * PX / 2)
        .margin_right(right_px * PX)
        .margin_bottom(8 * PX)
        .set_label_area_size(LabelAreaPosition::Left, left_px * PX)
        .set_label_area_size(LabelAreaPosition::Bottom, bottom_px * PX)
        .build_cartesian_2d(x.clone(), y.clone())?;
    let (ink, soft, line) = (palette::INK, palette::SOFT, RGBColor::from(palette::GRID));
    let (x_text, y_text) = (|v: &f64| shown(&x.label(*v)), |v: &f64| shown(&y.label(*v)));
    let mut mesh = chart.configure_mesh();
    mesh.bold_line_style(line.stroke_width(PX as u32))
        .light_line_style(TRANSPARENT)
        .axis_style(RGBColor::from(palette::SOFT).stroke_width(PX as u32))
        .label_style(text_style(TEXT_PX, soft, Pos::default()))
        .axis_desc_style(text_style(TEXT_PX, ink, Pos::default()))
        .set_all_tick_mark_size(4 * PX)
        .x_label_formatter(&x_text)
        .y_label_formatter(&y_text)
        .x_desc(shown(&frame.x.label))
        .y_desc(shown(&frame.y.label));
    if grid == Grid::Horizontal {
        mesh.disable_x_mesh();
    }
    if grid == Grid::Vertical {
        mesh.disable_y_mesh();
    }
    mesh.draw()?;
    Ok(chart)
}

/// Names the drawing for those who cannot see it, and gives it its size and its style.
fn finish(svg: &str, frame: &Frame) -> String {
    let body = svg.split_once('>').map_or("", |(_, body)| body);
    let (width, height) = (frame.width, frame.height);
    let (inner_width, inner_height) = (width * PX as u32, height * PX as u32);
    format!(
        "<svg class=\"dormouse-plot\" role=\"img\" aria-label=\"{}\" width=\"{width}\" \
         height=\"{height}\" viewBox=\"0 0 {inner_width} {inner_height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n<style>{}</style>{body}",
        escape_html(&frame.title),
        palette::style(),
    )
}
