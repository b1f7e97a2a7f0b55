//! What the benchmark shows: tables for `docs/evaluation/offload.md`, and the figure.

use dormouse_report::plot::{self, Axis, Bar, Frame};

use crate::bench::lib_tests::{LibTest, LibTests, mean_and_worst};
use crate::bench::measure::{Counts, Translated, mean, over};
use crate::error::OffloadError;
use crate::machine::job::OPTIONS;

/// Thousands apart.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A table: heading, one row for each program, geometric means. A count is a number of
/// instructions, a ratio is of two counts, with this many decimals.
enum Column {
    Count(&'static str, fn(&Counts) -> u64),
    Ratio(&'static str, fn(&Counts) -> f64, usize),
}

fn table(all: &[Counts], columns: &[Column]) -> String {
    let row = |name: &str, cell: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> = columns.iter().map(cell).collect();
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    let mut text = row("program", &|column| match column {
        Column::Count(heading, _) | Column::Ratio(heading, ..) => (*heading).to_owned(),
    });
    text.push_str(&format!("{}\n", "|---".repeat(columns.len() + 1) + "|"));
    for c in all {
        text.push_str(&row(c.program, &|column| match column {
            Column::Count(_, of) => number(of(c)),
            Column::Ratio(_, of, decimals) => format!("{:.*}", decimals, of(c)),
        }));
    }
    text.push_str(&row("geometric mean", &|column| match column {
        Column::Count(..) => String::new(),
        Column::Ratio(_, of, decimals) => format!("{:.*}", decimals, mean(all, of)),
    }));
    text
}

fn counts_table(all: &[Counts]) -> String {
    table(
        all,
        &[
            Column::Count("big core", |c| c.a15),
            Column::Count("small core", |c| c.m3),
            Column::Count("baseline", |c| c.baseline.warm),
            Column::Count("ours", |c| c.ours.warm),
            Column::Count("ours, identity map", |c| c.identity.warm),
            Column::Ratio("ours ÷ small core", |c| over(c.ours.warm, c.m3), 2),
            Column::Ratio("identity ÷ small core", |c| over(c.identity.warm, c.m3), 2),
            Column::Ratio("baseline ÷ ours", |c| over(c.baseline.warm, c.ours.warm), 1),
        ],
    )
}

fn thumb_table(all: &[Counts]) -> String {
    table(
        all,
        &[
            Column::Count("big core", |c| c.a15_t32),
            Column::Count("small core", |c| c.m3),
            Column::Count("ours", |c| c.ours_t32.warm),
            Column::Count("ours, identity map", |c| c.identity_t32.warm),
            Column::Ratio("ours ÷ small core", |c| over(c.ours_t32.warm, c.m3), 2),
            Column::Ratio(
                "identity ÷ small core",
                |c| over(c.identity_t32.warm, c.m3),
                2,
            ),
        ],
    )
}

fn cold_table(all: &[Counts]) -> String {
    let mut text = String::from(
        "| program | first run, A32 | of that translation | words translated | instructions for each | bytes of cache | first run, T32 | first run, baseline |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let spent = |t: &Translated| t.cold.saturating_sub(t.warm);
    for c in all {
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
            c.program,
            number(c.ours.cold),
            number(spent(&c.ours)),
            number(c.ours.translated),
            number(spent(&c.ours) / c.ours.translated.max(1)),
            number(c.ours.cached),
            number(c.ours_t32.cold),
            number(c.baseline.cold),
        ));
    }
    text
}

fn what(option: &str) -> &'static str {
    match option {
        "registers" => "guest registers in host registers",
        "flags" => "guest flags in host flags",
        "stack" => "guest stack through the host's stack pointer",
        "interrupts" => "no block polls for interrupts",
        "chain" => "blocks of a page branch to each other",
        "pages" => "also across pages",
        "linear" => "linear addresses: a check and an addition, no TLB",
        "protection" => "the check is the memory protection unit's",
        "table" => "indirect branches through the target table",
        "regions" => "regions of many blocks",
        "carry" => "what the scratch register holds goes with branches",
        "loops" => "pointers of loops are host addresses",
        "inline" => "small functions are part of their caller's region",
        _ => "",
    }
}

fn gains_table(all: &[Counts]) -> String {
    let mut text = String::from(
        "| optimisation | added to those above: ÷ small core | fewer instructions by | all but this one: ÷ small core | more instructions by |\n\
         |---|---|---|---|---|\n",
    );
    let ours = mean(all, |c| over(c.ours.warm, c.m3));
    let mut before = mean(all, |c| over(c.baseline.warm, c.m3));
    text.push_str(&format!("| none (the baseline) | {before:.2} | | | |\n"));
    for (index, (name, _)) in OPTIONS.iter().enumerate() {
        let added = mean(all, |c| over(c.added[index], c.m3));
        let without = mean(all, |c| over(c.without[index], c.m3));
        text.push_str(&format!(
            "| `{name}`: {} | {added:.2} | {:.0} % | {without:.2} | {:.0} % |\n",
            what(name),
            100.0 * (1.0 - added / before),
            100.0 * (without / ours - 1.0),
        ));
        before = added;
    }
    text
}

/// The tests of `lib/`: what is tuned on and what is held out apart.
fn lib_table(all: &LibTests) -> String {
    let mut text = String::new();
    for (held_out, heading) in [(false, "Tuned on"), (true, "Held out")] {
        text.push_str(&format!(
            "{heading}:\n\n\
             | test | small core | A32 | T32 | A32, identity map | T32, identity map | A32, cold | T32, cold | interpreted in 1,000, A32 | T32 |\n\
             |---|---|---|---|---|---|---|---|---|---|\n"
        ));
        for test in all.tests.iter().filter(|test| test.held_out == held_out) {
            text.push_str(&format!(
                "| {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} | {:.2} | {:.2} |\n",
                test.name,
                number(test.native),
                test.a32.warm,
                test.t32.warm,
                test.identity_a32.warm,
                test.identity_t32.warm,
                test.a32.cold,
                test.t32.cold,
                test.a32.interpreted,
                test.t32.interpreted,
            ));
        }
        let of = |of: fn(&LibTest) -> f64| mean_and_worst(&all.tests, held_out, of);
        let warm = [
            of(|test| test.a32.warm),
            of(|test| test.t32.warm),
            of(|test| test.identity_a32.warm),
            of(|test| test.identity_t32.warm),
        ];
        let cold = [of(|test| test.a32.cold), of(|test| test.t32.cold)];
        let interpreted = [
            of(|test| test.a32.interpreted),
            of(|test| test.t32.interpreted),
        ];
        let cells = |of: &dyn Fn((f64, f64)) -> f64| {
            let two = warm.map(|pair| format!("{:.2}", of(pair)));
            let one = cold.map(|pair| format!("{:.1}", of(pair)));
            format!("{} | {}", two.join(" | "), one.join(" | "))
        };
        text.push_str(&format!(
            "| geometric mean |  | {} |  |  |\n| worst |  | {} | {:.2} | {:.2} |\n\n",
            cells(&|(mean, _)| mean),
            cells(&|(_, worst)| worst),
            interpreted[0].1,
            interpreted[1].1,
        ));
    }
    text.push_str("Left out:\n\n| test | reason |\n|---|---|\n");
    for (name, reason) in &all.left_out {
        text.push_str(&format!("| {name} | {reason} |\n"));
    }
    text
}

/// The page's part, in Markdown; `facts` says when and where.
pub fn page(all: &[Counts], tests: &LibTests, size_bytes: u64, facts: &str) -> String {
    format!(
        "{facts}\n\n\
         Warm, A32 guests:\n\n{}\n\
         ![Instructions over the big core's own](figures/offload.svg)\n\n\
         Warm, T32 guests (the same sources; counts of the big core are of its T32 code):\n\n{}\n\
         Cold: the first run, translation included.\n\n{}\n\
         Each optimisation, warm, A32, geometric mean over the programs:\n\n{}\n\
         The kernel's own tests of `lib/`, multiples of the small core's own instructions:\n\n{}\n\
         The executor's code and constants are {} bytes.\n",
        counts_table(all),
        thumb_table(all),
        cold_table(all),
        gains_table(all),
        lib_table(tests),
        number(size_bytes),
    )
}

/// As Figure 3a of Zhai et al. 2017: over the big core's own count, on a logarithmic axis.
///
/// # Errors
/// It cannot be drawn.
pub fn figure(all: &[Counts]) -> Result<String, OffloadError> {
    let mut bars = Vec::new();
    for counts in all {
        for (series, value) in [
            ("small core, native", counts.m3),
            ("ours, identity map", counts.identity.warm),
            ("ours", counts.ours.warm),
            ("ours, first run", counts.ours.cold),
            ("baseline", counts.baseline.warm),
        ] {
            bars.push(Bar::new(counts.program, series, over(value, counts.a15)));
        }
    }
    let frame = Frame::new(
        "Instructions over the big core's own",
        Axis::new(""),
        Axis::new("× big core").logarithmic(),
    )
    .size(960, 420);
    plot::bars(&frame, &bars)
        .map_err(|error| OffloadError::Machine(format!("cannot be drawn: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1_000), "1,000");
        assert_eq!(number(1_234_567), "1,234,567");
    }

    #[test]
    fn every_optimisation_is_explained() {
        assert!(OPTIONS.iter().all(|(name, _)| !what(name).is_empty()));
    }
}
