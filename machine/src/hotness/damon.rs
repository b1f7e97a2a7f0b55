//! Linux' access monitor DAMON, through sysfs: which pages of which processes are touched.
//!
//! DAMON watches regions and samples one page of each in each window. With as many regions as pages
//! it samples every page: it clears the accessed bit, waits, and reads it again. The results come
//! through its tracepoint, only regions with accesses.
//!
//! After Linux' Documentation/admin-guide/mm/damon/usage.rst (sysfs) and mm/damon/core.c (6.12).

use std::fs;
use std::time::Duration;

use dormouse_system::Root;
use dormouse_system::file::{Durability, read_json, replace_json};
use dormouse_system::kernel::boot_id;
use serde::{Deserialize, Serialize};

use crate::hotness::HotRange;
use crate::hotness::sampler::{MAX_REGIONS, Pace, Sampler, Sampling, Seen, Target, Unavailable};
use crate::system::tracepoint::{Field, Stamp, TRACEFS, Tracepoint, describe, parse_field};

const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";
const KDAMOND: &str = "sys/kernel/mm/damon/admin/kdamonds/0";
const CONTEXT: &str = "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0";
const EVENT: &str = "damon/damon_aggregated";
/// Says that what is switched on is ours.
/// A larger file is not ours, and is not read.
const MAX_MARKER_BYTES: u64 = 4096;
const MARKER: &str = "run/dormouse/damon.json";
/// Between clearing the accessed bits and looking at them. A page that is read five times a second
/// at random instants is seen with 98 % probability.
const WINDOW: Duration = Duration::from_millis(800);
/// The layout of the watched address spaces is not looked at again: a window is short.
const NEVER_US: u64 = 1_000_000_000;
const KDAMOND_NICE: i32 = -15;
const RECORD_BYTES: u64 = 64;
const MIN_RING_BYTES: u64 = 256 << 10;
const MAX_RING_BYTES: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
struct Marker {
    boot_id: String,
    kdamond: i32,
}

/// What the running kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// DAMON and its tracepoint can be used.
    Ready,
    /// The kernel has no DAMON in sysfs.
    NoDamon,
    /// The tracepoint cannot be read.
    NoTracepoint,
}

/// Looks, changes nothing.
pub fn offer(root: &Root) -> Offer {
    if !root.exists(&format!("{KDAMONDS}/nr_kdamonds")) {
        Offer::NoDamon
    } else if describe(root, EVENT).is_none() {
        Offer::NoTracepoint
    } else {
        Offer::Ready
    }
}

/// DAMON on this machine.
pub struct Damon<'a> {
    /// The files of the machine.
    pub root: &'a Root,
}

impl Sampler for Damon<'_> {
    fn start(&self, targets: &[Target], pace: Pace) -> Result<Box<dyn Sampling + '_>, Unavailable> {
        let root = self.root;
        match offer(root) {
            Offer::Ready => {}
            Offer::NoDamon => return Err(Unavailable::NoDamon),
            Offer::NoTracepoint => return Err(no_tracepoint()),
        }
        let (number, format) = describe(root, EVENT).ok_or_else(no_tracepoint)?;
        let fields = Fields::parse(&format).ok_or_else(no_tracepoint)?;
        self.clean_up();
        // Another program's settings would be lost, whether it is running or not.
        if root
            .read(&format!("{KDAMONDS}/nr_kdamonds"))
            .ok()
            .as_deref()
            != Some("0")
        {
            return Err(Unavailable::Busy);
        }
        let running = Running { root };
        for (path, value) in settings(targets) {
            root.write(&path, &value)
                .map_err(|error| Unavailable::Failed(format!("/{path}: {error}")))?;
        }
        let started = root
            .write(&format!("{KDAMOND}/state"), "on")
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => Unavailable::Busy,
                _ => Unavailable::Failed(error.to_string()),
            });
        started?;
        let kdamond = root
            .read(&format!("{KDAMOND}/pid"))
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|pid| *pid > 0)
            .ok_or_else(|| Unavailable::Failed("its thread has ended at once".to_owned()))?;
        mark(root, kdamond);
        if pace == Pace::Hurried {
            hurry(kdamond);
        }
        let regions: u64 = targets.iter().map(|target| target.span_pages).sum();
        let ring_bytes = (regions * RECORD_BYTES)
            .clamp(MIN_RING_BYTES, MAX_RING_BYTES)
            .next_power_of_two();
        let tracepoint = Tracepoint::open(
            number,
            kdamond,
            Some("nr_accesses > 0"),
            Stamp::None,
            ring_bytes as usize,
        )
        .map_err(|error| Unavailable::Failed(format!("its tracepoint: {error}")))?;
        Ok(Box::new(Watching {
            tracepoint,
            fields,
            _running: running,
        }))
    }

    fn clean_up(&self) {
        let root = self.root;
        let marker: Option<Marker> = read_json(&root.path(MARKER), MAX_MARKER_BYTES)
            .ok()
            .flatten();
        let kdamond = root.read(&format!("{KDAMOND}/pid"));
        if let Some(marker) = marker
            && marker.boot_id == boot_id(root)
            && kdamond.is_ok_and(|pid| pid == marker.kdamond.to_string() || pid == "-1")
        {
            switch_off(root);
        }
        let _ = fs::remove_file(root.path(MARKER));
    }
}

fn no_tracepoint() -> Unavailable {
    Unavailable::NoTracepoint(format!("/{TRACEFS}"))
}

/// What to write where, in this order.
fn settings(targets: &[Target]) -> Vec<(String, String)> {
    let wanted: u64 = targets.iter().map(|target| target.span_pages).sum();
    // DAMON cuts each target into regions of span / min, but never below a page. With as many as
    // there are pages in all targets it never joins neighbours that are not alike, either.
    let min_regions = wanted.clamp(10, MAX_REGIONS);
    // One sample a window: then only regions that are equally hot are joined.
    let window_us = WINDOW.as_micros();
    let context = |path: &str, value: String| (format!("{CONTEXT}/{path}"), value);
    let mut settings = vec![
        (format!("{KDAMONDS}/nr_kdamonds"), "1".to_owned()),
        (format!("{KDAMOND}/contexts/nr_contexts"), "1".to_owned()),
        context("operations", "vaddr".to_owned()),
        context(
            "monitoring_attrs/intervals/sample_us",
            window_us.to_string(),
        ),
        context("monitoring_attrs/intervals/aggr_us", window_us.to_string()),
        context("monitoring_attrs/intervals/update_us", NEVER_US.to_string()),
        // The maximum first: the minimum may never be above it.
        context(
            "monitoring_attrs/nr_regions/max",
            (8 * MAX_REGIONS).to_string(),
        ),
        context("monitoring_attrs/nr_regions/min", min_regions.to_string()),
        context("targets/nr_targets", targets.len().to_string()),
    ];
    for (index, target) in targets.iter().enumerate() {
        settings.push(context(
            &format!("targets/{index}/pid_target"),
            target.pid.to_string(),
        ));
    }
    settings
}

/// What is set up in sysfs; dropping it takes it away.
struct Running<'a> {
    root: &'a Root,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        switch_off(self.root);
        let _ = fs::remove_file(self.root.path(MARKER));
    }
}

fn switch_off(root: &Root) {
    // It is off already where all targets have ended.
    let _ = root.write(&format!("{KDAMOND}/state"), "off");
    let _ = root.write(&format!("{KDAMONDS}/nr_kdamonds"), "0");
}

/// A pass over all pages takes long where everybody interrupts it: the thread goes first.
fn hurry(kdamond: i32) {
    // SAFETY: plain system call; where it is refused, passes take longer.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, kdamond as libc::id_t, KDAMOND_NICE) };
}

fn mark(root: &Root, kdamond: i32) {
    let marker = Marker {
        boot_id: boot_id(root),
        kdamond,
    };
    // Without it a leftover is taken for another program's, and left alone.
    let _ = replace_json(&root.path(MARKER), &marker, Durability::Readers);
}

/// Where the numbers stand in a record.
#[derive(Debug, Clone, Copy)]
struct Fields {
    target: Field,
    start: Field,
    end: Field,
    accesses: Field,
}

impl Fields {
    fn parse(format: &str) -> Option<Fields> {
        Some(Fields {
            target: parse_field(format, "target_id")?,
            start: parse_field(format, "start")?,
            end: parse_field(format, "end")?,
            accesses: parse_field(format, "nr_accesses")?,
        })
    }

    fn seen(&self, record: &[u8]) -> Option<Seen> {
        Some(Seen {
            target: self.target.of(record)?.try_into().ok()?,
            range: HotRange {
                start: self.start.of(record)?,
                end: self.end.of(record)?,
                hotness: self.accesses.of(record)?.try_into().ok()?,
            },
        })
    }
}

// Fields drop in this order: the tracepoint is closed before its thread ends.
struct Watching<'a> {
    tracepoint: Tracepoint,
    fields: Fields,
    _running: Running<'a>,
}

impl Sampling for Watching<'_> {
    fn take(&mut self) -> Vec<Seen> {
        let fields = self.fields;
        let mut seen = Vec::new();
        self.tracepoint
            .read(&mut |_, record| seen.extend(fields.seen(record)));
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    const FORMAT: &str = "\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n";

    /// A kernel whose DAMON takes settings, and refuses to start.
    fn root(root: &std::path::Path, kdamonds: &str) -> (Root, Arc<Mutex<Vec<String>>>) {
        let events = format!("{TRACEFS}/events/{EVENT}");
        let mut files = vec![
            (format!("{KDAMONDS}/nr_kdamonds"), kdamonds.to_owned()),
            (format!("{KDAMOND}/state"), "off".to_owned()),
            (format!("{KDAMOND}/pid"), "-1".to_owned()),
            (format!("{events}/id"), "734".to_owned()),
            (format!("{events}/format"), FORMAT.to_owned()),
            ("proc/sys/kernel/random/boot_id".to_owned(), "b".to_owned()),
        ];
        let targets = [target(1, 1), target(2, 1)];
        files.extend(settings(&targets).into_iter().skip(1));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let writes = Arc::new(Mutex::new(Vec::new()));
        let seen = writes.clone();
        let reaction = move |_: &Root, path: &str, text: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            seen.lock().unwrap().push(format!("{name}={text}"));
            Ok(())
        };
        (Root::reacting(root, Box::new(reaction)), writes)
    }

    fn target(pid: i32, span_pages: u64) -> Target {
        Target {
            pid,
            start_ticks: 1,
            span_pages,
        }
    }

    fn setting(targets: &[Target], name: &str) -> String {
        let all = settings(targets);
        let found = all.iter().find(|(path, _)| path.ends_with(name));
        found.unwrap().1.clone()
    }

    #[test]
    fn there_are_as_many_regions_as_pages_up_to_a_limit() {
        let targets = [target(1, 3000), target(2, 4000)];
        assert_eq!(setting(&targets, "nr_regions/min"), "7000");
        assert_eq!(setting(&targets, "targets/1/pid_target"), "2");
        let large = [target(1, 1 << 40)];
        assert_eq!(setting(&large, "nr_regions/min"), MAX_REGIONS.to_string());
        assert_eq!(setting(&[target(1, 1)], "nr_regions/min"), "10");
    }

    #[test]
    fn a_start_that_fails_switches_everything_off() {
        let directory = tempfile::tempdir().unwrap();
        let (root, writes) = root(directory.path(), "0");
        let damon = Damon { root: &root };
        let started = damon.start(&[target(1, 1), target(2, 1)], Pace::Gentle);
        assert!(matches!(started, Err(Unavailable::Failed(_))));
        let writes = writes.lock().unwrap();
        assert_eq!(
            writes[writes.len() - 3..],
            ["state=on", "state=off", "nr_kdamonds=0"]
        );
    }

    #[test]
    fn another_program_s_settings_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (root, writes) = root(directory.path(), "1");
        let damon = Damon { root: &root };
        assert!(matches!(
            damon.start(&[target(1, 1)], Pace::Gentle),
            Err(Unavailable::Busy)
        ));
        damon.clean_up();
        assert!(writes.lock().unwrap().is_empty());
    }

    #[test]
    fn what_a_killed_dormouse_left_on_is_switched_off_in_the_same_boot_only() {
        for (boot, expected) in [("b", vec!["state=off", "nr_kdamonds=0"]), ("a", vec![])] {
            let directory = tempfile::tempdir().unwrap();
            let (root, writes) = root(directory.path(), "1");
            fs::write(root.path(&format!("{KDAMOND}/pid")), "77\n").unwrap();
            let marker = format!(r#"{{"boot_id":"{boot}","kdamond":77}}"#);
            root.create(MARKER, &marker).unwrap();
            Damon { root: &root }.clean_up();
            assert_eq!(*writes.lock().unwrap(), expected);
            assert!(!root.exists(MARKER));
        }
    }

    #[test]
    fn a_kernel_without_damon_or_tracefs_is_distinguished() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(offer(&Root::at(directory.path())), Offer::NoDamon);
        let (root, _) = root(directory.path(), "0");
        assert_eq!(offer(&root), Offer::Ready);
        fs::remove_dir_all(root.path(TRACEFS)).unwrap();
        assert_eq!(offer(&root), Offer::NoTracepoint);
        let damon = Damon { root: &root };
        let started = damon.start(&[target(1, 1)], Pace::Gentle);
        assert!(matches!(started, Err(Unavailable::NoTracepoint(_))));
    }
}
