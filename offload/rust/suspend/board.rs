//! The devices of the emulated board (QEMU's vexpress-a9, the legacy memory map), as the executor reaches them while
//! the big core stands still. What is in no window of the table is refused with its address.

use std::collections::BTreeMap;

use crate::error::OffloadError;
use crate::machine::forward::{Access, Bus};
use crate::suspend::big_core::Idle;
use crate::suspend::gdb::Gdb;
use crate::suspend::kernel::{COUNTER, COUNTER_MHZ};

/// A device's registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Name in reports.
    pub name: &'static str,
    start: u32,
    bytes: u32,
}

const fn window(name: &'static str, start: u32, bytes: u32) -> Window {
    Window { name, start, bytes }
}

/// All that may be forwarded; `vexpress-v2p-ca9.dts` and QEMU's `hw/arm/vexpress.c` have the addresses.
pub const WINDOWS: [Window; 11] = [
    window("sysregs", 0x1000_0000, 0x1000),
    window("sysctl", 0x1000_1000, 0x1000),
    window("card", 0x1000_5000, 0x1000),
    window("uart0", 0x1000_9000, 0x1000),
    window("uart1", 0x1000_a000, 0x1000),
    window("uarts", 0x1000_b000, 0x2000),
    window("timers", 0x1001_1000, 0x2000),
    window("virtio", 0x1001_3000, 0x800),
    window("rtc", 0x1001_7000, 0x1000),
    window("gic", 0x1e00_0000, 0x2000),
    window("ethernet", 0x4e00_0000, 0x1000),
];

/// The register of the GIC that says which interrupt is the next for the processor, and what it says of none.
const NEXT_INTERRUPT: u32 = 0x1e00_0118;
const NO_INTERRUPT: u32 = 0x3ff;

/// All windows but those with these names.
///
/// # Errors
/// There is no such device.
pub fn windows_without(names: &[String]) -> Result<Vec<Window>, OffloadError> {
    let known = WINDOWS.map(|window| window.name);
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(OffloadError::Usage(format!(
            "there is no device {unknown:?}, but: {}",
            known.join(", ")
        )));
    }
    Ok(WINDOWS
        .into_iter()
        .filter(|window| !names.iter().any(|name| name == window.name))
        .collect())
}

/// The window that an access lies in whole, aligned.
fn window_of(windows: &[Window], access: Access) -> Option<&Window> {
    let inside = |window: &&Window| {
        access
            .physical
            .checked_sub(window.start)
            .is_some_and(|offset| offset <= window.bytes - access.bytes)
    };
    windows
        .iter()
        .find(inside)
        .filter(|_| access.physical.is_multiple_of(access.bytes))
}

/// The board's bus.
pub struct Board<'a> {
    gdb: &'a mut Gdb,
    windows: &'a [Window],
    /// Where the big core stands while the board waits for an interrupt; none: it does not.
    idle: Option<Idle>,
    /// How often each device was accessed.
    pub accesses: BTreeMap<&'static str, u64>,
    /// The access that was refused, in words.
    pub refused: Option<String>,
    /// How often it waited for an interrupt, and microseconds of its time in that.
    pub waits: (u32, u64),
}

impl<'a> Board<'a> {
    /// # Errors
    /// The machine knows no physical addresses.
    pub fn new(
        gdb: &'a mut Gdb,
        windows: &'a [Window],
        idle: Option<Idle>,
    ) -> Result<Board<'a>, OffloadError> {
        gdb.address_physically(true)?;
        Ok(Board {
            gdb,
            windows,
            idle,
            accesses: BTreeMap::new(),
            refused: None,
            waits: (0, 0),
        })
    }

    /// The machine's memory is addressed as its processor does again.
    ///
    /// # Errors
    /// The machine does not answer.
    pub fn leave(&mut self) -> Result<(), OffloadError> {
        self.gdb.address_physically(false)
    }
}

impl Bus for Board<'_> {
    fn access(&mut self, access: Access) -> Result<Option<u32>, OffloadError> {
        let Access {
            physical, bytes, ..
        } = access;
        let Some(window) = window_of(self.windows, access) else {
            self.refused = Some(format!(
                "a {} of {bytes} bytes at physical address {physical:#010x}, where no device is that is \
                 forwarded",
                if access.written.is_some() {
                    "write"
                } else {
                    "read"
                }
            ));
            return Ok(None);
        };
        *self.accesses.entry(window.name).or_default() += 1;
        match access.written {
            Some(value) => self.gdb.write(physical, bytes, value).map(|()| Some(0)),
            None => self.gdb.read(physical, bytes).map(Some),
        }
    }

    fn wait(&mut self) -> Result<bool, OffloadError> {
        let Some(idle) = self.idle else {
            return Ok(false);
        };
        // A device that answers at once has interrupted already. Time would pass when the board goes on and stops.
        if self.gdb.read(NEXT_INTERRUPT, 4)? & NO_INTERRUPT != NO_INTERRUPT {
            return Ok(true);
        }
        let since = self.gdb.read(COUNTER, 4)?;
        idle.wait(self.gdb)?;
        let ticks = self.gdb.read(COUNTER, 4)?.wrapping_sub(since);
        self.waits.0 += 1;
        self.waits.1 += u64::from(ticks / COUNTER_MHZ);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suspend::gdb::tests::machine_that_answers;

    #[test]
    fn a_refused_access_does_not_reach_the_board_and_an_error_of_the_board_is_none_of_its_answers()
    {
        // The mode, one read, and what it says of the next.
        let (mut gdb, _folder) = machine_that_answers(&["OK", "2a000000", "E14"]);
        let mut board = Board::new(&mut gdb, &WINDOWS, None).unwrap();
        let mut read = |physical: u32| {
            board.access(Access {
                physical,
                bytes: 4,
                written: None,
            })
        };
        assert_eq!(read(0x4f00_0000).unwrap(), None);
        assert_eq!(read(0x1001_7000).unwrap(), Some(42));
        assert!(read(0x1001_7004).is_err());
        assert_eq!(board.accesses["rtc"], 2);
        // It would have to know where.
        assert!(!board.wait().unwrap());
        let refused = board.refused.unwrap();
        assert!(refused.contains("0x4f000000"), "{refused}");
    }

    #[test]
    fn the_board_goes_on_until_it_has_an_interrupt_unless_it_has_one() {
        let idle = Idle::at(0xc001_0000, 0xc001_0004);
        // The mode; interrupt 34.
        let (mut gdb, _folder) = machine_that_answers(&["OK", "22000000"]);
        let mut board = Board::new(&mut gdb, &WINDOWS, Some(idle)).unwrap();
        assert!(board.wait().unwrap());
        assert_eq!(board.waits, (0, 0));
        let (mut gdb, _folder) = machine_that_answers(&[
            "OK", "ff030000", // none
            "ffffffff", // the counter
            "13000060", "OK", "OK", // the processor, and where it is put
            "OK", "T05", "OK", "040001c0", // it has stopped behind its WFI
            "ef000000", // 240 ticks later
        ]);
        let mut board = Board::new(&mut gdb, &WINDOWS, Some(idle)).unwrap();
        assert!(board.wait().unwrap());
        assert_eq!(board.waits, (1, 10));
    }

    fn found(physical: u32, bytes: u32) -> Option<&'static str> {
        let access = Access {
            physical,
            bytes,
            written: None,
        };
        window_of(&WINDOWS, access).map(|window| window.name)
    }

    #[test]
    fn an_access_is_in_a_window_with_all_of_its_bytes_or_in_none() {
        assert_eq!(found(0x1001_7000, 4), Some("rtc"));
        assert_eq!(found(0x1001_7ffc, 4), Some("rtc"));
        assert_eq!(found(0x1001_7fff, 1), Some("rtc"));
        for (physical, bytes) in [
            (0x1001_8000, 4),
            (0x1001_7ffe, 4),
            (0x1001_7002, 4),
            (0x1001_7001, 2),
            (0x0fff_fffc, 4),
            (0xffff_fffc, 4),
            (0, 1),
        ] {
            assert_eq!(found(physical, bytes), None, "{physical:#x} {bytes}");
        }
    }

    #[test]
    fn windows_do_not_overlap() {
        for (left, right) in WINDOWS.iter().zip(&WINDOWS[1..]) {
            assert!(left.start + left.bytes <= right.start, "{left:?} {right:?}");
        }
    }

    #[test]
    fn an_unknown_device_cannot_be_left_out() {
        assert_eq!(
            windows_without(&["rtc".into()]).unwrap().len(),
            WINDOWS.len() - 1
        );
        let error = windows_without(&["clock".into()]).unwrap_err().to_string();
        assert!(error.contains("rtc, gic, ethernet"), "{error}");
    }
}
