//! Standard output: JSON or text, and a calm end when the reader has gone away.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};
use dormouse_report::terminal::Style;
use serde::Serialize;

/// `dormouse … | head` must neither print a panic nor fail. SIGPIPE stays ignored, as Rust has
/// it: a verb that is halfway through a sleep must not be killed because its reader left.
pub fn end_quietly_when_nobody_reads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic
            .payload()
            .downcast_ref::<String>()
            .map_or("", String::as_str);
        if message.starts_with("failed printing to std") && message.contains("Broken pipe") {
            std::process::exit(0);
        }
        usual(panic);
    }));
}

/// Writes text to standard output.
///
/// # Errors
/// Standard output cannot be written, for another reason than a reader who left.
pub fn print(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result.context("cannot write to standard output"),
    }
}

/// Writes one JSON object on one line.
///
/// # Errors
/// As [`print`].
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(value).context("cannot write this as JSON")?;
    line.push('\n');
    print(&line)
}

/// How to draw on standard output.
pub fn style() -> Style {
    let columns = io::stdout().is_terminal().then(|| {
        rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col))
    });
    Style::from_environment(columns, |name| std::env::var(name).ok())
}

/// Text in a colour (an SGR code), where the style has colours.
pub fn painted(text: &str, code: &str, style: Style) -> String {
    if style.colour {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}
