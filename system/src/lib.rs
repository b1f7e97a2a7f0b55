//! What the rooms of Dormouse share about a Linux system.
//!
//! Every function that reads the system takes a [`Root`]: the real machine, or a tree of files that
//! a test made. Parsers are pure functions of text and never panic.
//!
//! | module | what |
//! |---|---|
//! | [`root`] | files of `/proc`, `/sys` and `/run` below one root |
//! | [`kernel`] | release, boot ID, processor |
//! | [`proc`] | processes: IDs, `stat`, `status`, `numa_maps`, `pagemap` |
//! | [`memory`] | `meminfo` of the machine and of a NUMA node |
//! | [`topology`] | lists of CPUs and nodes (`0-3,5`) |
//! | [`mounts`] | mounted file systems |
//! | [`cgroup`] | cgroup hierarchies of version 1 and 2 |
//! | [`mod@file`] | atomic replacement of state files, lock files |
//! | [`undo`], [`settings`] | changes that are put back, also after an error |
//! | [`arguments`] | sizes and durations on a command line |
//! | [`exit`], [`failure`] | exit codes, and the errors that lead to them |
//! | [`output`] | text and JSON on standard output |
//! | [`random`] | repeatable random numbers |
//!
//! # Example
//!
//! ```
//! use dormouse_system::{Root, kernel, memory};
//!
//! let root = Root::host();
//! let release = kernel::release(&root);
//! let available_bytes = memory::read(&root).get("MemAvailable").copied();
//! println!("Linux {release}: {available_bytes:?} bytes available");
//! # assert!(available_bytes.is_some());
//! ```
//!
//! In a test the same functions read a made-up machine:
//!
//! ```
//! use dormouse_system::{Root, topology};
//!
//! # fn main() -> std::io::Result<()> {
//! # let directory = tempfile::tempdir()?;
//! let root = Root::at(directory.path());
//! root.create("sys/devices/system/cpu/online", "0-3,5\n")?;
//! assert_eq!(topology::online_cpus(&root), [0, 1, 2, 3, 5]);
//! # Ok(())
//! # }
//! ```

pub mod arguments;
pub mod cgroup;
pub mod exit;
pub mod failure;
pub mod file;
pub mod kernel;
pub mod memory;
pub mod mounts;
pub mod output;
pub mod proc;
pub mod random;
pub mod root;
pub mod settings;
pub mod topology;
pub mod undo;

pub use root::Root;
