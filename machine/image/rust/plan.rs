//! The copy plan and its bitmaps, safely: which DRAM pages lie in which CXL pages.

use crate::sys;

/// One piece of the plan: `pages` DRAM pages in as many CXL pages, both contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// First DRAM page, as a page frame number.
    pub dram_page: u64,
    /// First CXL page, counted from the window.
    pub cxl_page: u64,
    /// Number of pages.
    pub pages: u64,
}

/// The plan ended early: DRAM pages remain and every free CXL page is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pages to save do not fit into free CXL pages")]
pub struct CxlFull;

/// A bitmap of the first `bits` bits of `words`.
#[derive(Clone, Copy, Debug)]
pub struct Bitmap<'a> {
    words: &'a [u64],
    bits: u64,
}

impl<'a> Bitmap<'a> {
    /// # Panics
    /// When `words` has fewer than `bits` bits.
    pub fn new(words: &'a [u64], bits: u64) -> Self {
        assert!(
            bits.div_ceil(64) <= words.len() as u64,
            "{bits} bits in {} words",
            words.len()
        );
        Self { words, bits }
    }

    /// Set bits from `first` on.
    pub fn count(&self, first: u64) -> u64 {
        // SAFETY: reads words of bits in [first, bits) only, and `new` checked that they exist.
        unsafe { sys::dormouse_bitmap_count(self.words.as_ptr(), first, self.bits) }
    }

    /// The first set bit from `from` on, or the number of bits.
    pub fn next_set(&self, from: u64) -> u64 {
        // SAFETY: as in `count`.
        unsafe { sys::dormouse_bitmap_next_set(self.words.as_ptr(), from, self.bits) }
    }

    /// The first clear bit from `from` on, or the number of bits.
    pub fn next_clear(&self, from: u64) -> u64 {
        // SAFETY: as in `count`.
        unsafe { sys::dormouse_bitmap_next_clear(self.words.as_ptr(), from, self.bits) }
    }
}

/// Sets `count` bits from `first` on.
///
/// # Panics
/// When they do not all lie in `words`.
pub fn set_range(words: &mut [u64], first: u64, count: u64) {
    check_range(words, first, count);
    // SAFETY: touches the words of these bits only, which were just checked.
    unsafe { sys::dormouse_bitmap_set_range(words.as_mut_ptr(), first, count) };
}

/// Clears `count` bits from `first` on.
///
/// # Panics
/// When they do not all lie in `words`.
pub fn clear_range(words: &mut [u64], first: u64, count: u64) {
    check_range(words, first, count);
    // SAFETY: touches the words of these bits only, which were just checked.
    unsafe { sys::dormouse_bitmap_clear_range(words.as_mut_ptr(), first, count) };
}

fn check_range(words: &[u64], first: u64, count: u64) {
    let end = first
        .checked_add(count)
        .expect("a range of bits that does not wrap");
    assert!(
        end.div_ceil(64) <= words.len() as u64,
        "bit {end} in {} words",
        words.len()
    );
}

/// The pieces of the plan, in the order in which firmware copies and digests them.
pub struct Plan<'a> {
    plan: sys::dormouse_plan,
    bitmaps: std::marker::PhantomData<&'a [u64]>,
}

impl<'a> Plan<'a> {
    /// `dram`: set bits are saved. `cxl`: clear bits from `first_cxl_page` on are free.
    pub fn new(dram: Bitmap<'a>, cxl: Bitmap<'a>, first_cxl_page: u64) -> Self {
        let mut plan = std::mem::MaybeUninit::<sys::dormouse_plan>::zeroed();
        // SAFETY: the function fills the whole plan; the bitmaps outlive it by 'a.
        let plan = unsafe {
            sys::dormouse_plan_init(
                plan.as_mut_ptr(),
                dram.words.as_ptr(),
                dram.bits,
                cxl.words.as_ptr(),
                cxl.bits,
                first_cxl_page,
            );
            plan.assume_init()
        };
        Self {
            plan,
            bitmaps: std::marker::PhantomData,
        }
    }
}

impl Iterator for Plan<'_> {
    type Item = Result<Copy, CxlFull>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut copy = sys::dormouse_copy::default();
        // SAFETY: the plan was made by `new`, so its bitmaps have all the bits it reads.
        match unsafe { sys::dormouse_plan_next(&mut self.plan, &mut copy) } {
            1 => Some(Ok(Copy {
                dram_page: copy.dram_page,
                cxl_page: copy.cxl_page,
                pages: copy.pages,
            })),
            0 => None,
            _ => {
                self.plan.dram_pages = 0;
                self.plan.dram_end = 0;
                self.plan.dram_next = 0;
                Some(Err(CxlFull))
            }
        }
    }
}
