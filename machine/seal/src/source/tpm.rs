//! A key that is sealed to the machine's TPM, by the commands of tpm2-tools.
//!
//! The folder holds what the TPM gave back (`key.pub`, `key.priv`), which is of use to this TPM
//! only, and goes into the initramfs. Policy: PCR values, where some are named.

use std::fs;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::tpm2::Tpm2;
use super::{KeyError, KeySource};
use crate::keys::{KeyId, MasterKey};
use crate::wire::KeySourceKind;

/// A sealed key in a folder.
pub struct Tpm {
    folder: PathBuf,
    /// As tpm2-tools write them: `sha256:7`.
    pcrs: Option<String>,
    tools: Tpm2,
}

impl Tpm {
    /// `pcrs`: the registers whose values the key is bound to; None: this TPM alone. `tcti`: the
    /// TPM, as tpm2-tools name it; None: what `TPM2TOOLS_TCTI` says, or the machine's own.
    pub fn new(folder: impl Into<PathBuf>, pcrs: Option<String>, tcti: Option<String>) -> Self {
        Self {
            folder: folder.into(),
            pcrs,
            tools: Tpm2::new(tcti),
        }
    }

    /// Whether a key was sealed into the folder.
    pub fn is_enrolled(&self) -> bool {
        self.public().is_file() && self.private().is_file()
    }

    /// Makes a key and seals it to the TPM.
    ///
    /// # Errors
    /// The TPM or its tools are missing or refuse.
    pub fn enroll(&self) -> Result<KeyId, KeyError> {
        let key = MasterKey::random()?;
        let work = Work::new(&self.folder, &self.tools)?;
        let primary = self.primary(&work)?;
        let mut create: Vec<String> = ["create", "-Q", "-C", &primary, "-i", "-"]
            .map(str::to_owned)
            .to_vec();
        // Not under the dictionary attack lockout: without an authorization nothing can be guessed.
        create.extend(["-a", "fixedtpm|fixedparent|noda"].map(str::to_owned));
        if let Some(pcrs) = &self.pcrs {
            let policy = work.path("policy");
            self.tools.run(
                &[
                    "createpolicy",
                    "-Q",
                    "--policy-pcr",
                    "-l",
                    pcrs,
                    "-L",
                    &policy,
                ],
                &[],
            )?;
            create.extend(["-L".to_owned(), policy]);
        } else {
            create
                .last_mut()
                .expect("just added")
                .push_str("|userwithauth");
        }
        create.extend(["-u".to_owned(), work.path("key.pub")]);
        create.extend(["-r".to_owned(), work.path("key.priv")]);
        let arguments: Vec<&str> = create.iter().map(String::as_str).collect();
        self.tools.run(&arguments, key.bytes())?;
        // The private part last: without it the key is not enrolled.
        for (name, to) in [("key.pub", self.public()), ("key.priv", self.private())] {
            fs::rename(work.path(name), &to)
                .map_err(|source| KeyError::File { path: to, source })?;
        }
        Ok(key.id())
    }

    fn unseal(&self) -> Result<MasterKey, KeyError> {
        for path in [self.public(), self.private()] {
            if !path.is_file() {
                return Err(KeyError::File {
                    path,
                    source: std::io::ErrorKind::NotFound.into(),
                });
            }
        }
        let work = Work::new(&self.folder, &self.tools)?;
        let primary = self.primary(&work)?;
        let loaded = work.path("loaded");
        let (public, private) = (text(&self.public()), text(&self.private()));
        self.tools.run(
            &[
                "load", "-Q", "-C", &primary, "-u", &public, "-r", &private, "-c", &loaded,
            ],
            &[],
        )?;
        self.tools.flush();
        let mut unseal = vec!["unseal", "-c", &loaded];
        let policy = self.pcrs.as_ref().map(|pcrs| format!("pcr:{pcrs}"));
        if let Some(policy) = &policy {
            unseal.extend(["-p", policy.as_str()]);
        }
        let bytes = Zeroizing::new(self.tools.run(&unseal, &[])?);
        let key: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| KeyError::Length {
            path: self.private(),
            bytes: bytes.len() as u64,
        })?;
        Ok(MasterKey::from_bytes(key))
    }

    /// The storage root key, the same each time by the TPM's own seed.
    fn primary(&self, work: &Work<'_>) -> Result<String, KeyError> {
        let context = work.path("primary");
        self.tools.run(
            &[
                "createprimary",
                "-Q",
                "-C",
                "o",
                "-G",
                "ecc",
                "-c",
                &context,
            ],
            &[],
        )?;
        self.tools.flush();
        Ok(context)
    }

    fn public(&self) -> PathBuf {
        self.folder.join("key.pub")
    }

    fn private(&self) -> PathBuf {
        self.folder.join("key.priv")
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl KeySource for Tpm {
    fn kind(&self) -> KeySourceKind {
        KeySourceKind::Tpm
    }

    fn create(&self) -> Result<(MasterKey, KeyId), KeyError> {
        if !self.is_enrolled() {
            self.enroll()?;
        }
        let key = self.unseal()?;
        let id = key.id();
        Ok((key, id))
    }

    fn unlock(&self, id: &KeyId) -> Result<MasterKey, KeyError> {
        let key = self.unseal()?;
        if key.id() == *id {
            Ok(key)
        } else {
            Err(KeyError::Other)
        }
    }
}

/// Files of the tools, which hold no key in plain text, and objects in the TPM; gone afterwards.
struct Work<'a> {
    folder: PathBuf,
    tools: &'a Tpm2,
}

impl<'a> Work<'a> {
    fn new(folder: &Path, tools: &'a Tpm2) -> Result<Self, KeyError> {
        let folder = folder.join(format!(".work-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|source| KeyError::File {
            path: folder.clone(),
            source,
        })?;
        Ok(Self { folder, tools })
    }

    fn path(&self, name: &str) -> String {
        text(&self.folder.join(name))
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.tools.flush();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
