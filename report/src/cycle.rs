//! The results of a run, from `cycles.jsonl`: one JSON object a line, one line a cycle.
//!
//! Read leniently: a field that is missing, null or of another type is simply not known, so that
//! the report of a failed or of a newer run still opens.

use serde_json::{Map, Value};

/// One line of `cycles.jsonl`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cycle {
    /// The number of the cycle, from 1.
    pub cycle: u64,
    /// How it slept: `cxl`, `hibernate`, `hibernate-swap`, …
    pub mode: Option<String>,
    /// What hibernation compressed with.
    pub compressor: Option<String>,
    /// Whether the cycle went as expected.
    pub ok: Option<bool>,
    /// Whether every workload page was compared and equal.
    pub verified: Option<bool>,
    /// `resumed`, `cold-boot`, `refused` or `failed`.
    pub outcome: Option<String>,
    /// The reason of an outcome other than `resumed`.
    pub reason: Option<String>,
    /// Size of DRAM.
    pub dram_bytes: Option<u64>,
    /// Size of CXL memory.
    pub cxl_bytes: Option<u64>,
    /// Bytes that the workload filled.
    pub user_bytes: Option<u64>,
    /// Bytes that firmware saved.
    pub saved_bytes: Option<u64>,
    /// Bytes that firmware restored.
    pub restored_bytes: Option<u64>,
    /// Going to sleep.
    pub suspend: Way,
    /// Waking.
    pub resume: Way,
    /// Seconds until all pages have migrated back.
    pub home_s: Option<f64>,
    /// Bytes that have migrated back.
    pub home_bytes: Option<u64>,
}

/// The times of one way, down or up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way {
    /// Seconds of the whole.
    pub total_s: Option<f64>,
    /// Name and seconds of each part, in the order of the record.
    pub parts: Vec<(String, f64)>,
}

/// Parts in the order in which they happen; any other comes after.
const IN_ORDER: [&str; 11] = [
    "shrink", "migrate", "devices", "copy", "write", "off", "firmware", "restore", "boot", "load",
    "kernel",
];

/// Name and seconds of parts that do not overlap.
pub type Parts<'a> = Vec<(&'a str, f64)>;

/// What no part accounts for.
pub const REST: &str = "rest";

impl Way {
    fn from_value(value: Option<&Value>) -> Way {
        let Some(Value::Object(fields)) = value else {
            return Way::default();
        };
        let valid = |value: &Value| value.as_f64().filter(|seconds| *seconds >= 0.0);
        // In the order of events, whatever order the record has.
        let mut parts: Vec<(String, f64)> = fields
            .iter()
            .filter(|(name, _)| *name != "total")
            .filter_map(|(name, value)| Some((name.clone(), valid(value)?)))
            .collect();
        parts.sort_by_key(|(name, _)| Way::place(name));
        Way {
            total_s: fields.get("total").and_then(valid),
            parts,
        }
    }

    fn place(part: &str) -> usize {
        let known = IN_ORDER.iter().position(|known| *known == part);
        known.unwrap_or(IN_ORDER.len())
    }

    /// Names of parts in the order in which they happen.
    pub fn in_order(mut names: Vec<&str>) -> Vec<&str> {
        names.sort_by_key(|name| Way::place(name));
        names
    }

    /// Parts that do not overlap and add up to the total: `restore` is taken out of `firmware`,
    /// in which it lies, and what is left of the total is the [`REST`]. Parts that still are more
    /// than the total are shortened alike. `None` where the total is not known.
    pub fn disjoint_parts(&self) -> Option<Parts<'_>> {
        let total_s = self.total_s?;
        let of = |wanted: &str| self.parts.iter().find(|(name, _)| name == wanted);
        let restore_s = of("restore").map_or(0.0, |part| part.1);
        let mut parts: Vec<(&str, f64)> = self
            .parts
            .iter()
            .map(|(name, part_s)| match name.as_str() {
                "firmware" => ("firmware", (part_s - restore_s).max(0.0)),
                name => (name, *part_s),
            })
            .collect();
        let known_s: f64 = parts.iter().map(|part| part.1).sum();
        if known_s > total_s {
            for part in &mut parts {
                part.1 *= total_s / known_s;
            }
        } else {
            parts.push((REST, total_s - known_s));
        }
        parts.retain(|part| part.1 > 0.0);
        Some(parts)
    }
}

impl Cycle {
    /// From a line's object.
    pub fn from_object(fields: &Map<String, Value>) -> Cycle {
        let text = |key: &str| {
            fields
                .get(key)
                .and_then(Value::as_str)
                .filter(|t| !t.is_empty())
                .map(str::to_owned)
        };
        let count = |key: &str| fields.get(key).and_then(Value::as_u64);
        let flag = |key: &str| fields.get(key).and_then(Value::as_bool);
        Cycle {
            cycle: count("cycle").unwrap_or(0),
            mode: text("mode"),
            compressor: text("compressor"),
            ok: flag("ok"),
            verified: flag("verified"),
            outcome: text("outcome"),
            reason: text("reason"),
            dram_bytes: count("dram_bytes"),
            cxl_bytes: count("cxl_bytes"),
            user_bytes: count("user_bytes"),
            saved_bytes: count("saved_bytes"),
            restored_bytes: count("restored_bytes"),
            suspend: Way::from_value(fields.get("suspend_s")),
            resume: Way::from_value(fields.get("resume_s")),
            home_s: fields
                .get("home_s")
                .and_then(Value::as_f64)
                .filter(|s| *s >= 0.0),
            home_bytes: count("home_bytes"),
        }
    }

    /// How it ended, and why: `cold-boot: the header is torn`.
    pub fn ending(&self) -> String {
        let outcome = self.outcome.as_deref().unwrap_or("unknown");
        match &self.reason {
            Some(reason) => format!("{outcome}: {reason}"),
            None => outcome.to_owned(),
        }
    }

    /// Whether the cycle ended as a cycle should.
    pub fn is_good(&self) -> bool {
        self.outcome.as_deref() == Some("resumed")
            && self.verified != Some(false)
            && self.ok != Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(json: &str) -> Cycle {
        Cycle::from_object(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn the_documented_record_is_read() {
        let cycle = cycle(
            r#"{"cycle":2,"mode":"cxl","ok":true,"verified":true,"outcome":"resumed","reason":"",
                "saved_bytes":10,"suspend_s":{"total":3,"firmware":1.5,"migrate":1},"home_s":2}"#,
        );
        assert!(cycle.is_good());
        assert_eq!(
            (cycle.cycle, cycle.reason.as_deref(), cycle.home_s),
            (2, None, Some(2.0))
        );
        assert_eq!(cycle.suspend.total_s, Some(3.0));
        assert_eq!(
            cycle.suspend.parts,
            [("migrate".to_owned(), 1.0), ("firmware".to_owned(), 1.5)]
        );
    }

    #[test]
    fn wrong_types_are_unknown_not_errors() {
        let cycle = cycle(r#"{"cycle":"x","verified":1,"suspend_s":7,"home_s":-1,"outcome":null}"#);
        assert_eq!(cycle, Cycle::default());
        assert!(!cycle.is_good());
    }

    #[test]
    fn disjoint_parts_add_up_to_the_total() {
        let parts = |json: &str| {
            let line = cycle(&format!(r#"{{"resume_s":{json}}}"#));
            let parts = line.resume.disjoint_parts();
            parts.map(|parts| {
                parts
                    .into_iter()
                    .map(|(n, s)| (n.to_owned(), s))
                    .collect::<Vec<_>>()
            })
        };
        let named = |list: &[(&str, f64)]| {
            Some(
                list.iter()
                    .map(|(n, s)| ((*n).to_owned(), *s))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            parts(r#"{"total":4,"firmware":2,"restore":0.5,"kernel":1,"new":null}"#),
            named(&[
                ("firmware", 1.5),
                ("restore", 0.5),
                ("kernel", 1.0),
                (REST, 1.0)
            ])
        );
        assert_eq!(
            parts(r#"{"total":1,"load":3,"kernel":1}"#),
            named(&[("load", 0.75), ("kernel", 0.25)])
        );
        assert_eq!(parts(r#"{"firmware":1}"#), None);
    }

    #[test]
    fn a_cycle_whose_pages_differ_is_not_good() {
        assert!(!cycle(r#"{"outcome":"resumed","verified":false}"#).is_good());
        assert!(!cycle(r#"{"outcome":"cold-boot","verified":true}"#).is_good());
    }
}
