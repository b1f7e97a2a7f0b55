//! The machine's memory, mapped at its physical addresses, and what is in it.

use dormouse_medium::{Contents, Line, Random, View};

use crate::sys;

pub(crate) const PAGE: u64 = 4096;
const PAGE_WORDS: usize = 512;
/// No mapping of a program lies at these addresses.
pub(crate) const CXL_BASE: u64 = 4 << 30;
const BLOCK: u64 = 128 << 20;
/// One block for the image's own parts and saved pages, one for Linux.
/// Words of a bitmap of a block.
pub(crate) const BLOCK_WORDS: usize = (BLOCK / PAGE / 64) as usize;
pub(crate) const CXL_BYTES: u64 = 2 * BLOCK;
/// The lowest address that a program may map; below 1 MiB for the wake vector.
const LOW_DRAM: u64 = 0x1_0000;
const LOW_PAGES: u64 = 16;
const HIGH_DRAM: u64 = 0x10_0000;

/// How the library stores: chosen by the processor's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// MOVDIR64B, CLWB.
    Movdir64b,
    /// MOVNTI, CLFLUSHOPT.
    Movnti,
    /// Stores through the caches, CLFLUSH.
    Plain,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Movdir64b, Self::Movnti, Self::Plain];

    pub(crate) fn select(self) {
        let (ebx, ecx, edx) = match self {
            Self::Movdir64b => (1 << 24, 1 << 28, 1 << 26),
            Self::Movnti => (1 << 23, 0, 1 << 26),
            Self::Plain => (0, 0, 0),
        };
        // SAFETY: only the thread that holds the machine calls this or runs the C side.
        unsafe {
            sys::sim_cpuid_7_ebx = ebx;
            sys::sim_cpuid_7_ecx = ecx;
            sys::sim_cpuid_1_edx = edx;
        }
    }
}

/// A way to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Firmware saves pages into one window.
    Firmware,
    /// The kernel's snapshot goes to a head; the node beside it keeps the user pages.
    Snapshot,
}

/// What a machine is made of and what sleeps; page numbers and counts.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Pages of DRAM from 1 MiB on; 16 more lie below.
    pub high_pages: u64,
    /// DRAM pages that are saved, beside the wake vector's.
    pub saved: Vec<u64>,
    /// Pages of the window's second block that programs use.
    pub user: Vec<u64>,
    /// Which user pages have a digest: the number in the format.
    pub user_check: u32,
    /// How the library stores.
    pub method: Method,
    /// How it sleeps.
    pub way: Way,
}

impl Shape {
    /// A few pages: two runs of DRAM pages, two of user pages.
    pub fn small(method: Method) -> Self {
        let high = HIGH_DRAM / PAGE;
        let user = BLOCK / PAGE;
        Self {
            high_pages: 16,
            saved: vec![high, high + 1, high + 5],
            user: vec![user + 2, user + 3, user + 70],
            user_check: sys::DORMOUSE_USER_CHECK_ALL,
            method,
            way: Way::Firmware,
        }
    }

    /// The same, sleeping the other way.
    pub fn by(self, way: Way) -> Self {
        Self { way, ..self }
    }

    /// Up to `pages` pages, in runs of random lengths.
    pub fn random(random: &mut Random, pages: u64) -> Self {
        let high_pages = 8 + random.below(pages);
        let mut some = |first: u64, count: u64| {
            let odds = 1 + random.below(7);
            let mut on = false;
            (first..first + count)
                .filter(|_| {
                    if random.below(8) < odds {
                        on = random.below(2) == 0;
                    }
                    on
                })
                .collect::<Vec<_>>()
        };
        let saved = some(HIGH_DRAM / PAGE, high_pages);
        let user = some(BLOCK / PAGE, pages);
        Self {
            high_pages,
            saved,
            user,
            user_check: random.below(u64::from(sys::DORMOUSE_USER_CHECK_COUNT)) as u32,
            method: Method::ALL[random.below(3) as usize],
            way: Way::Firmware,
        }
    }

    pub(crate) fn wake_page(&self) -> u64 {
        LOW_DRAM / PAGE + 3
    }

    /// Ascending, the wake vector's page first.
    pub(crate) fn saved_pages(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.wake_page()).chain(self.saved.iter().copied())
    }

    pub(crate) fn geometry(&self) -> sys::dormouse_geometry {
        let mut geometry = sys::dormouse_geometry {
            cxl_base: CXL_BASE,
            // The head alone is a window of its own.
            cxl_bytes: match self.way {
                Way::Firmware => CXL_BYTES,
                Way::Snapshot => BLOCK,
            },
            reserved_bytes: BLOCK,
            device_serial: 7,
            range_count: 2,
            ..Default::default()
        };
        let ranges = [(LOW_DRAM, LOW_PAGES), (HIGH_DRAM, self.high_pages)];
        for (range, (base, pages)) in geometry.range.iter_mut().zip(ranges) {
            range.base = base;
            range.bytes = pages * PAGE;
        }
        geometry
    }

    /// The marks that the kernel makes: DRAM pages to save, window pages that are occupied.
    pub(crate) fn marks(&self) -> (Vec<u64>, Vec<u64>) {
        let end = HIGH_DRAM / PAGE + self.high_pages;
        let mut dram = vec![0u64; end.div_ceil(64) as usize];
        for page in self.saved_pages() {
            dram[(page / 64) as usize] |= 1 << (page % 64);
        }
        let mut cxl = vec![0u64; (CXL_BYTES / PAGE / 64) as usize];
        for page in &self.user {
            cxl[(page / 64) as usize] |= 1 << (page % 64);
        }
        (dram, cxl)
    }
}

/// The number that a page is filled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content(pub u64);

impl Content {
    fn word(self, page: u64, at: usize) -> u64 {
        // Few words of a page differ between two contents: few states after a power loss.
        match at {
            0 | 77 | 511 => Random::new(self.0 ^ page.wrapping_mul(0x9e37)).next_u64() ^ at as u64,
            _ => page,
        }
    }
}

/// The mapped memory. One at a time: the C side has one of everything.
#[derive(Debug)]
pub(crate) struct Memory {
    high_pages: u64,
    /// Window pages that may hold something.
    used: std::collections::BTreeSet<u64>,
}

impl Memory {
    pub(crate) fn map(high_pages: u64) -> Self {
        map_at(LOW_DRAM, LOW_PAGES * PAGE);
        map_at(HIGH_DRAM, high_pages * PAGE);
        map_at(CXL_BASE, CXL_BYTES);
        Self {
            high_pages,
            used: Default::default(),
        }
    }

    fn words(&self, address: u64) -> &[u64; PAGE_WORDS] {
        // SAFETY: callers name pages of the three mappings, which live as long as self.
        unsafe { &*(address as *const [u64; PAGE_WORDS]) }
    }

    fn words_mut(&mut self, address: u64) -> &mut [u64; PAGE_WORDS] {
        // SAFETY: as above, and nothing else runs while the Rust side holds the machine.
        unsafe { &mut *(address as *mut [u64; PAGE_WORDS]) }
    }

    /// The window is what the medium held; DRAM is what it is after a power cycle: anything.
    pub(crate) fn power_cycle(&mut self, contents: &Contents, garbage: u64) {
        for page in std::mem::take(&mut self.used) {
            if contents.page(page).is_none() {
                self.words_mut(CXL_BASE + page * PAGE).fill(0);
            }
        }
        for page in contents.pages() {
            let words = contents.page(page).expect("it is listed");
            self.words_mut(CXL_BASE + page * PAGE)
                .copy_from_slice(words);
            self.used.insert(page);
        }
        let high = HIGH_DRAM / PAGE..HIGH_DRAM / PAGE + self.high_pages;
        for page in (LOW_DRAM / PAGE..LOW_DRAM / PAGE + LOW_PAGES).chain(high) {
            self.words_mut(page * PAGE).fill(garbage);
        }
    }

    pub(crate) fn note_window_page(&mut self, page: u64) {
        self.used.insert(page);
    }

    /// Window pages that may hold something.
    pub(crate) fn window_pages(&self) -> Vec<u64> {
        self.used.iter().copied().collect()
    }

    pub(crate) fn fill_dram(&mut self, page: u64, content: Content) {
        for (at, word) in self.words_mut(page * PAGE).iter_mut().enumerate() {
            *word = content.word(page, at);
        }
    }

    pub(crate) fn fill_window(&mut self, page: u64, content: Content) {
        self.used.insert(page);
        for (at, word) in self
            .words_mut(CXL_BASE + page * PAGE)
            .iter_mut()
            .enumerate()
        {
            *word = content.word(page, at);
        }
    }

    pub(crate) fn dram_holds(&self, page: u64, content: Content) -> bool {
        let mut words = self.words(page * PAGE).iter().enumerate();
        words.all(|(at, &word)| word == content.word(page, at))
    }

    pub(crate) fn window_holds(&self, page: u64, content: Content) -> bool {
        let mut words = self.words(CXL_BASE + page * PAGE).iter().enumerate();
        words.all(|(at, &word)| word == content.word(page, at))
    }

    /// The header that counts, as the processor sees it.
    pub(crate) fn header(&self) -> Option<sys::dormouse_header> {
        let copies = CXL_BASE as *const sys::dormouse_header;
        let mut why = 0;
        // SAFETY: both copies lie in the mapped window; the function only reads them.
        unsafe {
            match sys::dormouse_header_select(copies, &mut why) {
                0 => Some(*copies),
                1 => Some(*copies.add(1)),
                _ => None,
            }
        }
    }
}

impl View for Memory {
    fn line(&self, offset: u64) -> Line {
        let at = (offset % PAGE / 8) as usize;
        let words = self.words(CXL_BASE + offset / PAGE * PAGE);
        words[at..at + 8].try_into().expect("eight words")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (base, bytes) in [
            (LOW_DRAM, LOW_PAGES * PAGE),
            (HIGH_DRAM, self.high_pages * PAGE),
            (CXL_BASE, CXL_BYTES),
        ] {
            // SAFETY: mappings of `map`, which nothing refers to any more.
            unsafe { libc::munmap(base as *mut _, bytes as usize) };
        }
    }
}

fn map_at(base: u64, bytes: u64) {
    // SAFETY: a new mapping at an address where there is none, or an error.
    let mapped = unsafe {
        libc::mmap(
            base as *mut _,
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    assert!(
        mapped.addr() as u64 == base,
        "cannot map {bytes} bytes at {base:#x}: {} (is vm.mmap_min_addr above 65536?)",
        std::io::Error::last_os_error()
    );
}
