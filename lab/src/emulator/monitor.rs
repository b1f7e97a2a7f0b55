//! The emulator's control of a machine that does one job: wakes it as soon as it sleeps, and answers
//! questions about it.
//!
//! The machine's own clock would not do. An alarm is set before the machine goes down, and one that
//! comes before the machine sleeps is lost: QEMU neither keeps it pending nor refuses the sleep, so
//! on a busy host the machine would sleep for ever.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use qapi::Command;

use crate::emulator::qmp::{self, Qmp};
use crate::error::LabError;

/// For the emulator's answer, on a host that may be busy.
const ANSWER: Duration = Duration::from_secs(30);

/// Something that happens to the machine's devices.
#[derive(Debug, Clone)]
pub enum Exchange {
    /// The device with this id goes, at once: one on USB, which asks nobody.
    Out(&'static str),
    /// A device comes.
    In {
        driver: &'static str,
        id: &'static str,
        bus: &'static str,
        port: &'static str,
    },
}

/// What happens while the machine sleeps, by the number of the sleep, from 1.
pub type Exchanges = BTreeMap<usize, Vec<Exchange>>;

pub struct Monitor {
    /// None as long as the emulator has not greeted.
    speaker: Arc<Mutex<Option<Qmp>>>,
    texts: Receiver<String>,
    /// How often the machine has slept.
    sleeps: Arc<AtomicUsize>,
}

impl Monitor {
    /// Speaks with the emulator by a thread of its own, which ends with the emulator.
    pub fn attend(line: UnixStream, exchanges: Exchanges) -> Monitor {
        let speaker = Arc::new(Mutex::new(None));
        let (sender, texts) = mpsc::channel();
        let shared = Arc::clone(&speaker);
        let sleeps = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sleeps);
        thread::spawn(move || {
            // An emulator that does not start is noticed by whoever waits for the machine.
            if let Ok((qmp, listener)) = Qmp::greet(line) {
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(qmp);
                listen(listener, &shared, &sender, (exchanges, &count));
            }
        });
        Monitor {
            speaker,
            texts,
            sleeps,
        }
    }

    /// How often the machine has slept to RAM.
    pub fn sleeps(&self) -> usize {
        self.sleeps.load(Ordering::Acquire)
    }

    /// What the emulator's own monitor says to a command.
    ///
    /// # Errors
    /// The emulator has not greeted, or does not answer.
    pub fn ask(&self, command_line: &str) -> Result<String, LabError> {
        self.execute(&qapi::qmp::human_monitor_command {
            command_line: command_line.into(),
            cpu_index: None,
        })?;
        self.texts.recv_timeout(ANSWER).map_err(|_| {
            LabError::Unexpected(format!("the emulator does not answer {command_line}"))
        })
    }

    /// # Errors
    /// The emulator has not greeted, or has ended.
    pub fn execute<C: Command>(&self, command: &C) -> Result<(), LabError> {
        execute(&self.speaker, command)
    }
}

fn execute<C: Command>(speaker: &Mutex<Option<Qmp>>, command: &C) -> Result<(), LabError> {
    let mut speaker = speaker.lock().unwrap_or_else(PoisonError::into_inner);
    let silent = || LabError::Unexpected("the emulator has not greeted".into());
    speaker.as_mut().ok_or_else(silent)?.execute(command)
}

fn exchange(speaker: &Mutex<Option<Qmp>>, exchange: &Exchange) -> Result<(), LabError> {
    match *exchange {
        Exchange::Out(id) => execute(speaker, &qapi::qmp::device_del { id: id.into() }),
        Exchange::In {
            driver,
            id,
            bus,
            port,
        } => execute(
            speaker,
            &qapi::qmp::device_add {
                driver: driver.into(),
                id: Some(id.into()),
                bus: Some(bus.into()),
                arguments: [("port".to_owned(), port.into())].into_iter().collect(),
            },
        ),
    }
}

fn listen(
    lines: BufReader<UnixStream>,
    speaker: &Mutex<Option<Qmp>>,
    texts: &Sender<String>,
    (mut exchanges, sleeps): (Exchanges, &AtomicUsize),
) {
    for line in lines.lines().map_while(Result::ok) {
        if let Some(text) = qmp::parse_text(&line) {
            // There is no receiver once the machine was dropped.
            let _ = texts.send(text);
        } else if let Some(qapi::qmp::Event::SUSPEND { .. }) = qmp::parse_event(&line) {
            let number = sleeps.fetch_add(1, Ordering::Release) + 1;
            // An emulator that ends meanwhile is noticed by whoever waits for the machine.
            for one in exchanges.remove(&number).unwrap_or_default() {
                let _ = exchange(speaker, &one);
            }
            let _ = execute(speaker, &qapi::qmp::system_wakeup {});
        }
    }
}
