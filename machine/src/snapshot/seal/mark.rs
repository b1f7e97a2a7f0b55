//! What the initramfs leaves in /run for a later sleep: that it looked for an image, in which memory, with
//! which settings it would open one, and whether it can use the TPM and the kernel takes a snapshot there.

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
    /// Where it saw persistent memory, as base and bytes.
    pub memory: Vec<(u64, u64)>,
    /// Which run of the boot decided; empty in what an older version left.
    pub place: String,
    /// Why the kernel would take no snapshot there.
    pub snapshot: Option<String>,
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
            memory: Vec::new(),
            place: String::new(),
            snapshot: None,
        })
    }

    /// Whether this range lies in memory that the initramfs saw.
    pub fn has_seen(&self, base: u64, bytes: u64) -> bool {
        let end = base.saturating_add(bytes);
        let mut memory = self.memory.iter();
        memory.any(|&(from, size)| from <= base && end <= from.saturating_add(size))
    }

    /// As it is written.
    pub fn text(&self) -> String {
        let line = |text: &Option<String>| text.as_deref().unwrap_or_default().replace('\n', " ");
        let mut text = format!(
            "seal {}\ntrouble {}\nplace {}\nsnapshot {}\n",
            self.seal,
            line(&self.trouble),
            self.place,
            line(&self.snapshot)
        );
        for (base, bytes) in &self.memory {
            text.push_str(&format!("memory {base:#x} {bytes:#x}\n"));
        }
        text
    }

    /// From what was written; what is missing is not sealed, has no trouble and saw nothing.
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
            memory: text.lines().filter_map(range).collect(),
            place: value("place ").unwrap_or_default().to_owned(),
            snapshot: value("snapshot ").map(str::to_owned),
        }
    }
}

/// `memory 0xBASE 0xBYTES`
fn range(line: &str) -> Option<(u64, u64)> {
    let (base, bytes) = line.strip_prefix("memory ")?.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    Some((number(base)?, number(bytes)?))
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
                memory: vec![(1 << 32, 1 << 28), (1 << 34, 1 << 31)],
                place: "before-udev".to_owned(),
                snapshot: trouble.map(str::to_owned),
            };
            let read = Mark::read(&mark.text());
            assert_eq!(read.seal, mark.seal);
            assert_eq!(read.trouble.is_some(), mark.trouble.is_some());
            assert_eq!(read.memory, mark.memory);
            assert_eq!(read.place, mark.place);
            assert_eq!(read.snapshot.is_some(), mark.snapshot.is_some());
        }
        assert_eq!(Mark::read("1\n").seal, NO_SEAL);
    }

    #[test]
    fn only_what_lies_in_memory_that_was_seen_has_been_seen() {
        let mark = Mark::read("seal none\ntrouble \nmemory 0x1000 0x1000\nmemory x\n");
        assert!(mark.has_seen(0x1000, 0x1000) && mark.has_seen(0x1800, 0x10));
        for (base, bytes) in [(0xfff, 1), (0x1000, 0x1001), (0x2000, 1), (u64::MAX, 1)] {
            assert!(!mark.has_seen(base, bytes), "{base:#x} {bytes:#x}");
        }
        assert!(!Mark::read("1\n").has_seen(0x1000, 1));
    }
}
