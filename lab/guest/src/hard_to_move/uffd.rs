//! Memory that another thread provides through userfaultfd, and memory whose writes it tracks.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::thread;

use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl::{UFFDIO_API, UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_WRITEPROTECT};

use super::memory::{PAGE, Region, anonymous, ok, pattern};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

const MESSAGE_BYTES: usize = 32;
/// Documentation/admin-guide/mm/pagemap.rst: bit 57, the page is write-protected by userfaultfd.
const PAGEMAP_UFFD_WP: u64 = 1 << 57;
/// The pages that are written after protection.
const WRITTEN: [usize; 3] = [1, 4, 5];

pub struct Userfault {
    provided: Region,
    tracked: Region,
    seed: u64,
    _files: [File; 2],
}

fn open(features: u64) -> Result<File, GuestError> {
    // SAFETY: a new file descriptor without another owner.
    let fd = ok(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) })
        .doing("open userfaultfd")?;
    // SAFETY: as above.
    let file = unsafe { File::from_raw_fd(fd as i32) };
    let mut api = [raw::UFFD_API.into(), features, 0];
    control(&file, UFFDIO_API, &mut api).doing("agree with userfaultfd")?;
    Ok(file)
}

/// All arguments are structs of 64-bit words.
fn control(file: &File, request: u32, words: &mut [u64]) -> std::io::Result<()> {
    // SAFETY: the request's number holds the size of its struct, which `words` has.
    ok(unsafe { libc::ioctl(file.as_raw_fd(), request as _, words.as_mut_ptr()) }).map(drop)
}

/// Half of the pages come before the sleep, half after.
pub fn registered(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let provided = anonymous(plan.bytes, 0)?;
    provided.advise(libc::MADV_NOHUGEPAGE, "ask for small pages")?;
    let provider = open(0)?;
    let mut register = [
        provided.address(),
        plan.bytes as u64,
        raw::UFFDIO_REGISTER_MODE_MISSING.into(),
        0,
    ];
    control(&provider, UFFDIO_REGISTER, &mut register).doing("register memory")?;
    let contents = pattern(plan.bytes, plan.seed);
    let base = provided.address();
    let events = provider.try_clone().doing("share userfaultfd")?;
    thread::spawn(move || provide(events, base, &contents));
    for page in 0..provided.pages() / 2 {
        std::hint::black_box(provided.page(page)[0]);
    }

    let mut tracked = anonymous(plan.bytes, 0)?;
    tracked.advise(libc::MADV_NOHUGEPAGE, "ask for small pages")?;
    tracked.fill(plan.seed);
    let tracker = open((raw::UFFD_FEATURE_WP_UNPOPULATED | raw::UFFD_FEATURE_WP_ASYNC).into())?;
    let (start, length) = (tracked.address(), plan.bytes as u64);
    control(
        &tracker,
        UFFDIO_REGISTER,
        &mut [start, length, raw::UFFDIO_REGISTER_MODE_WP.into(), 0],
    )
    .doing("track memory")?;
    control(&tracker, UFFDIO_WRITEPROTECT, &mut [start, length, 1]).doing("protect memory")?;
    for page in WRITTEN {
        // Written, but with what was there.
        let word = &mut tracked.words_mut()[page * PAGE / 8];
        let value = *word;
        // SAFETY: a word of our own; volatile, so that the write really happens.
        unsafe { std::ptr::write_volatile(word, value) };
    }
    Ok(Box::new(Userfault {
        provided,
        tracked,
        seed: plan.seed,
        _files: [provider, tracker],
    }))
}

/// Answers faults with pages of the pattern.
fn provide(mut file: File, base: u64, contents: &[u8]) {
    let mut message = [0u8; MESSAGE_BYTES];
    while file.read_exact(&mut message).is_ok() {
        if u32::from(message[0]) != raw::UFFD_EVENT_PAGEFAULT {
            continue;
        }
        let address = u64::from_ne_bytes(message[16..24].try_into().expect("eight bytes"));
        let offset = (address - base) / PAGE as u64 * PAGE as u64;
        let source = contents[offset as usize..].as_ptr() as u64;
        let mut copy = [base + offset, source, PAGE as u64, 0, 0];
        let _ = control(&file, UFFDIO_COPY, &mut copy);
    }
}

impl Kind for Userfault {
    fn verify(&mut self) -> Result<(), String> {
        self.provided.verify(self.seed)?;
        let pagemap = File::open("/proc/self/pagemap").map_err(|error| error.to_string())?;
        for page in 0..self.tracked.pages() {
            let mut entry = [0; 8];
            let at = (self.tracked.address() / PAGE as u64 + page as u64) * 8;
            pagemap
                .read_exact_at(&mut entry, at)
                .map_err(|error| error.to_string())?;
            let protected = u64::from_ne_bytes(entry) & PAGEMAP_UFFD_WP != 0;
            if protected == WRITTEN.contains(&page) {
                return Err(format!("page {page}: write-protected is {protected}"));
            }
        }
        self.tracked.verify(self.seed)
    }
}
