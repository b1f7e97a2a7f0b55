//! Sizes and durations as people write them on a command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// A number of bytes: `512M`, `1.5G`, `4096`. Units are powers of 1024, with or without `iB` or
/// `B`. (The `bytesize` crate reads `512M` as 512 · 10⁶, which no memory block fits.)
///
/// ```
/// use dormouse_system::arguments::Size;
///
/// let size: Size = "1.5G".parse().unwrap();
/// assert_eq!(size, Size(3 << 29));
/// assert_eq!(size.to_string(), "1.5 GiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Size(pub u64);

impl Size {
    /// A number of MiB.
    pub const fn mib(mebibytes: u64) -> Size {
        Size(mebibytes << 20)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || format!("{text:?} is no size: write 512M, 1.5G or a number of bytes");
        let lower = text.trim().to_ascii_lowercase();
        let lower = lower
            .strip_suffix("ib")
            .or(lower.strip_suffix('b'))
            .unwrap_or(&lower);
        let shift = match lower.chars().last().ok_or_else(wrong)? {
            'k' => 10,
            'm' => 20,
            'g' => 30,
            't' => 40,
            _ => 0,
        };
        let number = if shift > 0 {
            &lower[..lower.len() - 1]
        } else {
            lower
        };
        let number = number.trim_end();
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(1 << shift).map(Size).ok_or_else(wrong);
        }
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let bytes = number * (1u64 << shift) as f64;
        if !(bytes.is_finite() && (0.0..1e18).contains(&bytes) && bytes.fract() == 0.0) {
            return Err(wrong());
        }
        Ok(Size(bytes as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|&(shift, _)| bytes >> shift > 0) {
            None => write!(formatter, "{bytes} bytes"),
            Some((shift, unit)) if bytes.is_multiple_of(1 << shift) => {
                write!(formatter, "{} {unit}", bytes >> shift)
            }
            Some((shift, unit)) => {
                let value = bytes as f64 / (1u64 << shift) as f64;
                write!(formatter, "{value:.1} {unit}")
            }
        }
    }
}

/// A rate in bytes per second: a [`Size`], with or without `/s`.
///
/// # Errors
/// A sentence that says what is accepted.
pub fn rate(text: &str) -> Result<u64, String> {
    let size = text.trim().strip_suffix("/s").unwrap_or(text);
    match size.parse() {
        Ok(Size(bytes)) => Ok(bytes),
        Err(_) => Err(format!("{text:?} is no rate: write 200M/s or 1.5G/s")),
    }
}

/// A duration with its unit: `16ms`, `1.5s`, `2min`, `500us`; 0 is allowed.
///
/// # Errors
/// A sentence that says what is accepted.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = |why: &dyn fmt::Display| {
        format!("{text:?} is no duration: write 16ms, 1.5s or 2min ({why})")
    };
    let signed: SignedDuration = text.parse().map_err(|error| wrong(&error))?;
    Duration::try_from(signed).map_err(|_| wrong(&"it must not be negative"))
}

/// A [`duration`] that is longer than 0.
///
/// # Errors
/// A sentence that says what is accepted.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("{text:?}: the duration must be longer than 0")),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512M", 512 << 20),
            ("1.5G", 1536 << 20),
            ("1GiB", 1 << 30),
            (" 2 kb ", 2048),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in [
            "",
            "M",
            "-1",
            "1X",
            "1.2.3",
            "1.00001k",
            "99999999999G",
            "nanG",
            "é",
        ] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains("512M"), "{text}: {error}");
        }
    }

    #[test]
    fn a_size_is_shown_in_its_unit() {
        assert_eq!(Size::mib(1536).to_string(), "1.5 GiB");
        assert_eq!(Size::mib(512).to_string(), "512 MiB");
        assert_eq!(Size(12).to_string(), "12 bytes");
    }

    #[test]
    fn a_rate_may_end_in_a_second() {
        assert_eq!(rate("2GiB/s"), Ok(2 << 30));
        assert_eq!(rate("10M"), Ok(10 << 20));
        assert!(rate("1/m").unwrap_err().contains("200M/s"));
    }

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        for (text, expected) in [
            ("16ms", Duration::from_millis(16)),
            ("1.5s", Duration::from_millis(1500)),
            ("2min", Duration::from_secs(120)),
            ("1h", Duration::from_secs(3600)),
            ("500us", Duration::from_micros(500)),
            ("0s", Duration::ZERO),
        ] {
            assert_eq!(duration(text), Ok(expected), "{text}");
        }
        for text in ["", "16", "ms", "-1s", "1.2.3s"] {
            assert!(duration(text).unwrap_err().contains("16ms"), "{text}");
        }
        assert!(positive_duration("0s").is_err());
        assert_eq!(positive_duration("1us"), Ok(Duration::from_micros(1)));
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in ".{0,40}") {
            let _ = (text.parse::<Size>(), rate(&text), duration(&text));
        }
    }
}
