//! Exit codes of every command.

/// Done.
pub const DONE: u8 = 0;
/// Something failed.
pub const FAILED: u8 = 1;
/// Wrong usage.
pub const USAGE: u8 = 2;
/// This machine lacks something.
pub const LACKING: u8 = 3;
/// Verification failed: data differ.
pub const DIFFERS: u8 = 4;
/// Ctrl-C, as shells report it.
pub const INTERRUPTED: u8 = 130;
