//! A process that takes orders on its standard input and answers on its standard output: one JSON
//! object a line each way. It is killed when this end is dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Doing, GuestError};
use crate::system::run;

/// Our end.
pub struct Dialogue {
    name: String,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Dialogue {
    /// Starts this same program with other arguments, in a control group.
    pub fn start(arguments: &[&str], group: &str) -> Result<Dialogue, GuestError> {
        let mut command = Command::new("/proc/self/exe");
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = run::spawn_in(&mut command, group)?;
        let orders = child.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Ok(Dialogue {
            name: arguments.join(" "),
            child,
            orders,
            answers,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order and waits for the answer.
    pub fn query<T: DeserializeOwned>(&mut self, order: &impl Serialize) -> Result<T, GuestError> {
        let mut line = serde_json::to_string(order).expect("an order is plain data");
        line.push('\n');
        self.orders
            .write_all(line.as_bytes())
            .doing(format!("send an order to `{}`", self.name))?;
        self.receive()
    }

    /// Waits for the next line.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T, GuestError> {
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .doing(format!("read from `{}`", self.name))?;
        if line.is_empty() {
            return Err(GuestError::Other(format!("`{}` has ended", self.name)));
        }
        serde_json::from_str(&line)
            .map_err(|error| GuestError::Other(format!("the answer of `{}`: {error}", self.name)))
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
