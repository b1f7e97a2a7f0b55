//! The virtual executor: programs and a whole kernel on a Cortex-M3.

mod board;
mod commands;
mod guests;
mod kernel;
mod real;
mod waiting;
