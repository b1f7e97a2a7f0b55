//! A real service that sleeps and wakes: redis-server with keys that can all be compared.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dormouse_guest::protocol::RedisVerdict;
use xxhash_rust::xxh64::xxh64;

use crate::error::{Doing, GuestError};
use crate::system::cgroups;
use crate::system::run;
use crate::workload::resp::{Client, Reply};

const SOCKET: &str = "/run/redis.sock";
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A frozen or dead service must not stop the agent for ever.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
const BATCH_KEYS: u64 = 512;
const LIST_KEY: &[u8] = b"dormouse:list";
const HASH_KEY: &[u8] = b"dormouse:hash";

/// The running service and what it should hold.
pub struct Redis {
    child: Child,
    client: Client<UnixStream>,
    pub keys: u64,
    pub version: String,
    seed: u64,
    /// Redis' own digest of all its data, as it was when the keys had been written.
    digest: String,
}

impl Redis {
    /// Starts the server and writes `keys` keys.
    pub fn start(keys: u64, seed: u64) -> Result<Redis, GuestError> {
        let _ = std::fs::remove_file(SOCKET);
        let mut command = Command::new("redis-server");
        command
            .args([
                "--port",
                "0",
                "--unixsocket",
                SOCKET,
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args([
                "--enable-debug-command",
                "yes",
                "--daemonize",
                "no",
                "--dir",
                "/tmp",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = run::spawn_in(&mut command, cgroups::REDIS)?;
        let mut redis = Redis {
            child,
            client: connect()?,
            keys,
            version: String::new(),
            seed,
            digest: String::new(),
        };
        redis.version = redis.info("redis_version")?;
        redis.refill(seed)?;
        Ok(redis)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Replaces all keys by those of another seed.
    pub fn refill(&mut self, seed: u64) -> Result<(), GuestError> {
        self.seed = seed;
        self.expect_text(&[b"FLUSHALL"], "OK")?;
        for first in (0..self.keys).step_by(BATCH_KEYS as usize) {
            let batch: Vec<Vec<Vec<u8>>> = (first..self.keys.min(first + BATCH_KEYS))
                .map(|i| vec![b"SET".to_vec(), key(i), value(seed, i)])
                .chain([
                    vec![b"RPUSH".to_vec(), LIST_KEY.to_vec(), value(seed, first)],
                    vec![
                        b"HSET".to_vec(),
                        HASH_KEY.to_vec(),
                        key(first),
                        value(seed, first),
                    ],
                ])
                .collect();
            let replies = self.client.call_all(&batch).doing("write redis keys")?;
            if let Some(Reply::Error(text)) = replies
                .iter()
                .find(|reply| matches!(reply, Reply::Error(_)))
            {
                return Err(GuestError::Other(format!("redis refused a key: {text}")));
            }
        }
        self.digest = self.read_digest()?;
        Ok(())
    }

    /// Same process, same data, and it goes on serving.
    pub fn verify(&mut self) -> RedisVerdict {
        let complaint = self
            .complaint()
            .unwrap_or_else(|error| Some(error.to_string()));
        RedisVerdict {
            pid: self.pid(),
            keys: self.keys,
            complaint,
        }
    }

    fn complaint(&mut self) -> Result<Option<String>, GuestError> {
        if let Some(status) = self.child.try_wait().doing("look at redis")? {
            return Ok(Some(format!("it has ended with {status}")));
        }
        self.expect_text(&[b"PING"], "PONG")?;
        let pid = self.info("process_id")?;
        if pid != self.pid().to_string() {
            return Ok(Some(format!("it is process {pid}, it was {}", self.pid())));
        }
        let digest = self.read_digest()?;
        if digest != self.digest {
            return Ok(Some(format!(
                "its digest is {digest}, it was {}",
                self.digest
            )));
        }
        for first in (0..self.keys).step_by(BATCH_KEYS as usize) {
            let numbers = first..self.keys.min(first + BATCH_KEYS);
            let mut words = vec![b"MGET".to_vec()];
            words.extend(numbers.clone().map(key));
            let reply = self
                .client
                .call_all(&[words])
                .doing("read redis keys")?
                .remove(0);
            let expected = Reply::Array(
                numbers
                    .map(|i| Reply::Bulk(Some(value(self.seed, i))))
                    .collect(),
            );
            if reply != expected {
                return Ok(Some(format!("keys from number {first} on differ")));
            }
        }
        self.expect_text(&[b"SET", b"dormouse:awake", b"yes"], "OK")?;
        match self
            .client
            .call(&[b"DEL", b"dormouse:awake"])
            .doing("delete a redis key")?
        {
            Reply::Integer(1) => Ok(None),
            other => Ok(Some(format!("it took a new key, but then said {other:?}"))),
        }
    }

    fn expect_text(&mut self, words: &[&[u8]], expected: &str) -> Result<(), GuestError> {
        let name = String::from_utf8_lossy(words[0]).into_owned();
        match self.client.call(words).doing(format!("redis {name}"))? {
            Reply::Text(text) if text == expected => Ok(()),
            other => Err(GuestError::Other(format!(
                "{name} was answered with {other:?}"
            ))),
        }
    }

    fn read_digest(&mut self) -> Result<String, GuestError> {
        match self
            .client
            .call(&[b"DEBUG", b"DIGEST"])
            .doing("redis DEBUG DIGEST")?
        {
            Reply::Text(digest) => Ok(digest),
            other => Err(GuestError::Other(format!(
                "DEBUG DIGEST was answered with {other:?}"
            ))),
        }
    }

    fn info(&mut self, field: &str) -> Result<String, GuestError> {
        let Reply::Bulk(Some(text)) = self
            .client
            .call(&[b"INFO", b"server"])
            .doing("redis INFO")?
        else {
            return Err(GuestError::Other(
                "INFO was answered with something else".into(),
            ));
        };
        String::from_utf8_lossy(&text)
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| *key == field)
            .map(|(_, value)| value.trim().to_owned())
            .ok_or_else(|| GuestError::Other(format!("redis' INFO has no {field}")))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect() -> Result<Client<UnixStream>, GuestError> {
    let started = Instant::now();
    loop {
        match UnixStream::connect(SOCKET) {
            Ok(stream) => {
                stream
                    .set_read_timeout(Some(REPLY_TIMEOUT))
                    .doing("set redis' timeout")?;
                return Ok(Client::new(stream));
            }
            Err(error) if started.elapsed() > START_TIMEOUT => {
                return Err(error).doing("connect to redis");
            }
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("dormouse:key:{number}").into_bytes()
}

/// About a hundred bytes that depend on seed and number.
fn value(seed: u64, number: u64) -> Vec<u8> {
    let digest = xxh64(&number.to_le_bytes(), seed);
    format!("{digest:016x}").repeat(6).into_bytes()
}
