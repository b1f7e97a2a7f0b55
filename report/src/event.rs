//! The timeline event: one JSON object a line, the same record from firmware, kernel and Rust.
//!
//! ```text
//! {"t_ns":1500,"clock":"guest","phase":"suspend","name":"migrate","kind":"begin","detail":{…}}
//!
//! firmware and kernel print the same record on the console:
//! dormouse: event t_ns=1500 phase=suspend name=save-copy kind=end bytes=4096
//! ```

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Marks an event on a console; everything after it on the line is `key=value`.
const CONSOLE_MARKER: &str = "dormouse: event ";
/// A console is untrusted input: a longer line is no event of ours.
const MAX_CONSOLE_LINE_BYTES: usize = 4096;
/// More details than any event of ours has.
const MAX_CONSOLE_DETAILS: usize = 64;

/// Details that give the time at which the host received an event of another clock, in the host's
/// `t_ns`.
pub const HOST_STAMPS: [&str; 2] = ["host_t_ns", "host_ns"];

/// Whose clock `t_ns` was read from; clocks are aligned when a report is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The machine that runs the lab.
    Host,
    /// The operating system that sleeps; stands still while it does.
    Guest,
    /// Counts from that power cycle's reset; firmware reads it, and the kernel's module as well.
    Firmware,
}

impl Clock {
    /// The name used in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Clock::Host => "host",
            Clock::Guest => "guest",
            Clock::Firmware => "firmware",
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Whether something began, ended, or happened at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A span begins.
    Begin,
    /// A span ends.
    End,
    /// Something happens at one instant.
    Mark,
}

impl Kind {
    fn from_name(name: &str) -> Option<Kind> {
        match name {
            "begin" => Some(Kind::Begin),
            "end" => Some(Kind::End),
            "mark" => Some(Kind::Mark),
            _ => None,
        }
    }
}

/// One record of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time on the clock, ns.
    pub t_ns: u64,
    /// The clock that `t_ns` is on.
    pub clock: Clock,
    /// `suspend`, `resume`, `home`, … : what the machine is doing as a whole.
    pub phase: String,
    /// What exactly; a begin and its end have the same clock, phase and name.
    pub name: String,
    /// Begin, end or mark.
    pub kind: Kind,
    /// Further values; names carry units.
    #[serde(default)]
    pub detail: Map<String, Value>,
}

impl Event {
    /// An event without details; add them with [`Event::with`].
    pub fn new(
        t_ns: u64,
        clock: Clock,
        phase: impl Into<String>,
        name: impl Into<String>,
        kind: Kind,
    ) -> Event {
        Event {
            t_ns,
            clock,
            phase: phase.into(),
            name: name.into(),
            kind,
            detail: Map::new(),
        }
    }

    /// Adds (or replaces) one detail.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Event {
        self.detail.insert(key.into(), value.into());
        self
    }

    /// The record as one line of JSON, without the line end.
    pub fn to_line(&self) -> String {
        // Strings, integers and string-keyed maps always serialise.
        serde_json::to_string(self).expect("an event is plain data")
    }

    /// Reads one line of JSON.
    ///
    /// # Errors
    /// The line is not an event.
    pub fn from_line(line: &str) -> Result<Event, serde_json::Error> {
        serde_json::from_str(line)
    }
}

/// Writes events to a file, one JSON object a line, each line at once: a run that is killed
/// leaves every event that it had seen.
pub struct EventWriter<W: Write = BufWriter<File>> {
    output: W,
}

impl EventWriter<BufWriter<File>> {
    /// Starts a new file, replacing an old one.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(EventWriter {
            output: BufWriter::new(File::create(path)?),
        })
    }

    /// Goes on in a file, creating it where there is none.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(EventWriter {
            output: BufWriter::new(file),
        })
    }
}

impl<W: Write> EventWriter<W> {
    /// Writes to anything, for instance standard output.
    pub fn new(output: W) -> Self {
        EventWriter { output }
    }

    /// Writes one event.
    ///
    /// # Errors
    /// What the output reports.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut line = event.to_line();
        line.push('\n');
        self.output.write_all(line.as_bytes())?;
        self.output.flush()
    }

    /// Gives the output back.
    pub fn into_inner(self) -> W {
        self.output
    }
}

/// The event in one line of a firmware or kernel console, or `None` where there is none.
///
/// Both count from reset, so the clock is the firmware's unless the line says `clock=`. A line
/// with a kernel time stamp (`[   12.345678] dormouse: event …`) gets the detail
/// `source: "kernel"`. Whole numbers become JSON numbers, all other values strings. Where a key appears twice, the
/// first counts.
pub fn parse_console_line(line: &str) -> Option<Event> {
    if line.len() > MAX_CONSOLE_LINE_BYTES {
        return None;
    }
    let marker_at = line.find(CONSOLE_MARKER)?;
    let (before, rest) = (
        &line[..marker_at],
        &line[marker_at + CONSOLE_MARKER.len()..],
    );
    let from_kernel = has_kernel_time_stamp(before);

    let (mut t_ns, mut phase, mut name, mut kind, mut clock) = (None, None, None, None, None);
    let mut detail = Map::new();
    for word in rest.split_ascii_whitespace() {
        // Serial consoles mix in escape codes; nothing of ours has control characters.
        let word = word.trim_matches(char::is_control);
        let Some((key, value)) = word.split_once('=') else {
            continue;
        };
        if key.is_empty() || value.is_empty() {
            continue;
        }
        match key {
            "t_ns" if t_ns.is_none() => t_ns = Some(value.parse::<u64>().ok()?),
            "phase" if phase.is_none() => phase = Some(value),
            "name" if name.is_none() => name = Some(value),
            "kind" if kind.is_none() => kind = Some(Kind::from_name(value)?),
            "clock" if clock.is_none() => clock = Some(clock_from_name(value)?),
            "t_ns" | "phase" | "name" | "kind" | "clock" => {}
            _ if detail.len() < MAX_CONSOLE_DETAILS => {
                detail.entry(key).or_insert_with(|| detail_value(value));
            }
            _ => {}
        }
    }
    if from_kernel {
        detail.insert("source".to_owned(), Value::from("kernel"));
    }
    Some(Event {
        t_ns: t_ns?,
        clock: clock.unwrap_or(Clock::Firmware),
        phase: phase?.to_owned(),
        name: name?.to_owned(),
        kind: kind?,
        detail,
    })
}

fn clock_from_name(name: &str) -> Option<Clock> {
    [Clock::Host, Clock::Guest, Clock::Firmware]
        .into_iter()
        .find(|clock| clock.as_str() == name)
}

fn detail_value(text: &str) -> Value {
    if let Ok(number) = text.parse::<u64>() {
        Value::from(number)
    } else if let Ok(number) = text.parse::<i64>() {
        Value::from(number)
    } else {
        Value::from(text)
    }
}

/// `[    1.234567]` as printk writes it; coreboot's prefix is `[NOTE ]`.
fn has_kernel_time_stamp(text: &str) -> bool {
    text.split('[').skip(1).any(|part| {
        part.split_once(']').is_some_and(|(stamp, _)| {
            stamp
                .trim_start()
                .split_once('.')
                .is_some_and(|(seconds, fraction)| {
                    let digits =
                        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                    digits(seconds) && digits(fraction)
                })
        })
    })
}

/// Writes `events.jsonl` of a directory.
#[cfg(test)]
pub(crate) fn write_events(directory: &Path, events: &[Event]) {
    std::fs::create_dir_all(directory).unwrap();
    let mut writer = EventWriter::create(directory.join("events.jsonl")).unwrap();
    for event in events {
        writer.write(event).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_event_has_exactly_the_documented_form() {
        let event = Event::new(42, Clock::Host, "suspend", "migrate", Kind::Begin).with("bytes", 7);
        assert_eq!(
            event.to_line(),
            r#"{"t_ns":42,"clock":"host","phase":"suspend","name":"migrate","kind":"begin","detail":{"bytes":7}}"#
        );
    }

    #[test]
    fn a_missing_detail_is_read_as_an_empty_one() {
        let line = r#"{"t_ns":1,"clock":"guest","phase":"p","name":"n","kind":"mark"}"#;
        assert!(Event::from_line(line).unwrap().detail.is_empty());
    }

    #[test]
    fn a_firmware_line_becomes_a_firmware_event() {
        let line = "[NOTE ]  dormouse: event t_ns=12 phase=resume name=restore-copy kind=end \
                    bytes=4096 method=movnti detail=0xff\r";
        let event = parse_console_line(line).unwrap();
        assert_eq!(
            (event.t_ns, event.clock, event.kind),
            (12, Clock::Firmware, Kind::End)
        );
        assert_eq!(
            (event.phase.as_str(), event.name.as_str()),
            ("resume", "restore-copy")
        );
        assert_eq!(event.detail["bytes"], 4096);
        assert_eq!(event.detail["method"], "movnti");
        assert_eq!(event.detail["detail"], "0xff");
        assert!(!event.detail.contains_key("source"));
    }

    #[test]
    fn a_kernel_line_is_an_event_of_the_kernel_on_the_reset_clock() {
        for line in [
            "[   12.345678] dormouse: event t_ns=9 phase=suspend name=prepare kind=begin",
            "<5>[    0.000000][    T1] dormouse: event t_ns=9 phase=suspend name=prepare kind=begin",
        ] {
            let event = parse_console_line(line).unwrap();
            assert_eq!(event.clock, Clock::Firmware);
            assert_eq!(event.detail["source"], "kernel");
        }
    }

    #[test]
    fn a_line_can_name_its_clock() {
        let line = "[ 1.5] dormouse: event t_ns=9 clock=guest phase=p name=n kind=mark";
        assert_eq!(parse_console_line(line).unwrap().clock, Clock::Guest);
    }

    #[test]
    fn lines_that_are_no_event_give_none() {
        let long = format!(
            "dormouse: event t_ns=1 phase=p name=n kind=mark x={}",
            "y".repeat(5000)
        );
        for line in [
            "",
            "dormouse: cold boot: no-image: nothing was ever written here (detail 0x0)",
            "dormouse: event t_ns=-1 phase=p name=n kind=mark",
            "dormouse: event t_ns=1 phase=p name=n kind=maybe",
            "dormouse: event t_ns=1 phase=p kind=mark",
            "dormouse: event phase=p name=n kind=mark",
            "dormouse: event t_ns=99999999999999999999999 phase=p name=n kind=mark",
            &long,
        ] {
            assert_eq!(parse_console_line(line), None, "{line}");
        }
    }

    #[test]
    fn a_writer_leaves_whole_lines_that_read_back() {
        let mut writer = EventWriter::new(Vec::new());
        let hostile =
            Event::new(1, Clock::Guest, "a\nb", "\"</script>", Kind::Mark).with("é", "\0");
        writer.write(&hostile).unwrap();
        writer.write(&hostile).unwrap();
        let text = String::from_utf8(writer.into_inner()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(Event::from_line(lines[0]).unwrap(), hostile);
    }

    #[test]
    fn appending_keeps_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let event = Event::new(1, Clock::Host, "p", "n", Kind::Mark);
        EventWriter::create(&path).unwrap().write(&event).unwrap();
        EventWriter::append(&path).unwrap().write(&event).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    }

    proptest! {
        #[test]
        fn no_console_line_makes_the_parser_panic(line in ".{0,200}") {
            let _ = parse_console_line(&line);
            let _ = parse_console_line(&format!("dormouse: event {line}"));
        }
    }
}
