//! QEMU's control socket: a few commands, and why the machine stopped.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use qapi::qmp::{Event, QmpMessage};
use qapi::{Command, Execute};

use crate::error::{Doing, LabError};

/// It greets when it has all of the machine's memory, which takes a while on a busy host.
const GREETING_TIMEOUT: Duration = Duration::from_secs(120);

/// What the emulator's monitor is asked about a machine that stands still: whether it sleeps, a
/// processor that waits for ever, or an interrupt that was never ended, shows here and nowhere else.
pub const EXAMINATION: [&str; 5] = [
    "info status",
    "info registers -a",
    "info lapic 0",
    "info lapic 1",
    "info pic",
];

/// The speaking half.
pub struct Qmp {
    stream: UnixStream,
}

impl Qmp {
    /// Greets QEMU; returns the listening half as well, for a thread of its own.
    ///
    /// # Errors
    /// QEMU does not answer as it should.
    pub fn greet(stream: UnixStream) -> Result<(Qmp, BufReader<UnixStream>), LabError> {
        let mut listener = BufReader::new(
            stream
                .try_clone()
                .doing("share the emulator's control socket")?,
        );
        stream
            .set_read_timeout(Some(GREETING_TIMEOUT))
            .doing("set a timeout")?;
        let mut line = String::new();
        listener
            .read_line(&mut line)
            .map_err(|error| match error.kind() {
                ErrorKind::WouldBlock => LabError::Unexpected(format!(
                    "the emulator says nothing for {} s; is the host very busy?",
                    GREETING_TIMEOUT.as_secs()
                )),
                _ => LabError::Io {
                    what: "read the emulator's greeting".to_owned(),
                    source: error,
                },
            })?;
        let mut qmp = Qmp { stream };
        qmp.execute(&qapi::qmp::qmp_capabilities { enable: None })?;
        line.clear();
        listener
            .read_line(&mut line)
            .doing("read the emulator's answer")?;
        if !line.contains("return") {
            return Err(LabError::Unexpected(format!(
                "the emulator greets with {line:?}"
            )));
        }
        qmp.stream
            .set_read_timeout(None)
            .doing("remove a timeout")?;
        Ok((qmp, listener))
    }

    /// Sends a command; its answer is of no interest.
    pub fn execute<C: Command>(&mut self, command: &C) -> Result<(), LabError> {
        let mut line = serde_json::to_vec(&Execute::<&C>::from(command))
            .map_err(|error| LabError::Unexpected(error.to_string()))?;
        line.push(b'\n');
        self.stream
            .write_all(&line)
            .doing(format!("send {} to the emulator", C::NAME))
    }
}

/// The event in a line of the control socket, if it is one that we know.
pub fn parse_event(line: &str) -> Option<Event> {
    match serde_json::from_str::<QmpMessage<qapi::Any>>(line).ok()? {
        QmpMessage::Event(event) => Some(event),
        QmpMessage::Response(_) => None,
    }
}

/// The text that answers a command for the emulator's monitor, if the line is such an answer.
pub fn parse_text(line: &str) -> Option<String> {
    match serde_json::from_str::<QmpMessage<serde_json::Value>>(line).ok()? {
        QmpMessage::Response(answer) => answer.result().ok()?.as_str().map(str::to_owned),
        QmpMessage::Event(_) => None,
    }
}

/// How a machine stopped, from QEMU's own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// The guest switched itself off.
    PoweredOff,
    /// The guest reset itself; the lab's machines do that only when they crash.
    Reset,
    /// The host ended it.
    Host,
}

/// The cause in a SHUTDOWN event.
pub fn stop_cause(event: &Event) -> Option<StopCause> {
    let Event::SHUTDOWN { data, .. } = event else {
        return None;
    };
    use qapi::qmp::ShutdownCause as Cause;
    Some(match data.reason {
        Cause::guest_shutdown => StopCause::PoweredOff,
        Cause::guest_reset | Cause::guest_panic | Cause::subsystem_reset => StopCause::Reset,
        _ => StopCause::Host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_switches_off_is_told_from_one_that_resets() {
        let line = |reason: &str| {
            format!(
                r#"{{"timestamp": {{"seconds": 1, "microseconds": 2}}, "event": "SHUTDOWN",
                "data": {{"guest": true, "reason": "{reason}"}}}}"#
            )
        };
        let cause = |reason: &str| stop_cause(&parse_event(&line(reason)).unwrap());
        assert_eq!(cause("guest-shutdown"), Some(StopCause::PoweredOff));
        assert_eq!(cause("guest-reset"), Some(StopCause::Reset));
        assert_eq!(cause("host-signal"), Some(StopCause::Host));
        assert!(parse_event(r#"{"return": {}}"#).is_none());
    }

    #[test]
    fn only_the_monitor_answers_with_text() {
        assert_eq!(
            parse_text(r#"{"return": "VM status: running\r\n"}"#).as_deref(),
            Some("VM status: running\r\n")
        );
        for line in [
            r#"{"return": {}}"#,
            r#"{"error": {"class": "GenericError", "desc": "no"}}"#,
            "VM status",
        ] {
            assert_eq!(parse_text(line), None);
        }
    }
}
