//! Stopping threads, reading and writing their registers, and running system calls in them.
