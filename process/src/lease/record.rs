//! What a generation's file says: one line of JSON and its checksum, padded to a page, so that it is
//! written whole and can be read with `cat`.

use serde::{Deserialize, Serialize};

use crate::procfs;
use crate::store::format::checksum;

/// Bytes of a file: what every device writes as a whole or not at all.
pub const BYTES: usize = 4096;
const VERSION: u32 = 1;
/// Longest name of a node that is written.
const MAX_NODE: usize = 64;

/// The contents of a generation's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// Which.
    pub generation: u64,
    /// How often it was renewed.
    pub renewals: u64,
    /// The term that its holder counts by, nanoseconds.
    pub term_ns: u64,
    /// Its holder has given it back.
    pub released: bool,
    /// The holder's name for its node: for messages.
    pub node: String,
    /// The boot of the kernel that the holder runs under.
    pub boot: String,
    /// Device and inode of the lock file, as the holder sees it.
    pub lock: (u64, u64),
}

impl Record {
    /// Of a new generation; `lock` is the identity of the lock that its holder has.
    pub fn new(generation: u64, term_ns: u64, lock: (u64, u64)) -> Self {
        let mut node = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        node.retain(|c| !c.is_control());
        while node.len() > MAX_NODE {
            node.pop();
        }
        Self {
            version: VERSION,
            generation,
            renewals: 0,
            term_ns,
            released: false,
            node,
            boot: boot(),
            lock,
        }
    }

    /// As it is written.
    pub fn encode(&self) -> Vec<u8> {
        let line = serde_json::to_string(self).unwrap_or_default();
        let sum = checksum(line.as_bytes());
        let mut bytes = format!("{line}\n{sum:016x}\n").into_bytes();
        bytes.resize(BYTES, 0);
        bytes
    }

    /// From a file that anything may have written.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let line = lines.next()?;
        if lines.next()? != format!("{:016x}", checksum(line.as_bytes())) {
            return None;
        }
        let record: Self = serde_json::from_str(line).ok()?;
        (record.version == VERSION).then_some(record)
    }
}

/// A number that every boot of every kernel has of its own; empty where it cannot be read.
pub fn boot() -> String {
    let id = procfs::text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            version: VERSION,
            generation: 7,
            renewals: 3,
            term_ns: 10_000_000_000,
            released: false,
            node: "node-a".to_owned(),
            boot: boot(),
            lock: (1, 2),
        }
    }

    #[test]
    fn a_record_with_any_byte_changed_is_not_believed() {
        let bytes = record().encode();
        assert_eq!(bytes.len(), BYTES);
        assert_eq!(Record::decode(&bytes), Some(record()));
        let written = bytes.iter().rposition(|byte| *byte != 0).expect("a line");
        for at in 0..written {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert_eq!(Record::decode(&torn), None, "byte {at}");
        }
        // Without the last line's end alone, nothing is missing.
        for length in [0, 1, 100, written - 1] {
            assert_eq!(Record::decode(&bytes[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn a_renewal_changes_the_contents() {
        let mut next = record();
        next.renewals += 1;
        assert_ne!(next.encode(), record().encode());
    }
}
