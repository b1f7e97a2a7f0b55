//! What the pages share: style, places to fill in, plots in a row.

/// The style of every page.
pub const CSS: &str = include_str!("../../assets/page.css");

/// Replaces each `{{name}}` of the template, in one pass: what is filled in is not searched.
pub fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut filled = String::with_capacity(template.len() * 4);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after
            .split_once("}}")
            .expect("the template closes its places");
        filled.push_str(before);
        filled.push_str(&value(name));
        rest = after;
    }
    filled.push_str(rest);
    filled
}

/// Plots beside each other, or below each other where the window is narrow.
pub fn plots_row(plots: impl Iterator<Item = String>) -> String {
    let items: String = plots
        .map(|svg| format!("<div class=\"plot\">{svg}</div>"))
        .collect();
    if items.is_empty() {
        return items;
    }
    format!("<div class=\"plots\">{items}</div>")
}
