//! Keeping the number of dirty pages under a budget while the program runs.
