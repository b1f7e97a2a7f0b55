//! Sizes as people write and read them: `100M`, `1.5G/s`, `4096`.

use dormouse_system::arguments::Size;

/// Parses a size or a rate: a number, an optional binary unit (K, M, G, T, also as KiB, KB), an
/// optional `/s`.
///
/// # Errors
/// A sentence that says what is wrong and what is accepted.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("`{text}` is not a size: write a number and optionally K, M, G or T, such as 256M")
    };
    let size = text.trim().strip_suffix("/s").unwrap_or(text);
    size.parse().map(|Size(bytes)| bytes).map_err(|_| wrong())
}

/// `1.5 GiB`, for messages.
pub fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{bytes} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_rates_are_read_with_binary_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("1.5G", 3 << 29),
            ("2GiB/s", 2 << 30),
            (" 10 MB/s ", 10 << 20),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in ["", "G", "1X", "-1", "1.2.3", "99999999999T", "1/m"] {
            assert!(parse(text).unwrap_err().contains("256M"), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_below_1024() {
        assert_eq!(human(512), "512 B");
        assert_eq!(human(3 << 29), "1.5 GiB");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
