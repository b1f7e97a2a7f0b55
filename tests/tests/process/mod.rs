//! Whole-process persistence, from the command line. The tests run on this machine's own kernel, and need
//! root (or the capabilities named in docs/explanation/process-restore.md).

mod benchmark;
mod budget;
mod cgroups;
mod connections;
mod damage;
mod doctor;
mod ipc;
mod lease;
mod machine;
mod memory;
mod multipath;
mod names;
mod newer;
mod obstacles;
mod parents;
mod postgres;
mod postponed;
mod power;
mod queues;
mod refusals;
mod rehearsal;
mod renamed;
mod services;
mod terminals;
mod trees;
