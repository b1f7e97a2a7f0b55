//! Whole-process persistence: keeps an unmodified program across a power loss.
//!
//! ```text
//!   program (tree of processes)              tracker (dormouse process run)            store (file, DAX)
//!  ┌──────────────────────────┐   freeze    ┌────────────────────────────────┐        ┌──────────────┐
//!  │ threads, registers       │◄────────────┤ ptrace    stop, read, inject   │        │ roots A, B   │
//!  │ files, sockets, timers   ├────────────►│ capture → state  description   ├───────►│ description  │
//!  │                          │   dirty?    │                                │        │              │
//!  │ memory ── write-protect ─┼────────────►│ track     which pages changed  │        │              │
//!  │                          ├────────────►│ sync      copy in background   ├───────►│ pages        │
//!  └──────────────────────────┘    pages    │ persist   freeze, copy, commit │        │              │
//!              ▲                            │ power     when?                │        │              │
//!              └────────────────────────────┤ restore   all of it again      │◄───────┤              │
//!                                           └────────────────────────────────┘        └──────────────┘
//! ```
//!
//! The store knows nothing of processes; `state` is plain data; what touches the kernel is in
//! `ptrace`, `capture`, `restore` and `track`.
//!
//! # Example
//!
//! The mappings of this process, as the capture reads them:
//!
//! ```
//! use dormouse_process::procfs;
//!
//! # fn main() -> std::io::Result<()> {
//! let maps = procfs::maps(std::process::id() as i32)?;
//! let stack = maps.iter().find(|map| map.name == "[stack]").expect("every process has one");
//! assert!(stack.start < stack.end && !stack.shared);
//! # Ok(())
//! # }
//! ```

/// Makes the system call whose number is in rax and whose arguments follow it at rbx.
macro_rules! call_at_rbx {
    () => {
        "mov rdi, [rbx + 8]
         mov rsi, [rbx + 16]
         mov rdx, [rbx + 24]
         mov r10, [rbx + 32]
         mov r8, [rbx + 40]
         mov r9, [rbx + 48]
         syscall"
    };
}

mod bpf;
pub mod capture;
pub mod cli;
pub mod lease;
pub mod memory;
mod netlink;
pub mod persist;
pub mod power;
pub mod procfs;
pub mod ptrace;
pub mod rehearsal;
pub mod restore;
pub mod roots;
mod sem_undo;
mod sock_diag;
pub mod state;
pub mod store;
pub mod sync;
pub mod track;
pub mod tracker;
mod uring;
pub mod vma_flags;
