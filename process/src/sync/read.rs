//! Reads pages of processes and files.
//!
//! `process_vm_readv` is the fastest way to read the memory of a process, but it pins what it reads, and the kernel
//! gives a process a page of its own for that if the page is shared copy-on-write (`gup_must_unshare()`, since Linux
//! 6.0). All that a parent and its children share would be copied, and stay copied. Such pages are therefore read
//! through `/proc/PID/mem`, which does not pin.

use std::fs::File;
use std::io;
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
        /// Whether another process may share pages of it copy-on-write.
        may_share: bool,
    },
    /// A file (shared memory); offsets.
    File(&'a File),
}

/// Pages in a row, and where they go in the store.
pub(super) struct Part<'a> {
    pub source: Source<'a>,
    pub page: u64,
    pub offset: u64,
    pub count: usize,
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
            let (pid, may_share) = match parts[index].source {
                Source::Process { pid, may_share } => (pid, may_share),
                Source::File(file) => {
                    let count = parts[index].count;
                    let offset = parts[index].page * PAGE_BYTES;
                    for page in 0..count {
                        let (to, _) = local_at(local, at + page);
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
            if may_share {
                self.read_what_may_be_shared(pid, mine, local, at, &mut lost);
            } else {
                self.read_pinned(pid, (mine, 0..total), local, at, &mut lost);
            }
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
    fn read_what_may_be_shared(
        &mut self,
        pid: i32,
        parts: &[Part<'_>],
        local: &[libc::iovec],
        first: usize,
        lost: &mut Vec<usize>,
    ) {
        let exclusive = self.exclusive(pid, parts);
        let mut done = 0;
        while done < exclusive.len() {
            let kind = exclusive[done];
            let same = exclusive[done..].iter().take_while(|other| **other == kind);
            let end = done + same.count();
            if kind {
                self.read_pinned(pid, (parts, done..end), local, first, lost);
            } else {
                self.read_unpinned(pid, (parts, done..end), local, first, lost);
            }
            done = end;
        }
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

    /// By `process_vm_readv`, some of the pages of these parts.
    fn read_pinned(
        &mut self,
        pid: i32,
        (parts, pages): (&[Part<'_>], std::ops::Range<usize>),
        local: &[libc::iovec],
        first: usize,
        lost: &mut Vec<usize>,
    ) {
        let mut done = pages.start;
        while done < pages.end {
            let left = pages.end - done;
            let remote = rest_of_remote(parts, done, left);
            let here = rest_of_local(local, first + done, left);
            // SAFETY: `local` describes memory of ours that nothing else uses; the remote vector is
            // only looked up by the kernel.
            let got = unsafe {
                libc::process_vm_readv(
                    pid,
                    here.as_ptr(),
                    here.len() as libc::c_ulong,
                    remote.as_ptr(),
                    remote.len() as libc::c_ulong,
                    0,
                )
            };
            done += usize::try_from(got).unwrap_or(0) / PAGE;
            if done < pages.end {
                // A page that this call cannot read: not readable for the program, or gone.
                self.read_unpinned(pid, (parts, done..done + 1), local, first, lost);
                done += 1;
            }
        }
    }

    /// As a debugger would, whatever the page's protection is.
    fn read_unpinned(
        &mut self,
        pid: i32,
        (parts, pages): (&[Part<'_>], std::ops::Range<usize>),
        local: &[libc::iovec],
        first: usize,
        lost: &mut Vec<usize>,
    ) {
        let mut page = pages.start;
        while page < pages.end {
            let (address, there) = remote_at(parts, page);
            let (to, room) = local_at(local, first + page);
            let run = there.min(room).min(pages.end - page);
            // SAFETY: pages of one piece of the vector, which describes memory of ours that nothing else uses.
            let to = unsafe { std::slice::from_raw_parts_mut(to, run * PAGE) };
            let mut read = |skip: usize, to: &mut [u8]| {
                let at = address + (skip * PAGE) as u64;
                self.opened(pid)
                    .and_then(|opened| opened.memory.read_exact_at(to, at))
            };
            if read(0, to).is_err() {
                for (index, to) in to.chunks_mut(PAGE).enumerate() {
                    if read(index, to).is_err() {
                        lost.push(first + page + index);
                    }
                }
            }
            page += run;
        }
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

/// Where page number `page` of the vector lies, and how many pages there are from there on to the end of the piece.
fn local_at(local: &[libc::iovec], page: usize) -> (*mut u8, usize) {
    let mut skip = page * PAGE;
    for piece in local {
        if skip < piece.iov_len {
            let to = piece.iov_base.cast::<u8>().wrapping_add(skip);
            return (to, (piece.iov_len - skip) / PAGE);
        }
        skip -= piece.iov_len;
    }
    unreachable!("page {page} is past the end of what is read")
}

/// The address of a page of these parts, and how many pages there are from there on in a row.
fn remote_at(parts: &[Part<'_>], mut skip: usize) -> (u64, usize) {
    for part in parts {
        if skip < part.count {
            return ((part.page + skip as u64) * PAGE_BYTES, part.count - skip);
        }
        skip -= part.count;
    }
    unreachable!("past the end of what is read")
}

fn rest_of_remote(parts: &[Part<'_>], mut skip: usize, mut left: usize) -> Vec<libc::iovec> {
    let mut rest = Vec::with_capacity(parts.len());
    for part in parts {
        if skip >= part.count {
            skip -= part.count;
            continue;
        }
        let pages = (part.count - skip).min(left);
        if pages == 0 {
            break;
        }
        rest.push(libc::iovec {
            iov_base: ((part.page + skip as u64) * PAGE_BYTES) as *mut libc::c_void,
            iov_len: pages * PAGE,
        });
        skip = 0;
        left -= pages;
    }
    rest
}

fn rest_of_local(local: &[libc::iovec], skip: usize, pages: usize) -> Vec<libc::iovec> {
    let (mut skip, mut left) = (skip * PAGE, pages * PAGE);
    let mut rest = Vec::with_capacity(local.len());
    for piece in local {
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
