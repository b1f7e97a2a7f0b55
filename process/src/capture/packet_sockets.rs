//! Packet sockets (`AF_PACKET`): protocol, interface, rings, memberships and fan-out, as sock_diag(7)
//! reports them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

use super::queues::has_message;
use super::sockets::{Described, address_of};
use super::{Builder, Error};
use crate::netlink::{attributes, half, word};
use crate::sock_diag::{self, DUMP, Reported, SOCK_DIAG_BY_FAMILY};
use crate::state::SocketState;

const SHOW: u32 = 1 | 2 | 4 | 8;
const INFO: u16 = 0;
const MEMBERSHIPS: u16 = 1;
const RECEIVE_RING: u16 = 2;
const SEND_RING: u16 = 3;
const FANOUT: u16 = 4;
/// `struct packet_diag_msg`.
const MESSAGE_BYTES: usize = 16;
/// `struct packet_diag_mclist`.
const MEMBERSHIP_BYTES: usize = 44;
/// `struct tpacket_req3`.
const RING_BYTES: usize = 28;
/// `struct sockaddr_ll`: the kernel takes no shorter one, and shows one.
const ADDRESS_BYTES: usize = 20;

/// The type of those that are bound to the name of an interface.
const SOCK_PACKET: i32 = 10;

/// A packet socket as the kernel reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketSocket {
    /// Of Ethernet, as the host writes it; 0: none.
    pub protocol: u16,
    /// Number of its interface; 0: all.
    pub interface: u32,
    /// Options that only this reports: number and value.
    pub options: Vec<(i32, Vec<u8>)>,
}

/// All packet sockets; needs `CONFIG_PACKET_DIAG`.
pub type Sockets = sock_diag::Sockets<PacketSocket>;

impl Reported for PacketSocket {
    fn read_all() -> io::Result<HashMap<u64, Self>> {
        // struct packet_diag_req: family, protocol, pad, inode, what to show, cookie.
        let mut request = vec![libc::AF_PACKET as u8, 0, 0, 0];
        request.extend_from_slice(&0u32.to_ne_bytes());
        request.extend_from_slice(&SHOW.to_ne_bytes());
        request.extend_from_slice(&[0xff; 8]);
        let mut sockets = HashMap::new();
        sock_diag::exchange(SOCK_DIAG_BY_FAMILY, DUMP, &request, |body| {
            if body.len() >= MESSAGE_BYTES {
                sockets.insert(u64::from(word(body, 4)), parse(body));
            }
        })?;
        Ok(sockets)
    }
}

fn parse(body: &[u8]) -> PacketSocket {
    // struct packet_diag_msg: family, type, protocol, inode, cookie[2]; then attributes.
    let mut socket = PacketSocket {
        protocol: half(body, 2),
        ..PacketSocket::default()
    };
    for (kind, value) in attributes(&body[MESSAGE_BYTES..]) {
        match kind {
            // Interface, version, reserve, threshold for copies.
            INFO if value.len() >= 16 => {
                socket.interface = word(value, 0);
                if word(value, 12) != 0 {
                    let threshold = value[12..16].to_vec();
                    socket.options.push((libc::PACKET_COPY_THRESH, threshold));
                }
            }
            MEMBERSHIPS => {
                for one in value.chunks_exact(MEMBERSHIP_BYTES) {
                    // struct packet_mreq_max has no count between the interface and the type.
                    let request = [&one[..4], &one[8..]].concat();
                    for _ in 0..word(one, 4).min(64) {
                        socket
                            .options
                            .push((libc::PACKET_ADD_MEMBERSHIP, request.clone()));
                    }
                }
            }
            RECEIVE_RING | SEND_RING if value.len() >= RING_BYTES => {
                let name = match kind {
                    RECEIVE_RING => libc::PACKET_RX_RING,
                    _ => libc::PACKET_TX_RING,
                };
                socket.options.push((name, value[..RING_BYTES].to_vec()));
            }
            FANOUT if value.len() >= 4 => {
                socket
                    .options
                    .push((libc::PACKET_FANOUT, value[..4].to_vec()));
            }
            _ => {}
        }
    }
    socket
}

/// A described packet socket.
pub(super) struct Packet {
    pub(super) described: Described,
    /// With which it is made.
    pub(super) protocol: i32,
    pub(super) options: Vec<(i32, i32, Vec<u8>)>,
}

impl Builder<'_> {
    pub(super) fn packet_socket(
        &mut self,
        socket: &OwnedFd,
        (number, inode): (RawFd, u64),
        kind: i32,
    ) -> Result<Option<Packet>, Error> {
        if has_message(socket) {
            self.refuse(format!(
                "fd {number} is a packet socket with unread packets"
            ));
            return Ok(None);
        }
        let failed = self.failed("read packet sockets (does the kernel have packet_diag?)");
        let reported = self.packets.get(inode).map_err(failed)?;
        let reported = reported.cloned().unwrap_or_default();
        let mut address = address_of(socket);
        let old_kind = kind == SOCK_PACKET;
        // What is bound to an interface by name keeps the protocol with which it was made.
        let bound = reported.interface != 0 || !old_kind && reported.protocol != 0;
        if !bound {
            address.clear();
        } else if !old_kind && address.len() < ADDRESS_BYTES {
            address.resize(ADDRESS_BYTES, 0);
        }
        let protocol = match old_kind {
            true => i32::from(reported.protocol.to_be()),
            false => 0,
        };
        let options = reported.options.into_iter();
        Ok(Some(Packet {
            described: Described::new(SocketState::Idle, address),
            protocol,
            options: options
                .map(|(name, value)| (libc::SOL_PACKET, name, value))
                .collect(),
        }))
    }
}
