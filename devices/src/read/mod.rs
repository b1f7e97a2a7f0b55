//! Reads what others recorded: ftrace's text, `trace-cmd report`'s, trace.dat, kernel logs.
//!
//! ```text
//! line ──ftrace──▶ TraceEvent ──trace──┐
//!                                      ├──▶ cycles, and devices by name (names) ──▶ Recording
//! line ──klog────▶ LogEvent ───log─────┘
//! ```
//!
//! Files may come from machines that crashed or lost events, and may be forged. A damaged line is
//! counted, with its number, and ends the reading only with `strict`; nothing panics.

pub mod ftrace;
pub mod klog;
mod klog_cycles;
pub mod names;
pub mod switches;
pub mod trace;
mod trace_dat;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::model::{FileError, Recording};

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A recording of ours that cannot be read.
    #[error(transparent)]
    Recording(#[from] FileError),
    /// The file system refuses.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// Nothing that this program knows.
    #[error(
        "{}: neither a recording, nor a trace with the events suspend_resume and \
         device_pm_callback_start, nor a kernel log with timings of devices; record one with \
         `dormouse devices record`, or with `trace-cmd record -e power:suspend_resume -e \
         power:device_pm_callback_start -e power:device_pm_callback_end`", path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// A line is damaged, and damage was not to be tolerated; or no line can be used.
    #[error("{}: line {line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with the line.
        what: String,
    },
    /// A trace.dat, and nothing to read it with.
    #[error(
        "{}: is a trace.dat; reading it needs the program trace-cmd (Debian: apt install \
         trace-cmd), or give the output of `trace-cmd report -t`: {why}", path.display()
    )]
    TraceDat {
        /// The file.
        path: PathBuf,
        /// Why it could not be read.
        why: String,
    },
}

/// A line that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// From 1.
    pub line: usize,
    /// What is wrong with the line.
    pub what: String,
}

/// The result of reading a text.
#[derive(Debug, Default)]
pub struct Read {
    /// The recording.
    pub recording: Recording,
    /// The damaged lines.
    pub damages: Vec<Damage>,
}

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A recording as JSON.
    Recording,
    /// Text of ftrace or trace-cmd.
    TraceText,
    /// A kernel log.
    KernelLog,
    /// A binary trace of trace-cmd.
    TraceDat,
}

/// trace.dat begins with these bytes (`trace-cmd.dat(5)`).
const TRACE_DAT_MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// What a file holds, by its contents.
pub fn kind_of(bytes: &[u8]) -> Option<Kind> {
    if bytes.starts_with(TRACE_DAT_MAGIC) {
        return Some(Kind::TraceDat);
    }
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        return Some(Kind::Recording);
    }
    let mut log = false;
    for line in bytes.split(|&byte| byte == b'\n') {
        let has = |needle: &str| {
            line.windows(needle.len())
                .any(|part| part == needle.as_bytes())
        };
        if has(" suspend_resume:") || has(" device_pm_callback_") {
            return Some(Kind::TraceText);
        }
        log |= has("of devices complete after") || has(" usecs") || has("PM: suspend entry");
    }
    log.then_some(Kind::KernelLog)
}

/// Reads any file that holds suspends. With `strict`, the first damaged line is an error;
/// without, damages become a note of the recording.
///
/// # Errors
/// The file cannot be read or holds no suspend.
pub fn read(path: &Path, strict: bool) -> Result<Recording, ReadError> {
    // A directory is one that `record` wrote.
    let inside = path.join("recording.json");
    let path = if path.is_dir() {
        inside.as_path()
    } else {
        path
    };
    let bytes = fs::read(path).map_err(|source| ReadError::Io {
        path: path.to_owned(),
        source,
    })?;
    let unknown = || ReadError::Unknown {
        path: path.to_owned(),
    };
    let result = match kind_of(&bytes).ok_or_else(unknown)? {
        Kind::Recording => return Ok(Recording::from_json(&bytes, path)?),
        Kind::TraceText => trace::read(&String::from_utf8_lossy(&bytes)),
        Kind::KernelLog => klog_cycles::read(&String::from_utf8_lossy(&bytes)),
        Kind::TraceDat => trace::read(&trace_dat::text_of(path)?),
    };
    let mut recording = judged(path, result, strict)?;
    if recording.cycles.is_empty() {
        return Err(unknown());
    }
    recording.machine.source = path.display().to_string();
    Ok(recording)
}

fn judged(path: &Path, result: Read, strict: bool) -> Result<Recording, ReadError> {
    let Read {
        mut recording,
        damages,
    } = result;
    let Some(first) = damages.first() else {
        return Ok(recording);
    };
    if strict || recording.cycles.is_empty() {
        return Err(ReadError::Line {
            path: path.to_owned(),
            line: first.line,
            what: first.what.clone(),
        });
    }
    let more = match damages.len() {
        1 => String::new(),
        many => format!(", and {} more lines", many - 1),
    };
    recording
        .notes
        .push(format!("line {}: {}{more}", first.line, first.what));
    Ok(recording)
}
