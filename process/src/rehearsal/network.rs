//! The network of a rehearsal: the machine's addresses on a loopback device that leads nowhere.
//!
//! What the copy binds and connects to is found as on the machine, and nothing of it leaves the
//! namespace.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::netlink;

/// Settings of a namespace that decide what a socket may do.
const SETTINGS: [&str; 4] = [
    "/proc/sys/net/ipv4/ping_group_range",
    "/proc/sys/net/ipv4/ip_unprivileged_port_start",
    "/proc/sys/net/ipv4/ip_nonlocal_bind",
    "/proc/sys/net/ipv6/ip_nonlocal_bind",
];
const LOOPBACK: u32 = 1;
const CREATE: u16 =
    (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;

/// The network as it is outside.
#[derive(Debug)]
pub struct Outside {
    addresses: Vec<(IpAddr, u8)>,
    settings: Vec<(&'static str, String)>,
}

impl Outside {
    /// Reads it; called before the namespace is left.
    ///
    /// # Errors
    /// The kernel does not list the addresses.
    pub fn read() -> io::Result<Self> {
        let setting = |path: &'static str| Some((path, fs::read_to_string(path).ok()?));
        Ok(Self {
            addresses: addresses()?,
            settings: SETTINGS.into_iter().filter_map(setting).collect(),
        })
    }

    /// Makes it in a namespace that has nothing yet, with a /proc of that namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make(&self) -> io::Result<()> {
        for (path, value) in &self.settings {
            let _ = fs::write(path, value);
        }
        bring_up()?;
        for (address, prefix) in &self.addresses {
            add_address(*address, *prefix)?;
        }
        // Connections have a way to wherever their other ends are.
        add_route(IpAddr::V4(Ipv4Addr::UNSPECIFIED))?;
        match add_route(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) {
            // A kernel without IPv6.
            Err(error)
                if [Some(libc::EAFNOSUPPORT), Some(libc::EOPNOTSUPP)]
                    .contains(&error.raw_os_error()) =>
            {
                Ok(())
            }
            done => done,
        }
    }
}

/// The addresses of all devices but loopback ones, which the new device has by itself, and those that
/// are only valid with a device.
fn addresses() -> io::Result<Vec<(IpAddr, u8)>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is freed below, and not used after that.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an entry of the list, which lives.
        let entry = unsafe { &*at };
        at = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: an address is as long as its family says.
        let address = unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                    let number = u32::from_be(address.sin_addr.s_addr);
                    (IpAddr::V4(Ipv4Addr::from(number)), 32)
                }
                libc::AF_INET6 => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                    (IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)), 128)
                }
                _ => continue,
            }
        };
        let of_a_device = match address.0 {
            IpAddr::V4(_) => false,
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if !address.0.is_loopback() && !of_a_device && !found.contains(&address) {
            found.push(address);
        }
    }
    // SAFETY: it is from `getifaddrs`.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

fn bring_up() -> io::Result<()> {
    // struct ifinfomsg: family, pad, type, index, flags, which flags change.
    let mut body = vec![0; 4];
    body.extend_from_slice(&LOOPBACK.to_ne_bytes());
    body.extend_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
    body.extend_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    exchange(libc::RTM_NEWLINK, flags, &body)
}

fn bytes_of(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    }
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn add_address(address: IpAddr, prefix: u8) -> io::Result<()> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    /// Not looked for elsewhere (IPv6): it can be bound at once.
    const IFA_F_NODAD: u8 = 2;
    let (family, bytes) = bytes_of(address);
    // struct ifaddrmsg: family, length of the prefix, flags, scope, device.
    let mut body = vec![family, prefix, IFA_F_NODAD, 0];
    body.extend_from_slice(&LOOPBACK.to_ne_bytes());
    attribute(&mut body, IFA_LOCAL, &bytes);
    attribute(&mut body, IFA_ADDRESS, &bytes);
    exchange(libc::RTM_NEWADDR, CREATE, &body)
}

/// Everything goes by the loopback device.
fn add_route(any: IpAddr) -> io::Result<()> {
    const TABLE_MAIN: u8 = 254;
    const PROTOCOL_BOOT: u8 = 3;
    const UNICAST: u8 = 1;
    const RTA_OIF: u16 = 4;
    let (family, _) = bytes_of(any);
    // struct rtmsg: family, lengths of destination and source, type of service, table, protocol,
    // scope, kind; flags.
    let mut body = vec![family, 0, 0, 0, TABLE_MAIN, PROTOCOL_BOOT, 0, UNICAST];
    body.extend_from_slice(&0u32.to_ne_bytes());
    attribute(&mut body, RTA_OIF, &LOOPBACK.to_ne_bytes());
    exchange(libc::RTM_NEWROUTE, CREATE, &body)
}

/// Sends one request to rtnetlink(7), and waits for the acknowledgement.
fn exchange(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    // NETLINK_ROUTE is number 0.
    netlink::exchange(None, kind, flags, body, |_| {})
}
