//! A passphrase, made into a key by Argon2id (RFC 9106).

use std::io;

use argon2::{Algorithm, Argon2, Params, Version};
use zeroize::Zeroizing;

use super::{KeyError, KeySource};
use crate::keys::{KeyId, MasterKey, random};
use crate::wire::KeySourceKind;

/// Work factor of one guess. The image stores it, so that waking uses the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassphraseCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
}

impl PassphraseCost {
    /// The second recommendation of RFC 9106: 64 MiB, three passes. The boot kernel has that much.
    pub const DEFAULT: Self = Self {
        memory_kib: 64 << 10,
        passes: 3,
    };
    /// A forged header must neither exhaust the memory of the boot kernel nor take hours.
    const MAX: Self = Self {
        memory_kib: 1 << 20,
        passes: 16,
    };
    const MIN_MEMORY_KIB: u32 = 8;
}

/// Asks a person. The name of the key holds the salt, the costs and 8 bytes by which a wrong
/// passphrase is noticed at once:
///
/// ```text
///  0        16          20      24          32
///  │ salt   │ memory KiB │ passes │ check     │
/// ```
pub struct Passphrase<Ask> {
    ask: Ask,
    cost: PassphraseCost,
}

impl<Ask> Passphrase<Ask>
where
    Ask: Fn() -> io::Result<Zeroizing<String>>,
{
    /// `ask` returns the passphrase without a newline.
    pub fn new(ask: Ask, cost: PassphraseCost) -> Self {
        Self { ask, cost }
    }

    fn derive(&self, salt: &[u8], cost: PassphraseCost) -> Result<MasterKey, KeyError> {
        let passphrase = (self.ask)().map_err(KeyError::Ask)?;
        if passphrase.is_empty() {
            return Err(KeyError::Empty);
        }
        let params = Params::new(cost.memory_kib, cost.passes, 1, Some(32))
            .map_err(|error| KeyError::Derive(error.to_string()))?;
        let mut key = Zeroizing::new([0; 32]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(passphrase.as_bytes(), salt, &mut *key)
            .map_err(|error| KeyError::Derive(error.to_string()))?;
        Ok(MasterKey::from_bytes(&key))
    }
}

fn name(salt: &[u8; 16], cost: PassphraseCost, key: &MasterKey) -> KeyId {
    let mut id = [0; 32];
    id[..16].copy_from_slice(salt);
    id[16..20].copy_from_slice(&cost.memory_kib.to_le_bytes());
    id[20..24].copy_from_slice(&cost.passes.to_le_bytes());
    id[24..].copy_from_slice(&key.id().0[..8]);
    KeyId(id)
}

fn cost_of(id: &KeyId) -> Result<PassphraseCost, KeyError> {
    let number = |at: usize| u32::from_le_bytes(id.0[at..at + 4].try_into().expect("4 bytes"));
    let cost = PassphraseCost {
        memory_kib: number(16),
        passes: number(20),
    };
    let max = PassphraseCost::MAX;
    let plausible = (PassphraseCost::MIN_MEMORY_KIB..=max.memory_kib).contains(&cost.memory_kib)
        && (1..=max.passes).contains(&cost.passes);
    plausible.then_some(cost).ok_or(KeyError::Cost {
        memory_kib: cost.memory_kib,
        passes: cost.passes,
    })
}

impl<Ask> KeySource for Passphrase<Ask>
where
    Ask: Fn() -> io::Result<Zeroizing<String>>,
{
    fn kind(&self) -> KeySourceKind {
        KeySourceKind::Passphrase
    }

    fn create(&self) -> Result<(MasterKey, KeyId), KeyError> {
        let salt: [u8; 16] = random()?;
        let key = self.derive(&salt, self.cost)?;
        let id = name(&salt, self.cost, &key);
        Ok((key, id))
    }

    fn unlock(&self, id: &KeyId) -> Result<MasterKey, KeyError> {
        let cost = cost_of(id)?;
        let salt: [u8; 16] = id.0[..16].try_into().expect("16 bytes");
        let key = self.derive(&salt, cost)?;
        if name(&salt, cost, &key) != *id {
            return Err(KeyError::Other);
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small, so that the test is quick; the default's cost is a matter of numbers only.
    const CHEAP: PassphraseCost = PassphraseCost {
        memory_kib: 16,
        passes: 1,
    };

    fn passphrase(text: &'static str) -> impl KeySource {
        Passphrase::new(move || Ok(Zeroizing::new(text.to_owned())), CHEAP)
    }

    #[test]
    fn the_same_passphrase_gives_the_same_key_and_another_one_is_noticed() {
        let (key, id) = passphrase("correct horse").create().unwrap();
        let again = passphrase("correct horse").unlock(&id).unwrap();
        assert_eq!(key.bytes(), again.bytes());
        let wrong = passphrase("correct house").unlock(&id);
        assert!(matches!(wrong, Err(KeyError::Other)), "{wrong:?}");
    }

    #[test]
    fn the_same_passphrase_gives_another_key_for_each_image() {
        let (a, _) = passphrase("x").create().unwrap();
        let (b, _) = passphrase("x").create().unwrap();
        assert_ne!(a.bytes(), b.bytes());
    }

    #[test]
    fn a_forged_cost_is_refused_before_memory_is_taken() {
        let (_, id) = passphrase("x").create().unwrap();
        for (at, value) in [(16, u32::MAX), (16, 0), (20, u32::MAX), (20, 0)] {
            let mut forged = id;
            forged.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let refused = passphrase("x").unlock(&forged);
            assert!(matches!(refused, Err(KeyError::Cost { .. })), "{refused:?}");
        }
    }

    #[test]
    fn an_empty_passphrase_and_a_question_without_answer_are_errors() {
        assert!(matches!(passphrase("").create(), Err(KeyError::Empty)));
        let nobody = Passphrase::new(|| Err(io::ErrorKind::UnexpectedEof.into()), CHEAP);
        assert!(matches!(nobody.create(), Err(KeyError::Ask(_))));
    }
}
