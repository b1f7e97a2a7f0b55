//! A service with a skewed access pattern, spread over several processes, and idle neighbours
//! beside it: it measures the order in which pages migrate back.
//!
//! Each shard reads 4 KiB pages of its memory in requests. Nearly all reads go to a small set of
//! hot pages that are scattered at random, so that neither addresses nor processes distinguish
//! them. A second thread asks the kernel for the nodes of the pages of the latest requests, and
//! logs them. The shard knows its reads, so the numbers do not depend on sampling.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Doing, GuestError};
use crate::sleep::cxl::monotonic_ns;
use crate::system::run;
use crate::workload::fill::{Filled, PAGE_BYTES};

pub const USAGE: &str = "service start SHARDS MIB NEIGHBOURS MIB SEED";
const FOLDER: &str = "/run/service";
const GROUP: &str = "service";
/// Of its pages, this part is hot …
const HOT_PART: f64 = 0.08;
/// … and gets this part of the reads.
const HOT_READS: f64 = 0.98;
const READS_PER_REQUEST: usize = 64;
/// The latest requests, which a scan covers.
const REQUESTS: usize = 4;
const BETWEEN_REQUESTS: Duration = Duration::from_micros(250);
const SCAN_PERIOD: Duration = Duration::from_millis(50);
/// Pages that are not hot, in each scan.
const COLD_PAGES: usize = 32;
/// A neighbour gives a sign of life, and is else idle: to a scheduler it has run just now.
const BETWEEN_SIGNS: Duration = Duration::from_millis(5);
/// The node of persistent memory.
const CXL_NODE: i32 = 1;

/// One scan.
#[derive(Serialize)]
struct Scan {
    t_ns: u64,
    shard: usize,
    /// For each of the latest requests, how many of its reads are of pages on the CXL node.
    cxl_reads: Vec<usize>,
    /// How many of some pages that are not hot are on the CXL node.
    cold_on_cxl: usize,
    /// Reads that found something else than was written.
    bad: u64,
}

/// Runs `dormouse-guest service …`.
pub fn run(words: &[&str]) -> Result<(), GuestError> {
    let numbers: Vec<u64> = words[1..]
        .iter()
        .map_while(|word| word.parse().ok())
        .collect();
    match (words[0], numbers.as_slice()) {
        ("start", &[shards, mib, neighbours, neighbour_mib, seed]) => {
            start(shards, mib, neighbours, neighbour_mib, seed)
        }
        ("shard", &[shard, mib, seed]) => {
            single_pages()?;
            serve(shard as usize, mib << 20, seed)
        }
        ("neighbour", &[mib, seed]) => {
            single_pages()?;
            idle(mib << 20, seed)
        }
        _ => Err(GuestError::Other(format!("usage: dormouse-guest {USAGE}"))),
    }
}

/// Starts all processes; returns when their memory is filled and they serve.
fn start(
    shards: u64,
    mib: u64,
    neighbours: u64,
    neighbour_mib: u64,
    seed: u64,
) -> Result<(), GuestError> {
    fs::create_dir_all(FOLDER).doing(format!("create {FOLDER}"))?;
    let shard = |shard| vec!["shard".to_owned(), format!("{shard}"), format!("{mib}")];
    let neighbour = |_| vec!["neighbour".to_owned(), format!("{neighbour_mib}")];
    let all = (0..shards).map(shard).chain((0..neighbours).map(neighbour));
    for words in all {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("service")
            .args(words)
            .arg(seed.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = run::spawn_in(&mut command, GROUP)?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .doing("read from the service")?;
        if line.trim() != "ready" {
            return Err(GuestError::Other("a part of the service has ended".into()));
        }
    }
    Ok(())
}

/// No transparent huge pages, as databases ask for: 2 MiB with one hot page in them are hot.
fn single_pages() -> Result<(), GuestError> {
    // SAFETY: sets a flag of this process.
    let set = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    if set == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error()).doing("do without huge pages")
    }
}

fn ready() {
    println!("ready");
}

fn idle(bytes: u64, seed: u64) -> Result<(), GuestError> {
    let filled = Filled::new(bytes, seed, 1);
    ready();
    loop {
        filled.page_begins_well(0);
        thread::sleep(BETWEEN_SIGNS);
    }
}

/// The splitmix64 generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn shuffle(&mut self, list: &mut [u32]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

/// Which pages the latest requests read.
struct Latest {
    pages: Vec<Vec<AtomicU32>>,
    bad: AtomicU64,
}

fn no_pages() -> Vec<Vec<AtomicU32>> {
    let request = || (0..READS_PER_REQUEST).map(|_| AtomicU32::new(0)).collect();
    (0..REQUESTS).map(|_| request()).collect()
}

fn serve(shard: usize, bytes: u64, seed: u64) -> Result<(), GuestError> {
    let seed = seed.wrapping_add(shard as u64);
    let filled = Filled::new(bytes, seed, 1);
    let mut random = Random(seed);
    let mut pages: Vec<u32> = (0..(bytes / PAGE_BYTES) as u32).collect();
    random.shuffle(&mut pages);
    let hot_count = ((pages.len() as f64 * HOT_PART) as usize).max(1);
    let (hot, cold) = pages.split_at(hot_count);
    let latest = Latest {
        pages: no_pages(),
        bad: AtomicU64::new(0),
    };
    let path = format!("{FOLDER}/{shard}.jsonl");
    let mut log = File::create(&path).doing(format!("create {path}"))?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut cold_page = 0;
            loop {
                thread::sleep(SCAN_PERIOD);
                let some = cold.iter().cycle().skip(cold_page).take(COLD_PAGES);
                let some: Vec<u32> = some.copied().collect();
                cold_page = (cold_page + COLD_PAGES) % cold.len().max(1);
                let scan = scan(shard, &filled, &latest, &some);
                let line = serde_json::to_string(&scan).expect("plain data serialises");
                let _ = writeln!(log, "{line}");
            }
        });
        ready();
        for request in 0.. {
            let places = &latest.pages[request % REQUESTS];
            for place in places {
                let set = if random.part() < HOT_READS { hot } else { cold };
                let page = set[random.below(set.len())];
                place.store(page, Ordering::Relaxed);
                if !filled.page_begins_well(page as usize) {
                    latest.bad.fetch_add(1, Ordering::Relaxed);
                }
            }
            thread::sleep(BETWEEN_REQUESTS);
        }
    });
    Ok(())
}

fn scan(shard: usize, filled: &Filled, latest: &Latest, cold: &[u32]) -> Scan {
    let pages: Vec<u32> = latest
        .pages
        .iter()
        .flatten()
        .map(|page| page.load(Ordering::Relaxed))
        .chain(cold.iter().copied())
        .collect();
    let t_ns = monotonic_ns();
    let on_cxl = on_cxl(filled, &pages);
    let (reads, cold) = on_cxl.split_at(REQUESTS * READS_PER_REQUEST);
    let count = |list: &[bool]| list.iter().filter(|on_cxl| **on_cxl).count();
    Scan {
        t_ns,
        shard,
        cxl_reads: reads.chunks(READS_PER_REQUEST).map(count).collect(),
        cold_on_cxl: count(cold),
        bad: latest.bad.load(Ordering::Relaxed),
    }
}

/// Which of the pages lie on the CXL node; one that is on its way counts as being there.
fn on_cxl(filled: &Filled, pages: &[u32]) -> Vec<bool> {
    let addresses: Vec<u64> = pages
        .iter()
        .map(|page| filled.address(*page as usize))
        .collect();
    let mut nodes = vec![CXL_NODE; pages.len()];
    // SAFETY: both arrays have as many elements as the count argument says; it only writes `nodes`.
    unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            addresses.len() as libc::c_ulong,
            addresses.as_ptr(),
            std::ptr::null::<i32>(),
            nodes.as_mut_ptr(),
            0,
        )
    };
    nodes
        .into_iter()
        .map(|node| node < 0 || node == CXL_NODE)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_every_page_and_scatters_them() {
        let mut pages: Vec<u32> = (0..1000).collect();
        Random(1).shuffle(&mut pages);
        let neighbours = pages.windows(2).filter(|pair| pair[1] == pair[0] + 1);
        assert!(neighbours.count() < 20);
        pages.sort_unstable();
        assert!(pages.into_iter().eq(0..1000));
    }

    #[test]
    fn a_scan_counts_the_reads_of_each_request() {
        let filled = Filled::new(64 * PAGE_BYTES, 3, 1);
        let latest = Latest {
            pages: no_pages(),
            bad: AtomicU64::new(2),
        };
        let scan = scan(4, &filled, &latest, &[1, 2, 3]);
        assert_eq!(
            (scan.shard, scan.bad, scan.cxl_reads.len()),
            (4, 2, REQUESTS)
        );
        assert!(
            scan.cxl_reads
                .iter()
                .all(|count| *count <= READS_PER_REQUEST)
        );
        assert!(scan.cold_on_cxl <= 3);
    }
}
