//! The restorer stub: a few dozen instructions that execute lists of system calls.
//!
//! A process that is being recreated has no code of its own yet, and must not keep any of the
//! tracker's. So it executes this loop, which lies in a page between the mappings of both, uses no
//! stack and no memory except its lists, and is unmapped from outside at the end.
//!
//! ```text
//!  region (shared by the tracker and all recreated processes)
//!  ┌────────┬──────────────────────────────┬───────────────────────────────────────────┐
//!  │ code   │ control: done failed events  │ lists of operations, strings, structures  │
//!  │ R-X    │ RW-                          │ RW-                                       │
//!  └────────┴──────────────────────────────┴───────────────────────────────────────────┘
//!   operation: number, six arguments, where to store the result, list of the new task, check
//! ```
//!
//! All lists are written before the first process exists. The tracker waits for counters, opens
//! gates between phases, and reads which operation failed.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::stub_code;

const PAGE: usize = 4096;
/// Address space for lists. Only what is written takes memory.
const LISTS_BYTES: usize = 256 << 20;
/// Room in front of the code where the kernel's own mappings wait for their place.
pub const PARKING_BYTES: u64 = 1 << 20;
const OPERATION_BYTES: usize = 96;
/// Pseudo-operations.
const END: u64 = u64::MAX;
const WAIT: u64 = u64::MAX - 1;
const REPORT: u64 = u64::MAX - 2;
const SET_FLAGS: u64 = u64::MAX - 3;

/// What the result of an operation must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Not an error.
    Success,
    /// Anything.
    Any,
    /// Exactly this.
    Equals(u64),
}

/// Where the result of an operation goes, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Nowhere.
    Nowhere,
    /// It opens this gate, unless it is 0.
    Gate(Gate),
    /// It becomes this argument of a later operation of the same list.
    Argument {
        /// Index of the operation in its list.
        operation: usize,
        /// Index of the argument.
        argument: usize,
    },
}

/// A system call to be made by a recreated task.
#[derive(Debug, Clone)]
pub struct Operation {
    number: u64,
    arguments: [u64; 6],
    store: Store,
    /// This argument is the address of an argument of another operation: own, operation, argument.
    points: Option<(usize, usize, usize)>,
    child: u64,
    check: Check,
    /// For the error message.
    what: What,
}

/// What an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct What {
    /// "map memory".
    pub action: &'static str,
    /// Address, descriptor or whatever names the thing; shown in hexadecimal if large.
    pub thing: u64,
}

/// A list of operations that is being written.
#[derive(Debug, Default)]
pub struct List {
    operations: Vec<Operation>,
}

impl List {
    /// Adds a system call that must succeed.
    pub fn call(
        &mut self,
        number: libc::c_long,
        arguments: &[u64],
        action: &'static str,
    ) -> &mut Operation {
        let mut all = [0u64; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.operations.push(Operation {
            number: number as u64,
            arguments: all,
            store: Store::Nowhere,
            points: None,
            child: 0,
            check: Check::Success,
            what: What {
                action,
                thing: arguments.first().copied().unwrap_or(0),
            },
        });
        self.operations.last_mut().expect("just added")
    }

    /// Adds a `prctl(2)` that must succeed.
    pub fn prctl(
        &mut self,
        option: libc::c_int,
        arguments: &[u64],
        action: &'static str,
    ) -> &mut Operation {
        let all = [&[option as u64], arguments].concat();
        self.call(libc::SYS_prctl, &all, action)
    }

    /// Adds: wait until the tracker opens this gate.
    pub fn wait(&mut self, gate: Gate) {
        self.call(0, &[gate.0], "wait").number = WAIT;
    }

    /// Adds: report to the tracker that this point was reached.
    pub fn report(&mut self) {
        self.call(0, &[], "report").number = REPORT;
    }

    /// Adds: set these bits of `rflags`, and clear the others that user code may change. The last
    /// operation of its list: tasks that are created afterwards would inherit them.
    pub fn set_flags(&mut self, flags: u64) {
        self.call(0, &[flags], "set flags").number = SET_FLAGS;
    }

    /// Number of operations so far: the index of the next one.
    pub fn len(&self) -> usize {
        self.operations.len()
    }
}

impl Operation {
    /// Names the thing for error messages, if it is not the first argument.
    pub fn about(&mut self, thing: u64) -> &mut Self {
        self.what.thing = thing;
        self
    }

    /// Sets what the result must be.
    pub fn expect(&mut self, check: Check) -> &mut Self {
        self.check = check;
        self
    }

    /// Sets where the result goes.
    pub fn store(&mut self, store: Store) -> &mut Self {
        self.store = store;
        self
    }

    /// Argument `own` of this call is the address of argument `argument` of operation `operation`:
    /// the kernel writes it.
    pub fn points_to(&mut self, own: usize, operation: usize, argument: usize) -> &mut Self {
        self.points = Some((own, operation, argument));
        self
    }

    /// The task that this call creates goes on with another list.
    pub fn child(&mut self, list: u64) -> &mut Self {
        self.child = list;
        self
    }
}

/// A gate that lists wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate(u64);

/// An operation that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The process or thread whose list it is in.
    pub task: i32,
    /// What it was for.
    pub what: What,
    /// The error number.
    pub error: i32,
}

/// The region with the stub and all its lists, mapped at the same address everywhere.
#[derive(Debug)]
pub struct Region {
    base: u64,
    used: usize,
    /// By address of an operation.
    labels: HashMap<u64, (i32, What)>,
}

impl Region {
    /// Bytes of address space that a region takes, with the parking space in front of it.
    pub const BYTES: u64 = PARKING_BYTES + (PAGE + LISTS_BYTES) as u64;

    /// Makes a region in a hole of the tracker's address space. `hole` is the start of
    /// [`Self::BYTES`] bytes that are free here and in all processes that will be.
    ///
    /// # Errors
    /// No address space or memory.
    pub fn new(hole: u64) -> io::Result<Self> {
        let base = hole + PARKING_BYTES;
        let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        map(base, PAGE + LISTS_BYTES, shared)?;
        let code = stub_code::code();
        // SAFETY: the page was just mapped, and the code is shorter.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), base as *mut u8, code.len());
            if libc::mprotect(base as *mut _, PAGE, libc::PROT_READ | libc::PROT_EXEC) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // The control block is the first line of the lists.
        Ok(Self {
            base,
            used: PAGE + 64,
            labels: HashMap::new(),
        })
    }

    /// Where the kernel's own mappings can wait.
    pub fn parking(&self) -> u64 {
        self.base - PARKING_BYTES
    }

    /// Address of what is mapped there.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Address after the last.
    pub fn end(&self) -> u64 {
        self.base + (PAGE + LISTS_BYTES) as u64
    }

    /// Copies bytes into the region and returns their address (a multiple of 16).
    ///
    /// # Errors
    /// The region is full.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let at = self.used.next_multiple_of(16);
        if at + bytes.len() > PAGE + LISTS_BYTES {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        let address = self.base + at as u64;
        // SAFETY: the range was just checked to lie in the mapped lists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        self.used = at + bytes.len();
        Ok(address)
    }

    /// Copies words into the region.
    ///
    /// # Errors
    /// The region is full.
    pub fn words(&mut self, words: &[u64]) -> io::Result<u64> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.bytes(&bytes)
    }

    /// Copies a string with a NUL at its end into the region.
    ///
    /// # Errors
    /// The region is full.
    pub fn string(&mut self, text: &str) -> io::Result<u64> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(&bytes)
    }

    /// A closed gate.
    ///
    /// # Errors
    /// The region is full.
    pub fn gate(&mut self) -> io::Result<Gate> {
        self.words(&[0]).map(Gate)
    }

    /// Puts a list of task `task` in its place and returns its address.
    ///
    /// # Errors
    /// The region is full.
    pub fn list(&mut self, list: &List, task: i32) -> io::Result<u64> {
        let start = self.base + self.used.next_multiple_of(16) as u64;
        let mut bytes = Vec::with_capacity((list.operations.len() + 1) * OPERATION_BYTES);
        for (at, operation) in list.operations.iter().enumerate() {
            let address_of = |operation: usize, argument: usize| {
                start + (operation * OPERATION_BYTES + 8 + argument * 8) as u64
            };
            let store = match operation.store {
                Store::Nowhere => 0,
                Store::Gate(gate) => gate.0,
                Store::Argument {
                    operation,
                    argument,
                } => address_of(operation, argument),
            };
            let mut arguments = operation.arguments;
            if let Some((own, operation, argument)) = operation.points {
                arguments[own] = address_of(operation, argument);
            }
            let (check, value) = match operation.check {
                Check::Success => (0, 0),
                Check::Any => (1, 0),
                Check::Equals(value) => (2, value),
            };
            let [a, b, c, d, e, f] = arguments;
            let words = [
                operation.number,
                a,
                b,
                c,
                d,
                e,
                f,
                store,
                operation.child,
                check,
                value,
                0,
            ];
            bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
            self.labels.insert(
                start + (at * OPERATION_BYTES) as u64,
                (task, operation.what),
            );
        }
        let mut end = [0u64; OPERATION_BYTES / 8];
        end[0] = END;
        bytes.extend(end.iter().flat_map(|word| word.to_ne_bytes()));
        self.bytes(&bytes)
    }

    /// What another thread needs to start a process.
    pub fn handle(&self) -> Handle {
        Handle { base: self.base }
    }

    /// Opens a gate.
    pub fn open(&self, gate: Gate) {
        // SAFETY: a gate is a word in our lists.
        let word = unsafe { AtomicU32::from_ptr(gate.0 as *mut u32) };
        word.store(1, Ordering::SeqCst);
        // SAFETY: the word lives.
        unsafe { libc::syscall(libc::SYS_futex, gate.0, libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
    }

    /// Whether a gate is open. A list opens one with a result ([`Store::Gate`]); it reports afterwards, so
    /// that the tracker looks again.
    pub fn is_open(&self, gate: Gate) -> bool {
        // SAFETY: a gate is a word in our lists.
        let word = unsafe { AtomicU32::from_ptr(gate.0 as *mut u32) };
        word.load(Ordering::SeqCst) != 0
    }

    /// Waits until `count` reports and ends of lists have come in since the beginning.
    ///
    /// # Errors
    /// An operation failed (`Ok(Err)`), or it takes longer than `limit`.
    pub fn wait(&self, count: u32, limit: Duration) -> io::Result<Result<(), Failure>> {
        // SAFETY: the control block lies in our lists; the others write it with atomics, too.
        let done = unsafe { AtomicU32::from_ptr(self.control() as *mut u32) };
        self.wait_for(limit, || done.load(Ordering::SeqCst) >= count)
    }

    /// Waits for something that a report makes true.
    ///
    /// # Errors
    /// An operation failed (`Ok(Err)`), or it takes longer than `limit`.
    pub fn wait_for(
        &self,
        limit: Duration,
        ready: impl Fn() -> bool,
    ) -> io::Result<Result<(), Failure>> {
        let control = self.control();
        // SAFETY: the control block lies in our lists; the others write it with atomics, too.
        let (failed, events, failure) = unsafe {
            (
                AtomicU32::from_ptr((control + 4) as *mut u32),
                AtomicU32::from_ptr((control + 8) as *mut u32),
                AtomicU64::from_ptr((control + 16) as *mut u64),
            )
        };
        let started = Instant::now();
        loop {
            let seen = events.load(Ordering::SeqCst);
            if failed.load(Ordering::SeqCst) > 0 {
                let address = failure.load(Ordering::SeqCst);
                let (task, what) = self.labels.get(&address).copied().unwrap_or((
                    0,
                    What {
                        action: "do something unknown",
                        thing: address,
                    },
                ));
                // SAFETY: labels are addresses of operations in our lists.
                let result = unsafe { ((address + 88) as *const i64).read_volatile() };
                return Ok(Err(Failure {
                    task,
                    what,
                    error: -result as i32,
                }));
            }
            if ready() {
                return Ok(Ok(()));
            }
            if started.elapsed() > limit {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            let timeout = libc::timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            // SAFETY: the word and the time live.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    control + 8,
                    libc::FUTEX_WAIT,
                    seen,
                    &raw const timeout,
                    0,
                    0,
                )
            };
        }
    }

    fn control(&self) -> u64 {
        self.base + PAGE as u64
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        unsafe { libc::munmap(self.base as *mut _, PAGE + LISTS_BYTES) };
    }
}

/// Names a region, without keeping it.
#[derive(Debug, Clone, Copy)]
pub struct Handle {
    base: u64,
}

impl Handle {
    /// Creates the first process with `clone3` and these arguments; it runs `list`. Returns its
    /// number.
    ///
    /// # Errors
    /// The error of `clone3`.
    pub fn start_process(&self, arguments: &mut CloneArguments, list: u64) -> io::Result<i32> {
        let result: i64;
        // SAFETY: the child has a copy of our memory and leaves this code at once, for the stub,
        // with a list and a control block in registers; it never comes back. We go on as after
        // any system call. rbx is not ours to name, so it is exchanged by hand.
        unsafe {
            std::arch::asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "mov rbx, r13",
                "jmp r14",
                "2:",
                inlateout("rax") libc::SYS_clone3 => result,
                in("rdi") std::ptr::from_mut(arguments),
                in("rsi") size_of::<CloneArguments>(),
                in("r12") self.base + PAGE as u64,
                in("r13") list,
                in("r14") self.base,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        if result < 0 {
            Err(io::Error::from_raw_os_error(-result as i32))
        } else {
            Ok(result as i32)
        }
    }
}

/// `struct clone_args`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct CloneArguments {
    /// `CLONE_*`.
    pub flags: u64,
    #[doc(hidden)]
    pub pidfd: u64,
    /// With `CLONE_CHILD_SETTID` and `CLONE_CHILD_CLEARTID`: where the child's number is written.
    pub child_tid: u64,
    #[doc(hidden)]
    pub parent_tid: u64,
    /// Sent to the parent at the end.
    pub exit_signal: u64,
    #[doc(hidden)]
    pub stack: [u64; 3],
    /// Address of the wanted number (an `i32`).
    pub set_tid: u64,
    /// 1.
    pub set_tid_size: u64,
    #[doc(hidden)]
    pub cgroup: u64,
}

impl CloneArguments {
    /// As words, to put into a region.
    pub fn words(&self) -> [u64; 11] {
        [
            self.flags,
            self.pidfd,
            self.child_tid,
            self.parent_tid,
            self.exit_signal,
            self.stack[0],
            self.stack[1],
            self.stack[2],
            self.set_tid,
            self.set_tid_size,
            self.cgroup,
        ]
    }
}

fn map(address: u64, bytes: usize, flags: i32) -> io::Result<()> {
    // SAFETY: only free address space is taken.
    let got = unsafe {
        libc::mmap(
            address as *mut _,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            flags | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    if got as u64 == address {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
#[path = "stub_tests.rs"]
mod tests;
