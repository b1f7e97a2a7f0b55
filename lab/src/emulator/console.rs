//! The serial console: logged to a file, cut into lines, and passed to whoever is attached.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::emulator::attach;
use crate::error::{Doing, LabError};

/// An error shows this many of the last lines.
const SHOWN_LINES: usize = 50;
/// A longer line (a progress bar without line ends) is cut.
const MAX_LINE_BYTES: usize = 4096;
/// Bytes of earlier output that a newly attached terminal gets.
const RECENT_BYTES: usize = 8192;

/// The last lines of a console, for error messages.
#[derive(Debug, Default)]
pub struct Tail(VecDeque<String>);

impl Tail {
    pub fn push(&mut self, line: &str) {
        if self.0.len() == SHOWN_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line.to_owned());
    }

    /// The lines, indented, under a heading.
    pub fn describe(&self, log: &Path) -> String {
        if self.0.is_empty() {
            return format!("the console ({}) is empty", log.display());
        }
        let lines: String = self.0.iter().map(|line| format!("\n  | {line}")).collect();
        format!("last lines of the console ({}):{lines}", log.display())
    }
}

/// Cuts bytes into lines without control characters.
#[derive(Debug, Default)]
pub struct LineCutter(Vec<u8>);

impl LineCutter {
    pub fn push(&mut self, bytes: &[u8], mut on_line: impl FnMut(String)) {
        for &byte in bytes {
            if byte == b'\n' || self.0.len() == MAX_LINE_BYTES {
                on_line(self.take());
            }
            if byte != b'\n' {
                self.0.push(byte);
            }
        }
    }

    /// The part of an unfinished line that has arrived.
    pub fn take(&mut self) -> String {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned();
        strip_escapes(&line)
    }
}

/// Firmware and boot loader move the cursor and set colours; a log line has no use for that.
fn strip_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if characters.next_if_eq(&'[').is_some() {
                // The sequence ends with its first letter.
                for character in characters.by_ref() {
                    if character.is_ascii_alphabetic() || character == '\u{1b}' {
                        break;
                    }
                }
            }
        } else if !character.is_control() || character == '\t' {
            plain.push(character);
        }
    }
    plain
}

/// The attached terminals.
#[derive(Clone, Default)]
pub struct Taps(Arc<Mutex<TapState>>);

#[derive(Default)]
struct TapState {
    listeners: Vec<UnixStream>,
    recent: VecDeque<u8>,
}

impl Taps {
    fn send(&self, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.recent.extend(bytes);
        let surplus = state.recent.len().saturating_sub(RECENT_BYTES);
        state.recent.drain(..surplus);
        state
            .listeners
            .retain_mut(|listener| listener.write_all(bytes).is_ok());
    }

    fn add(&self, mut listener: UnixStream) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.write_all(state.recent.make_contiguous()).is_ok() {
            state.listeners.push(listener);
        }
    }
}

/// Reads the console to its end: everything into the log and to the taps, line by line to
/// `on_line`.
pub fn follow(mut line: UnixStream, mut log: File, taps: &Taps, mut on_line: impl FnMut(String)) {
    let mut cutter = LineCutter::default();
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = line.read(&mut bytes) {
        // A full disk must not stop the machine.
        let _ = log.write_all(&bytes[..count]);
        taps.send(&bytes[..count]);
        cutter.push(&bytes[..count], &mut on_line);
    }
    let rest = cutter.take();
    if !rest.is_empty() {
        on_line(rest);
    }
}

/// Lets others attach at a socket: they receive the machine's output, and it receives their input.
///
/// # Errors
/// The socket cannot be made there.
pub fn serve(path: &Path, taps: &Taps, console: &UnixStream) -> Result<(), LabError> {
    let listener = attach::listen(path)?;
    let taps = taps.clone();
    let console = console.try_clone().doing("share the console")?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (Ok(mut input), Ok(mut output)) = (stream.try_clone(), console.try_clone()) else {
                continue;
            };
            taps.add(stream);
            thread::spawn(move || std::io::copy(&mut input, &mut output));
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut cutter = LineCutter::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            cutter.push(chunk, |line| lines.push(line));
        }
        lines
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        assert_eq!(lines(&[b"ab", b"c\r\nd", b"\n", b"e"]), ["abc", "d"]);
    }

    #[test]
    fn cursor_movements_do_not_hide_a_line() {
        let text = b"\x1b[2J\x1b[01;01Hdormouse: event\x1b[0m x\n";
        assert_eq!(lines(&[text]), ["dormouse: event x"]);
    }

    #[test]
    fn a_line_without_end_does_not_grow_for_ever() {
        let lines = lines(&[&vec![b'x'; 3 * MAX_LINE_BYTES]]);
        assert!(lines.iter().all(|line| line.len() <= MAX_LINE_BYTES));
        assert!(!lines.is_empty());
    }

    #[test]
    fn an_error_shows_the_last_fifty_lines() {
        let mut tail = Tail::default();
        for number in 0..60 {
            tail.push(&format!("line {number}"));
        }
        let text = tail.describe(Path::new("x.log"));
        assert!(text.contains("line 59") && text.contains("line 10") && !text.contains("line 9\n"));
    }

    #[test]
    fn a_late_reader_sees_the_end_of_the_log() {
        let taps = Taps::default();
        taps.send(b"before ");
        let (ours, theirs) = UnixStream::pair().unwrap();
        taps.add(ours);
        taps.send(b"after");
        let mut bytes = [0; 12];
        let mut theirs = theirs;
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"before after");
    }
}
