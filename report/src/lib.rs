//! Timeline events, and the pages and traces made from them: the one record that every part of
//! Dormouse emits, and everything that people look at afterwards.

pub mod align;
pub mod event;
pub mod timeline;

pub use align::Lane;
pub use event::{Clock, Event, EventWriter, Kind, parse_console_line};
pub use timeline::{Counter, Mark, Span, Timeline};
