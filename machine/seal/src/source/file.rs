//! A key in a file: of root, or a credential that systemd has decrypted for this service.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{KeyError, KeySource};
use crate::keys::{KeyId, MasterKey};
use crate::wire::KeySourceKind;

/// 32 bytes in a file that only its owner may read.
pub struct KeyFile(PathBuf);

impl KeyFile {
    /// The file is read each time that a key is needed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    fn read(&self) -> Result<MasterKey, KeyError> {
        read_key(&self.0)
    }
}

/// Where systemd puts the credential of this name for the running service, if it has.
///
/// `systemd-creds encrypt --with-key=tpm2 …` seals it to the TPM; `LoadCredentialEncrypted=`
/// of the unit decrypts it.
pub fn systemd_credential(directory: Option<OsString>, name: &str) -> Option<KeyFile> {
    let path = PathBuf::from(directory?).join(name);
    path.is_file().then_some(KeyFile(path))
}

fn read_key(path: &Path) -> Result<MasterKey, KeyError> {
    let failed = |source| KeyError::File {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    let mut bytes = Zeroizing::new([0; 33]);
    let mut length = 0;
    while length < bytes.len() {
        match file.read(&mut bytes[length..]).map_err(failed)? {
            0 => break,
            more => length += more,
        }
    }
    let key: Option<&[u8; 32]> = (length == 32).then(|| bytes.first_chunk()).flatten();
    key.map(MasterKey::from_bytes).ok_or(KeyError::Length {
        path: path.to_owned(),
        bytes: metadata.len(),
    })
}

impl KeySource for KeyFile {
    fn kind(&self) -> KeySourceKind {
        KeySourceKind::File
    }

    fn create(&self) -> Result<(MasterKey, KeyId), KeyError> {
        let key = self.read()?;
        let id = key.id();
        Ok((key, id))
    }

    fn unlock(&self, id: &KeyId) -> Result<MasterKey, KeyError> {
        let key = self.read()?;
        if key.id() == *id {
            Ok(key)
        } else {
            Err(KeyError::Other)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(bytes: &[u8], mode: u32) -> (tempfile::TempDir, KeyFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (directory, KeyFile::new(path))
    }

    #[test]
    fn a_key_file_gives_its_key_and_refuses_an_image_of_another() {
        let (_directory, source) = file(&[5; 32], 0o600);
        let (key, id) = source.create().unwrap();
        assert_eq!(source.unlock(&id).unwrap().bytes(), key.bytes());
        let (_other, other) = file(&[6; 32], 0o400);
        assert!(matches!(other.unlock(&id), Err(KeyError::Other)));
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        for mode in [0o640, 0o604, 0o660, 0o644] {
            let (_directory, source) = file(&[5; 32], mode);
            assert!(matches!(source.create(), Err(KeyError::Exposed { .. })));
        }
    }

    #[test]
    fn a_key_of_another_length_or_a_missing_one_is_refused() {
        for length in [0, 31, 33, 4096] {
            let (_directory, source) = file(&vec![5; length], 0o600);
            let refused = source.create().unwrap_err();
            assert!(matches!(refused, KeyError::Length { bytes, .. } if bytes == length as u64));
        }
        let missing = KeyFile::new("/nonexistent/key").create();
        assert!(matches!(missing, Err(KeyError::File { .. })));
    }

    #[test]
    fn a_credential_is_found_where_systemd_puts_it() {
        let (directory, _) = file(&[5; 32], 0o400);
        let there = Some(directory.path().as_os_str().to_owned());
        assert!(systemd_credential(there.clone(), "key").is_some());
        assert!(systemd_credential(there, "other").is_none());
        assert!(systemd_credential(None, "key").is_none());
    }
}
