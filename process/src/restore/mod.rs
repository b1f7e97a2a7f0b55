//! Recreating a process tree from its description and its pages.
