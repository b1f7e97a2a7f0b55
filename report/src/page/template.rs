//! What the pages share: frame, style, places to fill in, plots in a row.

use crate::format::escape_html;

/// The style of every page.
pub const CSS: &str = include_str!("../../assets/page.css");

const FRAME: &str = include_str!("../../assets/frame.html");

/// What surrounds the contents of a page.
pub struct Frame<'a> {
    /// The title, as plain text.
    pub title: &'a str,
    /// The line above it.
    pub brand: &'a str,
    /// The sentence below it, as plain text, and its class in the style.
    pub verdict: &'a str,
    pub verdict_class: &'a str,
    /// The line at the end, in HTML.
    pub footer: &'a str,
    /// The end of the page; empty: it has no scripts, and may have none.
    pub scripts: &'a str,
}

impl Frame<'_> {
    /// A whole page with these contents between `<main>` and `</main>`.
    pub fn page(&self, main: &str) -> String {
        fill(FRAME, |name| match name {
            "title" => escape_html(self.title),
            "brand" => self.brand.to_owned(),
            "css" => CSS.to_owned(),
            "script_policy" if self.scripts.is_empty() => String::new(),
            "script_policy" => "script-src 'unsafe-inline'; ".to_owned(),
            "verdict" => escape_html(self.verdict),
            "verdict_class" => self.verdict_class.to_owned(),
            "main" => main.to_owned(),
            "footer" => self.footer.to_owned(),
            "scripts" => self.scripts.to_owned(),
            other => unreachable!("the frame has no place named {other}"),
        })
    }
}

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
