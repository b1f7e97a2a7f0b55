//! Sizes as people write and read them: `100M`, `1.5G/s`, `4096`.

/// Parses a size or a rate: a number, an optional binary unit (K, M, G, T, also as KiB, KB), an
/// optional `/s`.
///
/// # Errors
/// A sentence that says what is wrong and what is accepted.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("`{text}` is not a size: write a number and optionally K, M, G or T, such as 256M")
    };
    let trimmed = text.trim();
    let trimmed = trimmed.strip_suffix("/s").unwrap_or(trimmed).trim_end();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let scale = (1u64 << shift) as f64;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * scale;
    if value.is_finite() && value < u64::MAX as f64 {
        Ok(value as u64)
    } else {
        Err(wrong())
    }
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
            ("0", 0),
            ("4096", 4096),
            ("1K", 1 << 10),
            ("256M", 256 << 20),
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
