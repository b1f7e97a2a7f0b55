//! The table of cycles, side by side.

use std::fmt::Write;

use crate::cycle::{Cycle, REST, Way};
use crate::format::{bytes, escape_html, seconds};

/// Colours of the parts of a way; names not listed share the last.
const PARTS: [(&str, usize); 10] = [
    ("migrate", 0),
    ("devices", 3),
    ("firmware", 1),
    ("restore", 2),
    ("kernel", 5),
    // Hibernation's own, on the way down and up.
    ("shrink", 0),
    ("copy", 2),
    ("write", 1),
    ("boot", 3),
    ("load", 2),
];

fn part_colour(name: &str) -> usize {
    PARTS
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(4, |&(_, colour)| colour)
}

/// The cycles side by side, each way as a bar of its parts.
pub fn table(cycles: &[Cycle]) -> String {
    if cycles.is_empty() {
        return String::new();
    }
    let longest = |of: fn(&Cycle) -> &Way| {
        cycles
            .iter()
            .filter_map(|cycle| of(cycle).total_s)
            .fold(0.0, f64::max)
    };
    let (down_s, up_s) = (longest(|c| &c.suspend), longest(|c| &c.resume));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in cycles
        .iter()
        .flat_map(|c| c.suspend.parts.iter().chain(&c.resume.parts))
    {
        if !names.contains(&name.as_str()) && names.len() < 12 {
            names.push(name);
        }
    }
    let legend: String = names
        .iter()
        .map(|name| {
            let colour = part_colour(name);
            format!(
                "<li><span class=\"swatch p{colour}\"></span>{}</li>",
                escape_html(name)
            )
        })
        .collect();
    let mut html = format!(
        "<section class=\"long\"><h2>Cycles</h2><ul class=\"legend\">{legend}</ul><div class=\"scroll\"><table>\
         <caption>Bars share one scale in each column; grey is what no part accounts for.</caption>\
         <thead><tr><th scope=\"col\" class=\"n\">Cycle</th><th scope=\"col\">Outcome</th>\
         <th scope=\"col\">Pages</th><th scope=\"col\" class=\"n\">Down</th><th scope=\"col\"><span hidden>Parts</span></th>\
         <th scope=\"col\" class=\"n\">Up</th><th scope=\"col\"><span hidden>Parts</span></th>\
         <th scope=\"col\" class=\"n\">Migrate back</th><th scope=\"col\" class=\"n\">User</th>\
         <th scope=\"col\" class=\"n\">Saved</th><th scope=\"col\" class=\"n\">Migrated back</th></tr></thead><tbody>"
    );
    let size = |value: Option<u64>| value.map_or_else(|| "–".to_owned(), bytes);
    let time = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), seconds);
    for cycle in cycles {
        let class = if cycle.is_good() { "good" } else { "bad" };
        let pages = match cycle.verified {
            Some(true) => "<span class=\"good\">✓ same</span>",
            Some(false) => "<span class=\"bad\">✕ differ</span>",
            None => "not compared",
        };
        let _ = write!(
            html,
            "<tr><td class=\"n\">{}</td><td class=\"name\"><span class=\"{class}\">{}</span></td><td>{pages}</td>\
             <td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            cycle.cycle,
            escape_html(&cycle.ending()),
            time(cycle.suspend.total_s),
            way_bar(&cycle.suspend, down_s),
            time(cycle.resume.total_s),
            way_bar(&cycle.resume, up_s),
            time(cycle.home_s),
            size(cycle.user_bytes),
            size(cycle.saved_bytes),
            size(cycle.home_bytes),
        );
    }
    html.push_str("</tbody></table></div></section>");
    html
}

fn way_bar(way: &Way, longest_s: f64) -> String {
    if way.total_s.is_none() || longest_s <= 0.0 {
        return String::new();
    }
    let scale = 100.0 / longest_s;
    let mut bar = String::from("<div class=\"bar\">");
    for (name, part_s) in way.disjoint_parts().unwrap_or_default() {
        let (class, name) = match name {
            REST => ("rest".to_owned(), "the rest"),
            name => (format!("p{}", part_colour(name)), name),
        };
        let _ = write!(
            bar,
            "<i class=\"{class}\" style=\"width:{:.2}%\" title=\"{}\"></i>",
            part_s * scale,
            escape_html(&format!("{name}: {}", seconds(part_s)))
        );
    }
    bar.push_str("</div>");
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_never_longer_than_its_column() {
        let way = Way {
            total_s: Some(2.0),
            parts: vec![("migrate".to_owned(), 3.0), ("firmware".to_owned(), 1.0)],
        };
        let bar = way_bar(&way, 2.0);
        assert!(
            bar.contains("width:75.00%") && bar.contains("width:25.00%"),
            "{bar}"
        );
        assert_eq!(way_bar(&way, 0.0), "");
    }
}
