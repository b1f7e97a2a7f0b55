//! Colours that people with any kind of colour vision can distinguish, on a light and a dark
//! ground.
//!
//! A plot is drawn in the light colours, each used for one purpose only. A style inside the
//! drawing replaces them where the reader's setting is dark; a viewer that knows no style sheets
//! shows the light drawing on its own opaque ground.

use std::fmt::Write;

use plotters::style::RGBColor;

/// A colour on a light and on a dark ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour {
    /// Red, green and blue on a light ground.
    pub light: (u8, u8, u8),
    dark: (u8, u8, u8),
}

impl From<Colour> for RGBColor {
    fn from(colour: Colour) -> RGBColor {
        let (red, green, blue) = colour.light;
        RGBColor(red, green, blue)
    }
}

const fn colour(light: u32, dark: u32) -> Colour {
    const fn bytes(rgb: u32) -> (u8, u8, u8) {
        ((rgb >> 16) as u8, (rgb >> 8) as u8, rgb as u8)
    }
    Colour {
        light: bytes(light),
        dark: bytes(dark),
    }
}

pub(super) const GROUND: Colour = colour(0xffffff, 0x1c2026);
pub(super) const INK: Colour = colour(0x1b1f24, 0xe8eaed);
pub(super) const SOFT: Colour = colour(0x55606c, 0xa5afba);
pub(super) const GRID: Colour = colour(0xdcdfe3, 0x363c45);

/// Number of series with a colour of their own.
pub const COLOURS: usize = 7;

/// The hues of Okabe and Ito, "Color Universal Design" (2008), in other strengths: so that a thin
/// line is not too faint, and any two stay apart for each kind of colour vision.
const SERIES: [Colour; COLOURS] = [
    colour(0x0064a8, 0x4d9be0),
    colour(0xc24a00, 0xf0883e),
    colour(0x00875f, 0x3fc79a),
    colour(0xc76fae, 0xe394cf),
    colour(0xc99700, 0xf2d14e),
    colour(0x4aa8dc, 0xb8e8fa),
    colour(0x50575f, 0x858e98),
];

/// The colour of a series by its number; the last is shared by all from the seventh on.
pub(super) fn series(number: usize) -> Colour {
    SERIES[number.min(SERIES.len() - 1)]
}

fn hex((red, green, blue): (u8, u8, u8)) -> String {
    // As the SVG backend writes it.
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// The style sheet of a drawing, for an element of the class `dormouse-plot`.
pub(super) fn style() -> String {
    let mut style = String::from("@media screen and (prefers-color-scheme:dark){");
    for colour in [GROUND, INK, SOFT, GRID].iter().chain(&SERIES) {
        for property in ["fill", "stroke"] {
            let (light, dark) = (hex(colour.light), hex(colour.dark));
            // Writing into a String cannot fail.
            let _ = write!(
                style,
                ".dormouse-plot [{property}=\"{light}\"]{{{property}:{dark}}}"
            );
        }
    }
    style.push('}');
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear((red, green, blue): (u8, u8, u8)) -> [f64; 3] {
        [red, green, blue].map(|byte| {
            let value = f64::from(byte) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    fn luminance(rgb: (u8, u8, u8)) -> f64 {
        let [red, green, blue] = linear(rgb);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    fn contrast(a: (u8, u8, u8), b: (u8, u8, u8)) -> f64 {
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    /// Machado, Oliveira and Fernandes (2009), severity 1.0.
    const VISIONS: [(&str, [[f64; 3]; 3]); 4] = [
        (
            "normal",
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        ),
        (
            "protanopia",
            [
                [0.152286, 1.052583, -0.204868],
                [0.114503, 0.786281, 0.099216],
                [-0.003882, -0.048116, 1.051998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367322, 0.860646, -0.227968],
                [0.280085, 0.672501, 0.047413],
                [-0.011820, 0.042940, 0.968881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255528, -0.076749, -0.178779],
                [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900],
            ],
        ),
    ];

    /// CIE L*a*b* of a colour as somebody sees it.
    fn lab(rgb: (u8, u8, u8), vision: &[[f64; 3]; 3]) -> [f64; 3] {
        let own = linear(rgb);
        let seen = vision.map(|row| {
            let sum: f64 = row.iter().zip(own).map(|(m, v)| m * v).sum();
            sum.clamp(0.0, 1.0)
        });
        let [r, g, b] = seen;
        let xyz = [
            (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
            0.2126 * r + 0.7152 * g + 0.0722 * b,
            (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
        ];
        let [x, y, z] = xyz.map(|v| {
            if v > 0.008856 {
                v.cbrt()
            } else {
                7.787 * v + 16.0 / 116.0
            }
        });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn any_two_series_differ_for_every_kind_of_colour_vision() {
        for (name, vision) in &VISIONS {
            for (i, one) in SERIES.iter().enumerate() {
                for other in &SERIES[i + 1..] {
                    for (a, b) in [(one.light, other.light), (one.dark, other.dark)] {
                        let (a, b) = (lab(a, vision), lab(b, vision));
                        let distance: f64 = a
                            .iter()
                            .zip(b)
                            .map(|(a, b)| (a - b).powi(2))
                            .sum::<f64>()
                            .sqrt();
                        assert!(distance > 14.0, "{name}: {one:?} {other:?}: {distance}");
                    }
                }
            }
        }
    }

    #[test]
    fn text_and_series_stand_out_from_the_ground() {
        for (colour, least) in [(INK, 7.0), (SOFT, 4.5)] {
            assert!(contrast(colour.light, GROUND.light) >= least);
            assert!(contrast(colour.dark, GROUND.dark) >= least);
        }
        for colour in SERIES {
            assert!(contrast(colour.light, GROUND.light) >= 2.5, "{colour:?}");
            assert!(contrast(colour.dark, GROUND.dark) >= 3.0, "{colour:?}");
        }
    }

    #[test]
    fn each_colour_has_one_purpose() {
        let mut all: Vec<_> = [GROUND, INK, SOFT, GRID].iter().chain(&SERIES).collect();
        all.sort_by_key(|colour| colour.light);
        assert!(all.windows(2).all(|pair| pair[0].light != pair[1].light));
    }
}
