//! The steps up, in the initramfs of an ordinary boot: any doubt ends in that boot, with the reason on
//! the console and in the head. A boot runs them up to twice ([`Place`]).
//!
//! ```text
//!  find the head ─▶ check header and machine ─▶ key, tag, counter ─▶ RESTORING
//!     ─▶ give the snapshot to the kernel ─▶ its digest ─▶ programs' pages ─▶ CONSUMED ─▶ restore
//!            nothing of the boot is lost until here                      never twice
//! ```

use std::fs;
use std::io;

use dormouse_image::check::Header;
use dormouse_image::head::{Device, Head};
use dormouse_image::snapshot::{Facts, is_sealed};
use dormouse_image::{Outcome, Reason, Refusal, State, sys};
use dormouse_seal::{Counter, Encryption, KeyError, Opener, SealError, TpmCounter};

use crate::cut_point::CutPoint;
use crate::node::DaxDevice;
use crate::snapshot::kernel::Snapshot;
pub use crate::snapshot::place::Place;
use crate::snapshot::place::{NoTurn, Seen, Turn};
use crate::snapshot::seal::{self, Ask, Mark, Settings, Source, at_console};
use crate::snapshot::stream::{FromHead, NotTaken, ToKernel, copy_all};
use crate::snapshot::{WAKE_RAN, cxl_regions, devices, facts, hibernation, pages};
use crate::system::lock::RUN_DIRECTORY;
use dormouse_system::Root;

const IMAGE: u32 = 1 << sys::DORMOUSE_STATE_SUSPENDED | 1 << sys::DORMOUSE_STATE_RESTORING;
/// How often a person may type the passphrase.
const TRIES: u32 = 3;
// include/uapi/linux/magic.h: what an initramfs is.
const RAMFS: u64 = 0x8584_58f6;
const TMPFS: u64 = 0x0102_1994;

/// Why this boot goes on as any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// There is nothing to wake; in words.
    Nothing(String),
    /// There is an image, and it is not used.
    ColdBoot {
        /// The reason as the image has it.
        refusal: Refusal,
        /// More than the reason's own sentence, or empty.
        what: String,
    },
    /// A later run of this boot decides; why.
    Later(&'static str),
    /// Nothing was done: an earlier run has decided, or another one is at it; in words.
    NotThisRun(&'static str),
}

impl Ended {
    /// The line for the console.
    pub fn line(&self) -> String {
        match self {
            Ended::Nothing(why) => format!("no sleep image: {why}"),
            Ended::Later(why) => format!("looking for a sleep image again after udev: {why}"),
            Ended::NotThisRun(why) => (*why).to_owned(),
            Ended::ColdBoot { refusal, what } => {
                let reason = refusal.reason;
                let what = if what.is_empty() { reason.text() } else { what };
                format!(
                    "cold boot: {}: {what} (detail {:#x})",
                    reason.name(),
                    refusal.detail
                )
            }
        }
    }
}

/// Wakes this machine if it sleeps; returns only if it does not.
pub fn run(root: &Root, place: Place) -> Ended {
    let _turn = match Turn::take(root) {
        Ok(turn) => turn,
        Err(NoTurn::Decided) => {
            return Ended::NotThisRun("an earlier run of this boot has decided already");
        }
        Err(NoTurn::Busy) => return Ended::NotThisRun("another run looks for an image"),
    };
    let settings = Settings::read(root);
    let regions = cxl_regions::restore(root);
    devices::settle(root);
    let all = devices::all(root);
    let found = devices::find_head(root, &all);
    let header = found.as_ref().map(|(_, header)| header.as_ref());
    if let Some(why) = place.puts_off(&seen(root, &all, header, &settings)) {
        return Ended::Later(why);
    }
    for trouble in regions {
        say(root, 3, &trouble);
    }
    let ended = look_for_image(root, &all, found, &settings, Refusing::Forgets);
    leave_mark(root, settings, place);
    ended
}

/// Wakes this machine from its own boot entry; returns only if it does not. The usual boot, which follows,
/// decides: no mark is left, and an image that can still be used stays as it is.
pub(crate) fn run_in_boot_entry(root: &Root) -> Ended {
    let settings = Settings::read(root);
    for trouble in cxl_regions::restore(root) {
        say(root, 3, &trouble);
    }
    devices::settle(root);
    let all = devices::all(root);
    let found = devices::find_head(root, &all);
    look_for_image(root, &all, found, &settings, Refusing::LeavesToUsualBoot)
}

/// What is done with an image that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusing {
    /// It is never used again.
    Forgets,
    /// The same, only where it is used up already.
    LeavesToUsualBoot,
}

fn seen<'a>(
    root: &Root,
    all: &[DaxDevice],
    header: Option<&Header>,
    settings: &'a Result<Option<Settings>, String>,
) -> Seen<'a> {
    let settings = settings.as_ref().ok().and_then(Option::as_ref);
    let has_image = header.is_some_and(holds_image);
    let node = header.map(|header| header.snapshot.node_base);
    let tpm = settings.and_then(Settings::tpm_device);
    Seen {
        has_head: header.is_some(),
        has_image,
        has_node: all.iter().any(|one| Some(one.base) == node),
        settings,
        has_tpm: tpm.is_none_or(|path| root.exists(&path)),
    }
}

fn holds_image(header: &Header) -> bool {
    header.state != State::EMPTY.0 && header.state != State::CONSUMED.0
}

/// A sleep refuses where there is no mark: then nobody would wake the machine.
fn leave_mark(root: &Root, settings: Result<Option<Settings>, String>, place: Place) {
    let mark = settings.and_then(|settings| {
        // First, and whatever else is wrong: what this boot passes by is an older image.
        let passed = settings
            .as_ref()
            .map_or(Ok(()), |settings| seal::pass_by(root, settings));
        let mut mark = Mark::of(root, settings.as_ref()).map_err(|error| error.to_string())?;
        mark.trouble = passed.err();
        Ok(mark)
    });
    let mut mark = mark.unwrap_or_else(|trouble| Mark {
        seal: seal::NO_SEAL.to_owned(),
        trouble: Some(trouble),
        memory: Vec::new(),
        place: String::new(),
        snapshot: None,
    });
    mark.snapshot = hibernation::takes_no_snapshot(root);
    if let Some(why) = &mark.snapshot {
        say(root, 3, why);
    }
    mark.memory = devices::seen(root);
    mark.place = place.name().to_owned();
    if let Some(trouble) = &mark.trouble {
        say(
            root,
            3,
            &format!("sealed images cannot be opened: {trouble}"),
        );
    }
    let _ = fs::create_dir_all(root.path(RUN_DIRECTORY))
        .and_then(|()| fs::write(root.path(WAKE_RAN), mark.text()));
}

fn look_for_image(
    root: &Root,
    all: &[DaxDevice],
    found: Option<(DaxDevice, Box<Header>)>,
    settings: &Result<Option<Settings>, String>,
    refusing: Refusing,
) -> Ended {
    let Some((device, header)) = found else {
        return no_head(root, all);
    };
    if !holds_image(&header) {
        return Ended::Nothing(no_image(&device.name, &header));
    }
    say(root, 5, &format!("waking from {}", device.name));
    let mut head = match devices::open_head(root, &device, true) {
        Ok(head) => head,
        Err(error) => return Ended::Nothing(error.to_string()),
    };
    let mut used_up = false;
    let refusal = match wake(
        root,
        all,
        &device,
        (&mut head, header),
        settings,
        &mut used_up,
    ) {
        Ok(never) => match never {},
        Err(refused) => refused,
    };
    if used_up || refusing == Refusing::Forgets {
        forget(root, all, &device, &mut head, refusal.0);
    }
    Ended::ColdBoot {
        refusal: refusal.0,
        what: refusal.1,
    }
}

/// Why the last image was not used stays said: a boot entry of its own may have used it up.
fn no_image(head: &str, header: &Header) -> String {
    let state = State(header.state).name();
    let last = Reason(header.last_reason).name();
    match header.last_outcome == Outcome::COLD_BOOT.0 {
        true => format!("{head} is {state}; the last image ended in a cold boot: {last}"),
        false => format!("{head} is {state}"),
    }
}

/// A head whose headers are damaged is none; say so where one was.
fn no_head(root: &Root, all: &[DaxDevice]) -> Ended {
    for device in all {
        let Ok(head) = devices::open_head(root, device, false) else {
            continue;
        };
        // A copy of which enough is left to know it.
        let looks_like_one = head
            .copies()
            .iter()
            .any(|copy| copy.magic == sys::DORMOUSE_MAGIC);
        if let (true, Err(reason)) = (looks_like_one, head.header()) {
            return Ended::ColdBoot {
                refusal: Refusal { reason, detail: 0 },
                what: String::new(),
            };
        }
    }
    Ended::Nothing(match all {
        [] => "no persistent memory is set up".to_owned(),
        some => format!("no device is a head: {}", devices::describe(some)),
    })
}

enum Never {}

type Refused = (Refusal, String);

fn refuse(reason: Reason, detail: u64) -> Refused {
    (Refusal { reason, detail }, String::new())
}

fn kernel_refused(step: &str, error: &io::Error) -> Refused {
    let detail = error.raw_os_error().unwrap_or(0) as u64;
    let refusal = Refusal {
        reason: Reason::RESTORE,
        detail,
    };
    (refusal, format!("{step}: {error}"))
}

fn wake(
    root: &Root,
    all: &[DaxDevice],
    device: &DaxDevice,
    (head, mut header): (&mut Head, Box<Header>),
    settings: &Result<Option<Settings>, String>,
    used_up: &mut bool,
) -> Result<Never, Refused> {
    let (node, facts, window) = check(root, all, device, head, &header)?;
    let sealed = open_seal(root, head.device(), &header, &window, settings)?;
    let point = CutPoint::read(root);

    header.restore_attempts += 1;
    header.state = State::RESTORING.0;
    head.commit(&mut header);
    say(root, 5, &format!("restoring {} pages", header.saved_pages));
    let _passed = hibernation::pass_guard(root)
        .map_err(|error| kernel_refused("passing the guard of CXL memory", &error))?;
    let mut snapshot = Snapshot::open_to_restore(root)
        .map_err(|error| kernel_refused("opening /dev/snapshot", &error))?;
    let opener = sealed.as_ref().map(|(opener, _)| opener);
    give_back(head.device(), &header, opener, &mut snapshot, &point)?;
    compare_user_pages(root, &node, &window, &header, &facts)?;
    if let Some((_, Some(counter))) = &sealed {
        // Now, because no program of the TPM runs any more when all have stopped. If the power goes
        // before the image is consumed, it is an older one.
        *used_up = true;
        counter
            .increment()
            .map_err(|error| no_key(error.to_string()))?;
    }
    snapshot
        .freeze()
        .map_err(|error| kernel_refused("stopping all programs", &error))?;
    point.pass_named("before-consume");

    header.restored_pages = header.saved_pages;
    header.resume_count += 1;
    header.last_outcome = Outcome::RESUMED.0;
    header.last_reason = Reason::OK.0;
    header.last_detail = 0;
    header.state = State::CONSUMED.0;
    *used_up = true;
    head.commit(&mut header);
    point.pass_named("after-consume");
    say(root, 5, "over to the system that slept");
    let error = snapshot.restore();
    Err(kernel_refused("going over to it", &error))
}

fn no_key(what: String) -> Refused {
    let refusal = Refusal {
        reason: Reason::KEY,
        detail: 0,
    };
    (refusal, what)
}

/// What opens a sealed image, with its metadata authenticated and its counter compared; none for an
/// image in plain text, where the machine takes those.
type OpenSeal = Option<(Opener, Option<TpmCounter>)>;

fn open_seal(
    root: &Root,
    head: &Device,
    header: &Header,
    window: &[u64],
    settings: &Result<Option<Settings>, String>,
) -> Result<OpenSeal, Refused> {
    let settings = settings.as_ref().map_err(|why| no_key(why.clone()))?;
    let settings = match (settings, is_sealed(header)) {
        (None, false) => return Ok(None),
        (None, true) => return Err(no_key(format!("/{} is not in this initramfs", seal::FILE))),
        // Whoever can write the device must not choose that no key is needed.
        (Some(_), false) => return Err(refuse(Reason::NOT_SEALED, 0)),
        (Some(settings), true) => settings,
    };
    let record = Encryption::from_record(&header.encryption).map_err(seal_refused)?;
    let ask: Ask = Box::new(|| at_console("Passphrase of the sleep image"));
    let source = settings.source(root, ask);
    let tries = if settings.key == Source::Passphrase {
        TRIES
    } else {
        1
    };
    let key = seal::unlock(source.as_ref(), &record.key_id, tries, |number| {
        if settings.key == Source::Passphrase {
            say(
                root,
                5,
                &format!("asking for the passphrase ({number} of {TRIES})"),
            );
        }
    });
    let key = key.map_err(|error| match error {
        KeyError::Other => refuse(Reason::WRONG_KEY, 0),
        error => no_key(error.to_string()),
    })?;
    let mut tags = vec![0; record.tag_table_bytes as usize];
    head.read(record.tag_table_offset, &mut tags);
    let bytes: Vec<u8> = window.iter().flat_map(|word| word.to_le_bytes()).collect();
    let opener = seal::opener(&key, &record, header, &bytes, tags).map_err(seal_refused)?;
    let counter = settings.counter();
    let value = match &counter {
        Some(counter) => counter.read().map_err(|error| no_key(error.to_string()))?,
        None => 0,
    };
    opener.check_counter(value).map_err(seal_refused)?;
    Ok(Some((opener, counter)))
}

fn seal_refused(error: SealError) -> Refused {
    let (reason, detail) = match &error {
        SealError::WrongKey => (Reason::WRONG_KEY, 0),
        SealError::Older { image, .. } => (Reason::OLDER, *image),
        SealError::Chunk { index } => (Reason::SEAL, *index),
        _ => (Reason::SEAL, 0),
    };
    (Refusal { reason, detail }, error.to_string())
}

/// All that can be checked before anything is written; gives the one copy of what lies before the
/// snapshot that all checks use, since others may write the device.
fn check(
    root: &Root,
    all: &[DaxDevice],
    device: &DaxDevice,
    head: &Head,
    header: &Header,
) -> Result<(DaxDevice, Facts, Vec<u64>), Refused> {
    let image = header.snapshot;
    let node = all
        .iter()
        .find(|one| one.base == image.node_base)
        .ok_or_else(|| {
            let what = "the device with the programs' pages is not there".to_owned();
            let refusal = Refusal {
                reason: Reason::CXL_SIZE,
                detail: image.node_base,
            };
            (refusal, what)
        })?;
    // Before all else: whatever an image may look like, its pages are overwritten then.
    if pages::is_in_use(root, node.base, node.bytes) {
        return Err(refuse(Reason::NODE_IN_USE, node.base));
    }
    let present: u64 = facts::present_pages(root)
        .iter()
        .map(|(_, pages)| pages)
        .sum();
    let facts = facts::gather(root, device, node, present).map_err(|error| {
        let refusal = Refusal {
            reason: Reason::NOT_READY,
            detail: 0,
        };
        (refusal, error.to_string())
    })?;
    // First without the parts behind the header: their place is known to be right only then.
    let alone = facts
        .new_header(None)
        .map_err(|reason| refuse(reason, 0))?
        .data_offset;
    let window = head.device().read_words(alone.min(head.device().bytes()));
    facts
        .check(header, &window, IMAGE)
        .map_err(|refusal| (refusal, String::new()))?;
    Ok((node.clone(), facts, window))
}

fn compare_user_pages(
    root: &Root,
    node: &DaxDevice,
    window: &[u64],
    header: &Header,
    facts: &Facts,
) -> Result<(), Refused> {
    if header.user_groups == 0 {
        return Ok(());
    }
    let path = root.path(&format!("dev/{}", node.name));
    let memory = Device::open(&path, node.bytes, false).map_err(|error| {
        let refusal = Refusal {
            reason: Reason::NOT_READY,
            detail: 0,
        };
        (refusal, format!("the programs' pages: {error}"))
    })?;
    facts
        .compare(header, window, memory.mapped())
        .map_err(|refusal| (refusal, String::new()))
}

/// Hands the snapshot to the kernel, which only keeps it. Sealed, each chunk is authentic before the
/// kernel gets a byte of it; in plain text, the digest is compared at the end.
fn give_back(
    head: &Device,
    header: &Header,
    opener: Option<&Opener>,
    snapshot: &mut Snapshot,
    point: &CutPoint<'_>,
) -> Result<(), Refused> {
    let mut from = FromHead::new(head, header);
    let mut to = ToKernel::new(snapshot, header, point);
    let given = match opener {
        Some(opener) => opener
            .open_stream(&mut from, &mut to, seal::threads())
            .map_err(seal_refused),
        None => copy_all(&mut from, &mut to)
            .map_err(|error| kernel_refused("giving the snapshot back", &error)),
    };
    match (to.refused, given) {
        (Some(NotTaken::FirstPage), _) => return Err(refuse(Reason::SAVED_DIGEST, 0)),
        (Some(NotTaken::Kernel(error)), _) => {
            return Err(kernel_refused("giving the snapshot back", &error));
        }
        (None, given) => given?,
    }
    let digest = from.finish();
    if digest != header.saved_digest {
        return Err(refuse(Reason::SAVED_DIGEST, digest));
    }
    Ok(())
}

/// Leaves a fresh header with the reason: the image is never used again.
fn forget(root: &Root, all: &[DaxDevice], device: &DaxDevice, head: &mut Head, refusal: Refusal) {
    let Ok(previous) = head.header() else { return };
    let image = previous.snapshot;
    let node = all.iter().find(|one| one.base == image.node_base);
    let fresh = node.and_then(|node| {
        let facts = facts::gather(root, device, node, 0).ok()?;
        facts.new_header(Some(&previous)).ok()
    });
    // Without the node there are no facts; the header goes on as it is, without its image.
    let mut header = fresh.unwrap_or(previous);
    header.state = State::EMPTY.0;
    header.last_outcome = Outcome::COLD_BOOT.0;
    header.last_reason = refusal.reason.0;
    header.last_detail = refusal.detail;
    head.commit(&mut header);
}

pub(crate) fn say(root: &Root, level: u8, text: &str) {
    let _ = root.write("dev/kmsg", &format!("<{level}>dormouse: {text}\n"));
}

/// Whether it is too late: a restored system has its file systems mounted as they were.
fn too_late(root: &Root) -> Option<String> {
    let kind = rustix::fs::statfs("/").ok()?.f_type as u64;
    if kind != RAMFS && kind != TMPFS {
        return Some("the root file system is mounted".to_owned());
    }
    let mounts = root.read("proc/mounts").unwrap_or_default();
    let disk = mounts.lines().find(|line| line.starts_with("/dev/"))?;
    Some(format!("{disk:?} is mounted"))
}

/// What the initramfs runs; the exit code is 0 whenever the boot may go on, 1 where this was no place
/// to run it.
pub fn main(place: Place) -> u8 {
    let root = Root::host();
    if let Some(why) = too_late(&root) {
        eprintln!(
            "dormouse wake: {why}: only an initramfs can wake a machine, before it mounts any disk"
        );
        return 1;
    }
    let ended = run(&root, place);
    let level = match ended {
        // Errors are shown on the console of a quiet boot, too.
        Ended::ColdBoot { .. } => 3,
        Ended::Nothing(_) | Ended::Later(_) => 6,
        // Of every boot.
        Ended::NotThisRun(_) => 7,
    };
    say(&root, level, &ended.line());
    0
}

#[cfg(test)]
#[path = "wake_tests.rs"]
mod tests;
