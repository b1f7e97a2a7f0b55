//! The program that fills memory and counts: a process of its own, controlled over its
//! standard input.
//!
//! One JSON object a line each way. It sleeps and wakes like any program, without special code for
//! it.

pub mod counters;
pub mod dialogue;
pub mod fill;
pub mod redis;
pub mod resp;
pub mod service;

use dormouse_guest::protocol::{CounterVerdict, MemoryVerdict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Doing, GuestError};
use crate::system::cgroups;
use crate::workload::counters::Counters;
use crate::workload::dialogue::Dialogue;
use crate::workload::fill::Filled;

#[derive(Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Order {
    Start {
        fill_bytes: u64,
        threads: usize,
        counters: usize,
        seed: u64,
    },
    Verify,
    Refill {
        seed: u64,
    },
    Counts,
}

/// The process itself: serves orders until its input ends.
pub fn run() -> Result<(), GuestError> {
    // Started by its path, it would be called `exe` wherever processes are named.
    rustix::thread::set_name(c"workload").doing("set the process's name")?;
    let mut filled = Filled::new(0, 0, 1);
    let mut counters = Counters::start(0);
    for line in std::io::stdin().lines() {
        let line = line.doing("read an order")?;
        let order: Order = serde_json::from_str(&line)
            .map_err(|error| GuestError::Other(format!("bad order: {error}")))?;
        let answer = match order {
            Order::Start {
                fill_bytes,
                threads,
                counters: count,
                seed,
            } => {
                filled = Filled::new(fill_bytes, seed, threads);
                counters = Counters::start(count);
                to_value(filled.bytes())
            }
            Order::Verify => to_value((filled.verify(), counters.verify())),
            Order::Refill { seed } => {
                filled.refill(seed);
                to_value(filled.bytes())
            }
            Order::Counts => to_value(counters.counts()),
        };
        println!("{answer}");
    }
    Ok(())
}

fn to_value(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).expect("an answer is plain data")
}

/// The agent's end: the running workload process.
pub struct Workload {
    process: Dialogue,
    pub filled_bytes: u64,
}

impl Workload {
    /// Starts the process and fills its memory.
    pub fn start(
        fill_bytes: u64,
        threads: usize,
        counters: usize,
        seed: u64,
    ) -> Result<Workload, GuestError> {
        let mut workload = Workload {
            process: Dialogue::start(&["workload"], cgroups::WORKLOAD)?,
            filled_bytes: 0,
        };
        workload.filled_bytes = workload.process.query(&Order::Start {
            fill_bytes,
            threads,
            counters,
            seed,
        })?;
        Ok(workload)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn verify(&mut self) -> Result<(MemoryVerdict, CounterVerdict), GuestError> {
        self.process.query(&Order::Verify)
    }

    pub fn refill(&mut self, seed: u64) -> Result<(), GuestError> {
        self.process.query::<u64>(&Order::Refill { seed }).map(drop)
    }

    pub fn counts(&mut self) -> Result<Vec<u64>, GuestError> {
        self.process.query(&Order::Counts)
    }
}
