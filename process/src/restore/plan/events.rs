//! Events of asynchronous I/O that a program has not read.
//!
//! The kernel counts by itself how many events a ring has had, so a new one is brought to where the old
//! one stood: requests that end at once fill it, and their events are replaced.

use super::super::Error;
use super::super::stub::{Check, List};
use super::Writer;
use crate::state::{AIO_EVENT_BYTES, AIO_HEADER_BYTES};

/// Requests at a time; each process can have some more than one for each processor.
const BATCH: u64 = 64;
const ACTION: &str = "put unread events into an I/O ring";

impl Writer<'_> {
    /// Has a new ring at `ring`, which has room for `room` events, hand out the tree's ring `index`.
    pub(super) fn unread_events(
        &mut self,
        list: &mut List,
        pid: i32,
        ring: u64,
        room: u32,
        index: u32,
    ) -> Result<(), Error> {
        let saved = &self.tree.rings[index as usize];
        let (head, unread) = (u64::from(saved.head), saved.unread.len() as u64);
        if head + unread == 0 {
            return Ok(());
        }
        let batch = BATCH.min(u64::from(room / 2)).max(1);
        let requests = self.requests(batch)?;
        let read = self.words(&vec![0; (batch * AIO_EVENT_BYTES / 8) as usize])?;
        let mut submit = |count: u64, and_read: bool| {
            let mut rest = count;
            while rest > 0 {
                let count = rest.min(batch);
                list.call(libc::SYS_io_submit, &[ring, count, requests], ACTION)
                    .expect(Check::Equals(count));
                if and_read {
                    let arguments = [ring, count, count, read, 0];
                    list.call(libc::SYS_io_getevents, &arguments, ACTION)
                        .expect(Check::Equals(count));
                }
                rest -= count;
            }
        };
        submit(head, true);
        submit(unread, false);
        if unread == 0 {
            return Ok(());
        }
        let words: Vec<u64> = saved.unread.iter().flatten().copied().collect();
        let events = self.words(&words)?;
        // The oldest lie at its end, the others at its beginning.
        let first = unread.min(u64::from(room) - head);
        let start = ring + AIO_HEADER_BYTES;
        let to = self.words(&[
            start + head * AIO_EVENT_BYTES,
            first * AIO_EVENT_BYTES,
            start,
            (unread - first) * AIO_EVENT_BYTES,
        ])?;
        let bytes = unread * AIO_EVENT_BYTES;
        let from = self.words(&[events, bytes])?;
        list.call(
            libc::SYS_process_vm_writev,
            &[pid as u64, from, 1, to, 2, 0],
            ACTION,
        )
        .expect(Check::Equals(bytes));
        Ok(())
    }

    /// An array of addresses of a request that ends at once: a read of `/dev/null`.
    fn requests(&mut self, count: u64) -> Result<u64, Error> {
        let null = self.pool.null()? as u64;
        let byte = self.words(&[0])?;
        // struct iocb: data, key and flags, operation (0: pread) and descriptor, buffer, bytes,
        // offset, reserved, flags and eventfd.
        let request = self.words(&[0, 0, null << 32, byte, 1, 0, 0, 0])?;
        self.words(&vec![request; count as usize])
    }
}
