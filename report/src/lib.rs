//! Timeline events, and the pages and traces made from them: the one record that every part of
//! Dormouse emits, and everything that people look at afterwards.

pub mod align;
pub mod charts;
pub mod compare;
pub mod cycle;
mod drawing;
pub mod energy;
pub mod event;
pub mod format;
pub mod html;
pub mod memory;
pub mod plot;
pub mod run;
pub mod stats;
mod tables;
pub mod terminal;
pub mod timeline;
pub mod trace_event;

pub use align::Lane;
pub use cycle::Cycle;
pub use dormouse_system::output;
pub use event::{Clock, Event, EventWriter, Kind, parse_console_line};
pub use html::OwnPage;
pub use run::{
    ReportError, ReportPaths, Run, read_run, write_comparison, write_page, write_report,
};
pub use timeline::{Counter, Mark, Span, Timeline};
