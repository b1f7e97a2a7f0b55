//! A client for redis' protocol (RESP2) over any stream: as much of it as the workload needs.

use std::io::{self, BufRead, BufReader, Read, Write};

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Text(String),
    Error(String),
    Integer(i64),
    /// None is the null bulk string: no such key.
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

/// Longer bulk strings or arrays are not ours.
const MAX_LENGTH: usize = 64 << 20;

/// A connection.
pub struct Client<S: Read + Write> {
    stream: BufReader<S>,
}

impl<S: Read + Write> Client<S> {
    pub fn new(stream: S) -> Self {
        Client {
            stream: BufReader::new(stream),
        }
    }

    /// One command, one reply.
    pub fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        Ok(self
            .call_all(&[words.iter().map(|word| word.to_vec()).collect()])?
            .remove(0))
    }

    /// Many commands in one go, their replies in order.
    pub fn call_all(&mut self, commands: &[Vec<Vec<u8>>]) -> io::Result<Vec<Reply>> {
        let mut bytes = Vec::new();
        for words in commands {
            write!(bytes, "*{}\r\n", words.len())?;
            for word in words {
                write!(bytes, "${}\r\n", word.len())?;
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.stream.get_mut().write_all(&bytes)?;
        commands
            .iter()
            .map(|_| read_reply(&mut self.stream, 0))
            .collect()
    }
}

fn read_reply(stream: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    let line = read_line(stream)?;
    let (&kind, rest) = line.split_first().ok_or_else(|| bad("an empty line"))?;
    let text = String::from_utf8_lossy(rest).into_owned();
    match kind {
        b'+' => Ok(Reply::Text(text)),
        b'-' => Ok(Reply::Error(text)),
        b':' => text
            .parse()
            .map(Reply::Integer)
            .map_err(|_| bad("no number")),
        b'$' => {
            let Some(length) = length(&text)? else {
                return Ok(Reply::Bulk(None));
            };
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Reply::Bulk(Some(bytes)))
        }
        b'*' if depth < 8 => {
            let count = length(&text)?.unwrap_or(0);
            (0..count)
                .map(|_| read_reply(stream, depth + 1))
                .collect::<Result<_, _>>()
                .map(Reply::Array)
        }
        _ => Err(bad("an unknown kind of reply")),
    }
}

/// A length that may be -1 (nothing).
fn length(text: &str) -> io::Result<Option<usize>> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(length) if (0..=MAX_LENGTH as i64).contains(&length) => Ok(Some(length as usize)),
        _ => Err(bad("an impossible length")),
    }
}

fn read_line(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    stream
        .take(MAX_LENGTH as u64)
        .read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\r\n") {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "redis hung up",
        ));
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

fn bad(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("redis answered with {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<Reply> {
        read_reply(&mut BufReader::new(text.as_bytes()), 0)
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(read("+PONG\r\n").unwrap(), Reply::Text("PONG".into()));
        assert_eq!(read("-ERR no\r\n").unwrap(), Reply::Error("ERR no".into()));
        assert_eq!(read(":-3\r\n").unwrap(), Reply::Integer(-3));
        assert_eq!(
            read("$2\r\nab\r\n").unwrap(),
            Reply::Bulk(Some(b"ab".to_vec()))
        );
        assert_eq!(read("$-1\r\n").unwrap(), Reply::Bulk(None));
        let array = Reply::Array(vec![Reply::Integer(1), Reply::Bulk(None)]);
        assert_eq!(read("*2\r\n:1\r\n$-1\r\n").unwrap(), array);
    }

    #[test]
    fn a_broken_reply_is_an_error() {
        for text in ["", "+PO", "$5\r\nab", "$99999999999\r\n", "!x\r\n", "\r\n"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
