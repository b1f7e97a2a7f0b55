//! Known traffic in the machine with the counted device: programs that touch lines of a node's
//! memory and publish the number, beside the counters of the device.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dormouse_guest::protocol::bandwidth_job::{DEVICE, Device, LINE_BYTES, Traffic, counted};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Doing, GuestError};

/// Where programs publish what they did.
const FOLDER: &str = "/run/traffic";
/// Lines touched between two readings of the clock.
const BATCH: usize = 64;
/// Maximum wait for a program's first line and for the daemon's next one.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Between two readings of the daemon's status.
const STATUS_PERIOD: Duration = Duration::from_millis(1);
/// How far apart the programs' counts and the daemon's may be read. On a busy host a processor of the
/// emulator can stand still between the two while those of the programs go on; in this time a burst moves
/// less than half a percent of what is measured.
const APART_MAX: Duration = Duration::from_millis(5);
/// `MPOL_BIND`: this node's memory or none.
const BIND: libc::c_int = 2;

fn wrong(what: impl Into<String>) -> GuestError {
    GuestError::Other(what.into())
}

/// Maps words of a file, for ever: programs and the measurement live until the machine ends.
fn words(file: &File, offset: u64, count: usize) -> Result<&'static [AtomicU64], GuestError> {
    let page = rustix::param::page_size() as u64;
    let from = offset / page * page;
    let skipped = (offset - from) as usize;
    let bytes = skipped + count * 8;
    let writable = file.metadata().is_ok_and(|facts| facts.len() == 16);
    let protection = match writable {
        true => ProtFlags::READ | ProtFlags::WRITE,
        false => ProtFlags::READ,
    };
    // SAFETY: a new mapping, which is never unmapped; words are aligned, because offsets are.
    unsafe {
        let map = mmap(
            ptr::null_mut(),
            bytes,
            protection,
            MapFlags::SHARED,
            file,
            from,
        )
        .doing("map counters")?;
        let first = map.cast::<u8>().add(skipped).cast::<AtomicU64>();
        Ok(std::slice::from_raw_parts(first, count))
    }
}

/// A random factor of 0.5 to 1.5 (xorshift64), so that programs do not run in step.
fn factor(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    0.5 + (*state >> 11) as f64 / (1u64 << 53) as f64
}

/// One program: what it was asked for.
struct Plan {
    node: u32,
    lines: usize,
    writes: bool,
    /// Turns of an empty loop after each line: how little it depends on memory.
    spins: u32,
    busy_ms: u32,
    sleep_ms: u32,
}

/// Touches the lines of MIB of memory on a node one after the other, for ever: computes SPINS after
/// each line, and sleeps SLEEP_MS after each BUSY_MS. Arguments: NAME NODE MIB read|write SPINS
/// BUSY_MS SLEEP_MS.
pub fn touch(arguments: &[&str]) -> Result<(), GuestError> {
    let [name, node, mib, way, spins, busy_ms, sleep_ms] = arguments else {
        return Err(wrong(
            "touch NAME NODE MIB read|write SPINS BUSY_MS SLEEP_MS",
        ));
    };
    let number = |text: &str| {
        let number = text.parse::<u32>();
        number.map_err(|_| wrong(format!("{text:?} is no number")))
    };
    let plan = Plan {
        node: number(node)?,
        lines: (number(mib)? as usize).max(1) << 14,
        writes: match *way {
            "read" => false,
            "write" => true,
            other => return Err(wrong(format!("{other:?}: read or write"))),
        },
        spins: number(spins)?,
        busy_ms: number(busy_ms)?,
        sleep_ms: number(sleep_ms)?,
    };
    // Fault all pages before the file exists: its reader measures at once, and the kernel moves
    // lines, too, when it clears pages.
    let memory = memory_on(plan.node, plan.lines * LINE_BYTES as usize)?;
    fs::create_dir_all(FOLDER).doing(format!("create {FOLDER}"))?;
    let path = Path::new(FOLDER).join(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .doing(format!("create {}", path.display()))?;
    file.set_len(16).doing("make room for what was done")?;
    let done = words(&file, 0, 2)?;
    run(&plan, memory, done)
}

/// Memory of one node alone.
fn memory_on(node: u32, bytes: usize) -> Result<*mut u64, GuestError> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let mask: u64 = 1u64.checked_shl(node).unwrap_or(0);
    // SAFETY: new memory, of which nothing is used before it is there.
    unsafe {
        let memory = mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
            .doing("get memory")?;
        let bound = libc::syscall(libc::SYS_mbind, memory, bytes, BIND, &mask, 64, 0);
        if bound != 0 {
            return Err(std::io::Error::last_os_error()).doing(format!("bind to node {node}"));
        }
        let memory = memory.cast::<u64>();
        // What was never written is a page of zeros, which lies elsewhere.
        for word in (0..bytes / 8).step_by(512) {
            memory.add(word).write_volatile(1);
        }
        Ok(memory)
    }
}

fn run(plan: &Plan, memory: *mut u64, done: &[AtomicU64]) -> Result<(), GuestError> {
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id());
    let (mut line, mut touched) = (0, 0);
    loop {
        let busy = Duration::from_millis(plan.busy_ms.into()).mul_f64(factor(&mut random));
        let began = Instant::now();
        while began.elapsed() < busy {
            for _ in 0..BATCH {
                // SAFETY: the line is one of those that were mapped.
                unsafe {
                    let word = memory.add(line * LINE_BYTES as usize / 8);
                    if plan.writes {
                        word.write_volatile(touched);
                    } else {
                        word.read_volatile();
                    }
                }
                line = (line + 1) % plan.lines;
                for spin in 0..plan.spins {
                    std::hint::black_box(spin);
                }
            }
            touched += BATCH as u64;
            done[usize::from(plan.writes)].store(touched, Ordering::Relaxed);
        }
        if plan.sleep_ms > 0 {
            let pause = Duration::from_millis(plan.sleep_ms.into());
            std::thread::sleep(pause.mul_f64(factor(&mut random)));
        }
    }
}

/// What is there to be counted, opened once.
pub struct Meters {
    device: Option<(&'static [AtomicU64], &'static [AtomicU64])>,
    programs: BTreeMap<String, &'static [AtomicU64]>,
    status: Option<PathBuf>,
}

/// All meters at one time.
pub struct Reading {
    at_ns: u64,
    device: Vec<u64>,
    statistics: Vec<u64>,
    programs: BTreeMap<String, [u64; 2]>,
    status: Status,
    apart_ns: u64,
}

/// What the daemon says.
#[derive(Default)]
struct Status {
    /// When it had read its counters last, and how long that took.
    counted_ns: u64,
    counting_ns: u64,
    passes: u64,
    users: BTreeMap<String, User>,
}

/// Of one cgroup, since it is known.
#[derive(Clone, Copy, Default)]
struct User {
    charged_bytes: f64,
    passes_held_back: f64,
}

impl Meters {
    /// `programs`: names; `nodes`: of the device, none where it is not asked; `status`: the
    /// daemon's status file, if its estimates are asked for.
    pub fn open(
        programs: &[String],
        nodes: usize,
        status: Option<&str>,
    ) -> Result<Self, GuestError> {
        let device = match nodes {
            0 => None,
            nodes => {
                let file = File::open(DEVICE).doing(format!("open {DEVICE}"))?;
                Some((
                    words(&file, counted::COUNTERS, 2 * nodes)?,
                    words(&file, counted::STATISTICS, counted::STATISTICS_WORDS)?,
                ))
            }
        };
        let open = |name: &String| {
            let file = begun(&Path::new(FOLDER).join(name))?;
            Ok((name.clone(), words(&file, 0, 2)?))
        };
        Ok(Self {
            device,
            programs: programs
                .iter()
                .map(open)
                .collect::<Result<_, GuestError>>()?,
            status: status.map(PathBuf::from),
        })
    }

    /// Everything at one time: now, or, with a status, when the daemon read its counters.
    pub fn read(&self) -> Result<Reading, GuestError> {
        let Some(path) = &self.status else {
            return Ok(self.now());
        };
        // What moves in bursts is charged for another time than it is looked at, unless this is
        // prompt.
        let _prompt = Prompt::begin();
        let (mut old, began, mut best_ns) = (Vec::new(), Instant::now(), u64::MAX);
        let mut readings = Vec::new();
        loop {
            readings.push(self.now());
            let new = fs::read(path).unwrap_or_default();
            if new != old && !new.is_empty() {
                let status = Status::parse(&new)?;
                let apart_ns = |reading: &Reading| {
                    reading.at_ns.abs_diff(status.counted_ns) + status.counting_ns
                };
                let nearest = readings.into_iter().min_by_key(apart_ns);
                let reading = nearest.ok_or_else(|| wrong("nothing was read"))?;
                let apart_ns = apart_ns(&reading);
                if apart_ns <= APART_MAX.as_nanos() as u64 {
                    return Ok(Reading {
                        status,
                        apart_ns,
                        ..reading
                    });
                }
                // Written before this began, or one of the two processors stood still meanwhile.
                (old, readings) = (new, Vec::new());
                best_ns = best_ns.min(apart_ns);
            }
            if began.elapsed() > TIMEOUT {
                let (path, best_ms) = (path.display(), best_ns / 1_000_000);
                return Err(wrong(match best_ns {
                    u64::MAX => format!("{path} does not change"),
                    _ => format!(
                        "no reading at the time of {path}: {best_ms} ms apart at best, of \
                         {APART_MAX:?} that are allowed; the emulator gets too little of the host"
                    ),
                }));
            }
            std::thread::sleep(STATUS_PERIOD);
        }
    }

    fn now(&self) -> Reading {
        let values = |words: &[AtomicU64]| -> Vec<u64> {
            let value = |word: &AtomicU64| word.load(Ordering::Relaxed);
            words.iter().map(value).collect()
        };
        let (device, statistics) = self.device.unwrap_or_default();
        let program = |(name, words): (&String, &&[AtomicU64])| {
            let [reads, writes] = [0, 1].map(|at: usize| words[at].load(Ordering::Relaxed));
            (name.clone(), [reads, writes])
        };
        Reading {
            at_ns: monotonic_ns(),
            device: values(device),
            statistics: values(statistics),
            programs: self.programs.iter().map(program).collect(),
            status: Status::default(),
            apart_ns: 0,
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// While it lives, this thread runs as soon as it wants to, before all ordinary ones.
struct Prompt;

impl Prompt {
    fn begin() -> Self {
        Self::schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        Self
    }

    /// Where it is refused, what is read is of a slightly different time.
    fn schedule(policy: libc::c_int, priority: libc::c_int) {
        let how = libc::sched_param {
            sched_priority: priority,
        };
        // SAFETY: the structure is the kernel's, and is read only during the call.
        let _ = unsafe { libc::sched_setscheduler(0, policy, &how) };
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        Self::schedule(libc::SCHED_OTHER, 0);
    }
}

impl Reading {
    pub fn seconds_since(&self, before: &Self) -> f64 {
        (self.at_ns - before.at_ns) as f64 / 1e9
    }

    /// What each program moved, in bytes a second: of a line that is written the read, too.
    pub fn traffic(&self, before: &Self) -> BTreeMap<String, Traffic> {
        let seconds = self.seconds_since(before);
        let of = |(name, now): (&String, &[u64; 2])| {
            let old = before.programs.get(name).copied().unwrap_or_default();
            let lines = |at: usize| (now[at] - old[at]) as f64 * LINE_BYTES as f64 / seconds;
            let traffic = Traffic {
                read_bytes_s: lines(0) + lines(1),
                write_bytes_s: lines(1),
            };
            (name.clone(), traffic)
        };
        self.programs.iter().map(of).collect()
    }

    /// What the device counted.
    pub fn device(&self, before: &Self) -> Option<Device> {
        let seconds = self.seconds_since(before);
        let grown = |now: &[u64], before: &[u64]| -> Vec<f64> {
            let pairs = now.iter().zip(before);
            pairs
                .map(|(now, old)| now.wrapping_sub(*old) as f64)
                .collect()
        };
        let [reads, latency_ns, waited_ns] = grown(&self.statistics, &before.statistics)
            .try_into()
            .ok()?;
        let bytes_s = |lines: f64| lines * LINE_BYTES as f64 / seconds;
        let counts = grown(&self.device, &before.device);
        let node = |pair: &[f64]| Traffic {
            read_bytes_s: bytes_s(pair[0]),
            write_bytes_s: bytes_s(pair[1]),
        };
        Some(Device {
            nodes: counts.chunks_exact(2).map(node).collect(),
            latency_ns: if reads > 0.0 { latency_ns / reads } else { 0.0 },
            waiting_cpus: waited_ns / 1e9 / seconds,
        })
    }

    /// What the daemon charged each cgroup with, in bytes a second.
    pub fn charged(&self, before: &Self) -> BTreeMap<String, f64> {
        let seconds = self.seconds_since(before);
        self.users(before, |now, old| {
            (now.charged_bytes - old.charged_bytes) / seconds
        })
    }

    /// The part of the daemon's passes before which its limit held each cgroup back.
    pub fn held_back(&self, before: &Self) -> BTreeMap<String, f64> {
        let passes = (self.passes() - before.passes()).max(1) as f64;
        self.users(before, |now, old| {
            (now.passes_held_back - old.passes_held_back) / passes
        })
    }

    /// Of the daemon, so far.
    pub fn passes(&self) -> u64 {
        self.status.passes
    }

    /// How far apart this and what the daemon counted may have been read, in nanoseconds.
    pub fn apart_ns(&self) -> u64 {
        self.apart_ns
    }

    fn users(&self, before: &Self, value: impl Fn(&User, &User) -> f64) -> BTreeMap<String, f64> {
        let of = |(cgroup, now): (&String, &User)| {
            let old = before.status.users.get(cgroup).copied();
            (cgroup.clone(), value(now, &old.unwrap_or_default()))
        };
        self.status.users.iter().map(of).collect()
    }
}

/// A program's counters, once it has made them.
fn begun(path: &Path) -> Result<File, GuestError> {
    let began = Instant::now();
    loop {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let is_whole = |file: &File| file.metadata().is_ok_and(|facts| facts.len() == 16);
        match file {
            Ok(file) if is_whole(&file) => return Ok(file),
            file if began.elapsed() > TIMEOUT => {
                file.doing(format!("open {}", path.display()))?;
                return Err(wrong(format!("{} stays empty", path.display())));
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

impl Status {
    /// Cgroups relative to the hierarchy's root.
    fn parse(text: &[u8]) -> Result<Self, GuestError> {
        let damaged = || {
            let text = String::from_utf8_lossy(text);
            wrong(format!("a status that is none: {text}"))
        };
        let status: serde_json::Value = serde_json::from_slice(text).map_err(|_| damaged())?;
        let user = |user: &serde_json::Value| {
            let cgroup = user["cgroup"].as_str()?.strip_prefix("/sys/fs/cgroup/")?;
            let told = User {
                charged_bytes: user["charged_gib"].as_f64()? * f64::from(1 << 30),
                passes_held_back: user["passes_held_back"].as_f64()?,
            };
            Some((cgroup.to_owned(), told))
        };
        let users = status["users"].as_array().ok_or_else(damaged)?;
        let users = users.iter().map(|one| user(one).ok_or_else(damaged));
        Ok(Self {
            counted_ns: status["counted_ns"].as_u64().ok_or_else(damaged)?,
            counting_ns: status["counting_ns"].as_u64().ok_or_else(damaged)?,
            passes: status["passes"].as_u64().ok_or_else(damaged)?,
            users: users.collect::<Result<_, _>>()?,
        })
    }
}
