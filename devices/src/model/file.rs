//! A recording as a file: written atomically, checked when read.

use std::fs;
use std::path::{Path, PathBuf};

use dormouse_system::file::{self, Durability};

use super::Recording;

/// The value of `format` in every recording.
pub const FORMAT: &str = "dormouse-devices";
/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system refuses.
    #[error(transparent)]
    Access(#[from] file::FileError),
    /// It is not JSON, or not a recording.
    #[error("{}: not a recording: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
    /// It is a recording of something else, or of another version.
    #[error(
        "{}: has the format {format:?} version {version}; this program reads {FORMAT:?} up to \
         version {VERSION}", path.display()
    )]
    /// It has another format or a newer version.
    Version {
        /// The file.
        path: PathBuf,
        /// The format in the file.
        format: String,
        /// The version in the file.
        version: u32,
    },
    /// A number in it names a device that does not exist.
    #[error("{}: {what}", path.display())]
    Inconsistent {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Recording {
    /// Reads a recording and checks that every number in it names something.
    ///
    /// # Errors
    /// It cannot be read, is none, is of a newer version, or contradicts itself.
    pub fn load(path: &Path) -> Result<Recording, FileError> {
        let bytes = fs::read(path).map_err(file::FileError::new(path, "read"))?;
        Recording::from_json(&bytes, path)
    }

    /// The same from bytes; `path` is for messages.
    ///
    /// # Errors
    /// As [`Recording::load`].
    pub fn from_json(bytes: &[u8], path: &Path) -> Result<Recording, FileError> {
        let recording: Recording =
            serde_json::from_slice(bytes).map_err(|source| FileError::Json {
                path: path.to_owned(),
                source,
            })?;
        if recording.head.format != FORMAT || recording.head.version > VERSION {
            return Err(FileError::Version {
                path: path.to_owned(),
                format: recording.head.format,
                version: recording.head.version,
            });
        }
        recording.check().map_err(|what| FileError::Inconsistent {
            path: path.to_owned(),
            what,
        })?;
        Ok(recording)
    }

    fn check(&self) -> Result<(), String> {
        let count = self.graph.devices.len();
        let known = |device: usize, place: &str| {
            if device < count {
                Ok(())
            } else {
                Err(format!(
                    "{place} names device {device}, and there are {count}"
                ))
            }
        };
        for (index, device) in self.graph.devices.iter().enumerate() {
            if let Some(parent) = device.parent {
                known(parent, &format!("device {index} ({})", device.name))?;
            }
        }
        for (index, link) in self.graph.links.iter().enumerate() {
            known(link.supplier, &format!("link {index}"))?;
            known(link.consumer, &format!("link {index}"))?;
        }
        for (number, cycle) in self.cycles.iter().enumerate() {
            for (index, callback) in cycle.callbacks.iter().enumerate() {
                let place = format!("callback {index} of cycle {}", number + 1);
                known(callback.device, &place)?;
                if callback.end_ns < callback.begin_ns {
                    return Err(format!("{place} ends before it begins"));
                }
            }
            for span in &cycle.phases {
                if span.end_ns < span.begin_ns {
                    return Err(format!(
                        "{} of cycle {} ends before it begins",
                        span.name,
                        number + 1
                    ));
                }
            }
        }
        Ok(())
    }

    /// Writes the recording beside `path` and moves it there, so that a reader sees the old or
    /// the new one and never a part.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        Ok(file::replace_json(path, self, Durability::Disk)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Callback, Cycle, Device, DevicePhase, PhaseSpan};

    fn sample() -> Recording {
        Recording {
            graph: crate::model::Graph {
                devices: vec![Device {
                    name: "a".into(),
                    ..Device::default()
                }],
                links: vec![],
            },
            cycles: vec![Cycle {
                phases: vec![PhaseSpan {
                    name: "dpm_suspend".into(),
                    value: 2,
                    begin_ns: 1,
                    end_ns: 9,
                }],
                callbacks: vec![Callback {
                    device: 0,
                    phase: DevicePhase::Suspend,
                    begin_ns: 2,
                    end_ns: 5,
                    level: "bus".into(),
                    thread: 7,
                    busy_ns: Some(1),
                    delayed_ns: 1,
                    error: 0,
                }],
                idle: vec![],
                freezing: vec![],
                complete: true,
            }],
            ..Recording::default()
        }
    }

    #[test]
    fn a_recording_reads_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording.json");
        sample().save(&path).unwrap();
        assert_eq!(Recording::load(&path).unwrap(), sample());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let mut newer = sample();
        newer.head.version = VERSION + 1;
        let text = serde_json::to_vec(&newer).unwrap();
        let error = Recording::from_json(&text, Path::new("x")).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
    }

    #[test]
    fn numbers_that_name_nothing_are_refused() {
        let mut bad = sample();
        bad.cycles[0].callbacks[0].device = 1;
        let text = serde_json::to_vec(&bad).unwrap();
        let error = Recording::from_json(&text, Path::new("x")).unwrap_err();
        assert!(
            error.to_string().contains("callback 0 of cycle 1"),
            "{error}"
        );
        let mut bad = sample();
        bad.cycles[0].phases[0].end_ns = 0;
        let text = serde_json::to_vec(&bad).unwrap();
        assert!(Recording::from_json(&text, Path::new("x")).is_err());
    }
}
