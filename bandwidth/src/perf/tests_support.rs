//! For tests: memory in which the first touch of each page is a separate fault.

use std::ops::Range;
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Anonymous small pages that were not touched yet.
pub struct Fresh {
    at: *mut u8,
    pages: usize,
}

const PAGE: usize = 4096;

pub fn fresh(pages: usize) -> Fresh {
    // SAFETY: the kernel chooses the address; no existing mapping is replaced.
    let at = unsafe {
        let flags = MapFlags::PRIVATE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = mmap_anonymous(ptr::null_mut(), pages * PAGE, protection, flags).unwrap();
        // One fault for each page, even where huge pages are enabled.
        let _ = madvise(at, pages * PAGE, Advice::LinuxNoHugepage);
        at
    };
    Fresh {
        at: at.cast(),
        pages,
    }
}

impl Fresh {
    pub fn touch(&mut self, pages: Range<usize>) {
        for page in pages {
            assert!(page < self.pages);
            // SAFETY: the page is within our mapping.
            unsafe { ptr::write_volatile(self.at.add(page * PAGE), 1) };
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference to it remains.
        let _ = unsafe { munmap(self.at.cast(), self.pages * PAGE) };
    }
}
