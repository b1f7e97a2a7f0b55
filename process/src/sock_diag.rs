//! Queries and requests about sockets to the kernel: sock_diag(7).

use std::collections::HashMap;
use std::io;

use rustix::net::netlink::SOCK_DIAG;

use crate::netlink;

/// Kind of a question about sockets of one family.
pub const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Kind of a request to end a socket.
pub const SOCK_DESTROY: u16 = 21;
/// Requests all that match.
pub const DUMP: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
/// Requests one; an acknowledgement follows.
pub const ONE: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;

/// Sends `body` as one message of a kind, and hands the body of each answer to `answer`.
///
/// # Errors
/// The kernel has no sock_diag for this, or refuses, or finds nothing (`ENOENT`).
pub fn exchange(kind: u16, flags: u16, body: &[u8], answer: impl FnMut(&[u8])) -> io::Result<()> {
    netlink::exchange(Some(SOCK_DIAG), kind, flags, body, answer)
}

/// What the kernel reports of one socket.
pub trait Reported: Sized {
    /// All of the network namespace, by inode.
    ///
    /// # Errors
    /// The kernel lacks what reports them.
    fn read_all() -> io::Result<HashMap<u64, Self>>;
}

/// Sockets of the network namespace, by inode; read once, at the first call.
#[derive(Debug)]
pub struct Sockets<T>(Option<HashMap<u64, T>>);

impl<T> Default for Sockets<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Reported> Sockets<T> {
    /// The socket with this inode.
    ///
    /// # Errors
    /// As [`Reported::read_all`].
    pub fn get(&mut self, inode: u64) -> io::Result<Option<&T>> {
        let sockets = match self.0.take() {
            Some(sockets) => sockets,
            None => T::read_all()?,
        };
        Ok(self.0.insert(sockets).get(&inode))
    }
}
