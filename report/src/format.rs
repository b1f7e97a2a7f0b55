//! Numbers for people: durations, sizes, and text that is safe to show.

use serde_json::Value;

/// `1.23 s`, `45.6 ms`, `789 µs`: three significant digits.
pub fn duration(ns: u64) -> String {
    let ns_f = ns as f64;
    match ns {
        0 => "0 s".to_owned(),
        1..=999 => format!("{ns} ns"),
        1_000..=999_499 => format!("{} µs", three_digits(ns_f / 1e3)),
        999_500..=999_499_999 => format!("{} ms", three_digits(ns_f / 1e6)),
        999_500_000..=119_999_999_999 => format!("{} s", three_digits(ns_f / 1e9)),
        _ => {
            let seconds = ns / 1_000_000_000;
            match seconds / 3600 {
                0 => format!("{} min {:02} s", seconds / 60, seconds % 60),
                hours => format!("{hours} h {:02} min", seconds % 3600 / 60),
            }
        }
    }
}

/// Seconds as in `cycles.jsonl`; what is not a length of time shows as a dash.
pub fn seconds(seconds: f64) -> String {
    if seconds.is_finite() && seconds >= 0.0 {
        duration((seconds * 1e9).round() as u64)
    } else {
        "–".to_owned()
    }
}

/// Seconds of a pause, up to days.
pub fn duration_of_pause(pause_s: f64) -> String {
    const DAY_S: f64 = 86_400.0;
    match pause_s {
        s if s >= 2.0 * DAY_S => format!("{} days", three_digits(s / DAY_S)),
        s => seconds(s),
    }
}

/// `45.6 J`, `12.3 kJ`, `1.50 MJ`; what is not an energy shows as a dash.
pub fn joules(joules: f64) -> String {
    match joules {
        j if !j.is_finite() || j < 0.0 => "–".to_owned(),
        j if j < 9_999.5 => format!("{} J", three_digits(j)),
        j if j < 999_500.0 => format!("{} kJ", three_digits(j / 1e3)),
        j => format!("{} MJ", three_digits(j / 1e6)),
    }
}

/// `512 B`, `143 MiB`, `1.50 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut value, mut unit) = (count as f64 / 1024.0, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// A detail's value, with its unit where the key names one.
pub fn detail(key: &str, value: &Value) -> String {
    match (value, value.as_u64()) {
        (_, Some(count)) if key == "bytes" || key.ends_with("_bytes") => bytes(count),
        (_, Some(ns)) if key.ends_with("_ns") => duration(ns),
        (Value::Number(number), _) if key.ends_with("_s") => {
            number.as_f64().map_or_else(|| number.to_string(), seconds)
        }
        (Value::String(text), _) => text.clone(),
        (Value::Array(values), _) => list(values),
        (other, _) => other.to_string(),
    }
}

/// Values of a list that are shown; the number of the others follows.
const SHOWN: usize = 8;

fn list(values: &[Value]) -> String {
    let shown: Vec<String> = values
        .iter()
        .take(SHOWN)
        .map(|value| detail("", value))
        .collect();
    let text = shown.join(", ");
    match values.len().saturating_sub(SHOWN) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// Text from outside without control characters, so that it cannot steer a terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() || is_direction_mark(c) {
                '�'
            } else {
                c
            }
        })
        .collect()
}

/// Characters that reorder what follows them.
fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text for HTML, in elements and in quoted attributes. Control characters, which HTML does not
/// allow, are replaced.
pub fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            c if c.is_control() || is_direction_mark(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// JSON for a `<script>` element: nothing in it can end the element or start a comment.
pub fn escape_json_for_script(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_never_a_thousand_of_a_unit() {
        let expected = [
            (0, "0 s"),
            (999, "999 ns"),
            (1_500, "1.50 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (45_678_000, "45.7 ms"),
            (999_999_999, "1.00 s"),
            (1_234_000_000, "1.23 s"),
            (119_000_000_000, "119 s"),
            (125_000_000_000, "2 min 05 s"),
            (7_260_000_000_000, "2 h 01 min"),
        ];
        for (ns, text) in expected {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(seconds(f64::NAN), "–");
        assert_eq!(seconds(-1.0), "–");
    }

    #[test]
    fn sizes_are_binary() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (150 << 20, "150 MiB"),
            (1023 << 20, "1.00 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn escaped_text_cannot_leave_its_place() {
        assert_eq!(
            escape_html("<a b='c' d=\"&\">\u{1b}"),
            "&lt;a b=&#39;c&#39; d=&quot;&amp;&quot;&gt;\u{fffd}"
        );
        let json = escape_json_for_script(r#"{"a":"</script><!--"}"#);
        assert!(!json.contains('<'));
        assert_eq!(
            serde_json::from_str::<Value>(&json).unwrap()["a"],
            "</script><!--"
        );
        assert_eq!(printable("a\u{1b}[31mb\u{202e}"), "a�[31mb�");
    }

    #[test]
    fn details_show_the_unit_that_their_name_has() {
        assert_eq!(detail("saved_bytes", &Value::from(2048)), "2.00 KiB");
        assert_eq!(detail("wait_ns", &Value::from(1_500)), "1.50 µs");
        assert_eq!(detail("node", &Value::from(1)), "1");
        assert_eq!(detail("total_s", &Value::from(1.5)), "1.50 s");
    }
}
