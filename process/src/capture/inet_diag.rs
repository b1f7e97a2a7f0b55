//! What only sock_diag(7) reports of internet sockets: the directions in which a UDP socket is shut
//! down, where a TCP socket connects to, and whether one that listens has keys.

use std::collections::HashMap;
use std::io;

use crate::netlink::{attributes, word};
use crate::sock_diag::{self, DUMP, SOCK_DIAG_BY_FAMILY};

const INET_DIAG_SHUTDOWN: u16 = 8;
const INET_DIAG_MD5SIG: u16 = 18;
/// `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;
const INODE_AT: usize = 68;
const UNSENT_AT: usize = 60;
/// Of the extensions, `struct tcp_info`.
const SHOW_INFO: u8 = 1 << 1;
/// Of the states, that in which a TCP socket waits for an answer.
const SYN_SENT: u32 = 1 << 2;
/// That in which it listens.
const LISTEN: u32 = 1 << 10;

/// An internet socket as the kernel reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InternetSocket {
    /// Shut down for: 1 reading, 2 writing, 3 both.
    pub shutdown: u8,
    /// It has sent something that is still in this machine.
    pub unsent: bool,
    /// It has keys of TCP (`TCP_MD5SIG`), which are shown to a reader with CAP_NET_ADMIN.
    pub keys: bool,
    /// The other end's `sockaddr`.
    pub peer: Vec<u8>,
}

/// Sockets of the network namespace, by protocol, states and inode; those of a protocol in some states are read
/// once, at the first call.
#[derive(Debug, Default)]
pub struct Sockets(HashMap<(i32, u32), HashMap<u64, InternetSocket>>);

impl Sockets {
    /// The socket of a protocol with this inode: of TCP if it connects, of UDP or UDP-lite if it is bound.
    ///
    /// # Errors
    /// `ENOENT`: the kernel lists no sockets of this protocol (`CONFIG_INET_UDP_DIAG` or `CONFIG_INET_TCP_DIAG`, both
    /// modules that it loads by itself where there is a modprobe). Or it refuses.
    pub fn get(&mut self, protocol: i32, inode: u64) -> io::Result<Option<&InternetSocket>> {
        let states = match protocol {
            libc::IPPROTO_TCP => SYN_SENT,
            _ => u32::MAX,
        };
        self.get_in(protocol, states, inode)
    }

    /// The TCP socket with this inode that listens.
    ///
    /// # Errors
    /// As of [`Self::get`].
    pub fn listening(&mut self, inode: u64) -> io::Result<Option<&InternetSocket>> {
        self.get_in(libc::IPPROTO_TCP, LISTEN, inode)
    }

    fn get_in(
        &mut self,
        protocol: i32,
        states: u32,
        inode: u64,
    ) -> io::Result<Option<&InternetSocket>> {
        let sockets = match self.0.remove(&(protocol, states)) {
            Some(sockets) => sockets,
            None => read_all(protocol, states)?,
        };
        let sockets = self.0.entry((protocol, states)).or_insert(sockets);
        Ok(sockets.get(&inode))
    }
}

fn read_all(protocol: i32, states: u32) -> io::Result<HashMap<u64, InternetSocket>> {
    let mut sockets = HashMap::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        // struct inet_diag_req_v2: family, protocol, extensions, pad, states, socket.
        // The kernel shows keys together with `struct tcp_info`.
        let extensions = if states == LISTEN { SHOW_INFO } else { 0 };
        let mut request = vec![family as u8, protocol as u8, extensions, 0];
        request.extend_from_slice(&states.to_ne_bytes());
        request.resize(56, 0);
        sock_diag::exchange(SOCK_DIAG_BY_FAMILY, DUMP, &request, |body| {
            if body.len() >= MESSAGE_BYTES {
                sockets.insert(u64::from(word(body, INODE_AT)), parse(body));
            }
        })?;
    }
    Ok(sockets)
}

fn parse(body: &[u8]) -> InternetSocket {
    // struct inet_diag_msg: family, state, timer, retransmits, then the ports and addresses.
    let family = i32::from(body[0]);
    let (port, address) = (&body[6..8], &body[24..40]);
    let mut peer = (family as u16).to_ne_bytes().to_vec();
    peer.extend_from_slice(port);
    if family == libc::AF_INET {
        peer.extend_from_slice(&address[..4]);
        peer.resize(16, 0);
    } else {
        peer.extend_from_slice(&[0; 4]);
        peer.extend_from_slice(address);
        peer.resize(28, 0);
    }
    let mut socket = InternetSocket {
        shutdown: 0,
        unsent: word(body, UNSENT_AT) > 0,
        keys: false,
        peer,
    };
    for (kind, value) in attributes(&body[MESSAGE_BYTES..]) {
        socket.keys |= kind == INET_DIAG_MD5SIG && !value.is_empty();
        if kind == INET_DIAG_SHUTDOWN && !value.is_empty() {
            socket.shutdown = value[0] & 3;
        }
    }
    socket
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_directions_of_a_udp_socket_that_are_shut_down_are_known() {
        let peer = UdpSocket::bind("127.0.0.1:0").expect("bound");
        for (how, expected) in [
            (None, 0),
            (Some(libc::SHUT_WR), 2),
            (Some(libc::SHUT_RDWR), 3),
        ] {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
            socket
                .connect(peer.local_addr().expect("bound"))
                .expect("connected");
            if let Some(how) = how {
                // SAFETY: no memory involved.
                assert_eq!(unsafe { libc::shutdown(socket.as_raw_fd(), how) }, 0);
            }
            let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
            let inode = std::fs::metadata(link).expect("open").ino();
            let mut sockets = Sockets::default();
            let found = sockets
                .get(libc::IPPROTO_UDP, inode)
                .expect("the kernel has udp_diag");
            assert_eq!(found.expect("it is there").shutdown, expected);
        }
    }

    #[test]
    fn a_protocol_whose_sockets_the_kernel_does_not_list_is_an_error() {
        let mut sockets = Sockets::default();
        let refused = sockets.get(libc::IPPROTO_BEETPH, 1);
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
