//! Pages that the kernel merged because they were alike.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::memory::{PAGE, anonymous};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

const FOLDER: &str = "/sys/kernel/mm/ksm";
const TIMEOUT: Duration = Duration::from_secs(60);

fn set(name: &str, value: &str) -> Result<(), GuestError> {
    fs::write(format!("{FOLDER}/{name}"), value).doing(format!("set {FOLDER}/{name}"))
}

fn merged_pages() -> u64 {
    fs::read_to_string("/proc/self/ksm_merging_pages")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// The first half of the memory is like the second.
pub fn merged(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let mut region = anonymous(plan.bytes / PAGE / 2 * PAGE * 2, 0)?;
    region.advise(libc::MADV_NOHUGEPAGE, "ask for small pages")?;
    let words = region.words().len() / 2;
    for half in region.words_mut().chunks_exact_mut(words) {
        crate::workload::fill::write_pages(half, plan.seed, 0);
    }
    region.advise(libc::MADV_MERGEABLE, "offer pages for merging")?;
    set("pages_to_scan", "5000")?;
    set("sleep_millisecs", "10")?;
    set("run", "1")?;
    let begin = Instant::now();
    while merged_pages() < region.pages() as u64 / 2 {
        if begin.elapsed() > TIMEOUT {
            return Err(GuestError::Other(format!(
                "{} of {} pages are merged",
                merged_pages(),
                region.pages()
            )));
        }
        sleep(Duration::from_millis(50));
    }
    // It goes on, but leaves the processors to others.
    set("pages_to_scan", "100")?;
    set("sleep_millisecs", "200")?;
    let seed = plan.seed;
    Ok(Box::new(move || {
        let words = region.words();
        for half in words.chunks_exact(words.len() / 2) {
            super::memory::verify_words(half, seed, 0)?;
        }
        match merged_pages() {
            0 => Err("no page is merged any more".into()),
            _ => Ok(()),
        }
    }))
}
