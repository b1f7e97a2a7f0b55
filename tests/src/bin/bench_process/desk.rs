//! The file that a load shows its heartbeat in and takes orders from; see
//! `process/tests/programs/load.c`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempPath;

/// Longer than anything here takes.
const WAIT_MAX: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_micros(100);

const BEAT: u64 = 0;
const ASKED: u64 = 1;
const ORDER: u64 = 2;
const ARGUMENT: u64 = 3;
const DONE: u64 = 4;
const RESULT: u64 = 5;

/// Nanoseconds since 1970, as the load counts them.
pub fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

/// One load's file, which is removed with this. The load maps it; what is written here is there at
/// once.
pub struct Desk {
    path: TempPath,
    file: File,
}

impl Desk {
    /// A fresh one, beside the stores and not among them: a file of `/dev/shm` is shared memory, which a
    /// restore makes anew and which no other process may have open meanwhile.
    pub fn new() -> Result<Self, String> {
        let made = tempfile::Builder::new()
            .prefix("dormouse-bench-desk-")
            .tempfile()
            .map_err(|error| format!("the folder of temporary files: {error}"))?;
        let (file, path) = made.into_parts();
        file.set_len(4096)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn word(&self, index: u64) -> Result<u64, String> {
        let mut bytes = [0; 8];
        self.file
            .read_exact_at(&mut bytes, index * 8)
            .map_err(|error| error.to_string())?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn set(&self, index: u64, value: u64) -> Result<(), String> {
        self.file
            .write_all_at(&value.to_ne_bytes(), index * 8)
            .map_err(|error| error.to_string())
    }

    /// Waits for a heartbeat after this moment; when it was. `alive` says why there cannot be one.
    pub fn beat_after(
        &self,
        moment_ns: u64,
        mut alive: impl FnMut() -> Result<(), String>,
    ) -> Result<u64, String> {
        let started = Instant::now();
        loop {
            let beat = self.word(BEAT)?;
            if beat > moment_ns {
                return Ok(beat);
            }
            alive()?;
            if started.elapsed() > WAIT_MAX {
                return Err("the program does not beat".into());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn order(&self, order: u64, argument: u64) -> Result<u64, String> {
        let number = self.word(ASKED)? + 1;
        self.set(ORDER, order)?;
        self.set(ARGUMENT, argument)?;
        self.set(ASKED, number)?;
        let started = Instant::now();
        while self.word(DONE)? != number {
            if started.elapsed() > WAIT_MAX {
                return Err("the program does not follow orders".into());
            }
            std::thread::sleep(LOOK);
        }
        self.word(RESULT)
    }

    /// Makes the load write to `pages` pages, spread over all of its memory.
    pub fn write_pages(&self, pages: u64) -> Result<(), String> {
        self.order(1, pages).map(drop)
    }

    /// Lets the load compare all of its memory with what it must hold.
    pub fn compare(&self) -> Result<(), String> {
        match self.order(2, 0)? {
            0 => Ok(()),
            wrong => Err(format!("{wrong} pages are not what they were")),
        }
    }
}
