//! Requests to the kernel by netlink(7).

use std::io;

use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_BYTES: usize = 16;

/// Sends `body` as one message of a kind, and hands the body of each answer to `answer`, until the
/// last one or the acknowledgement has come.
///
/// # Errors
/// The kernel has no such protocol, or refuses the request, with the errno that it gives.
pub fn exchange(
    protocol: Option<Protocol>,
    kind: u16,
    flags: u16,
    body: &[u8],
    mut answer: impl FnMut(&[u8]),
) -> io::Result<()> {
    let socket = net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;
    // struct nlmsghdr: length, kind, flags, sequence, sender.
    let mut request = Vec::with_capacity(HEADER_BYTES + body.len());
    request.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(&flags.to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(body);
    net::send(&socket, &request, SendFlags::empty())?;
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let (got, _) = net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if parse(&buffer[..got], &mut answer)? {
            return Ok(());
        }
    }
}

/// Reads one datagram of answers. True: it was the last.
fn parse(mut bytes: &[u8], answer: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while bytes.len() >= HEADER_BYTES {
        let length = word(bytes, 0) as usize;
        if length < HEADER_BYTES || length > bytes.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let body = &bytes[HEADER_BYTES..length];
        // The end of a list says what broke it off, such as a protocol that the kernel does not list.
        let without_code = match half(bytes, 4) {
            NLMSG_ERROR => Some(libc::EIO),
            NLMSG_DONE => Some(0),
            _ => None,
        };
        if let Some(without_code) = without_code {
            let code = body.first_chunk();
            return match code.map_or(without_code, |code| -i32::from_ne_bytes(*code)) {
                0 => Ok(true),
                code => Err(io::Error::from_raw_os_error(code)),
            };
        }
        answer(body);
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(false)
}

/// The attributes behind a message: kind and value of each, up to one that makes no sense.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        if rest.len() < 4 {
            return None;
        }
        let (length, kind) = (usize::from(half(rest, 0)), half(rest, 2));
        let value = rest.get(4..length)?;
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        Some((kind, value))
    })
}

/// The number in the four bytes from `at` on.
///
/// # Panics
/// They are not there.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The number in the two bytes from `at` on.
///
/// # Panics
/// They are not there.
pub fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn the_end_of_a_list_says_why_it_broke_off() {
        let answers = |end: &[u8]| {
            let bytes = [message(20, &[1; 8]), message(NLMSG_DONE, end)].concat();
            let mut seen = 0;
            let last = parse(&bytes, &mut |_| seen += 1);
            (seen, last.map_err(|error| error.raw_os_error()))
        };
        assert_eq!(answers(&[]), (1, Ok(true)));
        assert_eq!(answers(&0i32.to_ne_bytes()), (1, Ok(true)));
        let broken_off = (-libc::ENOENT).to_ne_bytes();
        assert_eq!(answers(&broken_off), (1, Err(Some(libc::ENOENT))));
    }

    #[test]
    fn an_acknowledgement_ends_and_a_refusal_is_an_error() {
        let answer = |code: i32| {
            let last = parse(&message(NLMSG_ERROR, &code.to_ne_bytes()), &mut |_| {});
            last.map_err(|error| error.raw_os_error())
        };
        assert_eq!(answer(0), Ok(true));
        assert_eq!(answer(-libc::EPERM), Err(Some(libc::EPERM)));
    }
}
