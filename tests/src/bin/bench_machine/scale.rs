//! From 1 GiB of user memory up: both ways of Suspend-to-CXL, and hibernation to the same persistent
//! memory, which is what an owner of such memory would use.
//!
//! All machines have the same DRAM and the same device, whatever is filled, so that nothing but the fill
//! differs. Only hibernation with all pages in the image has more DRAM at the largest fill: it copies
//! them to free DRAM.

use std::fmt::Write;

use dormouse_lab::CycleLine;
use dormouse_tests::bench::rows::{self, Better, with_goal};
use dormouse_tests::bench::short;
use serde_json::Value;

use crate::figures::mib;
use crate::plan::{Case, Mode, Sizes};
use crate::results::{All, Field, Results, home, resume, suspend};

/// Our ways, by the names of their modes.
const FIRMWARE: &str = "cxl";
const SNAPSHOT: &str = "snapshot";

/// In the order of tables.
pub const MODES: [Mode; 4] = [
    Mode {
        name: FIRMWARE,
        title: "Suspend-to-CXL, coreboot",
        mode: "cxl",
        compressor: None,
        image_percent: None,
        more: &[],
        variant: false,
    },
    Mode {
        name: SNAPSHOT,
        title: "Suspend-to-CXL, SeaBIOS",
        mode: "cxl",
        compressor: None,
        image_percent: None,
        more: &["--firmware=seabios"],
        variant: false,
    },
    Mode {
        name: "hibernate-swap-pmem",
        title: "hibernate to pmem, swapping first",
        mode: "hibernate-swap",
        compressor: Some("none"),
        image_percent: Some(40),
        more: &["--firmware=seabios", "--swap-on=pmem"],
        variant: false,
    },
    Mode {
        name: "hibernate-pmem",
        title: "hibernate to pmem, all in the image",
        mode: "hibernate",
        compressor: Some("none"),
        image_percent: Some(100),
        more: &["--firmware=seabios", "--swap-on=pmem"],
        variant: false,
    },
];

/// Resume may take this much longer at the largest fill than at the smallest.
const FLAT: f64 = 1.1;
/// Of DRAM, what may be copied at the largest fill.
const MAX_COPIED: f64 = 0.05;
const RESUME_GOALS: [(&str, f64); 2] = [(FIRMWARE, 15.0), (SNAPSHOT, 3.0)];
const SUSPEND_GOAL: f64 = 5.0;

/// Each mode with each fill, so that neighbours in time are those that are compared.
///
/// # Errors
/// A fill is no number of MiB or GiB.
pub fn cases(modes: &[Mode], fills: &[String]) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for fill in fills {
        let filled = parse_mib(fill).ok_or_else(|| format!("{fill}: a size such as 512M or 4G"))?;
        for &mode in modes {
            cases.push(Case {
                mode,
                fill: fill.clone(),
                sizes: sizes(&mode, filled),
            });
        }
    }
    Ok(cases)
}

/// DRAM for 8 GiB in use.
const DRAM_MIB: u64 = 9 << 10;
/// What a system takes beside the workload.
const SYSTEM_MIB: u64 = 1 << 10;

fn sizes(mode: &Mode, fill_mib: u64) -> Sizes {
    let dram = DRAM_MIB.max(fill_mib + SYSTEM_MIB);
    Sizes {
        dram: match mode.image_percent {
            Some(100) => dram.max(2 * fill_mib + SYSTEM_MIB),
            _ => dram,
        },
        // Both must fit into the memory of a host of 24 GiB; Linux boots with no device of just the size of DRAM.
        cxl: dram + 256,
        image_of: dram,
    }
}

fn parse_mib(size: &str) -> Option<u64> {
    let (number, unit) = size.split_at_checked(size.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    match unit {
        "M" => Some(number),
        "G" => number.checked_mul(1024),
        _ => None,
    }
}

/// Whether the host has memory for a case: the whole DRAM, and what is written to the device.
pub fn fits(case: &Case, host_mib: u64) -> bool {
    let filled = parse_mib(&case.fill).unwrap_or(0);
    case.sizes.dram + filled + 3072 <= host_mib
}

/// From when the initramfs, or firmware of ours, has found the image.
fn after_boot(cycle: &CycleLine) -> Option<f64> {
    Some(cycle.resume_s.total? - cycle.resume_s.firmware?)
}

fn copied_share(cycle: &CycleLine) -> Option<f64> {
    Some(cycle.saved_bytes as f64 / cycle.dram_bytes as f64)
}

/// The goals, at the largest fill that both sides have.
pub fn rows(all: &All) -> Vec<Value> {
    let mut rows = Vec::new();
    let fills = all.fills();
    for (mode, goal) in RESUME_GOALS {
        rows.extend(against_best(all, &fills, mode, "resume", resume, goal));
        rows.extend(against_best(
            all,
            &fills,
            mode,
            "suspend",
            suspend,
            SUSPEND_GOAL,
        ));
        rows.extend(flat(all, &fills, mode));
        rows.extend(copied(all, &fills, mode));
    }
    rows
}

fn against_best<'a>(
    all: &'a All,
    fills: &[&'a str],
    mode: &str,
    metric: &str,
    field: Field,
    goal: f64,
) -> Option<Value> {
    let pair = |&fill: &&'a str| {
        let ours = all.get(mode, fill)?;
        let best = all.best_hibernation(fill, field, |_| true)?;
        Some((fill, ours, ours.summary(field)?, best, best.summary(field)?))
    };
    let (fill, ours, summary, best, peer) = fills.iter().rev().find_map(pair)?;
    let case = format!("{}, {fill}", ours.case.mode.title);
    let title = best.case.mode.title;
    let row = rows::row(
        metric,
        &case,
        "s",
        Better::Less,
        &summary,
        Ok((&peer, title)),
    );
    Some(with_goal(row, goal))
}

fn flat<'a>(all: &'a All, fills: &[&'a str], mode: &str) -> Option<Value> {
    let of = |&fill: &&'a str| Some((fill, all.get(mode, fill)?.summary(after_boot)?));
    let (small, from) = fills.iter().find_map(of)?;
    let (large, to) = fills.iter().rev().find_map(of)?;
    if small == large {
        return None;
    }
    let title = all.get(mode, large)?.case.mode.title;
    let name = format!("the same at {small}");
    let case = format!("{title}, {large}, after firmware and boot kernel");
    let row = rows::row(
        "resume-flat",
        &case,
        "s",
        Better::Less,
        &to,
        Ok((&from, &name)),
    );
    Some(with_goal(row, 1.0 / FLAT))
}

/// Not a ratio to a peer: ours is the share, and the bar its largest value.
fn copied<'a>(all: &'a All, fills: &[&'a str], mode: &str) -> Option<Value> {
    let last = |&fill: &&'a str| Some((fill, all.get(mode, fill)?));
    let (fill, results) = fills.iter().rev().find_map(last)?;
    let share = results.summary(copied_share)?;
    let case = format!("{}, {fill}", results.case.mode.title);
    let why = "a share of DRAM";
    let mut row = rows::row("copied", &case, "of DRAM", Better::Less, &share, Err(why));
    row["goal"] = format!("share <= {MAX_COPIED}").into();
    row["met"] = (share.median <= MAX_COPIED).into();
    Some(row)
}

/// The results as Markdown.
pub fn markdown(all: &All, rows: &[Value], facts: &str) -> String {
    let mut text = format!("{facts}\n\n");
    crate::tables::goals(&mut text, rows);
    text.push_str(
        "| user memory | way to sleep | DRAM | suspend | resume | of it firmware and boot kernel | \
         the rest | pages home | copied | of DRAM | resumed |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for fill in all.fills() {
        for results in all.at(fill) {
            line(&mut text, results);
        }
    }
    text.push('\n');
    text
}

fn line(text: &mut String, results: &Results) {
    if results.is_without_runs() {
        return;
    }
    let Case { mode, fill, sizes } = &results.case;
    let _ = write!(
        text,
        "| {} | {} | {} GiB ",
        mib(fill),
        mode.title,
        short(sizes.dram as f64 / 1024.0)
    );
    if let Some(lacking) = &results.lacking {
        let _ = writeln!(text, "| {lacking} | | | | | | | |");
        return;
    }
    let firmware = |cycle: &CycleLine| cycle.resume_s.firmware;
    for field in [suspend as Field, resume, firmware, after_boot, home] {
        let _ = write!(
            text,
            "| {} ",
            crate::tables::seconds(results.summary(field))
        );
    }
    let share = results.median(copied_share);
    let _ = writeln!(
        text,
        "| {} | {} | {} of {} |",
        crate::tables::mebibytes(results.median(crate::results::saved)),
        share.map_or("–".into(), |share| format!("{:.1} %", 100.0 * share)),
        results.good.len(),
        results.attempts,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_cases() -> Vec<Case> {
        cases(&MODES, &["1G", "8G"].map(String::from)).unwrap()
    }

    #[test]
    fn the_peer_on_the_same_device_has_the_same_dram_unless_its_image_takes_all() {
        let cases = all_cases();
        let words: Vec<String> = cases.iter().map(|case| case.words(5).join(" ")).collect();
        assert_eq!(
            words[1],
            "--mode=cxl --dram=9216M --cxl=9472M --fill=1G --cycles=5 --firmware=seabios"
        );
        assert_eq!(
            words[2],
            "--mode=hibernate-swap --dram=9216M --cxl=9472M --fill=1G --cycles=5 \
             --compressor=none --image-size=3686M --firmware=seabios --swap-on=pmem"
        );
        assert!(words[3].contains("--dram=9216M"), "{}", words[3]);
        assert!(words[7].contains("--dram=17408M"), "{}", words[7]);
    }

    #[test]
    fn what_the_host_has_no_memory_for_is_left_out() {
        let cases = all_cases();
        assert!(cases[..4].iter().all(|case| fits(case, 24 << 10)));
        assert!(fits(&cases[4], 24 << 10));
        assert!(!fits(&cases[7], 24 << 10));
        assert!(!fits(&cases[0], 4 << 10));
    }

    #[test]
    fn a_size_is_in_mib_or_gib() {
        assert_eq!(parse_mib("512M"), Some(512));
        assert_eq!(parse_mib("2G"), Some(2048));
        assert!(
            ["", "G", "12", "1T", "-1G"]
                .iter()
                .all(|size| parse_mib(size).is_none())
        );
    }

    #[test]
    fn goals_are_held_at_the_largest_fill_that_both_have() {
        let all = crate::results::tests::measured_cases(all_cases(), &|case| match (
            case.mode.name,
            case.fill.as_str(),
        ) {
            ("hibernate-pmem", "8G") => vec![],
            ("cxl", _) => vec![0.5],
            ("snapshot", _) => vec![2.0],
            _ => vec![8.0],
        });
        let rows = rows(&all);
        let resume: Vec<&Value> = rows
            .iter()
            .filter(|row| row["metric"] == "resume")
            .collect();
        assert_eq!(resume[0]["ratio"], 16.0);
        assert_eq!(resume[0]["met"], true);
        assert_eq!(resume[1]["ratio"], 4.0);
        assert!(resume[1]["case"].as_str().unwrap().ends_with("8G"));
        let text = markdown(&all, &rows, "facts");
        assert!(
            text.contains("| hibernate to pmem, all in the image | 17.0 GiB | it lacks"),
            "{text}"
        );
    }
}
