//! UPower: polls on the system bus whether the machine is on battery.
//!
//! As much of D-Bus (<https://dbus.freedesktop.org/doc/dbus-specification.html>) as one question
//! needs; the tracker starts no process for it, because all of its children are the program.
//!
//! ```text
//!  message: 'l' type flags version │ body bytes │ serial │ fields bytes, fields │ body
//!           1   1    1     1         4            4        4            padded to 8
//!  field:   code, signature, value     1 path o · 2 interface s · 3 member s · 5 reply to u
//!                                      6 destination s · 8 signature g
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::{Meter, Reading};

/// UPower itself polls; a shorter interval gives no news.
const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_millis(500);
/// Longer messages are none of ours.
const MESSAGE_BYTES: usize = 1 << 16;
const BUS: &str = "org.freedesktop.DBus";
const UPOWER: &str = "org.freedesktop.UPower";

/// Asks UPower, over a connection that is made again when it breaks.
#[derive(Debug)]
pub struct Upower {
    socket: PathBuf,
    connection: Option<Connection>,
}

impl Upower {
    /// On the system bus.
    pub fn system() -> Self {
        Self {
            socket: PathBuf::from("/run/dbus/system_bus_socket"),
            connection: None,
        }
    }

    fn poll(&mut self) -> io::Result<bool> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(UnixStream::connect(&self.socket)?)?,
        };
        let on_battery = connection.on_battery()?;
        self.connection = Some(connection);
        Ok(on_battery)
    }
}

impl Meter for Upower {
    fn read(&mut self) -> Reading {
        match self.poll() {
            Ok(true) => Reading::Battery,
            Ok(false) => Reading::Mains,
            Err(error) => Reading::Silence(format!("UPower: {error}")),
        }
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }
}

#[derive(Debug)]
struct Connection {
    stream: BufReader<UnixStream>,
    serial: u32,
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the bus reports {what}"),
    )
}

impl Connection {
    fn open(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut stream = BufReader::new(stream);
        let user = rustix::process::geteuid().as_raw().to_string();
        let hex: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
        let hello = format!("\0AUTH EXTERNAL {hex}\r\n");
        stream.get_mut().write_all(hello.as_bytes())?;
        let mut line = String::new();
        stream.by_ref().take(256).read_line(&mut line)?;
        if !line.starts_with("OK ") {
            return Err(nonsense(line.trim_end()));
        }
        stream.get_mut().write_all(b"BEGIN\r\n")?;
        let mut connection = Self { stream, serial: 0 };
        connection.call(BUS, "/org/freedesktop/DBus", BUS, "Hello", &[])?;
        Ok(connection)
    }

    fn on_battery(&mut self) -> io::Result<bool> {
        let body = self.call(
            UPOWER,
            "/org/freedesktop/UPower",
            "org.freedesktop.DBus.Properties",
            "Get",
            &[UPOWER, "OnBattery"],
        )?;
        // A variant: its signature, padded, and a boolean of four bytes.
        match body[..] {
            [1, b'b', 0, 0, value, 0, 0, 0] => Ok(value != 0),
            _ => Err(nonsense("something else than a boolean")),
        }
    }

    /// Calls a method with strings; the body of its answer.
    fn call(
        &mut self,
        destination: &str,
        path: &str,
        interface: &str,
        member: &str,
        arguments: &[&str],
    ) -> io::Result<Vec<u8>> {
        self.serial += 1;
        let mut body = Vec::new();
        arguments
            .iter()
            .for_each(|text| put_string(&mut body, text));
        let mut fields = Vec::new();
        for (code, kind, text) in [
            (1, b'o', path),
            (2, b's', interface),
            (3, b's', member),
            (6, b's', destination),
        ] {
            pad(&mut fields, 8);
            fields.extend_from_slice(&[code, 1, kind, 0]);
            put_string(&mut fields, text);
        }
        if !arguments.is_empty() {
            pad(&mut fields, 8);
            fields.extend_from_slice(&[8, 1, b'g', 0, arguments.len() as u8]);
            fields.extend(std::iter::repeat_n(b's', arguments.len()));
            fields.push(0);
        }
        let mut message = vec![b'l', 1, 0, 1];
        message.extend_from_slice(&(body.len() as u32).to_le_bytes());
        message.extend_from_slice(&self.serial.to_le_bytes());
        message.extend_from_slice(&(fields.len() as u32).to_le_bytes());
        message.append(&mut fields);
        pad(&mut message, 8);
        message.append(&mut body);
        self.stream.get_mut().write_all(&message)?;
        loop {
            let (kind, reply_to, body) = read_message(&mut self.stream)?;
            match kind {
                2 if reply_to == Some(self.serial) => return Ok(body),
                3 if reply_to == Some(self.serial) => {
                    return Err(nonsense(&String::from_utf8_lossy(
                        body.get(4..).unwrap_or_default(),
                    )));
                }
                // A signal, or the answer to something else.
                _ => {}
            }
        }
    }
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn put_string(bytes: &mut Vec<u8>, text: &str) {
    pad(bytes, 4);
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
}

fn word(bytes: &[u8], at: usize) -> io::Result<usize> {
    let field = bytes
        .get(at..at + 4)
        .and_then(|field| field.try_into().ok());
    let field = field.ok_or_else(|| nonsense("too little"))?;
    Ok(u32::from_le_bytes(field) as usize)
}

/// Its type, what it answers, and its body.
fn read_message(stream: &mut impl Read) -> io::Result<(u8, Option<u32>, Vec<u8>)> {
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    let (body_bytes, field_bytes) = (word(&head, 4)?, word(&head, 12)?);
    if head[0] != b'l' || body_bytes > MESSAGE_BYTES || field_bytes > MESSAGE_BYTES {
        return Err(nonsense("a message that is too long, or not little-endian"));
    }
    let mut fields = vec![0; field_bytes.next_multiple_of(8)];
    stream.read_exact(&mut fields)?;
    let mut body = vec![0; body_bytes];
    stream.read_exact(&mut body)?;
    Ok((head[1], reply_serial(&fields[..field_bytes])?, body))
}

fn reply_serial(fields: &[u8]) -> io::Result<Option<u32>> {
    let mut at = 0;
    while at + 4 <= fields.len() {
        let (code, kind) = (fields[at], &fields[at + 1..at + 4]);
        at += 4;
        match kind {
            [1, b'u', 0] if code == 5 => return Ok(Some(word(fields, at)? as u32)),
            [1, b'u', 0] => at += 4,
            [1, b's' | b'o', 0] => at += 4 + word(fields, at)? + 1,
            [1, b'g', 0] => {
                let length = fields.get(at).ok_or_else(|| nonsense("too little"))?;
                at += 1 + usize::from(*length) + 1;
            }
            _ => return Err(nonsense("a header field of an unknown type")),
        }
        at = at.next_multiple_of(8);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a bus sends: a message with the fields that real ones have.
    fn message(kind: u8, reply_to: Option<u32>, body: &[u8]) -> Vec<u8> {
        let mut fields = vec![7, 1, b's', 0];
        put_string(&mut fields, "org.freedesktop.DBus");
        if let Some(serial) = reply_to {
            pad(&mut fields, 8);
            fields.extend_from_slice(&[8, 1, b'g', 0, 1, b'v', 0]);
            pad(&mut fields, 8);
            fields.extend_from_slice(&[5, 1, b'u', 0]);
            fields.extend_from_slice(&serial.to_le_bytes());
        }
        let mut message = vec![b'l', kind, 1, 1];
        message.extend_from_slice(&(body.len() as u32).to_le_bytes());
        message.extend_from_slice(&77u32.to_le_bytes());
        message.extend_from_slice(&(fields.len() as u32).to_le_bytes());
        message.extend_from_slice(&fields);
        pad(&mut message, 8);
        message.extend_from_slice(body);
        message
    }

    fn asked(answers: Vec<Vec<u8>>) -> (io::Result<bool>, Vec<u8>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut server = theirs.try_clone().unwrap();
        server.write_all(b"OK 1234deadbeef\r\n").unwrap();
        answers.iter().for_each(|a| server.write_all(a).unwrap());
        let result = Connection::open(ours).and_then(|mut c| c.on_battery());
        server.set_nonblocking(true).unwrap();
        let mut said = Vec::new();
        let _ = server.read_to_end(&mut said);
        (result, said)
    }

    #[test]
    fn the_answer_is_found_among_signals_and_other_answers() {
        let boolean = |value| vec![1, b'b', 0, 0, value, 0, 0, 0];
        for value in [0, 1] {
            let (result, said) = asked(vec![
                message(2, Some(1), b""),
                message(4, None, b"name acquired"),
                message(2, Some(9), &boolean(1 - value)),
                message(2, Some(2), &boolean(value)),
            ]);
            assert_eq!(result.unwrap(), value == 1);
            assert!(said.starts_with(b"\0AUTH EXTERNAL "));
            let text = String::from_utf8_lossy(&said);
            assert!(
                text.contains("Hello") && text.contains("OnBattery"),
                "{text}"
            );
        }
    }

    #[test]
    fn an_error_and_nonsense_are_no_answer() {
        let mut body = Vec::new();
        put_string(&mut body, "no such name");
        let (result, _) = asked(vec![message(2, Some(1), b""), message(3, Some(2), &body)]);
        assert!(result.unwrap_err().to_string().contains("no such name"));
        let (result, _) = asked(vec![message(2, Some(1), b""), message(2, Some(2), b"?")]);
        assert!(result.is_err());
        let (result, _) = asked(vec![vec![0xff; 64]]);
        assert!(result.is_err());
    }
}
