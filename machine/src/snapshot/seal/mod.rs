//! Sealing of the kernel's snapshot: whose key, and when the counter goes up.
//!
//! ```text
//!  down   settings ─▶ key (asked, read, unsealed) ─▶ counter + 1 ─▶ seal while the snapshot is read
//!  up     settings ─▶ key that the image names ─▶ tag ─▶ counter equal? ─▶ open ─▶ counter + 1
//!         no image, or one that is not used ─▶ counter + 1: what this boot passed by is an older one
//! ```

mod mark;
mod question;
mod settings;
pub(crate) mod setup;

use std::path::Path;

use dormouse_image::check::{self, Header};
use dormouse_image::sys;
use dormouse_seal::{
    Counter, CounterError, Encryption, KeyError, KeyId, KeySource, KeySourceKind, MasterKey,
    Opener, Sealed, Sealer, authenticated_header,
};
use dormouse_system::Root;

use crate::error::SleepError;
use crate::parallel::cpus;

pub(crate) use mark::{Mark, NO_SEAL};
pub(crate) use question::{Ask, answer_from_file, at_console, at_terminal};
pub use settings::Source;
pub(crate) use settings::{FILE, Settings, TPM_FOLDER};
pub use setup::SealArgs;

/// How often a person may type a passphrase.
const TRIES: u32 = 3;

/// What a sleep seals with.
pub(crate) struct Key {
    master: MasterKey,
    id: KeyId,
    kind: KeySourceKind,
    counter: Option<dormouse_seal::TpmCounter>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Key({})", self.kind.name())
    }
}

impl Key {
    /// The key that the settings name; asks a person where it is a passphrase. Before anything is
    /// stopped: later nobody could type, and no program could talk to the TPM.
    ///
    /// # Errors
    /// The source does not give it, or the passphrase is another one.
    pub fn for_sleep(
        root: &Root,
        settings: &Settings,
        passphrase_file: Option<&Path>,
    ) -> Result<Key, SleepError> {
        let from_file = passphrase_file.map(Path::to_owned);
        let tries = if from_file.is_some() { 1 } else { TRIES };
        let ask: Ask = match from_file {
            Some(path) => Box::new(move || answer_from_file(&path)),
            None => Box::new(|| at_terminal("Passphrase of the sleep image")),
        };
        let source = settings.source(root, ask);
        let (master, id) = match settings.passphrase_id().map_err(no_key)? {
            Some(id) => (
                unlock(source.as_ref(), &id, tries, |_| ()).map_err(no_key)?,
                id,
            ),
            None => source.create().map_err(no_key)?,
        };
        Ok(Key {
            master,
            id,
            kind: source.kind(),
            counter: settings.counter(),
        })
    }

    /// A sealer of one image, with the counter raised for it.
    ///
    /// # Errors
    /// The counter cannot be raised, or there are no random numbers.
    pub fn sealer(&self) -> Result<Sealer, SleepError> {
        let value = match &self.counter {
            Some(counter) => counter.increment().map_err(no_counter)?,
            None => 0,
        };
        Sealer::new(&self.master, self.kind, &self.id, value).map_err(|error| SleepError::Key {
            detail: error.to_string(),
        })
    }
}

fn no_key(error: KeyError) -> SleepError {
    SleepError::Key {
        detail: error.to_string(),
    }
}

fn no_counter(error: CounterError) -> SleepError {
    SleepError::Key {
        detail: error.to_string(),
    }
}

/// Threads that seal or open. More would not be faster than the devices, and each takes 2 MiB twice of
/// the little memory that a snapshot leaves.
pub(crate) fn threads() -> usize {
    cpus().min(8)
}

/// Asks again where the answer was another passphrase.
pub(crate) fn unlock(
    source: &dyn KeySource,
    id: &KeyId,
    tries: u32,
    before: impl Fn(u32),
) -> Result<MasterKey, KeyError> {
    let mut number = 1;
    loop {
        before(number);
        match source.unlock(id) {
            Err(KeyError::Other) if number < tries => number += 1,
            result => return result,
        }
    }
}

/// Puts the record into the header: what is under the tag is the header as it is committed.
pub(crate) fn finish(
    header: &mut Header,
    unsigned: dormouse_seal::Unsigned,
    bitmap: &[u8],
    table: &[u8],
) {
    let offset = header.data_offset + unsigned.sealed().bytes;
    header.flags |= sys::DORMOUSE_FLAG_ENCRYPTED;
    let own = authenticated_header(header);
    let record = unsigned.finish(offset, &[check::header_bytes(&own), bitmap, table]);
    header.encryption = record.to_record();
}

/// Opens a sealed image: `window` reaches to the header's `data_offset`, `tags` is its table of tags.
///
/// # Errors
/// Another key, or anything that was changed.
pub(crate) fn opener(
    master: &MasterKey,
    record: &Encryption,
    header: &Header,
    window: &[u8],
    tags: Vec<u8>,
) -> Result<Opener, dormouse_seal::SealError> {
    let part = |offset: u64, bytes: u64| &window[offset as usize..][..bytes as usize];
    let own = authenticated_header(header);
    let parts = [
        check::header_bytes(&own),
        part(header.cxl_bitmap_offset, header.cxl_bitmap_bytes),
        part(header.user_table_offset, header.user_table_bytes),
    ];
    let sealed = Sealed::new(header.saved_pages * check::PAGE_BYTES, tags);
    Opener::new(master, record, &parts, &sealed)
}

/// What a boot that does not wake does: the counter goes up, and the key of a TPM is tried, so that a
/// sleep that this initramfs could not wake is refused before it begins.
///
/// # Errors
/// What does not work, in words.
pub(crate) fn pass_by(root: &Root, settings: &Settings) -> Result<(), String> {
    if let Some(counter) = settings.counter() {
        counter.increment().map_err(|error| error.to_string())?;
    }
    if settings.key == Source::Tpm {
        if !settings.tpm(root).is_enrolled() {
            return Err(format!("{TPM_FOLDER} holds no key"));
        }
        let nobody: Ask = Box::new(|| Err(std::io::ErrorKind::UnexpectedEof.into()));
        let source = settings.source(root, nobody);
        source.create().map_err(|error| error.to_string())?;
    }
    Ok(())
}
