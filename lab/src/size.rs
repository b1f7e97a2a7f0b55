//! Sizes of memory as people write them: `512M`, `1.5G`, `1073741824`; powers of 1024.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes.
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
        let (number, shift) = match lower.chars().last().ok_or_else(wrong)? {
            'k' => (&lower[..lower.len() - 1], 10),
            'm' => (&lower[..lower.len() - 1], 20),
            'g' => (&lower[..lower.len() - 1], 30),
            't' => (&lower[..lower.len() - 1], 40),
            _ => (lower, 0),
        };
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
                write!(
                    formatter,
                    "{:.1} {unit}",
                    bytes as f64 / (1u64 << shift) as f64
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("512M", 512 << 20),
            ("1.5G", 1536 << 20),
            ("1GiB", 1 << 30),
            ("4096", 4096),
            ("2kb", 2048),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "M", "-1", "1.00001k", "99999999999G", "nanG", "é"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_is_shown_in_its_unit() {
        assert_eq!(Size::mib(1536).to_string(), "1.5 GiB");
        assert_eq!(Size::mib(512).to_string(), "512 MiB");
        assert_eq!(Size(12).to_string(), "12 bytes");
    }
}
