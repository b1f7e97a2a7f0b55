//! The tracker's control socket: one request and one answer a connection, each one line of JSON.
//!
//! ```text
//!  dormouse process status  ──► {"verb":"status"}                   ──► {"ok":{…Status…}}
//!  dormouse process persist ──► {"verb":"persist","then":"continue"} ──► {"ok":{…Report…}}
//!  … --rehearse             ──► {"verb":"rehearse","then":"continue"}──► {"ok":{…Report…}}
//!                                                                    ──► {"error":"…"}
//! ```

use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::persist::Then;
use crate::store::format::checksum;
use crate::store::lock::has_writer;

/// Longest line that is read.
const LINE_BYTES: u64 = 1 << 20;
/// A persist of a large program to a slow disk takes long.
const ANSWER: Duration = Duration::from_secs(600);
/// A tracker of a large program needs seconds to restore it.
const START: Duration = Duration::from_secs(20);
/// On a busy machine a client may be slow to send its request.
const REQUEST: Duration = Duration::from_secs(10);

/// A request to a tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum Request {
    /// Its status.
    Status,
    /// A new epoch now.
    Persist {
        /// What happens to the program then.
        then: Then,
    },
    /// The same, if a copy of the program can be restored and is like it. A verb of its own: a tracker of
    /// an earlier version refuses it, and does not persist without a rehearsal.
    Rehearse {
        /// What happens to the program then.
        then: Then,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The report.
    Ok(Value),
    /// Why not.
    Error(String),
}

/// Where the socket of a store's tracker is: in a directory of this user only, by the store's
/// path, because a store may lie where no socket can.
pub fn socket_path(store: &Path) -> PathBuf {
    let store = store.canonicalize().unwrap_or_else(|_| store.to_owned());
    let number = checksum(store.as_os_str().as_encoded_bytes());
    directory().join(format!("process-{number:016x}.sock"))
}

fn directory() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return PathBuf::from("/run/dormouse");
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
        || std::env::temp_dir().join(format!("dormouse-{}", user.as_raw())),
        |runtime| PathBuf::from(runtime).join("dormouse"),
    )
}

/// Connects to the tracker of a store; none: there is no tracker. One that starts or restores its
/// program has locked the store and has no socket yet: it is waited for.
fn connect(store: &Path) -> io::Result<Option<UnixStream>> {
    let started = Instant::now();
    loop {
        let error = match UnixStream::connect(socket_path(store)) {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) => error,
        };
        let kind = error.kind();
        if !matches!(
            kind,
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
        ) {
            return Err(error);
        }
        if started.elapsed() > START || !has_writer(store) {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Receives requests while the tracker does something else.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    requests: Receiver<(Request, UnixStream)>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Listens at a path; a stale socket is replaced. With each request
    /// `waker` gets a byte, and a request to persist sets `urgent`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn start(path: &Path, waker: UnixStream, urgent: Arc<AtomicBool>) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)?;
        }
        // The store's lock says that there is no other tracker.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        let (sender, requests) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    if ended.load(Ordering::Acquire) {
                        return;
                    }
                    let Ok(stream) = stream else { continue };
                    let (sender, urgent) = (sender.clone(), Arc::clone(&urgent));
                    let Ok(waker) = waker.try_clone() else {
                        continue;
                    };
                    // A slow client must not delay others.
                    let reading = move || take_request(stream, &sender, &urgent, &waker);
                    let _ = std::thread::Builder::new().spawn(reading);
                }
            })?;
        Ok(Self {
            path: path.to_owned(),
            requests,
            stop,
        })
    }

    /// A request without an answer yet, and the connection to its client.
    pub fn next(&self) -> Option<(Request, UnixStream)> {
        self.requests.try_recv().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Takes the request of one client.
fn take_request(
    stream: UnixStream,
    requests: &Sender<(Request, UnixStream)>,
    urgent: &AtomicBool,
    mut waker: &UnixStream,
) {
    match receive(&stream) {
        Err(error) => answer(&stream, &Answer::Error(error.to_string())),
        Ok(request) => {
            if matches!(request, Request::Persist { .. } | Request::Rehearse { .. }) {
                urgent.store(true, Ordering::Release);
            }
            if requests.send((request, stream)).is_ok() {
                let _ = waker.write(&[0]);
            }
        }
    }
}

fn read_line(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES)).read_line(&mut line)?;
    Ok(line)
}

/// Reads the request of a client.
///
/// # Errors
/// It sends nothing, or an unknown request.
pub fn receive(stream: &UnixStream) -> io::Result<Request> {
    stream.set_read_timeout(Some(REQUEST))?;
    stream.set_write_timeout(Some(REQUEST))?;
    Ok(serde_json::from_str(&read_line(stream)?)?)
}

/// Answers a client; one that has gone away is no error.
pub fn answer(mut stream: &UnixStream, answer: &Answer) {
    if let Ok(mut line) = serde_json::to_string(answer) {
        line.push('\n');
        let _ = stream.write_all(line.as_bytes());
    }
}

/// Sends a request to the tracker of a store and waits for the answer. None: there is no tracker.
///
/// # Errors
/// The connection fails.
pub fn send(store: &Path, request: Request) -> io::Result<Option<Answer>> {
    let Some(mut stream) = connect(store)? else {
        return Ok(None);
    };
    stream.set_read_timeout(Some(ANSWER))?;
    let mut line = serde_json::to_string(&request)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let answer = read_line(&stream)?;
    if answer.is_empty() {
        return Err(io::Error::other(
            "the tracker ended before it answered; its log has the reason",
        ));
    }
    Ok(Some(serde_json::from_str(&answer)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_answer_are_one_line_each() {
        let request = Request::Persist { then: Then::Kill };
        let line = serde_json::to_string(&request).unwrap();
        assert_eq!(line, r#"{"verb":"persist","then":"kill"}"#);
        assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        let answer = serde_json::to_string(&Answer::Error("no\nroom".to_owned())).unwrap();
        assert_eq!(answer, r#"{"error":"no\nroom"}"#);
    }

    #[test]
    fn a_client_that_sends_nonsense_or_nothing_is_refused() {
        for text in ["", "hello\n", "{\"verb\":\"format\"}\n"] {
            let (mut client, server) = UnixStream::pair().unwrap();
            client.write_all(text.as_bytes()).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(receive(&server).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_slow_client_delays_no_other_and_is_served() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let (waker, _woken) = UnixStream::pair().unwrap();
        let server = Server::start(&path, waker, Arc::default()).unwrap();
        let next = || loop {
            if let Some((request, _)) = server.next() {
                return request;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let mut slow = UnixStream::connect(&path).unwrap();
        let mut quick = UnixStream::connect(&path).unwrap();
        quick.write_all(b"{\"verb\":\"status\"}\n").unwrap();
        assert_eq!(next(), Request::Status);
        std::thread::sleep(Duration::from_millis(300));
        slow.write_all(b"{\"verb\":\"persist\",\"then\":\"kill\"}\n")
            .unwrap();
        assert_eq!(next(), Request::Persist { then: Then::Kill });
    }
}
