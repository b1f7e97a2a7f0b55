//! How to draw on a terminal, from what it and the environment say of themselves.

/// How to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether to use colours.
    pub colour: bool,
    /// Bars of block characters; else of ASCII.
    pub unicode: bool,
}

impl Style {
    /// What the environment asks for: `NO_COLOR`, `TERM`, `COLUMNS` and the locale.
    ///
    /// `columns` is the terminal's width, or `None` where the output is no terminal: then there
    /// is no colour.
    pub fn from_environment(
        columns: Option<usize>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Style {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_some_and(|term| term == "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| variable(name).filter(|value| !value.is_empty()));
        let is_utf8 = locale.is_none_or(|locale| {
            let locale = locale.to_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        let named = variable("COLUMNS").and_then(|value| value.parse().ok());
        Style {
            width: named.or(columns).filter(|width| *width > 0).unwrap_or(100),
            colour: columns.is_some() && !is_set("NO_COLOR") && !is_dumb,
            unicode: is_utf8 && !is_dumb,
        }
    }
}
