//! Everything that an image's header copies and mailbox say, by name, for people and scripts.

use std::io;

use serde::{Serialize, Serializer};

use crate::check::{self, HEADER_BYTES, Header};
use crate::names::{ImageKind, Outcome, Persistence, Reason, State, UserCheck, phase_name};
use crate::source::SleepImage;
use crate::sys;

fn as_hex<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{value:#018x}"))
}

/// What one header copy is worth.
#[derive(Clone, Debug, Serialize)]
pub struct CopyView {
    /// Whether this copy can be used.
    pub valid: bool,
    /// `ok`, or why it is not valid; `no-image` when it holds zeros only.
    pub reason: Reason,
    /// None unless the magic is right.
    pub generation: Option<u64>,
    /// State of the image; None unless the magic is right.
    pub state: Option<State>,
}

/// Times of one phase; all 0 when it did not happen.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseView {
    /// Name of the phase.
    pub name: &'static str,
    /// Begin, in nanoseconds since the reset of that power cycle.
    pub begin_ns: u64,
    /// End, on the same clock.
    pub end_ns: u64,
    /// None when the phase did not happen or its end was never written.
    pub duration_ns: Option<u64>,
}

/// What only an image of the kernel's snapshot has.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotView {
    /// Of the kernel that sleeps.
    #[serde(serialize_with = "as_hex")]
    pub kernel_digest: u64,
    /// Digest of firmware's whole memory map, RAM or not.
    #[serde(serialize_with = "as_hex")]
    pub firmware_map_digest: u64,
    /// The device in which user pages lie.
    pub node_base: u64,
    /// Bytes of that device.
    pub node_bytes: u64,
    /// Pages of memory that the snapshot counts.
    pub present_pages: u64,
    /// Those of them on the node, which is absent when the machine wakes.
    pub node_present_pages: u64,
}

/// How a sealed image was sealed.
#[derive(Clone, Debug, Serialize)]
pub struct SealView {
    /// 1: AES-256-GCM in chunks.
    pub algorithm: u32,
    /// What held the key: 1 a passphrase, 2 a key file, 3 the TPM.
    pub key_source: u32,
    /// The monotonic counter when it was made; 0 where there is none.
    pub counter: u64,
    /// Offset of the table of tags, in bytes from the head.
    pub tag_table_offset: u64,
    /// Bytes of that table.
    pub tag_table_bytes: u64,
}

/// Every field of a header, in its order. Digests and serials are hexadecimal in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct HeaderView {
    /// Version of the format.
    pub version: u32,
    /// Bytes of the header.
    pub header_bytes: u32,
    /// Generation; of two valid copies the larger one counts.
    pub generation: u64,
    /// State of the image.
    pub state: State,
    /// Features: 1 where the image is sealed.
    pub flags: u32,
    /// Physical address of the CXL window.
    pub cxl_base: u64,
    /// Bytes of the CXL window.
    pub cxl_bytes: u64,
    /// Bytes of the reserved part at the begin of the window.
    pub reserved_bytes: u64,
    /// Bytes of RAM that firmware gives to the operating system.
    pub dram_bytes: u64,
    /// Highest usable page frame number plus one.
    pub dram_pages: u64,
    /// Digest of the RAM ranges.
    #[serde(serialize_with = "as_hex")]
    pub memory_map_digest: u64,
    /// Serial number of the CXL device.
    #[serde(serialize_with = "as_hex")]
    pub device_serial: u64,
    /// The device's count of failed flushes.
    pub dirty_shutdown_count: u64,
    /// Offset of the bitmap of DRAM pages to save, in bytes from the window.
    pub dram_bitmap_offset: u64,
    /// Bytes of that bitmap.
    pub dram_bitmap_bytes: u64,
    /// XXH64 of that bitmap.
    #[serde(serialize_with = "as_hex")]
    pub dram_bitmap_digest: u64,
    /// Offset of the bitmap of occupied CXL pages, in bytes from the window.
    pub cxl_bitmap_offset: u64,
    /// Bytes of that bitmap.
    pub cxl_bitmap_bytes: u64,
    /// XXH64 of that bitmap.
    #[serde(serialize_with = "as_hex")]
    pub cxl_bitmap_digest: u64,
    /// Offset of the first page that may hold saved data, in bytes from the window.
    pub data_offset: u64,
    /// Pages that the kernel requested to save.
    pub request_pages: u64,
    /// Pages that firmware saved.
    pub saved_pages: u64,
    /// XXH64 of the saved pages in the order of the plan.
    #[serde(serialize_with = "as_hex")]
    pub saved_digest: u64,
    /// Pages that firmware restored.
    pub restored_pages: u64,
    /// Physical address of the wake vector.
    pub wake_vector: u64,
    /// Restores that began with this image.
    pub restore_attempts: u32,
    /// The way to sleep that made it.
    pub kind: ImageKind,
    /// Sleeps since the device was first used.
    pub sleep_count: u64,
    /// Resumes since the device was first used.
    pub resume_count: u64,
    /// How the last attempt to sleep and wake ended.
    pub last_outcome: Outcome,
    /// Its reason.
    pub last_reason: Reason,
    /// The detail of its reason.
    pub last_detail: u64,
    /// Times of the phases.
    pub phases: Vec<PhaseView>,
    /// The source that vouches that the device keeps its contents without power.
    pub persistence: Persistence,
    /// Which user pages have a digest.
    pub user_check: UserCheck,
    /// Offset of the table of user pages' digests, in bytes from the window.
    pub user_table_offset: u64,
    /// Bytes of that table.
    pub user_table_bytes: u64,
    /// XXH64 of that table.
    #[serde(serialize_with = "as_hex")]
    pub user_table_digest: u64,
    /// Groups of 64 pages with a digest.
    pub user_groups: u64,
    /// User pages with a digest.
    pub user_pages: u64,
    /// None unless the kind is `snapshot`.
    pub snapshot: Option<SnapshotView>,
    /// None unless the image is sealed.
    pub seal: Option<SealView>,
    /// XXH64 of the header.
    #[serde(serialize_with = "as_hex")]
    pub header_digest: u64,
}

impl From<&Header> for HeaderView {
    fn from(header: &Header) -> Self {
        let phases = header
            .phase
            .iter()
            .zip(0u32..)
            .map(|(phase, number)| PhaseView {
                name: phase_name(number),
                begin_ns: phase.begin_ns,
                end_ns: phase.end_ns,
                duration_ns: phase
                    .end_ns
                    .checked_sub(phase.begin_ns)
                    .filter(|_| phase.end_ns != 0),
            });
        Self {
            version: header.version,
            header_bytes: header.header_bytes,
            generation: header.generation,
            state: State(header.state),
            flags: header.flags,
            cxl_base: header.cxl_base,
            cxl_bytes: header.cxl_bytes,
            reserved_bytes: header.reserved_bytes,
            dram_bytes: header.dram_bytes,
            dram_pages: header.dram_pages,
            memory_map_digest: header.memory_map_digest,
            device_serial: header.device_serial,
            dirty_shutdown_count: header.dirty_shutdown_count,
            dram_bitmap_offset: header.dram_bitmap_offset,
            dram_bitmap_bytes: header.dram_bitmap_bytes,
            dram_bitmap_digest: header.dram_bitmap_digest,
            cxl_bitmap_offset: header.cxl_bitmap_offset,
            cxl_bitmap_bytes: header.cxl_bitmap_bytes,
            cxl_bitmap_digest: header.cxl_bitmap_digest,
            data_offset: header.data_offset,
            request_pages: header.request_pages,
            saved_pages: header.saved_pages,
            saved_digest: header.saved_digest,
            restored_pages: header.restored_pages,
            wake_vector: header.wake_vector,
            restore_attempts: header.restore_attempts,
            kind: ImageKind(header.kind),
            sleep_count: header.sleep_count,
            resume_count: header.resume_count,
            last_outcome: Outcome(header.last_outcome),
            last_reason: Reason(header.last_reason),
            last_detail: header.last_detail,
            phases: phases.collect(),
            persistence: Persistence(header.persistence),
            user_check: UserCheck(header.user_check),
            user_table_offset: header.user_table_offset,
            user_table_bytes: header.user_table_bytes,
            user_table_digest: header.user_table_digest,
            user_groups: header.user_groups,
            user_pages: header.user_pages,
            snapshot: (header.kind == ImageKind::SNAPSHOT.0).then_some(SnapshotView {
                kernel_digest: header.snapshot.kernel_digest,
                firmware_map_digest: header.snapshot.firmware_map_digest,
                node_base: header.snapshot.node_base,
                node_bytes: header.snapshot.node_bytes,
                present_pages: header.snapshot.present_pages,
                node_present_pages: header.snapshot.node_present_pages,
            }),
            seal: crate::snapshot::is_sealed(header).then_some(SealView {
                algorithm: header.encryption.algorithm,
                key_source: header.encryption.key_source,
                counter: header.encryption.counter,
                tag_table_offset: header.encryption.tag_table_offset,
                tag_table_bytes: header.encryption.tag_table_bytes,
            }),
            header_digest: header.header_digest,
        }
    }
}

/// What the kernel asked last and what firmware answered.
#[derive(Clone, Debug, Serialize)]
pub struct MailboxView {
    /// Whether the mailbox has its magic number.
    pub valid: bool,
    /// `sleep`, `check` or `unknown`.
    pub command: &'static str,
    /// None while firmware has not answered.
    pub answer: Option<Reason>,
    /// Detail of the answer.
    pub detail: u64,
    /// Bytes that a sleep needs.
    pub needed_bytes: u64,
    /// Bytes of CXL memory available.
    pub available_bytes: u64,
}

impl From<&sys::dormouse_mailbox> for MailboxView {
    fn from(mailbox: &sys::dormouse_mailbox) -> Self {
        let pending = mailbox.status == sys::DORMOUSE_STATUS_PENDING;
        Self {
            valid: mailbox.magic == sys::DORMOUSE_MAILBOX_MAGIC,
            command: match mailbox.command {
                sys::DORMOUSE_CMD_SLEEP => "sleep",
                sys::DORMOUSE_CMD_CHECK => "check",
                _ => "unknown",
            },
            answer: (!pending).then_some(Reason(mailbox.status)),
            detail: mailbox.detail,
            needed_bytes: mailbox.needed_bytes,
            available_bytes: mailbox.available_bytes,
        }
    }
}

/// All that can be said about an image without judging it.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Size of the file or device.
    pub source_bytes: u64,
    /// `ok`, or why neither header copy is valid.
    pub reason: Reason,
    /// Which copy counts (0 or 1).
    pub selected: Option<usize>,
    /// Both copies of the header.
    pub copies: Vec<CopyView>,
    /// The copy that counts; without one the copy that looks better, not to be trusted.
    pub header: Option<HeaderView>,
    /// None when nothing was ever asked.
    pub mailbox: Option<MailboxView>,
}

impl SleepImage<'_> {
    pub(crate) fn header_copies(&self) -> io::Result<check::HeaderCopies> {
        let mut copies = check::HeaderCopies::default();
        let mut bytes = [0; HEADER_BYTES];
        for (copy, index) in copies.iter_mut().zip(0u64..) {
            self.read_or_zeros(index * HEADER_BYTES as u64, &mut bytes)?;
            *copy = *check::header_from(&bytes);
        }
        Ok(copies)
    }

    fn mailbox(&self) -> io::Result<Option<MailboxView>> {
        let mut bytes = [0; size_of::<sys::dormouse_mailbox>()];
        self.read_or_zeros(sys::DORMOUSE_MAILBOX_OFFSET.into(), &mut bytes)?;
        // SAFETY: as many bytes as the structure has; it consists of integers only.
        let mailbox: sys::dormouse_mailbox = unsafe { std::mem::transmute(bytes) };
        Ok(bytes
            .iter()
            .any(|&byte| byte != 0)
            .then(|| MailboxView::from(&mailbox)))
    }

    /// Reads both header copies and the mailbox. What lies behind the end of a short file
    /// counts as zeros.
    ///
    /// # Errors
    /// Only when reading fails; a bad image is described, not refused.
    pub fn inspect(&self) -> io::Result<Inspection> {
        let headers = self.header_copies()?;
        let copies: Vec<CopyView> = headers.iter().map(copy_view).collect();
        let (selected, reason) = match check::select(&headers) {
            Ok(index) => (Some(index), Reason::OK),
            Err(reason) => (None, reason),
        };
        let shown = selected.or_else(|| {
            let known = (0..copies.len()).filter(|&index| copies[index].generation.is_some());
            known.max_by_key(|&index| (copies[index].reason.0, copies[index].generation))
        });
        Ok(Inspection {
            source_bytes: self.bytes(),
            reason,
            selected,
            header: shown.map(|index| HeaderView::from(&headers[index])),
            copies,
            mailbox: self.mailbox()?,
        })
    }
}

fn copy_view(header: &Header) -> CopyView {
    let is_zero = check::header_bytes(header).iter().all(|&byte| byte == 0);
    let reason = if is_zero {
        Reason::NO_IMAGE
    } else {
        check::header(header)
    };
    let known = header.magic == sys::DORMOUSE_MAGIC;
    CopyView {
        valid: reason.is_ok(),
        reason,
        generation: known.then_some(header.generation),
        state: known.then_some(State(header.state)),
    }
}
