//! Counters in a PCI device's memory, mapped from sysfs, without a kernel module.
//!
//! ```text
//!  resourceN + offset ─▶ read#0 write#0 read#1 write#1 …      64 bits each, little-endian
//! ```
//!
//! Source: Kämmerer 2025, section 5.1.3. Its FPGA has them in BAR0 from 0x18100 on and counts
//! accesses of a cache line. This code has not run with such a device; its tests map a file
//! instead.

use std::io;
use std::path::Path;

use crate::estimate::Counts;
use crate::resource::{GONE, Resource};

/// Bytes of a pair of counters.
const PAIR_BYTES: u64 = 16;

/// The mapped counters of a device.
#[derive(Debug)]
pub struct Bar {
    words: Resource,
    pairs: usize,
    bytes_per_count: u64,
}

impl Bar {
    /// Maps this many pairs of counters of a device's `resourceN`, from an offset in bytes on.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, is too short, or the offset is not aligned.
    pub fn map(path: &Path, offset: u64, pairs: usize, bytes_per_count: u64) -> io::Result<Self> {
        Ok(Self {
            words: Resource::map(path, offset, pairs as u64 * PAIR_BYTES)?,
            pairs,
            bytes_per_count,
        })
    }

    /// The present counts of each pair; `None` where the device is gone.
    pub fn read(&self) -> Vec<Option<Counts>> {
        let there = self.words.is_there();
        let pair = |at: usize| {
            let counts = [self.words.word(2 * at), self.words.word(2 * at + 1)];
            let [read_bytes, write_bytes] = counts.map(|n| n.wrapping_mul(self.bytes_per_count));
            (!counts.contains(&GONE)).then_some(Counts {
                read_bytes,
                write_bytes,
            })
        };
        (0..self.pairs)
            .map(|at| there.then(|| pair(at)).flatten())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::estimate::counter::{CounterSpec, Fault, Follower};

    const OFFSET: u64 = 0x18100;
    const LINE: u64 = 64;
    const MS: u64 = 1_000_000;

    struct Device(tempfile::TempDir, File);

    impl Device {
        fn new(pairs: u64) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("resource0");
            let file = OpenOptions::new().write(true).create_new(true).open(path);
            let file = file.unwrap();
            file.set_len(OFFSET + pairs * PAIR_BYTES).unwrap();
            Self(folder, file)
        }

        fn map(&self, pairs: usize) -> io::Result<Bar> {
            Bar::map(&self.0.path().join("resource0"), OFFSET, pairs, LINE)
        }

        fn count(&self, at: u64, reads: u64, writes: u64) {
            let bytes = [reads.to_le_bytes(), writes.to_le_bytes()].concat();
            let there = OFFSET + at * PAIR_BYTES;
            self.1.write_all_at(&bytes, there).unwrap();
        }
    }

    #[test]
    fn each_node_has_its_pair_and_sees_it_change() {
        let device = Device::new(3);
        let bar = device.map(3).unwrap();
        device.count(1, 10, 20);
        let counts = |reads, writes| {
            Some(Counts {
                read_bytes: reads * LINE,
                write_bytes: writes * LINE,
            })
        };
        assert_eq!(bar.read(), [counts(0, 0), counts(10, 20), counts(0, 0)]);
        device.count(2, 1, 2);
        assert_eq!(bar.read()[2], counts(1, 2));
    }

    #[test]
    fn a_device_that_is_gone_or_too_short_says_nothing() {
        let device = Device::new(2);
        assert!(device.map(3).is_err());
        assert!(device.map(0).is_err());
        let path = device.0.path().join("resource0");
        assert!(Bar::map(&path, OFFSET + 4, 1, LINE).is_err());
        let bar = device.map(2).unwrap();
        device.count(0, u64::MAX, u64::MAX);
        assert_eq!(bar.read()[0], None);
        assert!(bar.read()[1].is_some());
        device.1.set_len(0).unwrap();
        assert_eq!(bar.read(), [None, None]);
    }

    #[test]
    fn counters_that_stop_jump_back_or_wrap_are_distinguished() {
        let device = Device::new(1);
        let bar = device.map(1).unwrap();
        let mut follower = Follower::new(CounterSpec {
            bits: 64,
            max_bytes_s: 20e9,
            stopped_after_ms: 500.0,
        });
        let mut t_ns = 0;
        let mut look = |reads: u64| {
            device.count(0, reads, 0);
            t_ns += 100 * MS;
            let flow = follower.follow(t_ns, bar.read()[0], true)?;
            Ok::<_, Fault>(flow.map(|flow| flow.read_bytes))
        };
        // Bytes wrap before cache lines do.
        let last = u64::MAX / LINE - 999;
        assert_eq!(look(last), Ok(None));
        assert_eq!(look(last + 3000), Ok(Some(3000 * LINE)));
        assert_eq!(look(5_000_000), Ok(Some(5_000_000 * LINE - 2000 * LINE)));
        assert_eq!(look(7), Err(Fault::JumpedBack));
        assert_eq!(look(1007), Ok(Some(1000 * LINE)));
        for _ in 0..4 {
            assert_eq!(look(1007), Ok(Some(0)));
        }
        assert_eq!(look(1007), Err(Fault::Stopped));
        assert_eq!(look(1008), Ok(Some(LINE)));
    }
}
