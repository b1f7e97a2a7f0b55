//! Colours of standard output, and a silent exit when its reader is gone.

use std::io::{self, IsTerminal};

pub use dormouse_report::output::{json, text};
use dormouse_report::terminal::Style;

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
