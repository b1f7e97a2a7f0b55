//! A page that the kernel marked as broken: nothing may read it, not even firmware.

use super::children::{fork_with, wait};
use super::memory::{PAGE, anonymous, counter, verify_words};
use super::{Kind, Plan};
use crate::error::GuestError;

const POISONED_PAGE: usize = 3;
const ESTIMATE: &str = "/sys/power/dormouse/estimate";

pub fn poisoned(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let mut region = anonymous(plan.bytes.max(8 * PAGE), 0)?;
    region.advise(libc::MADV_NOHUGEPAGE, "ask for small pages")?;
    region.fill(plan.seed);
    region.advise_pages(POISONED_PAGE, 1, libc::MADV_HWPOISON, "poison a page")?;
    let seed = plan.seed;
    Ok(Box::new(move || {
        let words = region.words();
        let page = |page: usize| page * PAGE / 8;
        verify_words(&words[..page(POISONED_PAGE)], seed, 0)?;
        let first = POISONED_PAGE + 1;
        verify_words(&words[page(first)..], seed, first)?;
        let reader = fork_with(|| {
            let word = &raw const words[page(POISONED_PAGE)];
            // SAFETY: mapped, though broken: the signal is what is waited for.
            unsafe { std::ptr::read_volatile(word) };
            0
        });
        let status = wait(reader.map_err(|error| error.to_string())?);
        if status != 128 + libc::SIGBUS {
            return Err(format!("reading the poisoned page ended with {status}"));
        }
        match counter(ESTIMATE, "skipped_unreadable") {
            0 => Err(format!("{ESTIMATE} leaves no page out as unreadable")),
            _ => Ok(()),
        }
    }))
}
