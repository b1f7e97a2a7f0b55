//! The annotations of a container that are about persistence, and what they ask for.
//!
//! | annotation | value |
//! |---|---|
//! | `org.dormouse.persist` | the program's name in the store: the container is persisted |
//! | `org.dormouse.persist.CONTAINER` | the same, for one container of a pod by its name |
//! | `org.dormouse.store` | a path in the container (of a volume), or a directory of the node |
//! | `org.dormouse.epoch-interval`, `.budget`, `.deadline`, `.throttle`, `.pause`, `.on-power-loss`, `.then`, `.lease`, `.data` | as the options of `dormouse process run` |
//! | `org.dormouse.changed-files` | `refuse` (default), `accept` or `fresh` |

use std::collections::HashMap;
use std::path::{Component, PathBuf};

use bytesize::ByteSize;
use dormouse_process::power::Source;
use dormouse_process::store::file::path_of;
use dormouse_process::sync::Share;
use jiff::SignedDuration;

/// Every annotation begins with this.
pub const PREFIX: &str = "org.dormouse.";
const PERSIST: &str = "persist";
const STORE: &str = "store";
const CHANGED_FILES: &str = "changed-files";
/// What containerd and CRI-O write about a container of a pod.
const CONTAINER_NAME: [&str; 2] = [
    "io.kubernetes.cri.container-name",
    "io.kubernetes.container.name",
];
const CONTAINER_TYPE: [&str; 2] = [
    "io.kubernetes.cri.container-type",
    "io.kubernetes.cri-o.ContainerType",
];

/// What a container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The program's name in its store.
    pub name: String,
    /// Where the store is, where that is not the default.
    pub store: Option<PathBuf>,
    /// Options of `dormouse process run`.
    pub options: Vec<String>,
}

/// Why annotations cannot be followed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AnnotationError {
    /// No such annotation.
    #[error(
        "annotation {PREFIX}{0}: there is none of that name; there are {PREFIX}persist, store, \
         epoch-interval, budget, deadline, throttle, pause, on-power-loss, then, lease, data, \
         changed-files"
    )]
    Unknown(String),
    /// A value that means nothing.
    #[error("annotation {PREFIX}{key}={value}: {why}")]
    Value {
        /// Which annotation.
        key: String,
        /// What it says.
        value: String,
        /// What is wrong.
        why: String,
    },
    /// Options without a name.
    #[error("annotation {PREFIX}{0} means nothing without {PREFIX}persist=NAME")]
    Alone(String),
}

/// What the annotations ask for; nothing for a container without any.
///
/// # Errors
/// One of them cannot be followed.
pub fn wanted(annotations: &HashMap<String, String>) -> Result<Option<Wanted>, AnnotationError> {
    let of_engine = |keys: [&str; 2]| keys.iter().find_map(|key| annotations.get(*key));
    // The annotations of a pod are also those of the container that holds its namespaces.
    if of_engine(CONTAINER_TYPE).is_some_and(|kind| kind == "sandbox") {
        return Ok(None);
    }
    let container = of_engine(CONTAINER_NAME);
    let mut ours: Vec<(&str, &String)> = annotations
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)))
        .collect();
    ours.sort_unstable();
    let mut names = (None, None);
    let mut of_others = false;
    let mut store = None;
    let mut options = Vec::new();
    for &(key, value) in &ours {
        let wrong = |why: String| AnnotationError::Value {
            key: key.to_owned(),
            value: value.clone(),
            why,
        };
        match key.split_once('.') {
            Some((PERSIST, of)) if Some(of) == container.map(String::as_str) => {
                names.0 = Some(name(value).map_err(wrong)?);
            }
            Some((PERSIST, _)) if container.is_some() => of_others = true,
            Some(_) => return Err(AnnotationError::Unknown(key.to_owned())),
            None if key == PERSIST => names.1 = Some(name(value).map_err(wrong)?),
            None if key == STORE => store = Some(place(value).map_err(wrong)?),
            None if key == CHANGED_FILES => {
                options.extend(changed_files(value).map_err(wrong)?.map(str::to_owned));
            }
            None => {
                let Some(checked) = check(key, value) else {
                    return Err(AnnotationError::Unknown(key.to_owned()));
                };
                checked.map_err(wrong)?;
                let bounds = |(key, _): &(&str, _)| ["budget", "deadline"].contains(key);
                if key == "throttle" && !ours.iter().any(bounds) {
                    return Err(wrong("it needs a budget or a deadline".to_owned()));
                }
                options.extend([format!("--{key}"), value.clone()]);
            }
        }
    }
    match names.0.or(names.1) {
        Some(name) => Ok(Some(Wanted {
            name,
            store,
            options,
        })),
        // In a pod, they are for another of its containers.
        None if of_others => Ok(None),
        None => match ours.first() {
            Some((key, _)) => Err(AnnotationError::Alone((*key).to_owned())),
            None => Ok(None),
        },
    }
}

fn name(value: &str) -> Result<String, String> {
    let directory = std::path::Path::new("/");
    path_of(directory, value).map_err(|error| error.to_string())?;
    Ok(value.to_owned())
}

/// What happens where files have changed that a restore needs, as an option.
fn changed_files(value: &str) -> Result<Option<&'static str>, String> {
    match value {
        "refuse" => Ok(None),
        "accept" => Ok(Some("--accept-changed-files")),
        "fresh" => Ok(Some("--fresh-if-changed")),
        _ => Err("it is refuse, accept or fresh".to_owned()),
    }
}

fn place(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) {
        return Err("it must be an absolute path without `..`".to_owned());
    }
    Ok(path)
}

/// Whether the value of an option means something; nothing when there is no such option.
fn check(key: &str, value: &str) -> Option<Result<(), String>> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    Some(match key {
        "epoch-interval" | "deadline" | "pause" | "lease" => {
            match value.parse::<SignedDuration>() {
                Ok(time) if time > SignedDuration::ZERO => Ok(()),
                Ok(_) => Err("it must be positive".to_owned()),
                Err(error) => Err(format!("write 16ms, 1.5s or 2min ({error})")),
            }
        }
        "throttle" => value.parse::<Share>().map(drop),
        "data" => place(value).map(drop),
        "budget" => value.parse::<ByteSize>().map(drop).map_err(|e| text(&e)),
        "on-power-loss" => value.parse::<Source>().map(drop).map_err(|e| text(&e)),
        "then" => match value {
            "continue" | "kill" | "stop" => Ok(()),
            _ => Err("it is continue, kill or stop".to_owned()),
        },
        _ => return None,
    })
}

#[cfg(test)]
#[path = "annotations_tests.rs"]
mod tests;
