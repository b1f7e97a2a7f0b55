//! A device's latency curve: the latency of an access at each bandwidth.
//!
//! ```text
//!  # comment
//!  0.0,370        GiB a second, nanoseconds; both grow from line to line
//!  4.0,380
//! ```

use std::path::Path;

/// Bytes in a GiB.
pub const GIB: f64 = (1u64 << 30) as f64;

/// The threshold leaves room for changes between two passes.
const BELOW_WORKING_POINT: f64 = 0.8;

/// The curves that are part of the program: name, text.
pub const SHIPPED: [(&str, &str); 3] = [
    (
        "kaemmerer-fpga",
        include_str!("../curves/kaemmerer-fpga.csv"),
    ),
    ("mess-cxl", include_str!("../curves/mess-cxl.csv")),
    ("linear-knee", include_str!("../curves/linear-knee.csv")),
];

/// An alias of the first one.
const OLD_NAME: &str = "seed-fpga"; // until 0.3

/// A curve that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CurveError {
    /// There is no such file.
    #[error("{path}: {error}; built-in curves: {}", names())]
    Read {
        /// The file.
        path: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// A line that cannot be parsed.
    #[error("{name}, line {line}: {text:?} is no point; the format is `GiB/s,nanoseconds`")]
    Line {
        /// File or name of the curve.
        name: String,
        /// Number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// The points are no curve.
    #[error("{name}: {why}")]
    Shape {
        /// File or name of the curve.
        name: String,
        /// The rule that they break.
        why: &'static str,
    },
}

fn names() -> String {
    SHIPPED.map(|(name, _)| name).join(", ")
}

/// Points of a curve, linear in between and extrapolated with the last slope.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// File or name of the curve.
    pub name: String,
    /// Bytes a second, nanoseconds.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// A built-in curve by its name, or a file.
    ///
    /// # Errors
    /// It is neither, or not a curve.
    pub fn find(name: &str) -> Result<Self, CurveError> {
        let name = if name == OLD_NAME { SHIPPED[0].0 } else { name };
        if let Some((name, text)) = SHIPPED.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let text = std::fs::read_to_string(Path::new(name)).map_err(|error| CurveError::Read {
            path: name.to_owned(),
            error,
        })?;
        Self::parse(name, &text)
    }

    /// Parses the lines of a curve.
    ///
    /// # Errors
    /// A line is no point, there are fewer than two points, or they do not grow.
    pub fn parse(name: &str, text: &str) -> Result<Self, CurveError> {
        let mut points = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let point = line.split_once(',').and_then(|(bandwidth, latency)| {
                let bandwidth: f64 = bandwidth.trim().parse().ok()?;
                let latency: f64 = latency.trim().parse().ok()?;
                let sane = bandwidth >= 0.0 && latency > 0.0;
                (sane && bandwidth.is_finite() && latency.is_finite())
                    .then_some((bandwidth * GIB, latency))
            });
            points.push(point.ok_or_else(|| CurveError::Line {
                name: name.to_owned(),
                line: at + 1,
                text: line.to_owned(),
            })?);
        }
        let shape = |why| CurveError::Shape {
            name: name.to_owned(),
            why,
        };
        if points.len() < 2 {
            return Err(shape("a curve needs at least two points"));
        }
        if points
            .windows(2)
            .any(|two| two[1].0 <= two[0].0 || two[1].1 < two[0].1)
        {
            return Err(shape(
                "bandwidth must grow from line to line, and latency must not fall",
            ));
        }
        if points[points.len() - 1].1 <= points[points.len() - 2].1 {
            return Err(shape("latency must grow at the end: that is the knee"));
        }
        Ok(Self {
            name: name.to_owned(),
            points,
        })
    }

    /// Latency of an access in nanoseconds, at a bandwidth in bytes a second.
    pub fn latency_ns(&self, bandwidth: f64) -> f64 {
        let points = &self.points;
        if bandwidth <= points[0].0 {
            return points[0].1;
        }
        let after = points.partition_point(|point| point.0 < bandwidth);
        let at = after.clamp(1, points.len() - 1);
        let ((x0, y0), (x1, y1)) = (points[at - 1], points[at]);
        y0 + (y1 - y0) * (bandwidth - x0) / (x1 - x0)
    }

    /// The bandwidth, in bytes a second, at which an access takes this many nanoseconds; where the
    /// curve is flat, the smallest. Extrapolated with the last slope.
    pub fn bandwidth_at(&self, latency_ns: f64) -> f64 {
        let points = &self.points;
        if latency_ns <= points[0].1 {
            return points[0].0;
        }
        let after = points.partition_point(|point| point.1 < latency_ns);
        let at = after.clamp(1, points.len() - 1);
        let ((x0, y0), (x1, y1)) = (points[at - 1], points[at]);
        x0 + (x1 - x0) * (latency_ns - y0) / (y1 - y0)
    }

    /// The working point: the bandwidth, in bytes a second, at which bandwidth over latency is
    /// largest (*power* as defined by Kleinrock, 1979). Between points the ratio has no maximum of
    /// its own, so it is at one of them.
    pub fn working_point(&self) -> f64 {
        let power = |point: &&(f64, f64)| point.0 / point.1;
        let best = self
            .points
            .iter()
            .max_by(|a, b| power(a).total_cmp(&power(b)));
        best.map_or(0.0, |point| point.0)
    }

    /// The curve of a device that carries this part of the bandwidth at each latency.
    pub fn derated(&self, factor: f64) -> Self {
        let points = self.points.iter().map(|(x, y)| (x * factor, *y));
        Self {
            name: self.name.clone(),
            points: points.collect(),
        }
    }

    /// The default threshold, in bytes a second: four fifths of the working point.
    pub fn threshold(&self) -> f64 {
        self.working_point() * BELOW_WORKING_POINT
    }

    /// The largest bandwidth with a known latency, in bytes a second.
    pub fn max_bandwidth(&self) -> f64 {
        self.points[self.points.len() - 1].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_curves_are_curves_with_a_knee_below_their_end() {
        for (name, _) in SHIPPED {
            let curve = Curve::find(name).unwrap();
            let knee = curve.working_point();
            assert!(
                knee > 0.0 && knee < curve.max_bandwidth(),
                "{name}: {}",
                knee / GIB
            );
            assert!(
                curve.latency_ns(curve.max_bandwidth() * 1.1)
                    > curve.latency_ns(curve.max_bandwidth())
            );
        }
    }

    #[test]
    fn the_old_name_of_a_curve_is_accepted() {
        assert_eq!(Curve::find(OLD_NAME).unwrap().name, "kaemmerer-fpga");
    }

    #[test]
    fn between_two_points_it_is_linear() {
        let curve = Curve::parse("x", "1, 100 # idle\n\n3, 200\n4,400\n").unwrap();
        let at = |gib_s: f64| curve.latency_ns(gib_s * GIB);
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0, 5.0].map(at),
            [100.0, 100.0, 150.0, 200.0, 600.0]
        );
        assert_eq!(curve.working_point(), 3.0 * GIB);
    }

    #[test]
    fn each_latency_is_that_of_one_bandwidth() {
        let curve = Curve::parse("x", "1,100\n2,100\n3,200\n4,400\n").unwrap();
        let at = |ns: f64| curve.bandwidth_at(ns) / GIB;
        assert_eq!(
            [50.0, 100.0, 150.0, 200.0, 600.0].map(at),
            [1.0, 1.0, 2.5, 3.0, 5.0]
        );
    }

    #[test]
    fn a_derated_device_has_the_same_latencies_at_less_bandwidth() {
        let curve = Curve::find("kaemmerer-fpga").unwrap();
        let less = curve.derated(0.7);
        for gib_s in [0.0, 3.5, 6.0, 9.0] {
            let (before, after) = (gib_s * GIB, 0.7 * gib_s * GIB);
            let off = less.latency_ns(after) - curve.latency_ns(before);
            assert!(off.abs() < 1e-6, "{gib_s}: {off}");
        }
        assert!(less.latency_ns(curve.threshold()) > curve.latency_ns(curve.working_point()));
    }

    #[test]
    fn an_invalid_curve_is_rejected_with_its_line() {
        let said = |text: &str| Curve::parse("x", text).unwrap_err().to_string();
        assert!(said("1,100\n2;3\n").contains("line 2"));
        assert!(said("1,100\n").contains("two points"));
        assert!(said("1,100\n1,200\n").contains("grow"));
        assert!(said("1,100\n2,50\n").contains("grow"));
        assert!(said("1,100\n2,100\n").contains("knee"));
        assert!(said("1,100\nNaN,200\n").contains("line 2"));
        assert!(
            Curve::find("/no/such")
                .unwrap_err()
                .to_string()
                .contains("kaemmerer-fpga")
        );
    }
}
