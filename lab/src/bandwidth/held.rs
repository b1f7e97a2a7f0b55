//! Traffic of the device while a user was held back, from a daemon's trace.
//!
//! A limit keeps the total at its threshold only while a user wants more, and emulated programs on
//! a busy host do not always want more. An emulated machine that gets no CPU time of the host moves
//! nothing meanwhile, which is not an effect of the limit.

use serde::Serialize;

use crate::error::LabError;

/// Consecutive passes (a second) during which a user must be held back before its limit counts as
/// settled.
const SETTLED_PASSES: usize = 20;
/// Between two passes, in seconds; later ones are left out.
const MAX_GAP_S: f64 = 0.1;

/// A user before one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pass: u64,
    s: f64,
    total_mib_s: f64,
    cgroup: String,
    held_back: bool,
}

/// The rows of a trace.
///
/// # Errors
/// It is none.
pub fn rows(trace: &str) -> Result<Vec<Row>, LabError> {
    let names: Vec<&str> = trace
        .lines()
        .next()
        .unwrap_or_default()
        .split('\t')
        .collect();
    let row = |line: &str| -> Option<Row> {
        let words: Vec<&str> = line.split('\t').collect();
        let word = |name: &str| {
            let at = names.iter().position(|known| *known == name)?;
            words.get(at).copied()
        };
        Some(Row {
            pass: word("pass")?.parse().ok()?,
            s: word("s")?.parse().ok()?,
            total_mib_s: word("total_mib_s")?.parse().ok()?,
            cgroup: word("cgroup")?.to_owned(),
            held_back: word("held_back")? == "1",
        })
    };
    // The last line of a daemon that was killed may be cut off.
    let whole = trace.rfind('\n').map_or("", |end| &trace[..end]);
    let damaged = |line: &str| LabError::Guest(format!("a trace with the line {line:?}"));
    let lines = whole.lines().skip(1);
    lines
        .map(|line| row(line).ok_or_else(|| damaged(line)))
        .collect()
}

/// The passes before which a user was held back, as in each of the second before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Held {
    pub passes: usize,
    /// On average over their time; 0 if there are none.
    pub mib_s: f64,
    /// The part of all time for which a pass was waited for longer than it should be: the host was
    /// busy.
    pub late: f64,
}

impl Held {
    /// Of the cgroup whose path ends so, in the passes after the first of these numbers, up to the
    /// second.
    pub fn of(rows: &[Row], cgroup: &str, passes: [u64; 2]) -> Self {
        let (mut held, mut s, mut mib) = (Self::default(), 0.0, 0.0);
        let (mut all_s, mut late_s) = (0.0, 0.0);
        let (mut in_a_row, mut before) = (0, f64::INFINITY);
        for row in rows.iter().filter(|row| row.cgroup.ends_with(cgroup)) {
            let passed = row.s - before;
            before = row.s;
            in_a_row = if row.held_back { in_a_row + 1 } else { 0 };
            if row.pass <= passes[0] || row.pass > passes[1] || passed <= 0.0 {
                continue;
            }
            all_s += passed;
            if passed > MAX_GAP_S {
                late_s += passed;
            } else if in_a_row > SETTLED_PASSES {
                held.passes += 1;
                s += passed;
                mib += passed * row.total_mib_s;
            }
        }
        let over = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        (held.mib_s, held.late) = (over(mib, s), over(late_s, all_s));
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settled_passes_of_that_user_count_which_were_not_late() {
        let mut trace = String::from("pass\ts\ttotal_mib_s\tcgroup\theld_back\n");
        let mut s = 0.0;
        for pass in 1..=60 {
            // Not held back until pass 9, so settled from 30 on; pass 40 is late, and 8 MiB/s.
            s += if pass == 40 { 1.0 } else { 0.05 };
            let (total, held) = (if pass == 40 { 8 } else { 4 }, u8::from(pass > 9));
            trace += &format!("{pass}\t{s:.2}\t{total}\t/x/users/heavy\t{held}\n");
            trace += &format!("{pass}\t{s:.2}\t{total}\t/x/users/light\t0\n");
        }
        trace += "61\t4.0";
        let rows = rows(&trace).unwrap();
        let held = Held::of(&rows, "users/heavy", [0, 60]);
        assert_eq!(held.passes, 30);
        assert!((held.mib_s - 4.0).abs() < 1e-9, "{held:?}");
        // 58 passes of 50 ms and one of a second; before the first one time is unknown.
        assert!((held.late - 1.0 / 3.9).abs() < 1e-9, "{held:?}");
        assert_eq!(Held::of(&rows, "users/heavy", [50, 55]).passes, 5);
        let light = Held::of(&rows, "users/light", [0, 60]);
        assert_eq!((light.passes, light.mib_s), (0, 0.0));
        assert!(super::rows("pass\ts\n1\t2\n").is_err());
    }
}
