//! What a machine sends (console, agent, emulator), in one queue.

use std::fs::File;
use std::io::BufRead;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use dormouse_guest::protocol::FromGuest;
use dormouse_guest::protocol::frame::Decoder;
use dormouse_report::event::{Event, parse_console_line};
use serde_json::Value;

use crate::emulator::console::{self, Taps};
use crate::emulator::qmp::{self, StopCause};
use crate::emulator::record::HostClock;

/// What a machine sent, and when the host received it.
#[derive(Clone, Debug)]
pub struct Signal {
    /// When the host received it, in nanoseconds.
    pub at_ns: u64,
    /// The message.
    pub what: What,
}

/// A message of the machine.
#[derive(Clone, Debug)]
pub enum What {
    /// A line on the serial console.
    Console(String),
    /// A timeline event in a console line, from firmware or kernel.
    ConsoleEvent(Event),
    /// A message of the agent.
    Agent(FromGuest),
    /// The emulator's monitor answers.
    Monitor(String),
    /// The emulator says that the machine sleeps in its own way (ACPI S3).
    Suspended,
    /// The emulator has ended.
    Stopped,
}

/// The answer to one request, if the signal is that.
pub fn reply_to(signal: &Signal, id: u64) -> Option<Result<Value, String>> {
    match &signal.what {
        What::Agent(FromGuest::Reply { id: of, result }) if *of == id => Some(result.clone()),
        _ => None,
    }
}

/// Reader threads put what they receive into the queue through this.
#[derive(Clone)]
pub(super) struct Speaker {
    sender: Sender<Signal>,
    clock: HostClock,
}

impl Speaker {
    pub fn new(sender: Sender<Signal>, clock: HostClock) -> Speaker {
        Speaker { sender, clock }
    }

    fn say(&self, what: What) {
        self.say_at(what, self.clock.now_ns());
    }

    fn say_at(&self, what: What, at_ns: u64) {
        // There is no receiver once the machine was dropped.
        let _ = self.sender.send(Signal { at_ns, what });
    }

    /// Forwards console lines. The end of the console is the end of the machine; it is signalled
    /// only after `emulator` has read all of its own messages, because the last of them says why
    /// and when the machine stopped. The emulator process itself ends later: it first returns the
    /// machine's memory to the host.
    pub fn follow_console(
        &self,
        line: UnixStream,
        log: File,
        taps: Taps,
        emulator: thread::JoinHandle<Option<u64>>,
    ) {
        let speaker = self.clone();
        thread::spawn(move || {
            console::follow(line, log, &taps, |line| {
                let event = parse_console_line(&line);
                speaker.say(What::Console(line));
                if let Some(event) = event {
                    speaker.say(What::ConsoleEvent(event));
                }
            });
            let stopped_ns = emulator.join().ok().flatten();
            speaker.say_at(
                What::Stopped,
                stopped_ns.unwrap_or_else(|| speaker.clock.now_ns()),
            );
        });
    }

    pub fn follow_control(&self, mut line: UnixStream) {
        let speaker = self.clone();
        thread::spawn(move || {
            let mut decoder = Decoder::default();
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = std::io::Read::read(&mut line, &mut bytes) {
                for message in decoder.push::<FromGuest>(&bytes[..count]) {
                    speaker.say(What::Agent(message));
                }
            }
        });
    }

    pub fn follow_emulator(
        &self,
        listener: std::io::BufReader<UnixStream>,
        cause: Arc<Mutex<Option<StopCause>>>,
    ) -> thread::JoinHandle<Option<u64>> {
        let speaker = self.clone();
        thread::spawn(move || {
            let mut stopped_ns = None;
            for line in listener.lines().map_while(Result::ok) {
                let Some(event) = qmp::parse_event(&line) else {
                    if let Some(text) = qmp::parse_text(&line) {
                        speaker.say(What::Monitor(text));
                    }
                    continue;
                };
                if let Some(how) = qmp::stop_cause(&event) {
                    stopped_ns = Some(speaker.clock.now_ns());
                    *cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
                }
                if matches!(event, qapi::qmp::Event::SUSPEND { .. }) {
                    speaker.say(What::Suspended);
                }
            }
            stopped_ns
        })
    }
}
