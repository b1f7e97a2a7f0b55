//! Single chunks: AES-256-GCM with the nonces of STREAM.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::error::SealError;
use crate::keys::{MasterKey, SALT_BYTES};

/// Bytes of a chunk; the last one may be shorter, and an empty image has one empty chunk.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of a chunk's tag.
pub const TAG_BYTES: usize = 16;
/// A chunk's tag.
pub type Tag = [u8; TAG_BYTES];

/// Chunks have a number of 32 bits in their nonce.
pub(crate) const MAX_BYTES: u64 = u32::MAX as u64 * CHUNK_BYTES as u64;

/// The cipher of one image's chunks; may be used by many threads at once.
pub(crate) struct ChunkCipher(LessSafeKey);

impl ChunkCipher {
    pub(crate) fn new(master: &MasterKey, salt: &[u8; SALT_BYTES]) -> Self {
        let key = master.chunk_key(salt);
        let key = UnboundKey::new(&AES_256_GCM, &*key).expect("a key of 32 bytes");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts in place. A number is used once for an image.
    pub(crate) fn seal(&self, index: u32, last: bool, chunk: &mut [u8]) -> Tag {
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce(index, last), Aad::empty(), chunk)
            .expect("a chunk is far shorter than GCM allows");
        let mut bytes = [0; TAG_BYTES];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// Decrypts in place. When it fails, the chunk holds nothing that may be used.
    pub(crate) fn open(
        &self,
        index: u32,
        last: bool,
        chunk: &mut [u8],
        tag: &Tag,
    ) -> Result<(), SealError> {
        let opened = self.0.open_in_place_separate_tag(
            nonce(index, last),
            Aad::empty(),
            (*tag).into(),
            chunk,
            0..,
        );
        if opened.is_err() {
            chunk.fill(0);
            return Err(SealError::Chunk {
                index: index.into(),
            });
        }
        Ok(())
    }
}

/// 7 bytes of nothing (the key is this image's alone), the number, the mark of the last chunk.
fn nonce(index: u32, last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[7..11].copy_from_slice(&index.to_be_bytes());
    bytes[11] = last.into();
    Nonce::assume_unique_for_key(bytes)
}
