//! For tests: memory whose first touch of each page is a fault of its own.

use std::ops::Range;
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Anonymous memory of small pages, not touched yet.
pub struct Fresh {
    at: *mut u8,
    pages: usize,
}

const PAGE: usize = 4096;

pub fn fresh(pages: usize) -> Fresh {
    // SAFETY: the kernel chooses where; nothing that exists is replaced.
    let at = unsafe {
        let flags = MapFlags::PRIVATE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = mmap_anonymous(ptr::null_mut(), pages * PAGE, protection, flags).unwrap();
        // One fault for each page, also where huge pages are the rule.
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
            // SAFETY: the page is within the mapping, which is ours.
            unsafe { ptr::write_volatile(self.at.add(page * PAGE), 1) };
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody else knows of it.
        let _ = unsafe { munmap(self.at.cast(), self.pages * PAGE) };
    }
}
