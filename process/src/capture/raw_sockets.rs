//! Internet sockets beside TCP and UDP: raw, ICMP, UDP-lite.

use std::os::fd::{OwnedFd, RawFd};

use super::Builder;
use super::queues::has_message;
use super::sockets::{Described, address_of, peer_of};
use crate::state::SocketState;

impl Builder<'_> {
    /// One that has neither connections nor more in its queue than a program can miss.
    pub(super) fn other_internet_socket(
        &mut self,
        socket: &OwnedFd,
        (number, inode): (RawFd, u64),
        kind: i32,
        protocol: i32,
    ) -> Option<Described> {
        let ping = [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6].contains(&protocol);
        let what = match (kind, protocol) {
            (libc::SOCK_RAW, _) => "raw socket",
            (libc::SOCK_DGRAM, _) if ping => "ICMP socket",
            (libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE) => "UDP-lite socket",
            _ => {
                self.refuse(format!(
                    "fd {number} is an internet socket of type {kind} and protocol {protocol}"
                ));
                return None;
            }
        };
        if has_message(socket) {
            self.refuse(format!("fd {number} is a {what} with unread messages"));
            return None;
        }
        let (mut address, mut peer) = (address_of(socket), peer_of(socket));
        if kind == libc::SOCK_RAW {
            // The kernel shows the protocol as its port.
            for address in [&mut address, &mut peer] {
                if let Some(port) = address.get_mut(2..4) {
                    port.fill(0);
                }
            }
        }
        let state = match peer.is_empty() {
            true => SocketState::Idle,
            false => SocketState::Destination(peer),
        };
        let mut described = Described::new(state, address);
        // Of a raw socket the protocol says only what is in its packets.
        if (kind, protocol) == (libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE) {
            described.shutdown = self.shut_down(socket, protocol, (number, inode))?;
        }
        Some(described)
    }
}
