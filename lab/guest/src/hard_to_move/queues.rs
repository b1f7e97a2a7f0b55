//! Data on its way: a full pipe, and a socket whose reader has not read.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::memory::{PAGE, ok, pattern, verify_bytes};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

/// One end is written until it takes no more; the other reads it all when it is compared.
pub struct Queue<R, W> {
    reader: R,
    writer: W,
    /// What was written: that many bytes of the pattern.
    bytes: usize,
    limit: usize,
    seed: u64,
}

pub fn pipe(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let (reader, writer) = std::io::pipe().doing("make a pipe")?;
    // SAFETY: plain calls on our own pipe.
    unsafe {
        ok(libc::fcntl(
            writer.as_raw_fd(),
            libc::F_SETPIPE_SZ,
            plan.bytes as i32,
        ))
        .doing("make the pipe large")?;
        ok(libc::fcntl(
            writer.as_raw_fd(),
            libc::F_SETFL,
            libc::O_NONBLOCK,
        ))
        .doing("make the pipe not wait")?;
    }
    Ok(Box::new(Queue::full(reader, writer, plan)?))
}

/// What can be queued without privilege is a few hundred KiB; SO_SNDBUFFORCE allows more.
pub fn socket(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let (reader, writer) = UnixStream::pair().doing("make a pair of sockets")?;
    let bytes = plan.bytes as i32;
    // SAFETY: an int for an option that is an int.
    ok(unsafe {
        libc::setsockopt(
            writer.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            (&raw const bytes).cast(),
            size_of::<i32>() as u32,
        )
    })
    .doing("make the socket's buffer large")?;
    writer
        .set_nonblocking(true)
        .doing("make the socket not wait")?;
    Ok(Box::new(Queue::full(reader, writer, plan)?))
}

impl<R: Read, W: Write> Queue<R, W> {
    fn full(reader: R, writer: W, plan: &Plan) -> Result<Self, GuestError> {
        let mut queue = Queue {
            reader,
            writer,
            bytes: 0,
            limit: plan.bytes,
            seed: plan.seed,
        };
        queue.fill()?;
        Ok(queue)
    }

    fn fill(&mut self) -> Result<(), GuestError> {
        self.bytes = 0;
        for page in pattern(self.limit, self.seed).chunks(PAGE) {
            match self.writer.write(page) {
                Ok(count) => self.bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).doing("fill the queue"),
            }
        }
        if self.bytes < PAGE {
            return Err(GuestError::Other("the queue takes nothing".into()));
        }
        Ok(())
    }
}

impl<R: Read, W: Write> Kind for Queue<R, W> {
    fn verify(&mut self) -> Result<(), String> {
        let mut bytes = vec![0; self.bytes];
        self.reader
            .read_exact(&mut bytes)
            .map_err(|error| error.to_string())?;
        verify_bytes(&bytes, self.seed)?;
        self.seed = self.seed.wrapping_add(1);
        self.fill().map_err(|error| error.to_string())
    }
}
