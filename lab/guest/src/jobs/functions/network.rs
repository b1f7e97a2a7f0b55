//! Network cards: a frame goes from one to the other and back, past the protocols of the kernel.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::{folder, last, other};
use crate::error::GuestError;

/// For experiments (IEEE 802).
const KIND: u16 = 0x88b5;
const LIMIT: Duration = Duration::from_millis(500);

/// A socket for frames of one card.
struct Card {
    name: String,
    address: [u8; 6],
    socket: OwnedFd,
}

fn complain(what: &str) -> GuestError {
    other(what, &io::Error::last_os_error())
}

fn parse_address(text: &str) -> Result<[u8; 6], GuestError> {
    let mut bytes = [0; 6];
    let mut parts = text.trim().split(':');
    for byte in &mut bytes {
        let part = parts
            .next()
            .and_then(|part| u8::from_str_radix(part, 16).ok());
        *byte = part.ok_or_else(|| GuestError::Other(format!("{text:?} is no address")))?;
    }
    Ok(bytes)
}

impl Card {
    fn open(address: &str) -> Result<Card, GuestError> {
        let name = folder("/sys/class/net")?
            .into_iter()
            .find(|path| {
                fs::read_to_string(path.join("address")).is_ok_and(|text| text.trim() == address)
            })
            .map(|path| last(&path))
            .ok_or_else(|| GuestError::Other(format!("no network card has address {address}")))?;
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(complain("open a packet socket"));
        }
        // SAFETY: this is the socket's only owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let card = Card {
            address: parse_address(address)?,
            name,
            socket,
        };
        card.up()?;
        card.bind()?;
        Ok(card)
    }

    fn up(&self) -> Result<(), GuestError> {
        // SAFETY: all bytes 0 are a request without a name.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        // SAFETY: the request lives until the call returns.
        let code =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) };
        match code {
            0 => Ok(()),
            _ => Err(complain(&format!("switch {} on", self.name))),
        }
    }

    fn bind(&self) -> Result<(), GuestError> {
        let index = fs::read_to_string(format!("/sys/class/net/{}/ifindex", self.name));
        let index = index.ok().and_then(|text| text.trim().parse().ok());
        // SAFETY: all bytes 0 are an address of no family.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = KIND.to_be();
        to.sll_ifindex =
            index.ok_or_else(|| GuestError::Other(format!("{} is gone", self.name)))?;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address lives until the call returns, and has that size.
        let code = unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const to).cast(), size) };
        match code {
            0 => Ok(()),
            _ => Err(complain(&format!("listen on {}", self.name))),
        }
    }

    fn send(&self, to: &Card, nonce: &[u8; 16]) -> Result<(), GuestError> {
        let mut frame = Vec::with_capacity(60);
        frame.extend(to.address);
        frame.extend(self.address);
        frame.extend(KIND.to_be_bytes());
        frame.extend(nonce);
        frame.resize(60, 0);
        // SAFETY: the frame lives until the call returns, and has that length.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
            )
        };
        match usize::try_from(sent) {
            Ok(_) => Ok(()),
            Err(_) => Err(complain(&format!("send through {}", self.name))),
        }
    }

    fn hears(&self, from: &Card, nonce: &[u8; 16]) -> Result<(), GuestError> {
        let begin = Instant::now();
        let mut frame = [0_u8; 2048];
        while begin.elapsed() < LIMIT {
            // SAFETY: the buffer lives until the call returns, and has that length.
            let count = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    0,
                )
            };
            let Ok(count) = usize::try_from(count) else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let is_it = count >= 30
                && frame[..6] == self.address
                && frame[6..12] == from.address
                && frame[14..30] == nonce[..];
            if is_it {
                return Ok(());
            }
        }
        let (from, to) = (&from.name, &self.name);
        Err(GuestError::Other(format!(
            "a frame of {from} did not reach {to}"
        )))
    }
}

/// There and back.
pub fn echoes(card: &str, peer: &str, nonce: &[u8; 16]) -> Result<(), GuestError> {
    let (card, peer) = (Card::open(card)?, Card::open(peer)?);
    card.send(&peer, nonce)?;
    peer.hears(&card, nonce)?;
    peer.send(&card, nonce)?;
    card.hears(&peer, nonce)
}
