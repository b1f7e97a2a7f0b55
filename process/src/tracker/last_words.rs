//! A tracker that a signal ends says so before it goes: which signal, its sender, what is kept.
//!
//! SIGKILL cannot be caught: then the kernel's log, or its sender, has the reason.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t};

/// Signals that end a process unless it handles them, apart from those that the tracker hands on to
/// the program, and those that report a loss of power. Real-time signals have no names.
const ENDING: [(c_int, &str); 17] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGSYS, "SIGSYS"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGPWR, "SIGPWR"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGSTKFLT, "SIGSTKFLT"),
];

/// What the handler prints, made before it may be needed: it must not allocate.
struct Words {
    pid: i32,
    start: Vec<u8>,
    end: Vec<u8>,
    old: [MaybeUninit<libc::sigaction>; ENDING.len()],
}

// SAFETY: never changed after it was made; the signal actions are plain data.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

static WORDS: OnceLock<Words> = OnceLock::new();

/// From here on each such end is reported on stderr, for the program of this name. Signals in `power`
/// are not touched. A second call changes nothing.
pub fn prepare(name: &str, power: &[c_int]) {
    let mut old = [const { MaybeUninit::zeroed() }; ENDING.len()];
    for ((signal, _), old) in ENDING.iter().zip(&mut old) {
        // SAFETY: asks only; the structure lives.
        unsafe { libc::sigaction(*signal, std::ptr::null(), old.as_mut_ptr()) };
    }
    let words = Words {
        pid: std::process::id().cast_signed(),
        start: format!("dormouse: the tracker of {name} is ended by ").into_bytes(),
        end: b"; the last epoch is kept, and the program is tracked no more\n".to_vec(),
        old,
    };
    if WORDS.set(words).is_err() {
        return;
    }
    for (signal, _) in ENDING.iter().filter(|(signal, _)| !power.contains(signal)) {
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = speak;
        // SAFETY: the handler has the type that SA_SIGINFO wants, and calls only what a handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigfillset(&raw mut action.sa_mask);
            libc::sigaction(*signal, &raw const action, std::ptr::null_mut());
        }
    }
}

extern "C" fn speak(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    let Some(words) = WORDS.get() else { return };
    let at = ENDING.iter().position(|(number, _)| *number == signal);
    let Some(at) = at else { return };
    // SAFETY: the kernel fills it in for a handler with SA_SIGINFO.
    let (code, from, address) = unsafe { ((*info).si_code, (*info).si_pid(), (*info).si_addr()) };
    // A fault, an instruction: it happens again when we return, and then ends the process.
    let repeats = code > 0 && at < 4;
    // SAFETY: system calls that a handler may make; the saved action is the kernel's.
    unsafe {
        // The guard of a half-filled program is a fork of the tracker.
        if libc::getpid() == words.pid {
            let mut line = Line::default();
            line.add(&words.start);
            line.add(ENDING[at].1.as_bytes());
            if repeats {
                line.add(b" at address 0x");
                line.number(address.addr() as u64, 16);
            } else if code <= 0 {
                line.add(b" from process ");
                line.number(from.unsigned_abs().into(), 10);
            }
            line.add(&words.end);
            libc::write(2, line.bytes.as_ptr().cast(), line.length);
        }
        if repeats {
            // The standard library reports the overflow of a stack.
            libc::sigaction(signal, words.old[at].as_ptr(), std::ptr::null_mut());
        } else {
            libc::signal(signal, libc::SIG_DFL);
            // Blocked until the handler returns.
            libc::raise(signal);
        }
    }
}

/// A line of text without an allocation; what is too long is cut off.
struct Line {
    bytes: [u8; 512],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; 512],
            length: 0,
        }
    }
}

impl Line {
    fn add(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    fn number(&mut self, mut number: u64, base: u64) {
        let mut digits = [0u8; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b"0123456789abcdef"[(number % base) as usize];
            number /= base;
            if number == 0 || first == 0 {
                break;
            }
        }
        self.add(&digits[first..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_whole_and_a_long_line_is_cut_off() {
        let mut line = Line::default();
        for (number, base) in [(0, 10), (u64::MAX, 10), (u64::MAX, 16), (0x7f_10, 16)] {
            line.number(number, base);
            line.add(b" ");
        }
        let text = std::str::from_utf8(&line.bytes[..line.length]).unwrap();
        assert_eq!(text, "0 18446744073709551615 ffffffffffffffff 7f10 ");
        line.add(&[b'x'; 600]);
        assert_eq!(line.length, 512);
    }
}
