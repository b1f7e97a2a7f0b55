//! The description of a process tree: plain data, its encoding, its checks.
