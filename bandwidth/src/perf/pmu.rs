//! A performance monitoring unit in sysfs: its type, the bits of its terms, and its named events.
//!
//! ```text
//!  /sys/bus/event_source/devices/cxl_pmu_mem0.0/
//!    type                     12
//!    cpumask                  0                      where it is counted; none: on every CPU
//!    format/gid               config:32-47           or several parts: config:0-7,32-35
//!    events/m2s_req_memrd     config=0x1e98002000000002     or terms: event=0x4,umask=0x3
//!    events/….scale, ….unit   6.103515625e-5, MiB
//! ```
//!
//! Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-{format,events} of Linux.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use perf_event::events::Event;
use perf_event_open_sys::bindings::perf_event_attr;

use super::numbers;

/// The kernel's PMUs.
pub const DEVICES: &str = "/sys/bus/event_source/devices";

/// Why an event cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PmuError {
    #[error("this machine has no PMU {0:?}")]
    None(String),
    #[error("{path}: {text:?} cannot be parsed")]
    Text { path: PathBuf, text: String },
    #[error("the PMU {pmu:?} has no event or term {term:?}; it has {has}")]
    Unknown {
        pmu: String,
        term: String,
        has: String,
    },
    #[error("{term:?} needs a value, or has one that is too large")]
    Value { term: String },
}

/// The word of an event and its bits, lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    word: usize,
    bits: Vec<(u32, u32)>,
}

/// A resolved event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PmuEvent {
    pub kind: u32,
    /// `config`, `config1`, `config2`, `config3`.
    pub words: [u64; 4],
    /// Bytes of one count, where sysfs defines a scale.
    pub bytes: Option<f64>,
}

impl Event for PmuEvent {
    fn update_attrs(self, attr: &mut perf_event_attr) {
        attr.type_ = self.kind;
        [attr.config, attr.config1, attr.config2, attr.config3] = self.words;
    }
}

/// One PMU.
#[derive(Clone, Debug)]
pub struct Pmu {
    name: String,
    folder: PathBuf,
    kind: u32,
    fields: HashMap<String, Field>,
    /// CPUs on which it is counted; empty: every CPU.
    pub cpus: Vec<u32>,
}

/// Events of the PMU `software`, which has no names in sysfs (`enum perf_sw_ids`).
const SOFTWARE: [(&str, u64); 3] = [("page-faults", 2), ("minor-faults", 5), ("major-faults", 6)];

impl Pmu {
    /// A PMU in a folder of PMUs.
    ///
    /// # Errors
    /// It does not exist, or cannot be parsed.
    pub fn open(devices: &Path, name: &str) -> Result<Self, PmuError> {
        let folder = devices.join(name);
        let read = |file: &str| fs::read_to_string(folder.join(file));
        let text = read("type").map_err(|_| PmuError::None(name.to_owned()))?;
        let kind = text.trim().parse().map_err(|_| PmuError::Text {
            path: folder.join("type"),
            text: text.trim().to_owned(),
        })?;
        let mut fields = HashMap::new();
        for entry in fs::read_dir(folder.join("format")).into_iter().flatten() {
            let Ok(entry) = entry else { continue };
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            // Unknown formats of a newer kernel are ignored until they are used.
            if let (Ok(name), Some(field)) = (entry.file_name().into_string(), field(&text)) {
                fields.insert(name, field);
            }
        }
        let cpus = read("cpumask").or_else(|_| read("cpus"));
        Ok(Self {
            name: name.to_owned(),
            kind,
            fields,
            cpus: numbers(&cpus.unwrap_or_default()),
            folder,
        })
    }

    /// Its name in sysfs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is such an event or format.
    pub fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name) || self.folder.join("events").join(name).is_file()
    }

    /// Resolves an event: a name, terms as perf takes them (`event=0x4,umask=0x3`), or a name and
    /// the terms that it needs (`mem-loads,ldlat=30`).
    ///
    /// # Errors
    /// The PMU does not have it, or a value does not fit.
    pub fn event(&self, text: &str) -> Result<PmuEvent, PmuError> {
        let (first, rest) = text.split_once(',').unwrap_or((text, ""));
        let first = first.trim();
        let path = self.folder.join("events").join(first);
        // A name contains no path.
        let named = first.bytes().all(|byte| byte != b'/' && byte != b'=');
        let known = named.then(|| fs::read_to_string(&path).ok()).flatten();
        let software = SOFTWARE.iter().find(|(name, _)| *name == first);
        let mut event = PmuEvent {
            kind: self.kind,
            words: [0; 4],
            bytes: None,
        };
        match (&known, software) {
            (Some(terms), _) => {
                // `ldlat=?` is a placeholder that the caller fills in.
                let given = |term: &&str| !term.trim_end().ends_with("=?");
                for term in terms.split(',').filter(given) {
                    self.set(&mut event.words, term)?;
                }
                event.bytes = unit(&path);
            }
            (None, Some((_, config))) if self.name == "software" => event.words[0] = *config,
            _ => self.set(&mut event.words, first)?,
        }
        for term in rest.split(',').filter(|term| !term.trim().is_empty()) {
            self.set(&mut event.words, term)?;
        }
        for term in known.iter().flat_map(|terms| terms.split(',')) {
            if let Some(name) = term.trim().strip_suffix("=?")
                && !rest.split(',').any(|given| name_of(given) == name)
            {
                let term = name.to_owned();
                return Err(PmuError::Value { term });
            }
        }
        Ok(event)
    }

    /// One term: `name=value`; without a value, 1.
    fn set(&self, words: &mut [u64; 4], term: &str) -> Result<(), PmuError> {
        let term = term.trim();
        let (name, value) = match term.split_once('=') {
            Some((name, text)) => (name, number(text)),
            None => (term, Some(1)),
        };
        let wrong = || PmuError::Value {
            term: term.to_owned(),
        };
        let value = value.ok_or_else(wrong)?;
        if let Some(word) = word(name) {
            words[word] = value;
            return Ok(());
        }
        let Some(field) = self.fields.get(name) else {
            return Err(self.unknown(name));
        };
        let mut left = value;
        for &(low, high) in &field.bits {
            let mask = u64::MAX >> (63 - (high - low));
            words[field.word] = words[field.word] & !(mask << low) | (left & mask) << low;
            left = left.checked_shr(high - low + 1).unwrap_or(0);
        }
        if left == 0 { Ok(()) } else { Err(wrong()) }
    }

    fn unknown(&self, term: &str) -> PmuError {
        let events = fs::read_dir(self.folder.join("events"));
        let names = events.into_iter().flatten().flatten();
        let mut has: Vec<String> = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.contains('.'))
            .chain(self.fields.keys().map(|name| format!("{name}=…")))
            .collect();
        has.sort();
        let has = if has.is_empty() {
            "none with a name".to_owned()
        } else {
            has.join(", ")
        };
        PmuError::Unknown {
            pmu: self.name.clone(),
            term: term.to_owned(),
            has,
        }
    }
}

fn name_of(term: &str) -> &str {
    term.trim().split('=').next().unwrap_or_default()
}

/// Index of `config`, `config1`, …
fn word(name: &str) -> Option<usize> {
    ["config", "config1", "config2", "config3"]
        .iter()
        .position(|one| *one == name)
}

/// A number in C syntax, without octal.
fn number(text: &str) -> Option<u64> {
    match text.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

/// `config:0-7,32-35`.
fn field(text: &str) -> Option<Field> {
    let (name, parts) = text.trim().split_once(':')?;
    let part = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (low.parse::<u32>().ok()?, high.parse::<u32>().ok()?);
        (low <= high && high < 64).then_some((low, high))
    };
    Some(Field {
        word: word(name)?,
        bits: parts.split(',').map(part).collect::<Option<_>>()?,
    })
}

/// Bytes of one count, from an event's `.scale` and `.unit`.
fn unit(event: &Path) -> Option<f64> {
    let read = |suffix: &str| {
        let mut path = event.as_os_str().to_owned();
        path.push(suffix);
        fs::read_to_string(PathBuf::from(path)).ok()
    };
    let scale: f64 = read(".scale")?.trim().parse().ok()?;
    let bytes = match read(".unit")?.trim() {
        "B" | "Bytes" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    (scale > 0.0 && scale.is_finite()).then_some(scale * bytes)
}

#[cfg(test)]
#[path = "pmu_tests.rs"]
mod tests;
