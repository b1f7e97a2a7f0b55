//! Timeline events, and the pages and traces made from them: the one record that every part of
//! Dormouse emits, and everything that people look at afterwards.

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
