//! Options of sockets: read, set, and compared with those of a fresh socket; packet filters.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SO_GET_FILTER: i32 = 26;
const INSTRUCTION_BYTES: usize = size_of::<libc::sock_filter>();
/// Longest value of an option that is compared.
const VALUE_MAX: usize = 64;

/// Options that a program may set and that can be read: level and name.
const OPTIONS_ANY: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_PASSCRED),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_PASSSEC),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, libc::SO_NO_CHECK),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF),
    (libc::SOL_SOCKET, libc::SO_SELECT_ERR_QUEUE),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::SOL_SOCKET, SO_PASSPIDFD),
    (libc::SOL_SOCKET, SO_MAX_PACING_RATE),
    (libc::SOL_SOCKET, SO_TIMESTAMP_NEW),
    (libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW),
];

const SO_MAX_PACING_RATE: i32 = 47;
const SO_TIMESTAMP_NEW: i32 = 63;
const SO_TIMESTAMPNS_NEW: i32 = 64;

/// Options of unix sockets.
const OPTIONS_UNIX: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, SO_PASSRIGHTS),
    (libc::SOL_SOCKET, SO_INQ),
];

const SO_PASSRIGHTS: i32 = 83;
const SO_INQ: i32 = 84;

/// Options of the socket layer that only internet sockets use.
const OPTIONS_INTERNET: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, SO_ZEROCOPY),
    (libc::SOL_SOCKET, SO_PREFER_BUSY_POLL),
    (libc::IPPROTO_IP, libc::IP_OPTIONS),
    (libc::IPPROTO_IP, IP_UNICAST_IF),
    (libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE),
];

const SO_ZEROCOPY: i32 = 60;
const SO_PREFER_BUSY_POLL: i32 = 69;
const IP_UNICAST_IF: i32 = 50;
const IP_LOCAL_PORT_RANGE: i32 = 51;

/// Options of internet sockets that receive messages.
const OPTIONS_MESSAGES: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, SO_TXTIME),
    (libc::SOL_SOCKET, SO_RCVMARK),
    (libc::SOL_SOCKET, SO_RCVPRIORITY),
];

/// Options of messages of IPv4.
const OPTIONS_MESSAGES4: &[(i32, i32)] = &[
    (libc::IPPROTO_IP, libc::IP_RECVOPTS),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_IF),
];

const SO_TXTIME: i32 = 61;
const SO_RCVMARK: i32 = 75;
const SO_RCVPRIORITY: i32 = 82;
const IP_RECVFRAGSIZE: i32 = 25;
const IP_RECVERR_RFC4884: i32 = 26;

/// Options of messages of IPv6, and of raw sockets of it.
const OPTIONS_MESSAGES6: &[(i32, i32)] = &[
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF),
    (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL),
    (libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS),
    (libc::IPPROTO_IPV6, IPV6_RECVORIGDSTADDR),
];

const IPV6_MULTICAST_ALL: i32 = 29;
const IPV6_RECVORIGDSTADDR: i32 = 74;

pub(super) const SO_PASSPIDFD: i32 = 76;
/// The number of an internet socket that may be bound to an address that the machine lacks.
const IPV6_FREEBIND: i32 = 78;

/// Options of netlink sockets.
const OPTIONS_NETLINK: &[(i32, i32)] = &[
    (libc::SOL_NETLINK, libc::NETLINK_PKTINFO),
    (libc::SOL_NETLINK, libc::NETLINK_BROADCAST_ERROR),
    (libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS),
    (libc::SOL_NETLINK, libc::NETLINK_LISTEN_ALL_NSID),
    (libc::SOL_NETLINK, libc::NETLINK_CAP_ACK),
    (libc::SOL_NETLINK, NETLINK_EXT_ACK),
    (libc::SOL_NETLINK, NETLINK_GET_STRICT_CHK),
];

const NETLINK_EXT_ACK: i32 = 11;
const NETLINK_GET_STRICT_CHK: i32 = 12;

/// Options of packet sockets that can be read.
const OPTIONS_PACKET: &[(i32, i32)] = &[
    (libc::SOL_PACKET, libc::PACKET_VERSION),
    (libc::SOL_PACKET, libc::PACKET_RESERVE),
    (libc::SOL_PACKET, libc::PACKET_AUXDATA),
    (libc::SOL_PACKET, libc::PACKET_ORIGDEV),
    (libc::SOL_PACKET, libc::PACKET_LOSS),
    (libc::SOL_PACKET, libc::PACKET_VNET_HDR),
    (libc::SOL_PACKET, libc::PACKET_TIMESTAMP),
    (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS),
];

const OPTIONS_UDP: &[(i32, i32)] = &[
    (libc::IPPROTO_UDP, libc::UDP_SEGMENT),
    (libc::IPPROTO_UDP, libc::UDP_GRO),
    (libc::IPPROTO_UDP, libc::UDP_CORK),
];

const OPTIONS_UDP6: &[(i32, i32)] = &[
    (libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX),
    (libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX),
];

const OPTIONS_UDP_LITE: &[(i32, i32)] = &[
    (libc::IPPROTO_UDPLITE, UDPLITE_SEND_CSCOV),
    (libc::IPPROTO_UDPLITE, UDPLITE_RECV_CSCOV),
];

const UDPLITE_SEND_CSCOV: i32 = 10;
const UDPLITE_RECV_CSCOV: i32 = 11;

/// What raw sockets have beside the others.
const OPTIONS_RAW: &[(i32, i32)] = &[
    (libc::IPPROTO_IP, libc::IP_HDRINCL),
    (libc::IPPROTO_RAW, ICMP_FILTER),
    (libc::IPPROTO_ICMPV6, ICMPV6_FILTER),
    (libc::IPPROTO_RAW, IPV6_CHECKSUM),
    (libc::IPPROTO_IPV6, libc::IPV6_HDRINCL),
    (libc::IPPROTO_IP, IP_CHECKSUM),
    (libc::IPPROTO_IP, IP_RECVFRAGSIZE),
    (libc::IPPROTO_IP, IP_RECVERR_RFC4884),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVDSTOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVRTHDR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPATHMTU),
    (libc::IPPROTO_IP, libc::IP_PASSSEC),
    (libc::IPPROTO_IPV6, IPV6_RECVFRAGSIZE),
    (libc::IPPROTO_IPV6, IPV6_RECVERR_RFC4884),
];

const IP_CHECKSUM: i32 = 23;
const IPV6_RECVFRAGSIZE: i32 = 77;
const IPV6_RECVERR_RFC4884: i32 = 31;

const ICMP_FILTER: i32 = 1;
const ICMPV6_FILTER: i32 = 1;
const IPV6_CHECKSUM: i32 = 7;

const OPTIONS_TCP: &[(i32, i32)] = &[
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT),
    (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
    (libc::IPPROTO_TCP, libc::TCP_SAVE_SYN),
    (libc::IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE),
    (libc::IPPROTO_TCP, TCP_INQ),
    (libc::IPPROTO_TCP, TCP_TX_DELAY),
    (libc::IPPROTO_TCP, TCP_RTO_MAX_MS),
];

pub(crate) const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
const TCP_INQ: i32 = 36;
const TCP_TX_DELAY: i32 = 37;
const TCP_RTO_MAX_MS: i32 = 44;

const OPTIONS_IP: &[(i32, i32)] = &[
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_RETOPTS),
    (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR),
    (libc::IPPROTO_IP, libc::IP_MINTTL),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
];

const OPTIONS_IP6: &[(i32, i32)] = &[
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP),
    (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
    (libc::IPPROTO_IPV6, IPV6_FREEBIND),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF),
    (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG),
    (libc::IPPROTO_IPV6, IPV6_FLOWINFO_SEND),
    (libc::IPPROTO_IPV6, libc::IPV6_AUTOFLOWLABEL),
    (libc::IPPROTO_IPV6, libc::IPV6_ADDR_PREFERENCES),
    (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
];

const IPV6_FLOWINFO_SEND: i32 = 33;

/// Fresh sockets, each with the values of options that were asked for. A sysctl may change them: to be kept
/// for one description only.
#[derive(Debug, Default)]
pub(crate) struct FreshSockets(HashMap<(i32, i32, i32), FreshSocket>);

#[derive(Debug)]
struct FreshSocket {
    socket: OwnedFd,
    /// By level and name; `None`: it has no such option.
    values: HashMap<(i32, i32), Option<Vec<u8>>>,
}

impl FreshSockets {
    /// The one of a family, type and protocol.
    fn get(&mut self, of: (i32, i32, i32)) -> io::Result<&mut FreshSocket> {
        let vacant = match self.0.entry(of) {
            Entry::Occupied(entry) => return Ok(entry.into_mut()),
            Entry::Vacant(entry) => entry,
        };
        let (family, kind, protocol) = of;
        // SAFETY: no memory involved; the descriptor is new and ours.
        let socket = unsafe {
            let fd = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let values = HashMap::new();
        Ok(vacant.insert(FreshSocket { socket, values }))
    }
}

impl FreshSocket {
    fn has(&mut self, option: (i32, i32), value: &[u8]) -> bool {
        let (level, name) = option;
        let known = self.values.entry(option);
        let known =
            known.or_insert_with(|| option_bytes(&self.socket, level, name, VALUE_MAX).ok());
        known.as_deref() == Some(value)
    }
}

/// Whether a socket is of another network namespace than ours.
pub(super) fn is_elsewhere(
    socket: &OwnedFd,
    of: (i32, i32, i32),
    fresh: &mut FreshSockets,
) -> bool {
    /// A value for which the kernel wants exactly the room that it takes.
    const SO_NETNS_COOKIE: (i32, i32) = (libc::SOL_SOCKET, 71);
    let (level, name) = SO_NETNS_COOKIE;
    let cookie = option_bytes(socket, level, name, 8).ok();
    fresh.get(of).is_ok_and(|fresh| {
        let own = fresh.values.entry(SO_NETNS_COOKIE);
        *own.or_insert_with(|| option_bytes(&fresh.socket, level, name, 8).ok()) != cookie
    })
}

/// Whether a socket with these options keeps errors, or reports of what it has sent, for the program.
pub(super) fn has_error_queue(options: &[(i32, i32, Vec<u8>)]) -> bool {
    let keeps = [
        (libc::IPPROTO_IP, libc::IP_RECVERR),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
        (libc::SOL_SOCKET, SO_TXTIME),
    ];
    let mut options = options.iter();
    options.any(|(level, name, _)| keeps.contains(&(*level, *name)))
}

/// Options whose value is not that of a fresh socket of the same kind.
pub(crate) fn changed_options(
    socket: &OwnedFd,
    (family, kind, protocol): (i32, i32, i32),
    fresh: &mut FreshSockets,
) -> io::Result<Vec<(i32, i32, Vec<u8>)>> {
    let fresh = fresh.get((family, kind, protocol))?;
    let mut lists = vec![OPTIONS_ANY];
    if family == libc::AF_UNIX {
        lists.push(OPTIONS_UNIX);
    }
    if matches!(family, libc::AF_INET | libc::AF_INET6) {
        lists.push(OPTIONS_IP);
        lists.push(OPTIONS_INTERNET);
        if kind != libc::SOCK_STREAM {
            lists.push(OPTIONS_MESSAGES);
            if family == libc::AF_INET {
                lists.push(OPTIONS_MESSAGES4);
            }
        }
        if [libc::IPPROTO_TCP, libc::IPPROTO_MPTCP].contains(&protocol) {
            lists.push(OPTIONS_TCP);
        }
        if kind == libc::SOCK_RAW {
            lists.push(OPTIONS_RAW);
        }
        if protocol == libc::IPPROTO_UDPLITE {
            lists.push(OPTIONS_UDP_LITE);
        }
        if protocol == libc::IPPROTO_UDP {
            lists.push(OPTIONS_UDP);
        }
    }
    if family == libc::AF_NETLINK {
        lists.push(OPTIONS_NETLINK);
    }
    if family == libc::AF_PACKET {
        lists.push(OPTIONS_PACKET);
    }
    if family == libc::AF_INET6 {
        lists.push(OPTIONS_IP6);
        if kind != libc::SOCK_STREAM {
            lists.push(OPTIONS_MESSAGES6);
        }
        if protocol == libc::IPPROTO_UDP {
            lists.push(OPTIONS_UDP6);
        }
    }
    let mut changed = Vec::new();
    let mut room = [0; VALUE_MAX];
    for &(level, name) in lists.into_iter().flatten() {
        // A stream cannot be given one; what it shows depends on how the kernel made it.
        if kind == libc::SOCK_STREAM && (level, name) == (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL)
        {
            continue;
        }
        // What this kind of socket does not have is not set either.
        let Ok(value) = option_in(socket, level, name, &mut room) else {
            continue;
        };
        if !fresh.has((level, name), value) {
            changed.push((level, name, value.to_vec()));
        }
    }
    // Buffer sizes count only if the program has set them; the kernel doubles the value that is set.
    let locked = option_i32(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK).unwrap_or(0);
    for (bit, name) in [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)] {
        if locked & bit != 0 {
            let bytes = option_i32(socket, libc::SOL_SOCKET, name)? / 2;
            changed.push((libc::SOL_SOCKET, name, bytes.to_ne_bytes().to_vec()));
        }
    }
    Ok(changed)
}

pub(super) fn option_bytes(
    socket: &OwnedFd,
    level: i32,
    name: i32,
    room: usize,
) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; room];
    let bytes = option_in(socket, level, name, &mut value)?.len();
    value.truncate(bytes);
    Ok(value)
}

/// The value of an option, in the room for it.
fn option_in<'room>(
    socket: &OwnedFd,
    level: i32,
    name: i32,
    room: &'room mut [u8],
) -> io::Result<&'room [u8]> {
    let mut bytes = room.len() as libc::socklen_t;
    // SAFETY: the room is valid for its length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            room.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(&room[..(bytes as usize).min(room.len())])
}

pub(super) fn option_i32(socket: &OwnedFd, level: i32, name: i32) -> io::Result<i32> {
    let value = option_bytes(socket, level, name, 4)?;
    value
        .first_chunk::<4>()
        .map(|bytes| i32::from_ne_bytes(*bytes))
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

pub(super) fn set_option_i32(
    socket: &OwnedFd,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    // SAFETY: the value lives.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            4,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The instructions of the packet filter of a socket; none: it has no filter.
///
/// # Errors
/// The kernel does not show it: it is an eBPF program.
pub(super) fn filter_of(socket: &OwnedFd) -> io::Result<Option<Vec<u8>>> {
    let mut count: libc::socklen_t = 0;
    let get = |value: *mut libc::c_void, count: &mut libc::socklen_t| {
        // SAFETY: the value has room for as many instructions as are said.
        let got = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_GET_FILTER,
                value,
                count,
            )
        };
        match got {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // A length of zero requests only the length, in instructions.
    get(std::ptr::null_mut(), &mut count)?;
    if count == 0 {
        return Ok(None);
    }
    let mut instructions = vec![0u8; count as usize * INSTRUCTION_BYTES];
    get(instructions.as_mut_ptr().cast(), &mut count)?;
    instructions.truncate(count as usize * INSTRUCTION_BYTES);
    Ok(Some(instructions))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    const TCP: (i32, i32, i32) = (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP);
    const UDP: (i32, i32, i32) = (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDP);

    #[test]
    fn only_options_that_the_program_has_set_are_found_whatever_was_compared_before() {
        let mut fresh = FreshSockets::default();
        let plain = OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let set = OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        set_option_i32(&set, libc::IPPROTO_IP, libc::IP_TTL, 7).unwrap();
        set_option_i32(&set, libc::SOL_SOCKET, libc::SO_RCVBUF, 8192).unwrap();
        let ttl = (libc::IPPROTO_IP, libc::IP_TTL, 7i32.to_ne_bytes().to_vec());
        let room = (
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            8192i32.to_ne_bytes().to_vec(),
        );
        for _ in 0..2 {
            assert_eq!(changed_options(&plain, UDP, &mut fresh).unwrap(), []);
            let found = changed_options(&set, UDP, &mut fresh).unwrap();
            assert_eq!(found, [ttl.clone(), room.clone()]);
        }
        // A socket of another type has fresh values of its own.
        let stream = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let reuse = (
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            1i32.to_ne_bytes().to_vec(),
        );
        let found = changed_options(&stream, TCP, &mut fresh).unwrap();
        assert_eq!(found, [reuse]);
        assert_eq!(fresh.0.len(), 2);
    }
}
