//! Overhead of tracking: on the tracked program, and on another one beside it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_report::stats::median;
use dormouse_tests::program::Program;

use crate::desk::Desk;
use crate::plan::{BUDGET, Case, DICTIONARIES, EPOCHS_PAYLOAD, Party, REDIS_TESTS};
use crate::visit::{Context, Values, ms};

/// As in Streicher 2024.
const PASSES: u64 = 10;
/// A pass of a MiB takes too little to be measured ten times only.
const MIN_PASS_MIB: u64 = 1000;
const CLIENTS: &str = "50";
const REQUESTS: u64 = 100_000;
/// Beside frequent epochs, of which there are to be many.
const EPOCHS_REQUESTS: u64 = 300_000;
/// Between two questions.
const POLL_MIN: Duration = Duration::from_millis(100);
/// Answers of LRANGE_600 are large: the number of requests of Streicher 2024 as long as all of them are
/// not more than this.
const ANSWERS_BYTES: u64 = 2 << 30;
const RANGE: u64 = 600;
/// What runs beside 7z: a program of 1 GiB that writes so much a second.
const BESIDE_MIB: &str = "1024";
const BESIDE_RATE: &str = "32";
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Measures one case with, or without, a tracker.
pub fn measure(case: Case, party: Party, context: &Context) -> Result<Values, String> {
    let directory = context.fresh_directory()?;
    match case {
        Case::Passes { mib } => passes(mib, party, context, &directory),
        Case::Redis { bytes } => redis(bytes, party, &directory),
        Case::Epochs { interval_ms } => epochs(interval_ms, party, &directory),
        Case::Beside => beside(party, context, &directory),
        _ => unreachable!("{case:?} is no slowdown"),
    }
}

/// A program with or without a tracker.
enum Running {
    Tracked(Box<Program>),
    Alone(Child),
}

impl Running {
    fn start(party: Party, directory: &Path, words: &[&str]) -> Result<Self, String> {
        Self::start_with(&[], party, directory, words)
    }

    fn start_with(
        more: &[&str],
        party: Party,
        directory: &Path,
        words: &[&str],
    ) -> Result<Self, String> {
        let mut options = [&["--on-power-loss", "none"], more].concat();
        match party {
            Party::Untracked => {
                let output = std::fs::File::create(directory.join("output"))
                    .map_err(|error| error.to_string())?;
                let child = Command::new(words[0])
                    .args(&words[1..])
                    .stdin(Stdio::null())
                    .stdout(output)
                    .stderr(Stdio::null())
                    .spawn()
                    .map_err(|error| format!("{}: {error}", words[0]))?;
                return Ok(Self::Alone(child));
            }
            Party::Budgeted => options.extend(["--budget", BUDGET]),
            _ => {}
        }
        let mut program = Program::new(None, directory, "program", &options, words);
        program.run();
        Ok(Self::Tracked(Box::new(program)))
    }

    fn has_ended(&mut self) -> bool {
        match self {
            Self::Tracked(program) => program.has_ended(),
            Self::Alone(child) => !matches!(child.try_wait(), Ok(None)),
        }
    }

    fn wait(&mut self) -> Result<(), String> {
        let code = match self {
            Self::Tracked(program) => program.wait(),
            Self::Alone(child) => child
                .wait()
                .map_err(|error| error.to_string())?
                .code()
                .unwrap_or(-1),
        };
        match code {
            0 => Ok(()),
            code => Err(format!("the program ended with {code}")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Tracked(program) => program.cut(false),
            Self::Alone(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn passes(mib: u64, party: Party, context: &Context, directory: &Path) -> Result<Values, String> {
    let load = context.load.display().to_string();
    let count = PASSES.max(MIN_PASS_MIB / mib);
    let words = [&load, "passes", &mib.to_string(), &count.to_string()];
    let started = Instant::now();
    let mut running = Running::start(party, directory, &words)?;
    running.wait()?;
    let whole = ms(started.elapsed());
    let said = std::fs::read_to_string(directory.join("output")).map_err(|e| e.to_string())?;
    let times: Vec<f64> = said
        .lines()
        .filter_map(|line| line.strip_prefix("pass ")?.parse().ok())
        .collect();
    if times.len() as u64 != count {
        return Err(format!("{} of {count} passes: {said}", times.len()));
    }
    let passing: f64 = times.iter().sum();
    let mut values = Values::new();
    values.insert("pass_ms".into(), median(times).unwrap_or_default() * 1e3);
    values.insert("around_ms".into(), whole - passing * 1e3);
    Ok(values)
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    Ok(address.port())
}

fn answers(port: u16) -> bool {
    let mut answer = [0; 7];
    TcpStream::connect(("127.0.0.1", port)).is_ok_and(|mut stream| {
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && &answer == b"+PONG\r\n"
    })
}

/// A server that answers, and its port.
fn start_redis(more: &[&str], party: Party, directory: &Path) -> Result<(Running, String), String> {
    let port = free_port()?;
    let number = port.to_string();
    let mut words = vec!["redis-server", "--port", &number, "--bind", "127.0.0.1"];
    words.extend(["--save", "", "--appendonly", "no"]);
    let mut running = Running::start_with(more, party, directory, &words)?;
    let started = Instant::now();
    while !answers(port) {
        if running.has_ended() || started.elapsed() > WAIT_MAX {
            return Err("redis-server does not answer".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((running, number))
}

fn connected_clients(port: &str) -> Option<u64> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).ok()?;
    stream.write_all(b"INFO clients\r\nQUIT\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix("connected_clients:"))?;
    line.trim().parse().ok()
}

/// What the tracker says of an epoch that began while all clients were connected; nothing where none came
/// before the benchmark's end.
fn status_with_clients(
    program: &Program,
    port: &str,
    interval_ms: u64,
    has_ended: impl Fn() -> bool,
) -> Option<serde_json::Value> {
    let clients = CLIENTS.parse().ok();
    while connected_clients(port) < clients {
        if has_ended() {
            return None;
        }
        std::thread::sleep(POLL_MIN);
    }
    let epochs = |status: &serde_json::Value| status["tracker"]["epochs"].as_u64();
    let first = epochs(&program.status())?;
    loop {
        // Asking takes processor time from the benchmark.
        std::thread::sleep(POLL_MIN.max(Duration::from_millis(interval_ms)));
        let status = program.status();
        match epochs(&status) {
            _ if has_ended() => return None,
            // The next one may have begun before.
            Some(now) if now > first + 1 => return Some(status),
            _ => {}
        }
    }
}

/// Epochs are those of the whole run; the pause is that of one of them, while clients are connected.
fn epochs(interval_ms: u64, party: Party, directory: &Path) -> Result<Values, String> {
    let interval = format!("{interval_ms}ms");
    let options = match party {
        Party::Tracked => vec!["--epoch-interval", &interval],
        _ => Vec::new(),
    };
    let (running, port) = start_redis(&options, party, directory)?;
    let benchmark = || redis_benchmark(&port, "SET", EPOCHS_PAYLOAD, EPOCHS_REQUESTS);
    let mut values = Values::new();
    let Running::Tracked(program) = &running else {
        values.insert("SET_per_s".into(), benchmark()?);
        return Ok(values);
    };
    let (before, started) = (program.epochs(), Instant::now());
    let (per_second, status) = std::thread::scope(|scope| {
        let benchmark = scope.spawn(benchmark);
        let status = status_with_clients(program, &port, interval_ms, || benchmark.is_finished());
        (benchmark.join().expect("no panic"), status)
    });
    let epochs = (program.epochs() - before) as f64;
    let seconds = started.elapsed().as_secs_f64();
    values.insert("SET_per_s".into(), per_second?);
    values.insert("epochs_per_s".into(), epochs / seconds);
    for step in ["pause", "freeze", "capture"] {
        let ns = status.as_ref().map(|status| &status["tracker"]["last"]);
        let ns = ns.and_then(|last| last[format!("{step}_ns")].as_f64());
        values.extend(ns.map(|ns| (format!("{step}_ms"), ns / 1e6)));
    }
    Ok(values)
}

fn redis(bytes: u64, party: Party, directory: &Path) -> Result<Values, String> {
    let (_running, number) = start_redis(&[], party, directory)?;
    let mut values = Values::new();
    for test in REDIS_TESTS {
        let requests = match test {
            "LRANGE_600" => REQUESTS.min(ANSWERS_BYTES / (RANGE * (bytes + 8))),
            _ => REQUESTS,
        };
        let per_second = redis_benchmark(&number, test, bytes, requests)?;
        values.insert(format!("{test}_per_s"), per_second);
    }
    Ok(values)
}

/// Requests a second.
fn redis_benchmark(port: &str, test: &str, bytes: u64, requests: u64) -> Result<f64, String> {
    let output = Command::new("redis-benchmark")
        .args(["-p", port, "-c", CLIENTS, "--csv"])
        .args(["-n", &requests.to_string(), "-d", &bytes.to_string()])
        .args(["-t", &test.to_lowercase()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("redis-benchmark: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    // "LRANGE_600 (first 600 elements)","812.34",…; what fills the list for it comes first.
    said.lines()
        .filter_map(|line| line.strip_prefix('"')?.split_once("\",\""))
        .find(|(name, _)| name.split(' ').next() == Some(test))
        .and_then(|(_, rest)| rest.split('"').next()?.parse().ok())
        .ok_or_else(|| format!("redis-benchmark -t {test}: {said}"))
}

fn beside(party: Party, context: &Context, directory: &Path) -> Result<Values, String> {
    let desk = Desk::new()?;
    let load = context.load.display().to_string();
    let path = desk.path().display().to_string();
    let words = [&load, "churn", &path, BESIDE_MIB, BESIDE_RATE];
    let mut running = Running::start(party, directory, &words)?;
    desk.beat_after(0, || match running.has_ended() {
        true => Err("the program beside 7z ended".into()),
        false => Ok(()),
    })?;
    let last = DICTIONARIES.last().copied().unwrap_or_default();
    let output = Command::new("7z")
        .args(["b", "1", "-mmt1", &format!("-md{last}")])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("7z: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    ratings(&said).ok_or_else(|| format!("7z b: {said}"))
}

/// MIPS of each dictionary, compressing and decompressing, and the mean of all.
fn ratings(said: &str) -> Option<Values> {
    let mut values = Values::new();
    for line in said.lines() {
        // "22:  speed usage r/u rating  |  speed usage r/u rating"
        let Some((dictionary, rest)) = line.split_once(':') else {
            continue;
        };
        let Ok(dictionary) = dictionary.trim().parse::<u32>() else {
            continue;
        };
        let (packing, unpacking) = rest.split_once('|')?;
        let rating = |half: &str| half.split_whitespace().last()?.parse::<f64>().ok();
        values.insert(format!("compress_{dictionary}_mips"), rating(packing)?);
        values.insert(format!("decompress_{dictionary}_mips"), rating(unpacking)?);
    }
    if values.is_empty() {
        return None;
    }
    let mean = values.values().sum::<f64>() / values.len() as f64;
    values.insert("mean_mips".into(), mean);
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratings_of_7z_are_read_by_dictionary() {
        let said = "Dict     Speed Usage    R/U Rating  |      Speed Usage    R/U Rating\n\
                    22:       5125   100   4990   4986  |      64103   100   5475   5473\n\
                    23:       4775   100   4870   4866  |      62861   100   5443   5441\n\
                    ----------------------------------  | ------------------------------\n\
                    Avr:      4950   100   4930   4926  |      63482   100   5459   5457\n";
        let values = ratings(said).unwrap();
        assert_eq!(values["compress_22_mips"], 4986.0);
        assert_eq!(values["decompress_23_mips"], 5441.0);
        assert_eq!(
            values["mean_mips"],
            (4986.0 + 5473.0 + 4866.0 + 5441.0) / 4.0
        );
        assert!(ratings("7z has crashed").is_none());
    }
}
