//! Linux' access monitor DAMON, through sysfs: which pages of which processes are touched.
//!
//! DAMON watches regions and looks at one page of each in each window. Asked for as many regions
//! as there are pages, it looks at every page: it clears the accessed bit, waits, and looks again.
//! What it saw comes through its tracepoint, only regions with accesses.
//!
//! After Linux' Documentation/admin-guide/mm/damon/usage.rst (sysfs) and mm/damon/core.c (6.12).

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::heat::HotRange;
use crate::lock::RUN_DIRECTORY;
use crate::sampler::{MOST_REGIONS, Sampler, Sampling, Seen, Target, Unavailable};
use crate::state;
use crate::tracepoint::{Field, TRACEFS, Tracepoint, describe, parse_field};
use crate::tree::Tree;

const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";
const KDAMOND: &str = "sys/kernel/mm/damon/admin/kdamonds/0";
const CONTEXT: &str = "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0";
const EVENT: &str = "damon/damon_aggregated";
/// Says that what is switched on is ours.
const MARKER: &str = "run/dormouse/damon.json";
/// Between clearing the accessed bits and looking at them.
const WINDOW: Duration = Duration::from_millis(100);
/// The layout of the watched address spaces is not looked at again: a window is short.
const NEVER_US: u64 = 1_000_000_000;
const RECORD_BYTES: u64 = 64;
const LEAST_RING_BYTES: u64 = 256 << 10;
const MOST_RING_BYTES: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
struct Marker {
    boot_id: String,
    kdamond: i32,
}

/// What the running kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    Ready,
    NoDamon,
    NoTracepoint,
}

/// Looks, changes nothing.
pub fn offer(tree: &Tree) -> Offer {
    if !tree.exists(&format!("{KDAMONDS}/nr_kdamonds")) {
        Offer::NoDamon
    } else if describe(tree, EVENT).is_none() {
        Offer::NoTracepoint
    } else {
        Offer::Ready
    }
}

/// DAMON on this machine.
pub struct Damon<'a> {
    pub tree: &'a Tree,
}

impl Sampler for Damon<'_> {
    fn start(&self, targets: &[Target]) -> Result<Box<dyn Sampling + '_>, Unavailable> {
        let tree = self.tree;
        match offer(tree) {
            Offer::Ready => {}
            Offer::NoDamon => return Err(Unavailable::NoDamon),
            Offer::NoTracepoint => return Err(no_tracepoint()),
        }
        let (number, format) = describe(tree, EVENT).ok_or_else(no_tracepoint)?;
        let fields = Fields::parse(&format).ok_or_else(no_tracepoint)?;
        self.clean_up();
        // Somebody else's settings would be lost, whether it is running or not.
        if tree
            .read(&format!("{KDAMONDS}/nr_kdamonds"))
            .ok()
            .as_deref()
            != Some("0")
        {
            return Err(Unavailable::Busy);
        }
        let running = Running { tree };
        for (path, value) in settings(targets) {
            tree.write(&path, &value)
                .map_err(|error| Unavailable::Failed(format!("/{path}: {error}")))?;
        }
        let started = tree
            .write(&format!("{KDAMOND}/state"), "on")
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => Unavailable::Busy,
                _ => Unavailable::Failed(error.to_string()),
            });
        started?;
        let kdamond = tree
            .read(&format!("{KDAMOND}/pid"))
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|pid| *pid > 0)
            .ok_or_else(|| Unavailable::Failed("its thread has ended at once".to_owned()))?;
        mark(tree, kdamond);
        let regions: u64 = targets.iter().map(|target| target.span_pages).sum();
        let ring_bytes = (regions * RECORD_BYTES)
            .clamp(LEAST_RING_BYTES, MOST_RING_BYTES)
            .next_power_of_two();
        let tracepoint = Tracepoint::open(number, kdamond, "nr_accesses > 0", ring_bytes as usize)
            .map_err(|error| Unavailable::Failed(format!("its tracepoint: {error}")))?;
        Ok(Box::new(Watching {
            tracepoint,
            fields,
            _running: running,
        }))
    }

    fn clean_up(&self) {
        let tree = self.tree;
        let marker: Option<Marker> = tree
            .read(MARKER)
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok());
        let kdamond = tree.read(&format!("{KDAMOND}/pid"));
        if let Some(marker) = marker
            && marker.boot_id == state::boot_id(tree)
            && kdamond.is_ok_and(|pid| pid == marker.kdamond.to_string() || pid == "-1")
        {
            switch_off(tree);
        }
        let _ = fs::remove_file(tree.path(MARKER));
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
    let least = wanted.clamp(10, MOST_REGIONS);
    // One look a window: then only regions that are equally hot are joined.
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
            (8 * MOST_REGIONS).to_string(),
        ),
        context("monitoring_attrs/nr_regions/min", least.to_string()),
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
    tree: &'a Tree,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        switch_off(self.tree);
        let _ = fs::remove_file(self.tree.path(MARKER));
    }
}

fn switch_off(tree: &Tree) {
    // It is off already where all targets have ended.
    let _ = tree.write(&format!("{KDAMOND}/state"), "off");
    let _ = tree.write(&format!("{KDAMONDS}/nr_kdamonds"), "0");
}

fn mark(tree: &Tree, kdamond: i32) {
    let marker = Marker {
        boot_id: state::boot_id(tree),
        kdamond,
    };
    let text = serde_json::to_string(&marker).expect("plain data serialises");
    // Without it a leftover is taken for somebody else's, and left alone.
    let _ = fs::create_dir_all(tree.path(RUN_DIRECTORY))
        .and_then(|()| fs::write(tree.path(MARKER), text));
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
                heat: self.accesses.of(record)?.try_into().ok()?,
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
            .read(&mut |record| seen.extend(fields.seen(record)));
        seen
    }
}
