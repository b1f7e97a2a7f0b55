//! What the lab's service (`dormouse-guest service`) logged while its pages migrated back, and what
//! follows from it: how soon its reads hit DRAM, and how long its requests take meanwhile.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::{Said, lab_cycle, words};

/// Reads of one request.
pub const READS_PER_REQUEST: u64 = 64;
/// Modelled latency of a read: both nodes of the emulated machine are equally fast. About what is
/// measured on machines with DRAM and a CXL memory expander.
pub const DRAM_READ_NS: u64 = 100;
/// The same of CXL memory.
pub const CXL_READ_NS: u64 = 300;
/// Scans that are judged together: with four shards, 2048 reads in a tenth of a second.
const SCANS_TOGETHER: usize = 8;

/// One or more cycles of a machine in which the service runs: `before` starts it, `after` prints
/// what it wrote.
pub fn service_cycle(name: &str, before: &str, after: &str, more: &[&str]) -> Said {
    let mut all = words("--cxl 2G --fill 16M --redis-keys 0");
    all.extend(["--before", before, "--after", after]);
    all.extend(more);
    lab_cycle(name, &all)
}

/// One scan of a shard; see `lab/guest/src/service.rs`.
#[derive(Clone, Debug, Deserialize)]
pub struct Scan {
    /// When, on the clock of the machine.
    pub t_ns: u64,
    /// For each of the latest requests, reads of pages on the CXL node.
    pub cxl_reads: Vec<u64>,
    /// Pages that are not hot and on the CXL node.
    pub cold_on_cxl: u64,
    /// Reads with wrong contents.
    pub bad: u64,
}

/// One waking, on the clock of the machine.
#[derive(Clone, Debug, Default)]
pub struct Waking {
    /// In the order of time, of all shards.
    pub scans: Vec<Scan>,
    /// The first instruction of user space.
    pub woke_ns: u64,
    /// All pages are back in DRAM.
    pub home_ns: u64,
}

impl Waking {
    /// Reads what the first cycle of a machine left in its folder.
    ///
    /// # Errors
    /// What is missing or makes no sense.
    pub fn read(folder: &Path) -> Result<Waking, String> {
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut scans: Vec<Scan> = text("after-1.txt")?
            .lines()
            // The service is still writing when it is read.
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        scans.sort_by_key(|scan| scan.t_ns);
        let mut waking = Waking {
            scans,
            ..Waking::default()
        };
        for line in text("events.jsonl")?.lines() {
            let event: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
            let t_ns = event["t_ns"].as_u64().unwrap_or_default();
            match (
                event["clock"].as_str(),
                event["name"].as_str(),
                event["kind"].as_str(),
            ) {
                (Some("guest"), Some("resumed"), _) if waking.woke_ns == 0 => {
                    waking.woke_ns = t_ns;
                }
                (Some("guest"), Some("home"), Some("end")) if waking.home_ns == 0 => {
                    waking.home_ns = t_ns;
                }
                _ => {}
            }
        }
        if waking.woke_ns == 0 || waking.home_ns <= waking.woke_ns {
            return Err("the timeline has no waking or no migration back".into());
        }
        if waking.after_waking().count() < SCANS_TOGETHER {
            return Err("the service wrote down too little".into());
        }
        Ok(waking)
    }

    fn after_waking(&self) -> impl Iterator<Item = &Scan> {
        self.scans.iter().filter(|scan| scan.t_ns >= self.woke_ns)
    }

    /// Reads that did not find what was written.
    pub fn bad_reads(&self) -> u64 {
        self.scans.iter().map(|scan| scan.bad).max().unwrap_or(0)
    }

    /// Seconds from waking until at least `share` of the reads hit DRAM, and go on to do so.
    pub fn seconds_until(&self, share: f64) -> Option<f64> {
        let scans: Vec<&Scan> = self.after_waking().collect();
        let good = |together: &&[&Scan]| dram_share(together) >= share;
        let windows: Vec<&[&Scan]> = scans.windows(SCANS_TOGETHER).collect();
        let last_bad = windows.iter().rposition(|window| !good(window));
        let first_good = match last_bad {
            None => windows.first()?,
            Some(index) => windows.get(index + 1)?,
        };
        let t_ns = first_good.last()?.t_ns;
        Some((t_ns - self.woke_ns) as f64 / 1e9)
    }

    /// What part of the reads hit DRAM, and what part of the pages that are not hot is home, from
    /// `t_ns` on.
    pub fn shares_at(&self, t_ns: u64) -> Option<(f64, f64)> {
        let scans: Vec<&Scan> = self.scans.iter().filter(|scan| scan.t_ns >= t_ns).collect();
        let window = scans.get(..SCANS_TOGETHER)?;
        let away: u64 = window.iter().map(|scan| scan.cold_on_cxl).sum();
        let cold_home = 1.0 - away as f64 / (window.len() * COLD_PAGES) as f64;
        Some((dram_share(window), cold_home))
    }

    /// Modelled latencies of requests in the first `seconds` after waking, ascending.
    pub fn latencies_ns(&self, seconds: f64) -> Vec<u64> {
        let until_ns = self.woke_ns + (seconds * 1e9) as u64;
        let scans = self.after_waking().take_while(|scan| scan.t_ns <= until_ns);
        let mut latencies: Vec<u64> = scans
            .flat_map(|scan| &scan.cxl_reads)
            .map(|cxl| {
                let dram = READS_PER_REQUEST.saturating_sub(*cxl);
                cxl * CXL_READ_NS + dram * DRAM_READ_NS
            })
            .collect();
        latencies.sort_unstable();
        latencies
    }

    /// From waking until all pages are back in DRAM.
    pub fn home_s(&self) -> f64 {
        (self.home_ns - self.woke_ns) as f64 / 1e9
    }
}

/// Pages that are not hot, in each scan.
const COLD_PAGES: usize = 32;

fn dram_share(scans: &[&Scan]) -> f64 {
    let requests: usize = scans.iter().map(|scan| scan.cxl_reads.len()).sum();
    let cxl: u64 = scans.iter().flat_map(|scan| &scan.cxl_reads).sum();
    1.0 - cxl as f64 / (requests as u64 * READS_PER_REQUEST).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waking(cxl: &[u64]) -> Waking {
        let scan = |(index, cxl): (usize, &u64)| Scan {
            t_ns: index as u64 * 1_000_000_000,
            cxl_reads: vec![*cxl; 8],
            cold_on_cxl: if index < 20 { 32 } else { 16 },
            bad: 0,
        };
        Waking {
            scans: cxl.iter().enumerate().map(scan).collect(),
            woke_ns: 2_000_000_000,
            home_ns: 50_000_000_000,
        }
    }

    #[test]
    fn a_good_moment_that_does_not_last_does_not_count() {
        let mut cxl = vec![64; 10];
        cxl.extend([0; 10]);
        cxl.extend([64; 3]);
        cxl.extend([0; 20]);
        // Bad until second 22; seven good scans more, and a window is good.
        assert_eq!(waking(&cxl).seconds_until(0.95), Some(23.0 + 7.0 - 2.0));
        assert_eq!(waking(&[64; 30]).seconds_until(0.95), None);
    }

    #[test]
    fn reads_and_cold_pages_are_told_apart() {
        let mut cxl = vec![64; 30];
        cxl.extend([0; 20]);
        let waking = waking(&cxl);
        assert_eq!(waking.shares_at(3_000_000_000), Some((0.0, 0.0)));
        assert_eq!(waking.shares_at(30_000_000_000), Some((1.0, 0.5)));
        assert_eq!(waking.shares_at(48_000_000_000), None);
    }

    #[test]
    fn a_request_takes_as_long_as_its_reads() {
        let latencies = waking(&[0, 0, 64, 0, 0]).latencies_ns(1.5);
        assert_eq!(latencies.len(), 16);
        assert_eq!((latencies[0], latencies[15]), (6400, 19_200));
    }
}
