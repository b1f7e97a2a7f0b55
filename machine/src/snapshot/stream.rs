//! The kernel's snapshot as a stream: read from /dev/snapshot into the head on the way down, from the
//! head into /dev/snapshot on the way up. Plain or sealed, both ends are these.

use std::io::{self, Read, Write};

use dormouse_image::check::Header;
use dormouse_image::digest::Xxh64;
use dormouse_image::head::{Device, Head};

use crate::cut_point::CutPoint;
use crate::snapshot::kernel::{self, PAGE_BYTES, Snapshot};

/// Pages that are read, stored or given back at a time: 1 MiB.
const PAGES_AT_ONCE: usize = 256;

/// What /dev/snapshot gives, checked: its first page counts this machine's memory where it should,
/// and there are no more pages than the kernel stated.
pub(super) struct FromKernel<'a> {
    snapshot: &'a mut Snapshot,
    present_pages: u64,
    max_pages: u64,
    pages: u64,
    buffer: Vec<u8>,
    /// What of the buffer is not given out yet.
    next: usize,
    end: usize,
}

impl<'a> FromKernel<'a> {
    /// `header`: with the counts that the snapshot must have.
    pub fn new(snapshot: &'a mut Snapshot, header: &Header) -> FromKernel<'a> {
        FromKernel {
            snapshot,
            present_pages: header.snapshot.present_pages,
            max_pages: header.request_pages,
            pages: 0,
            buffer: vec![0; PAGES_AT_ONCE * PAGE_BYTES],
            next: 0,
            end: 0,
        }
    }

    /// Pages so far.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    fn fill(&mut self) -> io::Result<()> {
        self.next = 0;
        self.end = self.snapshot.read_pages(&mut self.buffer)?;
        let is_first = self.pages == 0;
        self.pages += (self.end / PAGE_BYTES) as u64;
        let counted = kernel::present_pages(&self.buffer[..self.end]);
        if is_first && counted != Some(self.present_pages) {
            return Err(io::Error::other(
                "its first page does not count this machine's memory where it should: this \
                 kernel's snapshots are not known",
            ));
        }
        if self.pages > self.max_pages {
            return Err(io::Error::other("it is larger than the kernel stated"));
        }
        Ok(())
    }
}

impl Read for FromKernel<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.next == self.end {
            self.fill()?;
        }
        let bytes = to.len().min(self.end - self.next);
        to[..bytes].copy_from_slice(&self.buffer[self.next..][..bytes]);
        self.next += bytes;
        Ok(bytes)
    }
}

/// Stores what is written in the head, and digests it.
pub(super) struct ToHead<'a> {
    head: &'a mut Head,
    at: u64,
    end: u64,
    hash: Xxh64,
    halfway: u64,
    point: &'a CutPoint<'a>,
}

impl<'a> ToHead<'a> {
    /// From the header's `data_offset` on.
    pub fn new(head: &'a mut Head, header: &Header, point: &'a CutPoint<'a>) -> ToHead<'a> {
        let page_bytes = PAGE_BYTES as u64;
        ToHead {
            head,
            at: header.data_offset,
            end: header.cxl_bytes,
            hash: Xxh64::new(),
            halfway: header.data_offset + header.request_pages / 2 * page_bytes,
            point,
        }
    }

    /// The digest of all that was stored.
    pub fn finish(self) -> u64 {
        self.hash.finish()
    }
}

impl Write for ToHead<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.len() as u64 > self.end - self.at {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.head.store(self.at, data, &mut self.hash);
        self.at += data.len() as u64;
        if self.at >= self.halfway {
            self.point.pass_named("saving");
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the saved part of the head, and digests it.
pub(super) struct FromHead<'a> {
    head: &'a Device,
    at: u64,
    end: u64,
    hash: Xxh64,
}

impl<'a> FromHead<'a> {
    /// The header must have been checked: its parts lie in the head.
    pub fn new(head: &'a Device, header: &Header) -> FromHead<'a> {
        FromHead {
            head,
            at: header.data_offset,
            end: header.data_offset + header.saved_pages * PAGE_BYTES as u64,
            hash: Xxh64::new(),
        }
    }

    /// The digest of all that was read.
    pub fn finish(self) -> u64 {
        self.hash.finish()
    }
}

impl Read for FromHead<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let bytes = (to.len() as u64).min(self.end - self.at) as usize;
        let part = &mut to[..bytes];
        self.head.read_digest(self.at, part, &mut self.hash);
        self.at += bytes as u64;
        Ok(bytes)
    }
}

/// Why giving the snapshot back ended.
#[derive(Debug)]
pub(super) enum NotTaken {
    /// The first page is not the one of this image.
    FirstPage,
    /// The kernel refused it.
    Kernel(io::Error),
}

/// Gives what is written to the kernel, which only keeps it until the restore.
pub(super) struct ToKernel<'a> {
    snapshot: &'a mut Snapshot,
    present_pages: u64,
    node_present_pages: u64,
    pages: u64,
    halfway: u64,
    /// Less than a page that waits for its rest.
    rest: Vec<u8>,
    point: &'a CutPoint<'a>,
    pub refused: Option<NotTaken>,
}

impl<'a> ToKernel<'a> {
    pub fn new(
        snapshot: &'a mut Snapshot,
        header: &Header,
        point: &'a CutPoint<'a>,
    ) -> ToKernel<'a> {
        ToKernel {
            snapshot,
            present_pages: header.snapshot.present_pages,
            node_present_pages: header.snapshot.node_present_pages,
            pages: 0,
            halfway: header.saved_pages / 2,
            rest: Vec::with_capacity(PAGE_BYTES),
            point,
            refused: None,
        }
    }

    /// Whole pages.
    fn give(&mut self, pages: &mut [u8]) -> Result<(), NotTaken> {
        if self.pages == 0 {
            // The snapshot counts the node's pages, which this kernel does not have: it would be
            // refused.
            if kernel::present_pages(pages) != Some(self.present_pages) {
                return Err(NotTaken::FirstPage);
            }
            kernel::set_present_pages(pages, self.present_pages - self.node_present_pages);
        }
        self.snapshot.write_pages(pages).map_err(NotTaken::Kernel)?;
        self.pages += (pages.len() / PAGE_BYTES) as u64;
        if self.pages >= self.halfway {
            self.point.pass_named("restoring");
        }
        Ok(())
    }
}

impl Write for ToKernel<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(data);
        let whole = self.rest.len() / PAGE_BYTES * PAGE_BYTES;
        if whole > 0 {
            let mut rest = std::mem::take(&mut self.rest);
            let given = self.give(&mut rest[..whole]);
            rest.drain(..whole);
            self.rest = rest;
            given.map_err(|why| {
                let error = match &why {
                    NotTaken::FirstPage => io::Error::other("its first page"),
                    NotTaken::Kernel(error) => {
                        io::Error::new(error.kind(), format!("the kernel: {error}"))
                    }
                };
                self.refused = Some(why);
                error
            })?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Copies a whole stream, a MiB at a time.
///
/// # Errors
/// Reading or writing failed.
pub(super) fn copy_all(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; PAGES_AT_ONCE * PAGE_BYTES];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => to.write_all(&buffer[..bytes])?,
        }
    }
}
