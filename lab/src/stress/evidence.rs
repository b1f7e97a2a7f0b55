//! Files that are kept of a cycle: all of a failed one, and those of the last few successful ones.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_image::{State, edit};

use super::class::Class;
use super::line::StressLine;
use crate::error::{Doing, LabError};
use crate::machine::Machine;
use crate::machine::image_file::{DeviceFile, HEADERS_BYTES};

/// Number of successful power-ons with logs that are kept.
const KEPT_POWER_ONS: u32 = 6;
/// Memory and disks are large: they are kept of the first failures only.
const KEPT_CONTENTS: usize = 3;
/// Both copies of the image's header and its bitmaps lie in the first part of the CXL memory.
const HEAD_BYTES: usize = 2 << 20;

/// Where a cycle's traces begin, and what the CXL device held before it was woken.
pub struct Traces {
    first_power_on: u32,
    console_from: u64,
    events_from: u64,
    /// The image's generation when the cycle began.
    generation: u64,
    head: Vec<u8>,
}

impl Traces {
    /// At the cycle's beginning.
    pub fn begin(machine: &Machine) -> Traces {
        let length = |path: PathBuf| fs::metadata(path).map_or(0, |facts| facts.len());
        let first_power_on = machine.power_ons();
        Traces {
            first_power_on,
            console_from: length(machine.console_log(first_power_on)),
            events_from: length(machine.events_file()),
            generation: newest(&head_of(machine)).map_or(0, |(generation, _)| generation),
            head: Vec::new(),
        }
    }

    /// Before a power-on: what firmware will find.
    pub fn note_image(&mut self, machine: &Machine) {
        self.head = head_of(machine);
    }

    /// The state of the image that was noted last, by its name; empty where no header is valid.
    pub fn image_state(&self) -> &'static str {
        newest(&self.head).map_or("", |(_, state)| state.name())
    }

    /// Whether that image was committed in this cycle and is not consumed: firmware must resume it.
    pub fn is_resumable(&self) -> bool {
        newest(&self.head).is_some_and(|(generation, state)| {
            generation > self.generation && [State::SUSPENDED, State::RESTORING].contains(&state)
        })
    }

    /// The consoles' text of this cycle.
    pub fn console(&self, machine: &Machine) -> String {
        let first = read_from(&machine.console_log(self.first_power_on), self.console_from);
        let later = (self.first_power_on + 1..=machine.power_ons())
            .map(|power_on| read_from(&machine.console_log(power_on), 0));
        std::iter::once(first).chain(later).collect()
    }

    /// Keeps a failed cycle in `folder`.
    ///
    /// # Errors
    /// Files cannot be written there.
    pub fn keep(
        &self,
        machine: &Machine,
        folder: &Path,
        line: &StressLine,
        earlier_failures: usize,
    ) -> Result<(), LabError> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).doing(format!("create {}", folder.display()))?;
        let put = |name: &str, bytes: &[u8]| {
            fs::write(folder.join(name), bytes).doing(format!("write {name} of a failed cycle"))
        };
        let first = self.first_power_on.max(1);
        for power_on in first..=machine.power_ons() {
            for log in [
                machine.console_log(power_on),
                machine.emulator_log(power_on),
            ] {
                if let (Some(name), true) = (log.file_name(), log.exists()) {
                    fs::copy(&log, folder.join(name)).doing(format!("keep {}", log.display()))?;
                }
            }
        }
        put(
            "events.jsonl",
            read_from(&machine.events_file(), self.events_from).as_bytes(),
        )?;
        let text = serde_json::to_string_pretty(line).expect("plain data");
        put("cycle.json", text.as_bytes())?;
        put("cxl-head-before-power-on.bin", &self.head)?;
        if earlier_failures < KEPT_CONTENTS {
            copy_sparse(&machine.cxl_file(), &folder.join("cxl.mem"));
            if line.class.is_some_and(Class::concerns_disks) {
                copy_sparse(&machine.disk(), &folder.join("disk.qcow2"));
                copy_sparse(&machine.scratch_disk(), &folder.join("scratch.img"));
            }
        }
        Ok(())
    }
}

fn head_of(machine: &Machine) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    let read = DeviceFile::with_header(machine).and_then(|file| file.read(&mut head, 0));
    if read.is_err() { Vec::new() } else { head }
}

/// Generation and state of the header that counts.
fn newest(head: &[u8]) -> Option<(u64, State)> {
    let window = head.get(..HEADERS_BYTES)?;
    let copy = edit::newest(window).ok()?;
    let header = edit::read_header(window, copy)?;
    Some((header.generation, State(header.state)))
}

/// Removes the logs of good cycles but the last few.
pub fn prune(machine: &Machine) {
    let Some(last) = machine.power_ons().checked_sub(KEPT_POWER_ONS) else {
        return;
    };
    // Each cycle prunes, so that older ones are gone already.
    for power_on in (1..=last).rev() {
        let removed = fs::remove_file(machine.console_log(power_on));
        let _ = fs::remove_file(machine.emulator_log(power_on));
        if removed.is_err() {
            break;
        }
    }
}

/// A console is bytes of an untrusted machine: what is no UTF-8 is replaced.
fn read_from(path: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let _ = file
            .seek(SeekFrom::Start(from))
            .and_then(|_| file.read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What cannot be kept (a full disk) is not worth ending the run for.
fn copy_sparse(from: &Path, to: &Path) {
    let _ = Command::new("cp")
        .args(["--sparse=always", "--dereference"])
        .args([from, to])
        .output();
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_image::edit::Recipe;

    fn traces(generation: u64, head: Vec<u8>) -> Traces {
        Traces {
            first_power_on: 1,
            console_from: 0,
            events_from: 0,
            generation,
            head,
        }
    }

    #[test]
    fn only_an_image_that_this_cycle_committed_can_be_resumed() {
        let image = Recipe::small().suspended(|_, _| ()).unwrap();
        let (generation, _) = newest(&image).unwrap();
        assert_eq!(traces(0, image.clone()).image_state(), "suspended");
        assert!(traces(generation - 1, image.clone()).is_resumable());
        assert!(!traces(generation, image).is_resumable(), "an older one");
    }

    #[test]
    fn where_no_header_is_valid_there_is_nothing_to_resume() {
        for head in [Vec::new(), vec![0; HEAD_BYTES]] {
            let traces = traces(0, head);
            assert!(!traces.is_resumable());
            assert_eq!(traces.image_state(), "");
        }
    }
}
