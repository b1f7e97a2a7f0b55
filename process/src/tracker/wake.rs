//! The tracker's wake-ups: signals, and messages of its threads.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};

/// What a container's init hands on to its program: everything that engines and administrators send
/// to a program and that a process can catch.
const FOR_THE_PROGRAM: [i32; 8] = [
    SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT,
];

/// Signals that have arrived, and a descriptor that is readable when one has.
#[derive(Debug)]
pub struct Wake {
    reader: UnixStream,
    writer: UnixStream,
    child: Arc<AtomicBool>,
    forward: Vec<(i32, Arc<AtomicBool>)>,
    power: Arc<AtomicBool>,
    urgent: Arc<AtomicBool>,
}

impl Wake {
    /// Catches the signals; `power_signals` too, if there are any. `init`: this process is the
    /// first one of a container, and hands on what is sent to the container.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(power_signals: &[i32], init: bool) -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let mut wake = Self {
            reader,
            writer,
            child: Arc::default(),
            forward: Vec::new(),
            power: Arc::default(),
            urgent: Arc::default(),
        };
        wake.catch(SIGCHLD, &wake.child.clone())?;
        if init {
            let sent = FOR_THE_PROGRAM
                .into_iter()
                .filter(|signal| !power_signals.contains(signal));
            for signal in sent.chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
                wake.hand_on(signal)?;
            }
        } else {
            for signal in [SIGTERM, SIGHUP] {
                let seen = Arc::default();
                wake.catch(signal, &seen)?;
                wake.forward.push((signal, seen));
            }
            // The terminal sends these to the program as well; it decides.
            for signal in [SIGINT, SIGQUIT] {
                wake.catch(signal, &Arc::default())?;
            }
        }
        let power = Arc::clone(&wake.power);
        for signal in power_signals {
            // First of all: what runs in the background ends at once.
            signal_hook::flag::register(*signal, Arc::clone(&wake.urgent))?;
            wake.catch(*signal, &power)?;
        }
        Ok(wake)
    }

    /// Catches a signal that a process sends, for the program. What comes from the terminal has
    /// reached the program, too: it is in the same process group.
    fn hand_on(&mut self, signal: i32) -> io::Result<()> {
        let seen: Arc<AtomicBool> = Arc::default();
        let flag = Arc::clone(&seen);
        let action = move |info: &libc::siginfo_t| {
            // By a process, not by the kernel.
            if info.si_code <= 0 {
                flag.store(true, Ordering::Release);
            }
        };
        // SAFETY: the action only stores to an atomic, which a signal handler may.
        unsafe { signal_hook_registry::register_sigaction(signal, action) }?;
        signal_hook::low_level::pipe::register(signal, self.writer.try_clone()?)?;
        self.forward.push((signal, seen));
        Ok(())
    }

    fn catch(&mut self, signal: i32, seen: &Arc<AtomicBool>) -> io::Result<()> {
        signal_hook::flag::register(signal, Arc::clone(seen))?;
        signal_hook::low_level::pipe::register(signal, self.writer.try_clone()?)?;
        Ok(())
    }

    /// For a thread that wants to wake the tracker: it writes a byte.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn waker(&self) -> io::Result<UnixStream> {
        self.writer.try_clone()
    }

    /// Readable when something has happened.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Takes what has woken us.
    pub fn clear(&mut self) {
        let mut bytes = [0; 64];
        while matches!(self.reader.read(&mut bytes), Ok(count) if count > 0) {}
    }

    /// A child has ended, or a power signal has come, since the last call.
    pub fn take_child(&self) -> bool {
        self.child.swap(false, Ordering::AcqRel)
    }

    /// Whether a signal that reports a power loss has arrived since the last call.
    pub fn take_power(&self) -> bool {
        self.power.swap(false, Ordering::AcqRel)
    }

    /// Set while something waits that the background sync must make room for: a power loss, or
    /// a request to persist.
    pub fn urgent(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.urgent)
    }

    /// Signals for the program that have come since the last call.
    pub fn take_forward(&self) -> Vec<i32> {
        let come = |(_, seen): &&(i32, Arc<AtomicBool>)| seen.swap(false, Ordering::AcqRel);
        let signals = self.forward.iter().filter(come);
        signals.map(|(signal, _)| *signal).collect()
    }
}
