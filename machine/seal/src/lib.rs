//! Encrypts and authenticates the kernel's part of a sleep image: pure functions of plain data,
//! and thin key sources.
//!
//! ```text
//!  key source                  per image                          on the device
//!  passphrase (Argon2id) ┐     HKDF-SHA-256(master key, salt)
//!  key file, credential  ├──▶  ├─ chunk key ──▶ AES-256-GCM, ──▶ cipher text, as long as the text
//!  TPM (sealed)          ┘     │                256 KiB each ──▶ table of tags, 16 bytes each
//!                              └─ metadata key ▶ HMAC-SHA-256 ─▶ tag in the header over header,
//!                                                                bitmaps, digests, table of tags
//! ```
//!
//! The key of each image is new, because the salt is 32 random bytes, so a nonce counts chunks
//! and is never used twice. Nonces are those of STREAM (Hoang et al. 2015): a chunk's number and
//! a mark on the last one, so that no chunk can be left out, added, moved or taken twice.
//!
//! Going down: [`KeySource::create`], [`Counter::increment`], [`Sealer::new`],
//! [`Sealer::seal_stream`], [`Unsigned::finish`]. Going up: [`KeySource::unlock`],
//! [`Opener::new`], which authenticates the metadata before anything of it is used, then
//! [`Opener::open_stream`], which hands out a chunk only after it was authenticated.
//!
//! # Example
//!
//! ```
//! use dormouse_seal::{Encryption, KeyId, KeySourceKind, MasterKey, Opener, Sealer};
//!
//! let master = MasterKey::random()?;
//! let metadata: &[&[u8]] = &[b"header", b"bitmaps"];
//! let kernel_pages = vec![7u8; 1 << 20];
//!
//! let sealer = Sealer::new(&master, KeySourceKind::File, &master.id(), 0)?;
//! let mut on_device = Vec::new();
//! let unsigned = sealer.seal_stream(&kernel_pages[..], &mut on_device, 2)?;
//! let sealed = unsigned.sealed().clone();
//! let encryption: Encryption = unsigned.finish(0, metadata);
//!
//! let opener = Opener::new(&master, &encryption, metadata, &sealed)?;
//! let mut back = Vec::new();
//! opener.open_stream(&on_device[..], &mut back, 2)?;
//! assert_eq!(back, kernel_pages);
//! # Ok::<(), dormouse_seal::SealError>(())
//! ```

mod chunks;
mod counter;
mod error;
mod keys;
mod metadata;
mod source;
mod stream;
mod wire;

pub use chunks::{CHUNK_BYTES, TAG_BYTES, Tag};
pub use counter::{Counter, CounterError, TpmCounter};
pub use error::SealError;
pub use keys::{KeyId, MasterKey, SALT_BYTES};
pub use metadata::authenticated_header;
pub use source::{
    KeyError, KeyFile, KeySource, Passphrase, PassphraseCost, Tpm, systemd_credential,
};
pub use stream::{Opener, Sealed, Sealer, Unsigned};
pub use wire::{ALGORITHM_AES_256_GCM, Encryption, KeySourceKind};
