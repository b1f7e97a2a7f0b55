//! Sources of power-loss warnings.
//!
//! | source | how |
//! |---|---|
//! | `nut:UPS@HOST[:PORT]` | polls upsd in its own protocol |
//! | `upower` | polls UPower on the system bus |
//! | `power-supply` | reads `/sys/class/power_supply` |
//! | `signal` | SIGPWR or SIGUSR1 to the tracker; as the init of a container SIGPWR alone |
//! | `none` | no source; only the background sync makes epochs |
//!
//! What counts as a loss is decided in one place, [`judge`]: on battery, or silence while on
//! battery. Silence while on mains power is a failure of the network, not of power.

pub mod judge;
pub mod nut;
pub mod supply;
pub mod upower;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

pub use judge::{Event, Judge, Reading};

/// A source of the news that power fails.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Source {
    /// No source.
    None,
    /// SIGPWR or SIGUSR1.
    #[default]
    Signal,
    /// A UPS that upsd knows.
    Nut(nut::Address),
    /// UPower's signals on the system bus.
    Upower,
    /// The kernel's own view of the machine's power supplies.
    PowerSupply,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "signal" => Ok(Self::Signal),
            "upower" => Ok(Self::Upower),
            "power-supply" => Ok(Self::PowerSupply),
            _ => match text.strip_prefix("nut:") {
                Some(address) => Ok(Self::Nut(address.parse()?)),
                None => Err(format!(
                    "`{text}` is no source: nut:UPS@HOST, upower, power-supply, signal or none"
                )),
            },
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => formatter.write_str("none"),
            Self::Signal => formatter.write_str("signal"),
            Self::Nut(address) => write!(formatter, "nut:{address}"),
            Self::Upower => formatter.write_str("upower"),
            Self::PowerSupply => formatter.write_str("power-supply"),
        }
    }
}

/// Signals that report a power loss, whatever the source is; none with `none`. What is sent
/// to a container's init is for the program, but SIGPWR.
pub fn signals(source: &Source, init: bool) -> &'static [i32] {
    match source {
        Source::None => &[],
        _ if init => &[libc::SIGPWR],
        _ => &[libc::SIGPWR, libc::SIGUSR1],
    }
}

/// A thread that watches a source.
#[derive(Debug)]
pub struct Watcher {
    events: Receiver<Event>,
    urgent: Arc<AtomicBool>,
}

impl Watcher {
    /// Starts to watch; `waker` gets a byte with each event, and `urgent` is set from a loss of
    /// power until it is taken.
    pub fn start(source: &Source, waker: UnixStream, urgent: Arc<AtomicBool>) -> Self {
        let (sender, events) = channel();
        let teller = Teller {
            sender,
            waker,
            urgent: Arc::clone(&urgent),
        };
        match source.clone() {
            Source::None | Source::Signal => {}
            Source::Nut(address) => {
                std::thread::spawn(move || watch(&teller, nut::Client::new(address)));
            }
            Source::PowerSupply => {
                std::thread::spawn(move || watch(&teller, supply::Supplies::system()));
            }
            Source::Upower => {
                std::thread::spawn(move || watch(&teller, upower::Upower::system()));
            }
        }
        Self { events, urgent }
    }

    /// Events since the last call.
    pub fn take(&self) -> Vec<Event> {
        self.urgent.store(false, Ordering::Release);
        self.events.try_iter().collect()
    }
}

struct Teller {
    sender: Sender<Event>,
    waker: UnixStream,
    urgent: Arc<AtomicBool>,
}

/// A source that can be polled for the state of power.
pub trait Meter {
    /// Asks once; may wait for an answer.
    fn read(&mut self) -> Reading;
    /// Time between two questions.
    fn interval(&self) -> Duration;
}

fn watch(teller: &Teller, mut meter: impl Meter) {
    let mut judge = Judge::default();
    loop {
        let reading = meter.read();
        if let Some(event) = judge.receive(&reading) {
            if event.is_loss() {
                teller.urgent.store(true, Ordering::Release);
            }
            if teller.sender.send(event).is_err() {
                return;
            }
            let _ = (&teller.waker).write(&[0]);
        }
        std::thread::sleep(meter.interval());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_as_it_is_written() {
        for text in [
            "none",
            "signal",
            "upower",
            "power-supply",
            "nut:ups@localhost",
            "nut:rack@[::1]:3494",
        ] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "nut",
            "nut:",
            "nut:ups",
            "nut:@host",
            "nut:ups@host:x",
            "apc",
        ] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }
}
