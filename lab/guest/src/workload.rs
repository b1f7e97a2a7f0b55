//! The program that fills memory and counts: a process of its own, asked over its standard input.
//!
//! One JSON object a line each way. It is what sleeps and wakes, so it does nothing to help.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use dormouse_guest::protocol::{CounterVerdict, MemoryVerdict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cgroups;
use crate::counters::Counters;
use crate::error::{Doing, GuestError};
use crate::fill::Filled;
use crate::run;

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
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
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
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("workload")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = run::spawn_in(&mut command, cgroups::WORKLOAD)?;
        let orders = child.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut workload = Workload {
            child,
            orders,
            answers,
            filled_bytes: 0,
        };
        workload.filled_bytes = workload.order(&Order::Start {
            fill_bytes,
            threads,
            counters,
            seed,
        })?;
        Ok(workload)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn verify(&mut self) -> Result<(MemoryVerdict, CounterVerdict), GuestError> {
        self.order(&Order::Verify)
    }

    pub fn refill(&mut self, seed: u64) -> Result<(), GuestError> {
        self.order::<u64>(&Order::Refill { seed }).map(drop)
    }

    pub fn counts(&mut self) -> Result<Vec<u64>, GuestError> {
        self.order(&Order::Counts)
    }

    fn order<T: for<'de> Deserialize<'de>>(&mut self, order: &Order) -> Result<T, GuestError> {
        let mut line = to_value(order).to_string();
        line.push('\n');
        self.orders
            .write_all(line.as_bytes())
            .doing("ask the workload")?;
        line.clear();
        self.answers
            .read_line(&mut line)
            .doing("hear from the workload")?;
        if line.is_empty() {
            return Err(GuestError::Other("the workload has ended".into()));
        }
        serde_json::from_str(&line)
            .map_err(|error| GuestError::Other(format!("the workload's answer: {error}")))
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
