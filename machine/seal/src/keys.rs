//! The key that a source gives, its name, and the keys of one image that are derived from it.

use ring::rand::{SecureRandom, SystemRandom};
use ring::{hkdf, hmac};
use zeroize::Zeroizing;

use crate::error::SealError;

/// Bytes of the salt of an image.
pub const SALT_BYTES: usize = 32;
const KEY_BYTES: usize = 32;

/// The key that a source keeps; erased from memory when it goes.
pub struct MasterKey(Zeroizing<[u8; KEY_BYTES]>);

/// Names a key and is no part of it. For a passphrase it also holds what Argon2 needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId(pub [u8; 32]);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

/// Random bytes of the operating system.
///
/// # Errors
/// It gives none.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], SealError> {
    let mut bytes = [0; BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| SealError::Random)?;
    Ok(bytes)
}

impl MasterKey {
    /// A new key.
    ///
    /// # Errors
    /// The machine has no random numbers.
    pub fn random() -> Result<Self, SealError> {
        Ok(Self(Zeroizing::new(random()?)))
    }

    /// The key in these bytes.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// Its bytes, for a source that keeps them.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// A name for it that tells nothing of it.
    pub fn id(&self) -> KeyId {
        KeyId(*self.derive(&[], b"dormouse 1 key id"))
    }

    /// HKDF-SHA-256 of RFC 5869.
    fn derive(&self, salt: &[u8], purpose: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        hkdf::Salt::new(hkdf::HKDF_SHA256, salt)
            .extract(&*self.0)
            .expand(&[purpose], hkdf::HKDF_SHA256)
            .and_then(|material| material.fill(&mut *key))
            .expect("HKDF-SHA-256 gives 32 bytes");
        key
    }

    /// The key of an image's chunks.
    pub(crate) fn chunk_key(&self, salt: &[u8; SALT_BYTES]) -> Zeroizing<[u8; KEY_BYTES]> {
        self.derive(salt, b"dormouse 1 chunks AES-256-GCM")
    }

    /// The key of an image's metadata.
    pub(crate) fn metadata_key(&self, salt: &[u8; SALT_BYTES]) -> hmac::Key {
        let key = self.derive(salt, b"dormouse 1 metadata HMAC-SHA-256");
        hmac::Key::new(hmac::HMAC_SHA256, &*key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_two_images_or_two_purposes_differ() {
        let master = MasterKey::from_bytes(&[1; 32]);
        let (a, b) = ([2; 32], [3; 32]);
        assert_ne!(*master.chunk_key(&a), *master.chunk_key(&b));
        assert_ne!(*master.chunk_key(&a), master.id().0);
        assert_ne!(master.id(), MasterKey::from_bytes(&[4; 32]).id());
    }

    #[test]
    fn a_key_is_not_printed() {
        let printed = format!("{:?}", MasterKey::from_bytes(&[0xab; 32]));
        assert!(!printed.contains("ab") && !printed.contains("171"));
    }
}
