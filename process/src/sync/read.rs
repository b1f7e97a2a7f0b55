//! Reads pages of processes and files.
//!
//! `process_vm_readv` is the fastest way to read the memory of a process, but it pins what it reads, and the kernel
//! gives a process a page of its own for that if the page is shared copy-on-write (`gup_must_unshare()`, since Linux
//! 6.0). All that a parent and its children share would be copied, and stay copied. Such pages are therefore read
//! through `/proc/PID/mem`, which does not pin.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use dormouse_system::proc::pagemap;

use crate::store::PAGE_BYTES;

pub(super) const PAGE: usize = PAGE_BYTES as usize;
/// In a record of /proc/PID/pagemap: the page is mapped once (Documentation/admin-guide/mm/pagemap.rst).
const EXCLUSIVE: u64 = 1 << 56;
const RECORD: usize = size_of::<u64>();

/// Where pages are read from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// The memory of a process; addresses.
    Process {
        /// The process.
        pid: i32,
        /// Whether another process shares pages of it copy-on-write.
        sharing: Sharing,
    },
    /// A file (shared memory); offsets.
    File(&'a File),
}

/// Whether another process shares pages of one copy-on-write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// None does: it stands, and has no relatives.
    Never,
    /// None did a moment ago, but it runs, and may fork at any time.
    NotYet,
    /// One may.
    Possible,
}

/// Pages in a row, and where they go in the store.
pub(super) struct Part<'a> {
    pub source: Source<'a>,
    pub page: u64,
    pub offset: u64,
    pub count: usize,
}

impl Part<'_> {
    /// In the memory of its process.
    fn remote(&self) -> libc::iovec {
        libc::iovec {
            iov_base: (self.page * PAGE_BYTES) as *mut libc::c_void,
            iov_len: self.count * PAGE,
        }
    }
}

/// Pages of a process, and as many pages of ours.
struct Pages<'a> {
    pid: i32,
    remote: &'a [libc::iovec],
    local: &'a [libc::iovec],
}

/// What is open of the process that was read last.
struct Opened {
    pid: i32,
    memory: File,
    pagemap: File,
}

/// Reads pages; each thread has one.
#[derive(Default)]
pub(super) struct Reader {
    opened: Option<Opened>,
    records: Vec<u8>,
}

impl Reader {
    /// Reads pages to where `local` says; returns the positions of those that cannot be read.
    pub fn read(&mut self, parts: &[Part<'_>], local: &[libc::iovec]) -> Vec<usize> {
        let mut lost = Vec::new();
        let mut at = 0;
        let mut index = 0;
        while index < parts.len() {
            // Parts of one process go together.
            let (pid, sharing) = match parts[index].source {
                Source::Process { pid, sharing } => (pid, sharing),
                Source::File(file) => {
                    let count = parts[index].count;
                    let offset = parts[index].page * PAGE_BYTES;
                    for page in 0..count {
                        let (to, _) = place_of(local, at + page);
                        // SAFETY: a page of the vector, which describes memory of ours that nothing else uses.
                        let to = unsafe { std::slice::from_raw_parts_mut(to, PAGE) };
                        if read_file_page(file, offset + (page * PAGE) as u64, to).is_err() {
                            lost.push(at + page);
                        }
                    }
                    at += count;
                    index += 1;
                    continue;
                }
            };
            let same = parts[index..]
                .iter()
                .take_while(
                    |part| matches!(part.source, Source::Process { pid: other, .. } if other == pid),
                )
                .count();
            let mine = &parts[index..index + same];
            let total = mine.iter().map(|part| part.count).sum::<usize>();
            let pages = Pages {
                pid,
                remote: &mine.iter().map(Part::remote).collect::<Vec<_>>(),
                local: &rest_of(local, at, total),
            };
            let may_share = match sharing {
                Sharing::Never => false,
                Sharing::NotYet => self.has_forked(pid, &mine[0]),
                Sharing::Possible => true,
            };
            let lost_of_it = if may_share {
                self.read_what_may_be_shared(&pages, mine)
            } else {
                self.read_pinned(&pages, 0..total)
            };
            lost.extend(lost_of_it.into_iter().map(|page| at + page));
            at += total;
            index += same;
        }
        lost
    }

    fn opened(&mut self, pid: i32) -> io::Result<&Opened> {
        let opened = match self.opened.take() {
            Some(opened) if opened.pid == pid => opened,
            _ => Opened {
                pid,
                memory: File::open(format!("/proc/{pid}/mem"))?,
                pagemap: pagemap::open(pid)?,
            },
        };
        Ok(self.opened.insert(opened))
    }

    /// Pages that only this process has are pinned, others are not.
    fn read_what_may_be_shared(&mut self, pages: &Pages<'_>, parts: &[Part<'_>]) -> Vec<usize> {
        let exclusive = self.exclusive(pages.pid, parts);
        let (mut lost, mut done) = (Vec::new(), 0);
        for run in exclusive.chunk_by(|one, next| one == next) {
            let range = done..done + run.len();
            done = range.end;
            lost.extend(match run[0] {
                true => self.read_pinned(pages, range),
                false => self.read_unpinned(pages, range),
            });
        }
        lost
    }

    /// Whether a process that had no relatives has some now. When a process forks, all of its pages become shared, so
    /// one tells of all; only what is written afterwards is its own again.
    fn has_forked(&mut self, pid: i32, part: &Part<'_>) -> bool {
        let first = Part { count: 1, ..*part };
        self.exclusive(pid, &[first]) == [false]
    }

    /// Of each page, whether it is known to be mapped once.
    fn exclusive(&mut self, pid: i32, parts: &[Part<'_>]) -> Vec<bool> {
        let mut records = std::mem::take(&mut self.records);
        let mut exclusive = Vec::new();
        for part in parts {
            records.resize(part.count * RECORD, 0);
            let got = self.opened(pid).and_then(|opened| {
                opened
                    .pagemap
                    .read_exact_at(&mut records, part.page * RECORD as u64)
            });
            exclusive.extend(records.chunks_exact(RECORD).map(|record| {
                let record = u64::from_ne_bytes(record.try_into().expect("eight bytes"));
                got.is_ok() && record & EXCLUSIVE != 0
            }));
        }
        self.records = records;
        exclusive
    }

    /// By `process_vm_readv`; the positions of pages that cannot be read.
    fn read_pinned(&mut self, pages: &Pages<'_>, range: Range<usize>) -> Vec<usize> {
        let remote = rest_of(pages.remote, range.start, range.len());
        let local = rest_of(pages.local, range.start, range.len());
        // SAFETY: `local` describes memory of ours that nothing else uses; the remote vector is
        // only looked up by the kernel.
        let got = unsafe {
            libc::process_vm_readv(
                pages.pid,
                local.as_ptr(),
                local.len() as libc::c_ulong,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        // It ends before a page that is not readable for the program, or gone; so are most that follow.
        let done = range.start + usize::try_from(got).unwrap_or(0) / PAGE;
        self.read_unpinned(pages, done..range.end)
    }

    /// As a debugger would, whatever the protection is; the positions of pages that cannot be read.
    fn read_unpinned(&mut self, pages: &Pages<'_>, range: Range<usize>) -> Vec<usize> {
        let (mut lost, mut page) = (Vec::new(), range.start);
        while page < range.end {
            let (address, there) = place_of(pages.remote, page);
            let (to, room) = place_of(pages.local, page);
            let run = there.min(room).min(range.end - page);
            // SAFETY: pages of one piece of the vector, which describes memory of ours that nothing else uses.
            let to = unsafe { std::slice::from_raw_parts_mut(to, run * PAGE) };
            let mut read = |skip: usize, to: &mut [u8]| {
                let at = (address.addr() + skip * PAGE) as u64;
                self.opened(pages.pid)
                    .and_then(|opened| opened.memory.read_exact_at(to, at))
            };
            if read(0, to).is_err() {
                for (index, to) in to.chunks_mut(PAGE).enumerate() {
                    if read(index, to).is_err() {
                        lost.push(page + index);
                    }
                }
            }
            page += run;
        }
        lost
    }
}

/// The last page of a file may be short: the rest of it reads as zeros.
fn read_file_page(file: &File, offset: u64, to: &mut [u8]) -> io::Result<()> {
    let mut got = 0;
    while got < to.len() {
        match file.read_at(&mut to[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    to[got..].fill(0);
    Ok(())
}

/// Where page number `page` of a vector lies, and how many pages there are from there on to the end of the piece.
fn place_of(vector: &[libc::iovec], page: usize) -> (*mut u8, usize) {
    let mut skip = page * PAGE;
    for piece in vector {
        if skip < piece.iov_len {
            let place = piece.iov_base.cast::<u8>().wrapping_add(skip);
            return (place, (piece.iov_len - skip) / PAGE);
        }
        skip -= piece.iov_len;
    }
    unreachable!("page {page} is past the end of what is read")
}

/// So many pages of a vector, from page number `skip` on.
fn rest_of(vector: &[libc::iovec], skip: usize, pages: usize) -> Vec<libc::iovec> {
    let (mut skip, mut left) = (skip * PAGE, pages * PAGE);
    let mut rest = Vec::with_capacity(vector.len());
    for piece in vector {
        if skip >= piece.iov_len {
            skip -= piece.iov_len;
            continue;
        }
        let bytes = (piece.iov_len - skip).min(left);
        if bytes == 0 {
            break;
        }
        rest.push(libc::iovec {
            iov_base: piece.iov_base.wrapping_byte_add(skip),
            iov_len: bytes,
        });
        skip = 0;
        left -= bytes;
    }
    rest
}
