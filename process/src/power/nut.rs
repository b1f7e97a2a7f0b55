//! Network UPS Tools: polls upsd in its own protocol (RFC 9271), line by line.
//!
//! ```text
//!  ► GET VAR ups ups.status
//!  ◄ VAR ups ups.status "OB DISCHRG"      OL mains, OB battery, LB low, FSD will shut down
//!  ◄ ERR DATA-STALE                       upsd has lost its driver
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use super::{Meter, Reading};

const PORT: u16 = 3493;
const TIMEOUT: Duration = Duration::from_millis(500);
const INTERVAL: Duration = Duration::from_millis(100);
const LINE_BYTES: u64 = 4096;

/// Which UPS, at which upsd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Its name there.
    pub ups: String,
    /// Where upsd runs.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no UPS: write UPS@HOST or UPS@HOST:PORT");
        let (ups, place) = text.split_once('@').ok_or_else(wrong)?;
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (place, PORT),
        };
        let plain = |name: &str| !name.is_empty() && !name.contains([' ', '"', '\n']);
        if !plain(ups) || !plain(host) {
            return Err(wrong());
        }
        Ok(Self {
            ups: ups.to_owned(),
            host: host.to_owned(),
            port,
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}@{}", self.ups, self.host)?;
        if self.port == PORT {
            Ok(())
        } else {
            write!(formatter, ":{}", self.port)
        }
    }
}

/// Asks one upsd about one UPS, over a connection that is made again when it breaks.
#[derive(Debug)]
pub struct Client {
    address: Address,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    /// Connects with the first question.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    fn connect(&self) -> std::io::Result<BufReader<TcpStream>> {
        let host = self.address.host.trim_matches(['[', ']']);
        let mut last = std::io::Error::other("the host has no address");
        for place in (host, self.address.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&place, TIMEOUT) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    stream.set_write_timeout(Some(TIMEOUT))?;
                    stream.set_nodelay(true)?;
                    return Ok(BufReader::new(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn poll(&mut self) -> std::io::Result<String> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let question = format!("GET VAR {} ups.status\n", self.address.ups);
        connection.get_mut().write_all(question.as_bytes())?;
        let mut line = String::new();
        connection.by_ref().take(LINE_BYTES).read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(std::io::Error::other("upsd closed the connection"));
        }
        self.connection = Some(connection);
        Ok(line)
    }
}

impl Meter for Client {
    fn read(&mut self) -> Reading {
        match self.poll() {
            Ok(line) => reading(&self.address.ups, line.trim_end()),
            Err(error) => Reading::Silence(format!("upsd at {}: {error}", self.address.host)),
        }
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }
}

/// What an answer of upsd means.
fn reading(ups: &str, line: &str) -> Reading {
    let status = line
        .strip_prefix("VAR ")
        .and_then(|rest| rest.strip_prefix(ups))
        .and_then(|rest| rest.strip_prefix(" ups.status \""))
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(status) = status else {
        return Reading::Silence(format!("upsd answers: {line}"));
    };
    let says = |word: &str| status.split(' ').any(|found| found == word);
    if says("FSD") || says("OB") && says("LB") {
        Reading::BatteryLow
    } else if says("OB") {
        Reading::Battery
    } else if says("OL") {
        Reading::Mains
    } else {
        Reading::Silence(format!("the UPS reports {status:?}, neither OL nor OB"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_means_what_the_protocol_says() {
        for (line, expected) in [
            ("VAR ups ups.status \"OL\"", Reading::Mains),
            ("VAR ups ups.status \"OL CHRG LB\"", Reading::Mains),
            ("VAR ups ups.status \"ALARM OB DISCHRG\"", Reading::Battery),
            ("VAR ups ups.status \"OB LB\"", Reading::BatteryLow),
            ("VAR ups ups.status \"FSD OL\"", Reading::BatteryLow),
        ] {
            assert_eq!(reading("ups", line), expected, "{line}");
        }
        for line in [
            "",
            "ERR DATA-STALE",
            "VAR other ups.status \"OB\"",
            "VAR ups ups.status \"\"",
            "VAR ups ups.status OB",
            "VAR ups ups.status \"NOBODY OLD\"",
        ] {
            assert!(
                matches!(reading("ups", line), Reading::Silence(_)),
                "{line}"
            );
        }
    }

    #[test]
    fn a_broken_connection_is_made_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = Client::new(format!("ups@127.0.0.1:{port}").parse().unwrap());
        let server = std::thread::spawn(move || {
            for answer in ["VAR ups ups.status \"OL\"\n", "VAR ups ups.sta"] {
                let (stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                assert_eq!(line, "GET VAR ups ups.status\n");
                (&stream).write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(client.read(), Reading::Mains);
        assert!(matches!(client.read(), Reading::Silence(_)), "closed");
        assert!(matches!(client.read(), Reading::Silence(_)), "half a line");
        server.join().unwrap();
        assert!(
            matches!(client.read(), Reading::Silence(_)),
            "no server listens"
        );
    }
}
