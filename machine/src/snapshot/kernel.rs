//! The kernel's side: /dev/snapshot, and what dormouse_snapshot.ko offers.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsRawFd;

use dormouse_system::Root;
use linux_raw_sys::ioctl::{
    SNAPSHOT_ATOMIC_RESTORE, SNAPSHOT_CREATE_IMAGE, SNAPSHOT_FREE, SNAPSHOT_FREEZE,
    SNAPSHOT_GET_IMAGE_SIZE, SNAPSHOT_PREF_IMAGE_SIZE, SNAPSHOT_UNFREEZE,
};

pub const DEVICE: &str = "dev/snapshot";
/// Range that no snapshot holds.
pub const NOSAVE: &str = "sys/module/dormouse_snapshot/parameters/nosave";
/// That range, to be read.
pub const RANGE: &str = "dev/dormouse_range";
pub const PAGE_BYTES: usize = 4096;
/// No more than UIO_MAXIOV.
const PAGES_A_CALL: usize = 512;

/// Where the first page of a snapshot counts the machine's memory: `struct swsusp_info`, behind
/// the 390 bytes of names and the padded version. Checked against the kernel's own count.
const PRESENT_PAGES_AT: usize = 400;

/// The count of memory in a snapshot's first page.
pub fn present_pages(first_page: &[u8]) -> Option<u64> {
    let bytes = first_page.get(PRESENT_PAGES_AT..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Changes it.
///
/// # Panics
/// When it is no page.
pub fn set_present_pages(first_page: &mut [u8], pages: u64) {
    first_page[PRESENT_PAGES_AT..][..8].copy_from_slice(&pages.to_le_bytes());
}

/// The open device. Dropping it ends what was begun.
pub struct Snapshot {
    file: File,
    frozen: bool,
    made: bool,
}

/// On which side of a sleep [`Snapshot::create`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The snapshot was made and is to be read.
    Made,
    /// The machine slept and runs again.
    Restored,
}

impl Snapshot {
    /// To make one.
    ///
    /// # Errors
    /// EPERM where hibernation is forbidden, EBUSY where another program is at it.
    pub fn open_to_make(root: &Root) -> io::Result<Snapshot> {
        Ok(Snapshot::of(File::open(root.path(DEVICE))?))
    }

    /// To give one back.
    ///
    /// # Errors
    /// As above.
    pub fn open_to_restore(root: &Root) -> io::Result<Snapshot> {
        let file = OpenOptions::new().write(true).open(root.path(DEVICE))?;
        Ok(Snapshot::of(file))
    }

    fn of(file: File) -> Snapshot {
        Snapshot {
            file,
            frozen: false,
            made: false,
        }
    }

    fn request(&self, request: u32, argument: libc::c_ulong) -> io::Result<()> {
        // SAFETY: the requests used with this function take no argument or a number.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), request.into(), argument) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Stops all programs but this one.
    ///
    /// # Errors
    /// EBUSY: one did not stop.
    pub fn freeze(&mut self) -> io::Result<()> {
        self.request(SNAPSHOT_FREEZE, 0)?;
        self.frozen = true;
        Ok(())
    }

    /// Makes the snapshot; returns twice, once on each side.
    ///
    /// # Errors
    /// No memory for the copy, or a device does not stop.
    pub fn create(&mut self) -> io::Result<Side> {
        // As large as it is: the kernel frees nothing on its own.
        self.request(SNAPSHOT_PREF_IMAGE_SIZE, libc::c_ulong::MAX >> 1)?;
        let mut in_suspend: libc::c_int = -1;
        // SAFETY: the kernel writes one int, which is there.
        let result = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                SNAPSHOT_CREATE_IMAGE.into(),
                &raw mut in_suspend,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        self.made = true;
        // SAFETY: ours; volatile, because the kernel wrote it twice for one call.
        match unsafe { (&raw const in_suspend).read_volatile() } {
            0 => Ok(Side::Restored),
            _ => Ok(Side::Made),
        }
    }

    /// Bytes of the snapshot that was made.
    ///
    /// # Errors
    /// None was made.
    pub fn bytes(&self) -> io::Result<u64> {
        let mut bytes: libc::c_longlong = 0;
        // SAFETY: the kernel writes one long long, which is there.
        let result = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                SNAPSHOT_GET_IMAGE_SIZE.into(),
                &raw mut bytes,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        u64::try_from(bytes).map_err(io::Error::other)
    }

    /// Reads whole pages; fewer than asked for, or none, only at the end.
    ///
    /// The kernel gives no more than a page to a read, but takes many of them in one call.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read_pages(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < to.len() {
            let mut pages: Vec<IoSliceMut<'_>> = to[done..]
                .chunks_mut(PAGE_BYTES)
                .take(PAGES_A_CALL)
                .map(IoSliceMut::new)
                .collect();
            match self.file.read_vectored(&mut pages)? {
                0 => break,
                bytes if bytes % PAGE_BYTES != 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => done += bytes,
            }
        }
        Ok(done)
    }

    /// Gives whole pages back.
    ///
    /// # Errors
    /// EPERM: the first page is of another machine; others for want of memory.
    pub fn write_pages(&mut self, from: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < from.len() {
            let pages: Vec<IoSlice<'_>> = from[done..]
                .chunks(PAGE_BYTES)
                .take(PAGES_A_CALL)
                .map(IoSlice::new)
                .collect();
            match self.file.write_vectored(&pages)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                bytes => done += bytes,
            }
        }
        Ok(())
    }

    /// Goes over to the system of the snapshot. Only returns when that failed.
    pub fn restore(&mut self) -> io::Error {
        match self.request(SNAPSHOT_ATOMIC_RESTORE, 0) {
            Ok(()) => io::Error::other("the kernel came back from a restore"),
            Err(error) => error,
        }
    }

    /// Frees the snapshot and lets programs run.
    ///
    /// # Errors
    /// The kernel's; then they stand still until the device is closed.
    pub fn finish(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.made) {
            self.request(SNAPSHOT_FREE, 0)?;
        }
        if std::mem::take(&mut self.frozen) {
            self.request(SNAPSHOT_UNFREEZE, 0)?;
        }
        Ok(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // Closing it frees and thaws, too; asked for, it happens before anything else.
        let _ = self.finish();
    }
}

/// Keeps a range out of snapshots.
///
/// # Errors
/// The module does not take it.
pub fn set_nosave(root: &Root, base: u64, bytes: u64) -> io::Result<()> {
    root.write(NOSAVE, &format!("{base:#x} {bytes:#x}"))
}

/// No range any more.
///
/// # Errors
/// The module is gone.
pub fn clear_nosave(root: &Root) -> io::Result<()> {
    root.write(NOSAVE, "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_memory_is_changed_in_its_place_only() {
        let mut page = vec![7u8; PAGE_BYTES];
        set_present_pages(&mut page, 393_082);
        assert_eq!(present_pages(&page), Some(393_082));
        assert!(
            page[..400]
                .iter()
                .chain(&page[408..])
                .all(|byte| *byte == 7)
        );
        assert_eq!(present_pages(&page[..403]), None);
    }
}
