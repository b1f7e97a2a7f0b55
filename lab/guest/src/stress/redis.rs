//! redis under load: numbered keys, each acknowledged only when it is in the append-only file
//! on the disk. So neither a sleep nor a power cut may lose one.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dormouse_guest::protocol::stress::{SLOTS, last_write, mixed};

use crate::error::{Doing, GuestError};
use crate::system::run;
use crate::workload::resp::{Client, Reply};

pub const SOCKET: &str = "/run/redis-stress.sock";
/// Beside stress-ng, on an emulated processor of a loaded host.
const START_TIMEOUT: Duration = Duration::from_secs(300);
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Keys that travel together; they become durable together.
const BATCH_KEYS: u64 = 16;

/// Starts the server on what its append-only file in `folder` holds.
pub fn serve(folder: &Path, group: &str) -> Result<Child, GuestError> {
    std::fs::create_dir_all(folder).doing(format!("create {}", folder.display()))?;
    let _ = std::fs::remove_file(SOCKET);
    let mut command = Command::new("redis-server");
    command
        .args(["--port", "0", "--unixsocket", SOCKET, "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        // Rewriting forks; it should happen during a sleep, too.
        .args(["--auto-aof-rewrite-min-size", "1mb"])
        .args(["--daemonize", "no", "--logfile", "server.log", "--dir"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    run::spawn_in(&mut command, group)
}

/// Cuts off the end of the append-only file in `folder` that a power cut has torn. ext4 may journal
/// a file's new size before its data is on the disk, and then shows zeros there; whoever wrote was
/// never received the acknowledgement of the write. redis accepts a missing end, but not zeros: its
/// own tool removes them. Of what was acknowledged nothing may be among it: [`verify`] sees to
/// that.
pub fn cut_off_torn_end(folder: &Path) -> Result<(), GuestError> {
    let mut tool = Command::new("redis-check-aof")
        .arg("--fix")
        .arg(folder.join("appendonlydir/appendonly.aof.manifest"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .doing("start redis-check-aof")?;
    if let Some(mut question) = tool.stdin.take() {
        // It asks only if there is something to cut off.
        let _ = question.write_all(b"y\n");
    }
    let output = tool.wait_with_output().doing("run redis-check-aof")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    Err(GuestError::Other(format!(
        "redis-check-aof ended with {}: {last}",
        output.status
    )))
}

fn connect() -> Result<Client<UnixStream>, GuestError> {
    let started = Instant::now();
    loop {
        let stream = match UnixStream::connect(SOCKET) {
            Ok(stream) => stream,
            Err(error) if started.elapsed() > START_TIMEOUT => {
                return Err(error).doing("connect to redis");
            }
            Err(_) => {
                sleep(Duration::from_millis(20));
                continue;
            }
        };
        stream
            .set_read_timeout(Some(REPLY_TIMEOUT))
            .doing("set redis' timeout")?;
        let mut client = Client::new(stream);
        // It listens before it has read its file.
        match client.call(&[b"PING"]).doing("redis PING")? {
            Reply::Error(text) if text.starts_with("LOADING") => sleep(Duration::from_millis(20)),
            _ => return Ok(client),
        }
    }
}

/// The client's process: writes for ever; after each acknowledged batch it prints the number of
/// keys written.
pub fn run(seed: &str) -> Result<(), GuestError> {
    let seed: u64 = seed
        .parse()
        .map_err(|_| GuestError::Other(format!("{seed:?} is no seed")))?;
    let mut client = connect()?;
    for first in (0..).step_by(BATCH_KEYS as usize) {
        let numbers = first..first + BATCH_KEYS;
        let batch: Vec<_> = numbers
            .map(|number| vec![b"SET".to_vec(), key(number % SLOTS), value(seed, number)])
            .collect();
        let replies = client.call_all(&batch).doing("write redis keys")?;
        if let Some(other) = replies
            .iter()
            .find(|reply| **reply != Reply::Text("OK".into()))
        {
            return Err(GuestError::Other(format!(
                "SET was answered with {other:?}"
            )));
        }
        let durable = first + BATCH_KEYS;
        writeln!(std::io::stdout(), "{durable}").doing("report what is durable")?;
        let slot = mixed(seed, !first) % SLOTS;
        let reply = client.call(&[b"GET", &key(slot)]).doing("redis GET")?;
        if let Some(complaint) = complaint_about(&reply, seed, slot, durable) {
            return Err(GuestError::Other(complaint));
        }
    }
    Ok(())
}

/// Compares all keys after `durable` acknowledged writes; sentences about what is wrong.
pub fn verify(seed: u64, durable: u64) -> Vec<String> {
    match read_all() {
        Ok(replies) => (0..SLOTS)
            .zip(&replies)
            .filter_map(|(slot, reply)| complaint_about(reply, seed, slot, durable))
            .collect(),
        Err(error) => vec![error.to_string()],
    }
}

fn read_all() -> Result<Vec<Reply>, GuestError> {
    let mut words = vec![b"MGET".to_vec()];
    words.extend((0..SLOTS).map(key));
    let mut replies = connect()?.call_all(&[words]).doing("read redis keys")?;
    match replies.pop() {
        Some(Reply::Array(values)) if values.len() as u64 == SLOTS => Ok(values),
        other => Err(GuestError::Other(format!(
            "MGET was answered with {other:?}"
        ))),
    }
}

fn complaint_about(reply: &Reply, seed: u64, slot: u64, durable: u64) -> Option<String> {
    let expected = last_write(durable, slot);
    let text = match reply {
        Reply::Bulk(None) if expected.is_none() => return None,
        Reply::Bulk(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let number = text.split(':').next().and_then(|word| word.parse().ok());
    let is_right = number.is_some_and(|number: u64| {
        number % SLOTS == slot
            && expected.is_none_or(|least| number >= least)
            && text.as_bytes() == value(seed, number)
    });
    (!is_right).then(|| {
        format!("key {slot} is {text:?}; write {expected:?} of {durable} was acknowledged")
    })
}

fn key(slot: u64) -> Vec<u8> {
    format!("stress:{slot}").into_bytes()
}

/// The number, and some hundred bytes that follow from seed and number.
fn value(seed: u64, number: u64) -> Vec<u8> {
    let word = format!("{:016x}", mixed(seed, number));
    format!("{number}:{}", word.repeat(8)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(number: u64, durable: u64) -> Option<String> {
        let reply = Reply::Bulk(Some(value(5, number)));
        complaint_about(&reply, 5, number % SLOTS, durable)
    }

    #[test]
    fn the_last_acknowledged_write_or_a_later_one_is_right() {
        assert_eq!(complaint(3, 4), None);
        assert_eq!(complaint(SLOTS + 3, 4), None, "later, not acknowledged yet");
        assert!(complaint(3, SLOTS + 4).is_some(), "an older one");
    }

    /// An append-only file as redis leaves it, with `end` behind its last record.
    fn torn(folder: &Path, end: &[u8]) -> (std::path::PathBuf, usize) {
        let folder = folder.join("appendonlydir");
        std::fs::create_dir_all(&folder).expect("a folder");
        let manifest = "file appendonly.aof.1.incr.aof seq 1 type i\n";
        std::fs::write(folder.join("appendonly.aof.manifest"), manifest).expect("a manifest");
        let mut bytes = Vec::new();
        for number in 0..40 {
            let words = [b"SET".to_vec(), key(number), value(5, number)];
            write!(bytes, "*{}\r\n", words.len()).expect("memory");
            for word in words {
                write!(bytes, "${}\r\n", word.len()).expect("memory");
                bytes.extend([&word[..], b"\r\n"].concat());
            }
        }
        let whole = bytes.len();
        bytes.extend(end);
        let file = folder.join("appendonly.aof.1.incr.aof");
        std::fs::write(&file, bytes).expect("a file");
        (file, whole)
    }

    #[test]
    fn an_end_that_a_power_cut_has_torn_is_cut_off_and_nothing_else() {
        let begun = b"*3\r\n$3\r\nSET\r\n$9\r\nstress:40";
        let zeros = [&begun[..], &[0; 1111]].concat();
        for end in [&b""[..], begun, &[0; 700], &zeros] {
            let folder = tempfile::tempdir().expect("a folder");
            let (file, whole) = torn(folder.path(), end);
            cut_off_torn_end(folder.path()).expect("a file to go on with");
            let left = std::fs::metadata(file).expect("the file").len();
            assert_eq!(left, whole as u64, "{end:?}");
        }
    }

    #[test]
    fn an_append_only_file_that_is_not_there_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = cut_off_torn_end(folder.path()).expect_err("there is nothing");
        assert!(error.to_string().contains("redis-check-aof"), "{error}");
    }

    #[test]
    fn a_lost_or_damaged_key_is_found() {
        assert!(complaint_about(&Reply::Bulk(None), 5, 3, 4).is_some());
        assert!(complaint_about(&Reply::Bulk(None), 5, 3, 3).is_none());
        let other_seed = Reply::Bulk(Some(value(6, 3)));
        assert!(complaint_about(&other_seed, 5, 3, 4).is_some());
        assert!(complaint_about(&Reply::Error("ERR".into()), 5, 3, 0).is_some());
    }
}
