//! Fills the queues of unix sockets in which descriptors are under way, when all files are open.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::Error;
use super::error::system;
use super::socket_calls::{shut_down, with_room_to_send};
use crate::state::{FileKind, Socket, SocketState, Tree, sender_of};

/// Ends that no program has, by the index of the socket at their other side.
pub(super) type Others = HashMap<u32, OwnedFd>;

/// A message can carry as many (the kernel's SCM_MAX_FD).
const DESCRIPTORS_MAX: usize = 253;

/// Whether descriptors are under way to or from a socket.
pub(super) fn concerns(tree: &Tree, socket: &Socket) -> bool {
    let peer = match socket.state {
        SocketState::Pair(peer) => Some(&tree.sockets[peer as usize]),
        SocketState::Destination(_) => {
            sender_of(tree, socket).map(|sender| &tree.sockets[sender as usize])
        }
        _ => None,
    };
    !socket.passed.is_empty() || peer.is_some_and(|peer| !peer.passed.is_empty())
}

/// Sends all messages of those sockets, and closes directions that were closed.
///
/// # Errors
/// A message cannot be sent.
pub(super) fn send_all(tree: &Tree, files: &[RawFd], others: Others) -> Result<(), Error> {
    let of_socket: HashMap<u32, RawFd> = tree
        .files
        .iter()
        .zip(files)
        .filter_map(|(file, number)| match file.kind {
            FileKind::Socket(socket) => Some((socket, *number)),
            _ => None,
        })
        .collect();
    let concerned = || {
        let sockets = (0u32..).zip(&tree.sockets);
        sockets.filter(|(_, socket)| concerns(tree, socket))
    };
    for (index, socket) in concerned().filter(|(_, socket)| !socket.passed.is_empty()) {
        let sender = match socket.state {
            SocketState::Pair(peer) => of_socket.get(&peer).copied(),
            SocketState::Destination(_) => {
                let sender = sender_of(tree, socket);
                sender.and_then(|sender| of_socket.get(&sender).copied())
            }
            _ => others.get(&index).map(AsRawFd::as_raw_fd),
        };
        let sender = sender.ok_or_else(|| {
            Error::Description(format!("nothing could send to the socket {index}"))
        })?;
        with_room_to_send(sender, &socket.received, || {
            for (at, message) in (0u32..).zip(&socket.received) {
                let passed = socket.passed.iter().filter(|(message, _)| *message == at);
                let passed: Vec<RawFd> = passed
                    .flat_map(|(_, passed)| passed)
                    .map(|file| files[*file as usize])
                    .collect();
                send(sender, message, &passed).map_err(system("fill the queue of a socket"))?;
            }
            Ok(())
        })?;
    }
    drop(others);
    for (index, socket) in concerned() {
        if let Some(number) = of_socket.get(&index) {
            shut_down(socket, *number)?;
        }
    }
    Ok(())
}

/// Sends a message with descriptors; a stream may take it in parts, of which the first carries them.
fn send(sender: RawFd, mut message: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut descriptors = descriptors;
    loop {
        let mut control = [0u64; 160];
        let mut vector = libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        // SAFETY: an all-zero message header is valid; the control buffer has room for as many
        // descriptors as were allowed above, and all parts of the header live.
        let sent = unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = &raw mut vector;
            header.msg_iovlen = 1;
            if !descriptors.is_empty() {
                let bytes = size_of_val(descriptors) as u32;
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
                let first = libc::CMSG_FIRSTHDR(&raw const header);
                (*first).cmsg_level = libc::SOL_SOCKET;
                (*first).cmsg_type = libc::SCM_RIGHTS;
                (*first).cmsg_len = libc::CMSG_LEN(bytes) as usize;
                let data = libc::CMSG_DATA(first).cast::<RawFd>();
                for (at, descriptor) in descriptors.iter().enumerate() {
                    data.add(at).write_unaligned(*descriptor);
                }
            }
            libc::sendmsg(
                sender,
                &raw const header,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        message = &message[sent as usize..];
        descriptors = &[];
        if message.is_empty() {
            return Ok(());
        }
    }
}
