//! Timeline events of all parts of Dormouse, and the reports made from them: the one event
//! ([`Event`]), the timeline on one axis ([`Timeline`]), pages ([`page`]), terminal output
//! ([`terminal`]), plots ([`plot`]) and energy ([`energy`]).
//!
//! ```text
//! events.jsonl ──▶ timeline ─┬▶ page ───────▶ report.html
//! cycles.jsonl ──▶ cycle ────┼▶ terminal
//!                            └▶ trace_event ▶ trace.json
//! ```
//!
//! # Example
//!
//! ```
//! use dormouse_report::{Clock, Event, Kind, Timeline};
//!
//! let events = [
//!     Event::new(1_000, Clock::Host, "suspend", "migrate", Kind::Begin).with("bytes", 4096),
//!     Event::new(3_500, Clock::Host, "suspend", "migrate", Kind::End),
//! ];
//! let timeline = Timeline::from_events(&events);
//! assert_eq!(timeline.spans[0].duration_ns(), 2_500);
//! assert_eq!(timeline.spans[0].bytes(), Some(4096));
//! ```

pub mod compare;
pub mod cycle;
pub mod energy;
pub mod event;
pub mod format;
pub mod page;
pub mod plot;
pub mod run;
pub mod stats;
pub mod terminal;
pub mod timeline;
mod write;

pub use cycle::Cycle;
pub use dormouse_system::output;
pub use event::{Clock, Event, EventWriter, Kind, parse_console_line};
pub use page::OwnPage;
pub use run::{ReportError, Run, read_run};
pub use timeline::{Counter, Lane, Mark, Span, Timeline};
pub use write::{ReportPaths, write_comparison, write_page, write_report};
