//! `dormouse lab stress`: very many sleeps under every kind of load, and power cuts at any time.
//!
//! ```text
//! args ─→ run ─→ driver ─→ the machine                 pure: dice, plan, span, phase, judge,
//!          │ journal, evidence   watch, load                 kernel_log, class, bound, summary
//! ```

pub mod args;
mod bound;
mod class;
mod dice;
mod driver;
mod evidence;
mod inject;
mod journal;
mod judge;
mod kernel_log;
mod line;
mod load;
mod phase;
mod plan;
mod run;
mod span;
mod summary;
mod trouble;
mod watch;

pub(crate) use dice::Dice;
