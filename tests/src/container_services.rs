//! Programs that containers run, each as its image's packages have it, and clients that write to them
//! and know what was acknowledged.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::containers::Podman;

/// A program in a container and how a client in the same container writes to it. Numbers 1, 2, … are
/// written one after the other.
#[derive(Debug)]
pub struct Service {
    /// The image, and the name of its root file system.
    pub name: &'static str,
    /// What the image is made of.
    pub packages: &'static [&'static str],
    /// The program.
    pub command: &'static [&'static str],
    /// What it logs once, when it is started anew.
    pub started: &'static str,
    /// The client: it reads requests from its input.
    pub client: &'static [&'static str],
    /// The request that writes a number.
    pub write: fn(u64) -> String,
    /// Writes how many numbers there are; `-N` when number N is lost or wrong between others.
    pub check: &'static [&'static str],
    /// Writes what is the same as long as it runs, and another one when it was started anew.
    pub life: &'static [&'static str],
}

impl Service {
    /// The image's name in an engine.
    pub fn tag(&self) -> String {
        format!("localhost/{}:archive", self.name)
    }
}

/// redis without files: what it keeps is in its memory.
pub const REDIS: Service = Service {
    name: "redis",
    packages: &["redis-server", "redis-tools"],
    command: &[
        "redis-server",
        "--save",
        "",
        "--bind",
        "127.0.0.1",
        "--port",
        "7391",
    ],
    started: "Server initialized",
    client: &["redis-cli", "-p", "7391"],
    write: |number| format!("SET k{number} {number}"),
    check: &[
        "redis-cli",
        "-p",
        "7391",
        "EVAL",
        "local n = redis.call('DBSIZE') for i = 1, n do \
         if redis.call('GET', 'k' .. i) ~= tostring(i) then return -i end end return n",
        "0",
    ],
    life: &[
        "redis-cli",
        "-p",
        "7391",
        "EVAL",
        "return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')",
        "0",
    ],
};

/// A node program with a map of buffers; it answers `SET` and `CHECK`.
const NODE_SERVER: &str = r"
const life = Math.random();
const map = new Map();
const value = (number) => Buffer.alloc(1000, String(number));
function check() {
  for (let i = 1; i <= map.size; i++) {
    const found = map.get('k' + i);
    if (!found || !found.equals(value(i))) return -i;
  }
  return map.size;
}
require('net').createServer((socket) => {
  let rest = '';
  socket.on('error', () => {});
  socket.on('data', (data) => {
    const lines = (rest + data).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const [verb, key, number] = line.split(' ');
      if (verb === 'SET') { map.set(key, value(number)); socket.write('OK\n'); }
      if (verb === 'LIFE') socket.end(life + '\n');
      if (verb === 'CHECK') socket.end(check() + '\n');
    }
  });
}).listen(7392, '127.0.0.1', () => console.log('started anew'));
";
const NODE_CLIENT: &str = r"
const socket = require('net').connect(7392, '127.0.0.1');
process.stdin.pipe(socket);
socket.pipe(process.stdout);
socket.on('error', () => process.exit(1));
";
const NODE_CHECK: &str = r"
const socket = require('net').connect(7392, '127.0.0.1', () => socket.write('CHECK\n'));
socket.pipe(process.stdout);
socket.on('error', () => process.exit(1));
";

const NODE_LIFE: &str = r"
const socket = require('net').connect(7392, '127.0.0.1', () => socket.write('LIFE\n'));
socket.pipe(process.stdout);
socket.on('error', () => process.exit(1));
";

/// Node with what it keeps in its heap.
pub const NODE: Service = Service {
    name: "node",
    packages: &["nodejs"],
    command: &["node", "-e", NODE_SERVER],
    started: "started anew",
    client: &["node", "-e", NODE_CLIENT],
    write: |number| format!("SET k{number} {number}"),
    check: &["node", "-e", NODE_CHECK],
    life: &["node", "-e", NODE_LIFE],
};

/// Where PostgreSQL answers.
const POSTGRES_URI: &str = "postgresql://postgres@127.0.0.1:7393/postgres";

/// PostgreSQL in its default configuration, with its data on a volume.
pub const POSTGRES: Service = Service {
    name: "postgres",
    packages: &["postgresql", "postgresql-contrib"],
    command: &[
        "/usr/lib/postgresql/15/bin/postgres",
        "-D",
        "/data",
        "-p",
        "7393",
        "-k",
        "/data",
    ],
    started: "starting PostgreSQL",
    client: &["psql", "-XAtq", POSTGRES_URI],
    write: |number| format!("INSERT INTO written VALUES ({number}) RETURNING 'OK';"),
    check: &[
        "psql",
        "-XAtq",
        POSTGRES_URI,
        "-c",
        "SELECT CASE WHEN count(*) = coalesce(max(number), 0) THEN count(*) \
         ELSE -coalesce(max(number), 0) END FROM written",
    ],
    life: &[
        "psql",
        "-XAtq",
        POSTGRES_URI,
        "-c",
        "SELECT pg_postmaster_start_time()",
    ],
};

/// Makes the directory of a PostgreSQL server below this one, with its first contents.
pub fn initdb(podman: &Podman, image: &str, directory: &Path) -> PathBuf {
    let data = directory.join("data");
    fs::create_dir(&data).expect("made");
    let volume = format!("{}:/data", data.display());
    let script = "chown postgres:postgres /data && exec setpriv --reuid=postgres --regid=postgres \
                  --clear-groups /usr/lib/postgresql/15/bin/initdb --auth=trust -D /data";
    let run = ["run", "--rm", "--network", "none", "--volume", &volume];
    podman.good(&[&run[..], &[image, "sh", "-c", script]].concat());
    data
}

/// A client that writes numbers one after the other, and counts what was acknowledged.
pub struct Writer {
    client: Child,
    input: ChildStdin,
    request: fn(u64) -> String,
    next: u64,
    acknowledged: Arc<AtomicU64>,
}

impl Writer {
    /// Through a client that is started by this command; the first number that it writes is `first`.
    pub fn start(mut command: Command, request: fn(u64) -> String, first: u64) -> Self {
        let mut client = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a client");
        let output = client.stdout.take().expect("its output");
        let acknowledged = Arc::new(AtomicU64::new(first - 1));
        let counted = Arc::clone(&acknowledged);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                match line {
                    Ok(line) if line.trim() == "OK" => counted.fetch_add(1, Ordering::AcqRel),
                    _ => break,
                };
            }
        });
        let input = client.stdin.take().expect("its input");
        Self {
            client,
            input,
            request,
            next: first,
            acknowledged,
        }
    }

    /// Writes some more; stops early when nothing answers any more.
    pub fn write(&mut self, count: u64) {
        for _ in 0..count {
            if writeln!(self.input, "{}", (self.request)(self.next)).is_err() {
                return;
            }
            self.next += 1;
        }
        let _ = self.input.flush();
    }

    /// The last number that was acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// The last number that may have been written.
    pub fn sent(&self) -> u64 {
        self.next - 1
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}
