//! What the initramfs leaves in /run for a later sleep: that it looked for an image, with which settings
//! it would open one, and whether it can use the TPM.

use dormouse_seal::KeyError;
use dormouse_system::Root;

use super::Settings;

/// In place of a fingerprint: images are not sealed.
pub(crate) const NO_SEAL: &str = "none";

/// The mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The fingerprint of the settings, or [`NO_SEAL`].
    pub seal: String,
    /// What would keep it from opening an image.
    pub trouble: Option<String>,
}

impl Mark {
    /// Of the settings here.
    ///
    /// # Errors
    /// The key that they name cannot be read.
    pub fn of(root: &Root, settings: Option<&Settings>) -> Result<Mark, KeyError> {
        let seal = match settings {
            Some(settings) => settings.fingerprint(root)?,
            None => NO_SEAL.to_owned(),
        };
        Ok(Mark {
            seal,
            trouble: None,
        })
    }

    /// As it is written.
    pub fn text(&self) -> String {
        let trouble = self.trouble.as_deref().unwrap_or_default();
        format!(
            "seal {}\ntrouble {}\n",
            self.seal,
            trouble.replace('\n', " ")
        )
    }

    /// From what was written; what is missing is not sealed and has no trouble.
    pub fn read(text: &str) -> Mark {
        let value = |name: &str| {
            let mut lines = text.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
                .filter(|value| !value.is_empty())
        };
        Mark {
            seal: value("seal ").unwrap_or(NO_SEAL).to_owned(),
            trouble: value("trouble ").map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_as_it_was_written() {
        for (seal, trouble) in [(NO_SEAL, None), ("0123", Some("no TPM\nat all"))] {
            let mark = Mark {
                seal: seal.to_owned(),
                trouble: trouble.map(str::to_owned),
            };
            let read = Mark::read(&mark.text());
            assert_eq!(read.seal, mark.seal);
            assert_eq!(read.trouble.is_some(), mark.trouble.is_some());
        }
        assert_eq!(Mark::read("1\n").seal, NO_SEAL);
    }
}
