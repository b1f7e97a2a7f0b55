//! What all steps of one build share: options, cache, sources, progress and the archive's files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BuildError, BuildEvent, BuildOptions, BuildProgress, Step, StepReport, source_root};
use crate::apt::{AptError, ArchiveFile};
use crate::cache::{Cache, CacheLock, Key, sha256_of_file};

/// One build.
pub(crate) struct Context<'a> {
    pub options: &'a BuildOptions,
    pub progress: &'a dyn BuildProgress,
    pub cache: Cache,
    /// Root of the project's sources.
    pub sources: PathBuf,
    /// apt's private state serves one apt at a time.
    archive: Mutex<()>,
    reports: Mutex<Vec<StepReport>>,
    _lock: CacheLock,
}

/// An artefact and the key that it has; what depends on it takes the key as an input.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub path: PathBuf,
    pub key: String,
}

/// One step while it runs.
pub(crate) struct Running<'a> {
    context: &'a Context<'a>,
    step: Step,
    start: Instant,
    fetched_bytes: Mutex<u64>,
}

impl<'a> Context<'a> {
    /// Begins a build: waits until no other one uses this part of the cache.
    pub fn open(
        options: &'a BuildOptions,
        progress: &'a dyn BuildProgress,
        part: Option<&str>,
    ) -> Result<Self, BuildError> {
        let whole = Cache::open()?;
        let cache = match part {
            Some(part) => whole.part(part)?,
            None => whole,
        };
        Ok(Context {
            options,
            progress,
            sources: source_root()?,
            archive: Mutex::default(),
            reports: Mutex::default(),
            _lock: cache.lock(|| progress.event(BuildEvent::Waiting))?,
            cache,
        })
    }

    /// Ends it: what each step did, and the cache without what nobody has used for long.
    pub fn end(&self) -> Result<Vec<StepReport>, BuildError> {
        self.cache.collect_garbage(SystemTime::now())?;
        Ok(self.take_reports())
    }

    pub fn begin(&self, step: Step) -> Running<'_> {
        Running {
            context: self,
            step,
            start: Instant::now(),
            fetched_bytes: Mutex::new(0),
        }
    }

    pub fn warn(&self, message: String) {
        self.progress.event(BuildEvent::Warning { message });
    }

    /// What the archives answered last, if that is younger than `valid`, or nothing else is to be
    /// had; otherwise `ask` asks them. `name` is what is asked for, where there is no answer.
    pub fn remembered<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        valid: Duration,
        ask: impl FnOnce() -> Result<T, AptError>,
    ) -> Result<T, BuildError> {
        let known = self.cache.state_folder("source.json");
        let read = || -> Option<T> { serde_json::from_slice(&fs::read(&known).ok()?).ok() };
        let fresh = fs::metadata(&known)
            .and_then(|facts| facts.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age < valid));
        if let Some(answer) = read().filter(|_| fresh || self.options.offline) {
            return Ok(answer);
        }
        if self.options.offline {
            return Err(AptError::Offline(name.into()).into());
        }
        match (ask(), read()) {
            (Ok(answer), _) => {
                let text = serde_json::to_vec(&answer).expect("names and digests are plain data");
                fs::write(&known, text).map_err(BuildError::io("write", &known))?;
                Ok(answer)
            }
            (Err(error), Some(answer)) => {
                self.warn(format!("{name} known so far is used: {error}"));
                Ok(answer)
            }
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Takes a step's artefact from the cache or makes it.
    pub fn make(
        &self,
        step: Step,
        key: &Key,
        detail: &str,
        fill: impl FnOnce(&Running<'_>, &Path) -> Result<(), BuildError>,
    ) -> Result<Made, BuildError> {
        let running = self.begin(step);
        if let Some(path) = self.cache.artefact(step.name(), key) {
            running.finish(true, detail);
            return Ok(Made {
                path,
                key: key.digest(),
            });
        }
        running.started()?;
        let path = self
            .cache
            .make(step.name(), key, |work| fill(&running, work))?;
        running.finish(false, detail);
        Ok(Made {
            path,
            key: key.digest(),
        })
    }

    /// The reports of all finished steps, in display order.
    pub fn take_reports(&self) -> Vec<StepReport> {
        let mut reports = std::mem::take(&mut *lock(&self.reports));
        reports.sort_by_key(|report| report.step);
        reports
    }
}

impl Running<'_> {
    /// Says that there is something to do, and starts a fresh log.
    pub fn started(&self) -> Result<(), BuildError> {
        let log = self.log()?;
        fs::write(&log, "").map_err(BuildError::io("write", log))?;
        self.context
            .progress
            .event(BuildEvent::Started { step: self.step });
        Ok(())
    }

    pub fn activity(&self, activity: impl Into<String>) {
        let activity = activity.into();
        self.context.progress.event(BuildEvent::Activity {
            step: self.step,
            activity,
        });
    }

    /// Where the programs of this step write what they print.
    pub fn log(&self) -> Result<PathBuf, BuildError> {
        Ok(self
            .context
            .cache
            .folder("logs")?
            .join(format!("{}.log", self.step.name())))
    }

    pub fn finish(self, cached: bool, detail: &str) {
        let report = StepReport {
            step: self.step,
            cached,
            seconds: self.start.elapsed().as_secs_f64(),
            fetched_bytes: *lock(&self.fetched_bytes),
            detail: detail.to_string(),
        };
        self.context
            .progress
            .event(BuildEvent::Finished(report.clone()));
        lock(&self.context.reports).push(report);
    }

    /// The paths of these files of the archive; `fetch` gets those that are not there yet.
    pub fn files(
        &self,
        files: &[ArchiveFile],
        fetch: impl FnOnce(&[ArchiveFile], &Path, &dyn Fn(f64)) -> Result<(), AptError>,
    ) -> Result<Vec<PathBuf>, BuildError> {
        let folder = self.context.cache.folder("downloads")?;
        let path = |file: &ArchiveFile| folder.join(&file.name);
        let _one_at_a_time = lock(&self.context.archive);
        let mut missing = Vec::new();
        for file in files {
            if !is_right(&path(file), file)? {
                missing.push(file.clone());
            }
        }
        if !missing.is_empty() {
            self.fetch(&missing, &folder, fetch)?;
        }
        for file in &missing {
            if !is_right(&path(file), file)? {
                return Err(AptError::WrongFile(path(file)).into());
            }
        }
        Ok(files.iter().map(path).collect())
    }

    fn fetch(
        &self,
        missing: &[ArchiveFile],
        folder: &Path,
        fetch: impl FnOnce(&[ArchiveFile], &Path, &dyn Fn(f64)) -> Result<(), AptError>,
    ) -> Result<(), BuildError> {
        if self.context.options.offline {
            return Err(AptError::Offline(missing[0].name.clone()).into());
        }
        for file in missing {
            // apt takes a file of the right name for fetched.
            let _ = fs::remove_file(folder.join(&file.name));
        }
        let total_bytes: u64 = missing.iter().map(|file| file.bytes).sum();
        let what = if missing.len() == 1 { "file" } else { "files" };
        self.activity(format!("fetching {} {what}", missing.len()));
        let step = self.step;
        fetch(missing, folder, &|percent| {
            let done_bytes = (total_bytes as f64 * percent.clamp(0.0, 100.0) / 100.0) as u64;
            self.context.progress.event(BuildEvent::Bytes {
                step,
                done_bytes,
                total_bytes,
            });
        })?;
        *lock(&self.fetched_bytes) += total_bytes;
        Ok(())
    }
}

fn is_right(path: &Path, file: &ArchiveFile) -> Result<bool, BuildError> {
    match fs::metadata(path) {
        Ok(facts) if facts.len() == file.bytes => Ok(sha256_of_file(path)? == file.sha256),
        _ => Ok(false),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
