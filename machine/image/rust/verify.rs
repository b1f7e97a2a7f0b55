//! Judges an image as the next power-on would, as far as the image alone allows.
//!
//! Firmware compares the image with its own memory map and device; a file has neither. So
//! the geometry is taken from the header's own fields, the RAM ranges are taken to be all
//! of memory outside the CXL window, and everything else is checked by the same C code:
//! header, layout, bitmaps, counts, space, wake vector; then the user pages that have a digest
//! are compared, and the saved pages are read in the order of the plan and their digest is
//! compared.

use std::io;

use serde::Serialize;

use crate::check::{self, Geometry, Header, PAGE_BYTES, Refusal};
use crate::digest::Xxh64;
use crate::names::{ImageKind, Reason, State, UserCheck};
use crate::plan::{Bitmap, Plan};
use crate::snapshot::{Facts, Machine};
use crate::source::SleepImage;
use crate::user_pages;

/// Headers, bitmaps and digests of 8 TiB of DRAM and 8 TiB of CXL memory fit into this.
pub const MAX_METADATA_BYTES: u64 = 769 << 20;
const CHUNK_BYTES: u64 = 1 << 20;

/// An image that the next power-on restores, unless the machine has changed.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// Generation of the header.
    pub generation: u64,
    /// State of the image.
    pub state: State,
    /// Bytes of saved pages.
    pub saved_bytes: u64,
    /// Contiguous pieces of the copy plan.
    pub pieces: u64,
    /// Bytes that the saved pages need.
    pub needed_bytes: u64,
    /// Bytes of free CXL memory for them.
    pub available_bytes: u64,
    /// Which user pages had a digest, and how many bytes these are.
    pub user_check: UserCheck,
    /// Bytes of user pages with a digest.
    pub user_bytes: u64,
}

/// Why an image cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// the image is refused
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// reading it failed
    #[error("cannot read the image: {0}")]
    Io(#[from] io::Error),
    /// its bitmaps are larger than this program takes into memory
    #[error(
        "the image's bitmaps and digests end at {bytes} bytes; at most {MAX_METADATA_BYTES} are read"
    )]
    TooLarge {
        /// Where they end, in bytes from the window.
        bytes: u64,
    },
}

impl VerifyError {
    /// The refusal, when the image is at fault.
    pub fn refusal(&self) -> Option<Refusal> {
        if let Self::Refused(refusal) = self {
            Some(*refusal)
        } else {
            None
        }
    }
}

fn refuse<T>(reason: Reason, detail: u64) -> Result<T, VerifyError> {
    Err(Refusal { reason, detail }.into())
}

impl SleepImage<'_> {
    /// Whether the next power-on restores this image.
    ///
    /// # Errors
    /// The first thing that is wrong, as firmware would name it.
    pub fn verify(&self) -> Result<Verified, VerifyError> {
        self.verify_with_progress(|_, _| ())
    }

    /// The same; calls `progress(bytes done, bytes in all)` while it reads user pages and
    /// saved pages.
    ///
    /// # Errors
    /// As [`SleepImage::verify`].
    pub fn verify_with_progress(
        &self,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Verified, VerifyError> {
        let copies = self.header_copies()?;
        let header = match check::select(&copies) {
            Ok(index) => &copies[index],
            Err(reason) => return refuse(reason, 0),
        };
        if header.kind == ImageKind::SNAPSHOT.0 {
            return self.verify_snapshot(header, &mut progress);
        }
        let geometry = geometry_of(header).or_else(|reason| refuse(reason, 0))?;
        let mut judged = *header;
        // The file does not know the real map, with which these three would be compared.
        let own = geometry.new_header(None);
        judged.dram_bytes = own.dram_bytes;
        judged.dram_pages = own.dram_pages;
        judged.memory_map_digest = own.memory_map_digest;

        // Without bitmaps first: a lone header that is empty or consumed is called that, and
        // not too short. The impossible data_offset ends the checks before they read more.
        let allowed = 1 << State::SUSPENDED.0 | 1 << State::RESTORING.0;
        let alone = Header {
            data_offset: u64::MAX,
            ..judged
        };
        match check::image(&alone, &geometry, &[], allowed) {
            Err(refusal) if refusal.reason != Reason::LAYOUT => return Err(refusal.into()),
            _ => (),
        }
        if self.bytes() < header.cxl_bytes {
            return refuse(Reason::CXL_SIZE, self.bytes());
        }
        let window = self.metadata(header)?;
        check::image(&judged, &geometry, &window, allowed)?;

        let (_, needed_bytes, available_bytes) = check::space(&judged, &geometry, &window);
        let words = |offset: u64, bytes: u64| &window[offset as usize / 8..][..bytes as usize / 8];
        let plan = Plan::new(
            Bitmap::new(
                words(judged.dram_bitmap_offset, judged.dram_bitmap_bytes),
                judged.dram_pages,
            ),
            Bitmap::new(
                words(judged.cxl_bitmap_offset, judged.cxl_bitmap_bytes),
                judged.cxl_bytes / PAGE_BYTES,
            ),
            judged.data_offset / PAGE_BYTES,
        );
        let mut user_bytes = 0;
        let announced = header.user_pages.saturating_mul(PAGE_BYTES);
        let all_bytes = announced.saturating_add(needed_bytes);
        user_pages::compare(self, &judged, &window, |bytes| {
            user_bytes += bytes;
            progress(user_bytes, all_bytes.max(user_bytes));
        })??;
        let (digest, pieces) = self.saved_digest(plan, needed_bytes, &mut |done, all| {
            progress(user_bytes + done, user_bytes + all);
        })?;
        if digest != header.saved_digest {
            return refuse(Reason::SAVED_DIGEST, digest);
        }
        Ok(Verified {
            generation: header.generation,
            state: State(header.state),
            saved_bytes: needed_bytes,
            pieces,
            needed_bytes,
            available_bytes,
            user_check: UserCheck(header.user_check),
            user_bytes,
        })
    }

    /// The same for an image of the kernel's snapshot: the user pages lie on another device, so
    /// only their table is checked.
    fn verify_snapshot(
        &self,
        header: &Header,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Verified, VerifyError> {
        let (facts, judged) = facts_of(header).or_else(|reason| refuse(reason, 0))?;
        let allowed = 1 << State::SUSPENDED.0 | 1 << State::RESTORING.0;
        // As above: what is empty or consumed is called that, whatever the length of the file.
        let alone = Header {
            data_offset: u64::MAX,
            ..judged
        };
        match facts.check(&alone, &[], allowed) {
            Err(refusal) if refusal.reason != Reason::LAYOUT => return Err(refusal.into()),
            _ => (),
        }
        if self.bytes() < header.cxl_bytes {
            return refuse(Reason::CXL_SIZE, self.bytes());
        }
        let window = self.metadata(header)?;
        facts.check(&judged, &window, allowed)?;
        let saved_bytes = header.saved_pages * PAGE_BYTES;
        let mut hash = Xxh64::new();
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        let mut done_bytes = 0;
        while done_bytes < saved_bytes {
            let part = &mut buffer[..CHUNK_BYTES.min(saved_bytes - done_bytes) as usize];
            self.read_at(header.data_offset + done_bytes, part)?;
            hash.update(part);
            done_bytes += part.len() as u64;
            progress(done_bytes, saved_bytes);
        }
        if hash.finish() != header.saved_digest {
            return refuse(Reason::SAVED_DIGEST, hash.finish());
        }
        Ok(Verified {
            generation: header.generation,
            state: State(header.state),
            saved_bytes,
            pieces: 1,
            needed_bytes: saved_bytes,
            available_bytes: header.cxl_bytes - header.data_offset,
            user_check: UserCheck(header.user_check),
            user_bytes: 0,
        })
    }

    /// The window up to the saved pages, aligned. Empty when the layout check will refuse
    /// data_offset before it reads anything.
    fn metadata(&self, header: &Header) -> Result<Vec<u64>, VerifyError> {
        let bytes = header.data_offset;
        if bytes > header.reserved_bytes {
            return Ok(Vec::new());
        }
        if bytes > MAX_METADATA_BYTES {
            return Err(VerifyError::TooLarge { bytes });
        }
        let mut words = vec![0u64; (bytes as usize).div_ceil(8)];
        // SAFETY: the same memory as bytes; u64 has no invalid bit patterns.
        let view = unsafe {
            std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), words.len() * 8)
        };
        self.read_at(0, &mut view[..bytes as usize])?;
        Ok(words)
    }

    fn saved_digest(
        &self,
        plan: Plan<'_>,
        all_bytes: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(u64, u64), VerifyError> {
        let mut hash = Xxh64::new();
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        let (mut pieces, mut done_bytes) = (0, 0);
        for copy in plan {
            let Ok(copy) = copy else {
                return refuse(Reason::NO_SPACE, all_bytes);
            };
            pieces += 1;
            let mut at = copy.cxl_page * PAGE_BYTES;
            let end = at + copy.pages * PAGE_BYTES;
            while at < end {
                let part = &mut buffer[..CHUNK_BYTES.min(end - at) as usize];
                self.read_at(at, part)?;
                hash.update(part);
                at += part.len() as u64;
                done_bytes += part.len() as u64;
                progress(done_bytes, all_bytes);
            }
        }
        Ok((hash.finish(), pieces))
    }
}

/// The machine that a snapshot's header describes, and the header with the map of that one.
fn facts_of(header: &Header) -> Result<(Facts, Header), Reason> {
    let geometry = described(header)?;
    let image = &header.snapshot;
    let facts = Facts::new(
        &geometry,
        Machine {
            kernel_digest: image.kernel_digest,
            firmware_map_digest: image.firmware_map_digest,
            node_base: image.node_base,
            node_bytes: image.node_bytes,
            present_pages: image.present_pages.saturating_sub(image.node_present_pages),
        },
    );
    let own = facts.new_header(None)?;
    let judged = Header {
        dram_bytes: own.dram_bytes,
        dram_pages: own.dram_pages,
        memory_map_digest: own.memory_map_digest,
        ..*header
    };
    Ok((facts, judged))
}

/// The machine that the header describes, with all memory outside the window as RAM.
fn geometry_of(header: &Header) -> Result<Geometry, Reason> {
    let geometry = described(header)?;
    match geometry.check() {
        // A header whose memory ends inside the CXL window gets here with another end.
        Reason::OK if geometry.new_header(None).dram_pages != header.dram_pages => {
            Err(Reason::DRAM_SIZE)
        }
        Reason::OK => Ok(geometry),
        Reason::NOT_READY => Err(Reason::LAYOUT),
        reason => Err(reason),
    }
}

/// As the header has it, unchecked.
fn described(header: &Header) -> Result<Geometry, Reason> {
    let ranges = ranges_of(header)?;
    let (base, bytes) = (header.cxl_base, header.cxl_bytes);
    let geometry = Geometry::new(base, bytes, header.reserved_bytes, &ranges)?;
    Ok(geometry.with_device(header.device_serial, header.dirty_shutdown_count))
}

/// All memory outside of the window, up to the header's end of DRAM.
fn ranges_of(header: &Header) -> Result<Vec<(u64, u64)>, Reason> {
    let cxl_end = header
        .cxl_base
        .checked_add(header.cxl_bytes)
        .ok_or(Reason::CXL_SIZE)?;
    let dram_end = header
        .dram_pages
        .checked_mul(PAGE_BYTES)
        .ok_or(Reason::DRAM_SIZE)?;
    if header.dram_bytes > dram_end || !header.dram_bytes.is_multiple_of(PAGE_BYTES) {
        return Err(Reason::DRAM_SIZE);
    }
    let below = (0, dram_end.min(header.cxl_base));
    let above = (cxl_end, dram_end.saturating_sub(cxl_end));
    Ok([below, above]
        .into_iter()
        .filter(|&(_, bytes)| bytes != 0)
        .collect())
}
