//! Hibernation: the image goes to a swap area on a disk, and another kernel boots to read it.
//!
//! The kernel does not report its phases, so they are read from its log, as the host receives it.
//! While devices sleep the console does too, and its lines come late: how long
//! making the copy took is the difference of the kernel's own time stamps.

use dormouse_guest::protocol::{
    Call, FromGuest, HibernationPlan, HibernationReady, HibernationResult,
};
use dormouse_report::event::{Clock, Event, Kind};
use serde_json::Value;

use super::method::{Moment, SleepMethod};
use crate::cycle::hibernation_options::{Compressor, Hibernation};
use crate::cycle::line::{CycleLine, ResumeTimes, Span, SuspendTimes, seconds};
use crate::emulator::lab::QUESTION_TIMEOUT;
use crate::emulator::power::{PowerOn, Signal, What};
use crate::error::LabError;

const PAGE_BYTES: u64 = 4096;
/// The kernel has read the whole image.
const LOADED: &str = "PM: Image loading done";
/// The last line of a hibernation, logged by the hibernated system after it woke.
const LEFT: &str = "PM: hibernation: hibernation exit";

/// One hibernation.
pub(crate) struct HibernationSleep {
    plan: HibernationPlan,
    down: Down,
    up: Up,
}

/// Host times of what the log of the way down says.
#[derive(Default)]
struct Down {
    requested_ns: u64,
    shrink: Span,
    /// From the console's last word to its first.
    devices: Span,
    /// Kernel time stamps around the copy.
    copy_stamps: Span,
    write: Span,
    off_ns: Option<u64>,
    pages: Option<u64>,
    /// The image's size on the disk.
    image_bytes: Option<u64>,
}

/// Host times of what the log of the way up says.
#[derive(Default)]
struct Up {
    power_on_ns: u64,
    firmware_ns: Option<u64>,
    load: Span,
    awake_ns: Option<u64>,
    pages: Option<u64>,
}

impl HibernationSleep {
    pub fn new(options: &Hibernation, dram_bytes: u64) -> HibernationSleep {
        let whole = (!options.swap_out).then_some(dram_bytes);
        HibernationSleep {
            plan: HibernationPlan {
                image_bytes: options.image_size.map(|size| size.0).or(whole),
                swappiness: (!options.swap_out).then_some(0),
                compressor: match &options.compressor {
                    Compressor::None => None,
                    Compressor::Named(name) => Some(name.clone()),
                },
            },
            down: Down::default(),
            up: Up::default(),
        }
    }
}

impl SleepMethod for HibernationSleep {
    fn prepare(&mut self, power: &mut PowerOn) -> Result<(), LabError> {
        let call = Call::PrepareHibernation(self.plan.clone());
        let ready: HibernationReady = power.query(call, QUESTION_TIMEOUT)?;
        ready
            .lacking
            .map_or(Ok(()), |why| Err(LabError::Lacking(why)))
    }

    fn request(&self) -> Call {
        Call::Hibernate
    }

    fn reached(&mut self, moment: Moment, at_ns: u64) {
        match moment {
            Moment::Requested => self.down.requested_ns = at_ns,
            Moment::Off => self.down.off_ns = Some(at_ns),
            Moment::PowerOn => self.up.power_on_ns = at_ns,
        }
    }

    fn receive_down(&mut self, signal: &Signal) {
        if let What::Console(line) = &signal.what {
            self.down.receive(line, signal.at_ns);
        }
    }

    fn receive_up(&mut self, signal: &Signal) {
        self.up.receive(signal);
    }

    fn is_running(&self) -> bool {
        self.up.awake_ns.is_some()
    }

    fn suspend_times(&self) -> SuspendTimes {
        self.down.times()
    }

    fn resume_times(&self) -> ResumeTimes {
        self.up.times()
    }

    fn events_down(&self) -> Vec<Event> {
        let spans = [
            ("shrink", self.down.shrink),
            ("devices-and-copy", self.down.devices),
            ("write", self.down.write),
        ];
        events("suspend", &spans)
    }

    fn events_up(&self) -> Vec<Event> {
        let boot = Span {
            begin_ns: self.up.firmware_ns,
            end_ns: self.up.load.begin_ns,
        };
        let kernel = Span {
            begin_ns: self.up.load.end_ns,
            end_ns: self.up.awake_ns,
        };
        let spans = [("boot", boot), ("load", self.up.load), ("kernel", kernel)];
        events("resume", &spans)
    }

    fn woken(&mut self, answer: Value, line: &mut CycleLine) -> Result<(), LabError> {
        let result = parsed(answer)?;
        if result.errno.is_some() {
            return Err(LabError::Guest(format!(
                "hibernation failed after waking: {}",
                result.error
            )));
        }
        line.saved_bytes = self.down.pages.unwrap_or_default() * PAGE_BYTES;
        line.restored_bytes = self.up.pages.unwrap_or_default() * PAGE_BYTES;
        line.image_bytes = self.down.image_bytes;
        line.home_bytes = result.swapped_bytes;
        // Switching off an empty swap area takes its time too, but nothing waits for it.
        let home_ns = (result.swapped_bytes > 0).then_some(result.swap_in_ns);
        line.home_s = Some(home_ns.unwrap_or_default() as f64 / 1e9);
        Ok(())
    }

    fn refusal(&self, answer: Value) -> Result<String, LabError> {
        let result = parsed(answer)?;
        match result.errno {
            None => Err(LabError::Unexpected(
                "hibernation reports success, but the power was never gone".into(),
            )),
            Some(libc::ENOMEM) => Ok(format!(
                "no-memory: the kernel found no free memory for its copy, which takes as much as \
                 is in use ({}): give it more --dram, or a smaller --image-size",
                result.error
            )),
            Some(_) => Ok(result.error),
        }
    }

    fn cold_boot_reason(&self, console: &str) -> Option<String> {
        cold_boot_reason(console)
    }

    fn proof(&self, console: &str) -> Result<(), String> {
        for line in [LOADED, LEFT] {
            if !console.contains(line) {
                return Err(format!(
                    "the kernel's log does not say {line:?}: nothing shows that it resumed"
                ));
            }
        }
        Ok(())
    }
}

impl Down {
    fn receive(&mut self, line: &str, at_ns: u64) {
        let at_ns = Some(at_ns);
        let says = |text: &str| line.contains(text);
        if says("PM: hibernation: Preallocating image memory") {
            self.shrink.begin_ns = at_ns;
        } else if says("PM: hibernation: Allocated ") && says(" kbytes in ") {
            self.shrink.end_ns = at_ns;
        } else if says("Suspending console(s)") {
            self.devices.begin_ns = at_ns;
        } else if says("PM: hibernation: Creating image") {
            self.copy_stamps.begin_ns = stamp_ns(line);
        } else if says("PM: hibernation: Image created (") {
            self.copy_stamps.end_ns = stamp_ns(line);
            self.pages = number_after(line, "Image created (");
        } else if is_transfer(line, &["Compressing and saving", "Saving"]) {
            self.devices.end_ns = at_ns;
            self.write.begin_ns = at_ns;
            self.image_bytes = number_after(line, " (").map(|pages| pages * PAGE_BYTES);
        } else if says("PM: Image size after compression") {
            self.image_bytes = number_after(line, "compression: ").map(|kib| kib << 10);
        } else if says("PM: Image saving done") {
            self.write.end_ns = at_ns;
        }
    }

    fn times(&self) -> SuspendTimes {
        // A kernel that has lost trust in its time stamp counter (on a very busy host) stamps all
        // of that time alike: then the copy is a part of `devices`.
        let copy = self.copy_stamps.seconds().filter(|&copy| copy > 0.0);
        // The copy is made while the console sleeps.
        let quiet = self.devices.seconds();
        SuspendTimes {
            total: seconds(Some(self.requested_ns), self.off_ns),
            migrate: None,
            devices: quiet.map(|quiet| (quiet - copy.unwrap_or_default()).max(0.0)),
            firmware: None,
            shrink: self.shrink.seconds(),
            copy,
            write: self.write.seconds(),
            off: seconds(self.write.end_ns, self.off_ns),
        }
    }
}

impl Up {
    fn receive(&mut self, signal: &Signal) {
        let at_ns = Some(signal.at_ns);
        match &signal.what {
            What::Agent(FromGuest::Awake { .. }) => self.awake_ns = self.awake_ns.or(at_ns),
            // Firmware's last word comes before it unpacks the kernel.
            What::ConsoleEvent(event)
                if event.clock == Clock::Firmware && self.load.begin_ns.is_none() =>
            {
                self.firmware_ns = at_ns;
            }
            What::Console(line) => {
                if is_transfer(line, &["Loading and decompressing", "Loading"]) {
                    self.load.begin_ns = at_ns;
                    self.pages = number_after(line, " (");
                } else if line.contains(LOADED) {
                    self.load.end_ns = at_ns;
                }
            }
            _ => {}
        }
    }

    fn times(&self) -> ResumeTimes {
        let power_on_ns = Some(self.power_on_ns);
        ResumeTimes {
            total: seconds(power_on_ns, self.awake_ns),
            // Stock firmware says nothing: as in a wake there, all until the image is found.
            firmware: seconds(power_on_ns, self.firmware_ns.or(self.load.begin_ns)),
            restore: None,
            boot: seconds(self.firmware_ns, self.load.begin_ns),
            load: self.load.seconds(),
            kernel: seconds(self.load.end_ns, self.awake_ns),
        }
    }
}

/// Begin and end of each span that has both, as events of the host.
fn events(phase: &str, spans: &[(&str, Span)]) -> Vec<Event> {
    let event = |at_ns: u64, name: &str, kind| Event::new(at_ns, Clock::Host, phase, name, kind);
    spans
        .iter()
        .filter_map(|&(name, span)| {
            let (begin_ns, end_ns) = (span.begin_ns?, span.end_ns?);
            Some([
                event(begin_ns, name, Kind::Begin),
                event(end_ns, name, Kind::End),
            ])
        })
        .flatten()
        .collect()
}

/// The line before the image's data go to or come from the disk: `PM: Compressing and saving
/// image data (123 pages)...`, or without compression `PM: Saving image data pages (123 pages)...`
fn is_transfer(line: &str, verbs: &[&str]) -> bool {
    verbs
        .iter()
        .any(|verb| line.contains(&format!("PM: {verb} image data")))
}

/// `[   12.345678]` in front of a kernel's line.
fn stamp_ns(line: &str) -> Option<u64> {
    let stamp = line.trim_start().strip_prefix('[')?.split_once(']')?.0;
    let (whole, fraction) = stamp.trim().split_once('.')?;
    let micros: u64 = fraction.parse().ok().filter(|_| fraction.len() == 6)?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(micros * 1000)
}

fn number_after(line: &str, text: &str) -> Option<u64> {
    let rest = line.split_once(text)?.1;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// What init logged about the image, and what the kernel logged before, if it tried.
fn cold_boot_reason(console: &str) -> Option<String> {
    const OURS: &str = "dormouse-guest: no hibernation image: ";
    let at = console.find(OURS)?;
    let ours = console[at + OURS.len()..].lines().next()?.trim();
    // The first complaint is the cause, the later ones are its effects.
    let complaint = console[..at].lines().find_map(|line| {
        let (_, text) = line.split_once("PM: ")?;
        ["mismatch", "ailed", "error", "not available"]
            .iter()
            .any(|word| text.contains(word))
            .then(|| text.trim().to_owned())
    });
    Some(match complaint {
        Some(complaint) => format!("{ours}: {complaint}"),
        None => ours.to_owned(),
    })
}

fn parsed(answer: Value) -> Result<HibernationResult, LabError> {
    serde_json::from_value(answer)
        .map_err(|error| LabError::Unexpected(format!("the answer to hibernation: {error}")))
}

#[cfg(test)]
mod tests;
