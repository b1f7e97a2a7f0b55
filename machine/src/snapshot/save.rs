//! The last steps down: everything stands still, the kernel's snapshot goes to the head, power off.
//!
//! From the moment at which the snapshot is made until the power is gone, nothing may change that
//! is not in it: this process keeps its own memory in DRAM, which is in the snapshot, and the node
//! takes no new page of it.

use std::io;

use dormouse_image::check::Header;
use dormouse_image::digest::{Xxh64, xxh64};
use dormouse_image::head::Head;
use dormouse_image::snapshot::tag_table_bytes;
use dormouse_image::{Outcome, Persistence, Reason, State, UserCheck, sys};
use dormouse_seal::{Sealer, Unsigned};
use rustix::system::{RebootCommand, reboot};

use crate::cut_point::CutPoint;
use crate::error::SleepError;
use crate::options::VerifyUserPages;
use crate::snapshot::boot_entry::{Waker, efi};
use crate::snapshot::kernel::{self, PAGE_BYTES, Side, Snapshot};
use crate::snapshot::seal::{self, Key};
use crate::snapshot::stream::{FromKernel, ToHead, copy_all};
use crate::snapshot::{Setup, facts, hibernation, pages};
use crate::system::clock::ResetClock;
use crate::target::Machine;
use dormouse_system::Root;

/// What the last steps need to know of the sleep.
pub struct Request<'a> {
    pub setup: &'a Setup,
    /// What wakes the machine.
    pub waker: &'a Waker,
    pub dram_nodes: &'a [u32],
    pub persistence: Persistence,
    pub verify: VerifyUserPages,
    pub reset_clock: &'a ResetClock,
    /// Whose key seals the snapshot, if it is sealed.
    pub key: Option<&'a Key>,
}

/// What a sleep that came back can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slept {
    pub saved_bytes: u64,
    pub restored_bytes: u64,
}

/// Sleeps; returns when the machine runs again.
///
/// # Errors
/// What was in the way. Then the machine runs on as before.
pub fn enter(machine: &Machine<'_>, request: &Request<'_>) -> Result<Slept, SleepError> {
    let root = machine.root;
    let mut head = request.setup.open_head(root, true)?;
    let mut header = prepare(root, &head, request)?;
    stay_in_dram(machine, request)?;
    // A program of the TPM can only run while others can.
    let sealer = request.key.map(Key::sealer).transpose()?;
    head.commit(&mut header);
    let result = sleep(root, request, &mut head, &mut header, sealer);
    let _ = kernel::clear_nosave(root);
    rustix::mm::munlockall().ok();
    let _ = memory_policy(&[]);
    match result {
        Ok(()) => judge(&head, request.setup.resume_count),
        Err(error) => {
            // The header may say that an image is complete: now it would be one of the past.
            refused(&mut head, &mut header, &error);
            Err(error)
        }
    }
}

/// A header for this machine as it is now, with the request in it.
fn prepare(root: &Root, head: &Head, request: &Request<'_>) -> Result<Box<Header>, SleepError> {
    let setup = request.setup;
    let present = facts::present_pages(root);
    let all: u64 = present.iter().map(|(_, pages)| pages).sum();
    let on_node: u64 = present
        .iter()
        .filter(|(node, _)| *node == setup.node.node)
        .map(|(_, pages)| pages)
        .sum();
    let facts = facts::gather(root, &setup.head, &setup.node, all - on_node)?;
    let previous = head.header().ok();
    let mut header =
        facts
            .new_header(previous.as_deref())
            .map_err(|reason| SleepError::Refused {
                reason: reason.name().to_owned(),
                detail: reason.text().to_owned(),
            })?;
    header.snapshot.present_pages = all;
    header.snapshot.node_present_pages = on_node;
    header.persistence = request.persistence.0;
    header.user_check = request.verify.check().0;
    header.state = State::PREPARED.0;
    Ok(header)
}

/// What this process writes after the snapshot was made must not be on the node, which keeps it.
fn stay_in_dram(machine: &Machine<'_>, request: &Request<'_>) -> Result<(), SleepError> {
    let failed = |what| move |source: io::Error| SleepError::Snapshot { step: what, source };
    memory_policy(request.dram_nodes).map_err(failed("keeping this process in DRAM"))?;
    let own = std::process::id() as i32;
    let node = request.setup.node.node;
    let dram = request.dram_nodes.first().copied().unwrap_or(0);
    let left = machine
        .pages
        .move_all(own, &[node], dram)
        .map_err(failed("moving this process to DRAM"))?;
    if left > 0 {
        let source = io::Error::other(format!("{left} pages are left on node {node}"));
        return Err(failed("moving this process to DRAM")(source));
    }
    let flags = rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE;
    rustix::mm::mlockall(flags)
        .map_err(io::Error::from)
        .map_err(failed("locking this process in memory"))
}

/// MPOL_BIND to these nodes, or the default where there are none.
fn memory_policy(nodes: &[u32]) -> io::Result<()> {
    const MPOL_DEFAULT: libc::c_long = 0;
    const MPOL_BIND: libc::c_long = 2;
    let mut mask = [0u64; 16];
    for node in nodes.iter().filter(|node| **node < 1024) {
        mask[*node as usize / 64] |= 1 << (node % 64);
    }
    let mode = if nodes.is_empty() {
        MPOL_DEFAULT
    } else {
        MPOL_BIND
    };
    let (mask, bits) = if nodes.is_empty() {
        (std::ptr::null(), 0)
    } else {
        (mask.as_ptr(), 1024usize)
    };
    // SAFETY: the kernel reads `bits` bits of the mask, or none.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn sleep(
    root: &Root,
    request: &Request<'_>,
    head: &mut Head,
    header: &mut Header,
    sealer: Option<Sealer>,
) -> Result<(), SleepError> {
    let failed = |step| move |source: io::Error| SleepError::Snapshot { step, source };
    let point = CutPoint::read(root);
    let node = &request.setup.node;
    kernel::set_nosave(root, node.base, node.bytes)
        .map_err(failed("keeping the node out of the snapshot"))?;
    let _passed =
        hibernation::pass_guard(root).map_err(failed("passing the guard of CXL memory"))?;
    let mut snapshot = Snapshot::open_to_make(root).map_err(failed("opening /dev/snapshot"))?;
    snapshot.freeze().map_err(failed("stopping all programs"))?;
    point.pass_named("prepared");
    match snapshot.create().map_err(failed("making the snapshot"))? {
        Side::Restored => {}
        Side::Made => {
            let image = (head, header);
            save(root, request, &mut snapshot, image, sealer, &point)?;
            call_waker(root, request.waker);
            // Only returns when the kernel refuses.
            let error = reboot(RebootCommand::PowerOff).err();
            if let Waker::Entry(number) = request.waker {
                let _ = efi::clear_boot_next(root, *number);
            }
            let source = error.map_or_else(|| io::Error::other("it came back"), io::Error::from);
            return Err(failed("switching the machine off")(source));
        }
    }
    snapshot.finish().map_err(failed("letting programs run"))
}

/// Writes bitmap, digests and snapshot, and commits. Nothing else runs.
fn save(
    root: &Root,
    request: &Request<'_>,
    snapshot: &mut Snapshot,
    (head, header): (&mut Head, &mut Header),
    sealer: Option<Sealer>,
    point: &CutPoint<'_>,
) -> Result<(), SleepError> {
    let failed = |step| move |source: io::Error| SleepError::Snapshot { step, source };
    let now_ns = || request.reset_clock.now_ns().unwrap_or(0);
    let phase = |number: u32| number as usize;
    let bytes = snapshot
        .bytes()
        .map_err(failed("asking for the size of the snapshot"))?;
    let room_bytes = header.cxl_bytes - header.data_offset;
    let tags_bytes = sealer.as_ref().map_or(0, |_| tag_table_bytes(bytes));
    if bytes.saturating_add(tags_bytes) > room_bytes {
        return Err(SleepError::NoSpace {
            stage: "the kernel's snapshot on the head",
            needed_bytes: bytes.saturating_add(tags_bytes),
            available_bytes: room_bytes,
            owners: Vec::new(),
        });
    }
    header.request_pages = bytes / PAGE_BYTES as u64;
    header.state = State::SAVING.0;
    head.commit(header);
    say(root, &format!("saving a snapshot of {bytes} bytes"));

    let check = UserCheck(header.user_check);
    header.phase[phase(sys::DORMOUSE_PHASE_USER_DIGEST)].begin_ns = now_ns();
    let node = &request.setup.node;
    let bitmap = pages::occupied(root, node.base, node.bytes)
        .map_err(failed("finding the occupied pages"))?;
    let made =
        pages::digests(root, check, &bitmap).map_err(failed("reading the programs' pages"))?;
    header.phase[phase(sys::DORMOUSE_PHASE_USER_DIGEST)].end_ns = now_ns();
    header.user_groups = made.groups;
    header.user_pages = made.pages;
    let bitmap = bytes_of(&bitmap);
    let table = bytes_of(&made.table);
    header.cxl_bitmap_digest = store(head, header.cxl_bitmap_offset, &bitmap);
    header.user_table_digest = store(head, header.user_table_offset, &table);

    header.phase[phase(sys::DORMOUSE_PHASE_SAVE_COPY)].begin_ns = now_ns();
    let unsigned = copy(snapshot, head, header, sealer, point)?;
    header.phase[phase(sys::DORMOUSE_PHASE_SAVE_COPY)].end_ns = now_ns();
    header.sleep_count += 1;
    if let Some(unsigned) = unsigned {
        let bytes = unsigned.sealed().bytes;
        store(head, header.data_offset + bytes, &unsigned.sealed().table);
        seal::finish(header, unsigned, &bitmap, &table);
    }
    pages::write_back(root).map_err(failed("writing the programs' pages back to the device"))?;
    point.pass_named("before-commit");
    header.state = State::SUSPENDED.0;
    head.commit(header);
    point.pass_named("after-commit");
    say(
        root,
        &format!("saved {} pages, power off", header.saved_pages),
    );
    Ok(())
}

/// As late as can be, and in no snapshot: a sleep that fails before has nothing to take back. Without it
/// the usual boot wakes the machine.
fn call_waker(root: &Root, waker: &Waker) {
    match waker {
        Waker::UsualBoot => {}
        Waker::NotTheEntry(why) => say(root, &format!("the boot entry {why}")),
        Waker::Entry(number) => match efi::set_boot_next(root, *number) {
            Ok(()) => say(root, &format!("Boot{number:04X} is to wake this machine")),
            Err(error) => say(root, &format!("Boot{number:04X} is not used: {error}")),
        },
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn store(head: &mut Head, offset: u64, bytes: &[u8]) -> u64 {
    head.store(offset, bytes, &mut Xxh64::new());
    xxh64(bytes)
}

/// Stores the snapshot, sealed or as it is; where it is sealed, the tag is still to be made.
fn copy(
    snapshot: &mut Snapshot,
    head: &mut Head,
    header: &mut Header,
    sealer: Option<Sealer>,
    point: &CutPoint<'_>,
) -> Result<Option<Unsigned>, SleepError> {
    let failed = |source: io::Error| SleepError::Snapshot {
        step: "reading the snapshot",
        source,
    };
    let mut from = FromKernel::new(snapshot, header);
    let mut to = ToHead::new(head, header, point);
    let unsigned = match sealer {
        Some(sealer) => Some(
            sealer
                .seal_stream(&mut from, &mut to, seal::threads())
                .map_err(|error| failed(io::Error::other(error)))?,
        ),
        None => {
            copy_all(&mut from, &mut to).map_err(failed)?;
            None
        }
    };
    let pages = from.pages();
    header.saved_digest = to.finish();
    header.request_pages = pages;
    header.saved_pages = pages;
    Ok(unsigned)
}

/// To the kernel's log, which is on the console: nothing else hears of it.
fn say(root: &Root, text: &str) {
    let _ = root.write("dev/kmsg", &format!("<5>dormouse: {text}\n"));
}

/// Leaves the header as one of a sleep that did not happen.
fn refused(head: &mut Head, header: &mut Header, error: &SleepError) {
    header.state = State::EMPTY.0;
    header.last_outcome = Outcome::REFUSED.0;
    let reason = match error {
        SleepError::NoSpace { .. } => Reason::NO_SPACE,
        _ => Reason::DISABLED,
    };
    header.last_reason = reason.0;
    header.last_detail = 0;
    head.commit(header);
}

/// Whether the machine slept: only `dormouse wake` consumes an image.
fn judge(head: &Head, resumes_before: u64) -> Result<Slept, SleepError> {
    let refused = |reason: String, detail: &str| SleepError::Refused {
        reason,
        detail: detail.to_owned(),
    };
    let header = head
        .header()
        .map_err(|reason| refused(reason.name().to_owned(), "after waking"))?;
    if header.state != State::CONSUMED.0 || header.resume_count <= resumes_before {
        return Err(refused("no-answer".to_owned(), State(header.state).name()));
    }
    Ok(Slept {
        saved_bytes: header.saved_pages * PAGE_BYTES as u64,
        restored_bytes: header.restored_pages * PAGE_BYTES as u64,
    })
}
