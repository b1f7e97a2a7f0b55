//! The agent's end of a stress run: starts the load, checks it, compares its results, ends it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dormouse_guest::protocol::stress::{Durable, Place, StressPlan, StressVerdict};
use rustix::process::{Pid, Signal, kill_process};

use super::{files, redis};
use crate::error::{Doing, GuestError};
use crate::system::{cgroups, run};

/// What loads the machine, and what sleeps with it.
const GROUP: &str = "stress";
/// A program that is asked to end has ended after this.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// A program that was started has started its workers after this.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The client gives up before.
const REDIS_START_TIMEOUT: Duration = Duration::from_secs(330);
/// Within this time a writer gets something done, however slow the emulated machine is.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);

/// The running load.
pub struct Load {
    plan: StressPlan,
    stress_ng: Vec<(Place, Running)>,
    files: Vec<(Place, Writer)>,
    redis: Option<(Child, Writer)>,
}

/// A program whose complaints are kept.
struct Running {
    child: Child,
    said: Option<JoinHandle<String>>,
}

/// A program that says after each durable write how many there are.
struct Writer {
    running: Running,
    durable: Arc<AtomicU64>,
}

fn folder(place: Place, name: &str) -> PathBuf {
    Path::new(place.folder()).join(name)
}

fn redis_folder() -> PathBuf {
    folder(Place::Scratch, "redis")
}

/// An empty folder, whatever was there.
fn emptied(path: &Path) -> Result<(), GuestError> {
    if path.exists() {
        fs::remove_dir_all(path).doing(format!("empty {}", path.display()))?;
    }
    fs::create_dir_all(path).doing(format!("create {}", path.display()))
}

impl Load {
    pub fn start(plan: StressPlan) -> Result<Load, GuestError> {
        let mut load = Load {
            plan: plan.clone(),
            stress_ng: Vec::new(),
            files: Vec::new(),
            redis: None,
        };
        for (number, (place, arguments)) in plan.stress_ng.into_iter().enumerate() {
            let temporary = folder(place, &format!("stress-ng-{number}"));
            emptied(&temporary)?;
            let mut command = Command::new("stress-ng");
            command
                .args(arguments)
                .args(["--verify", "--timeout", "0", "--temp-path"])
                .arg(&temporary)
                .current_dir(&temporary);
            load.stress_ng.push((place, Running::start(&mut command)?));
        }
        for place in plan.files {
            let files = folder(place, "files");
            emptied(&files)?;
            let writer =
                Writer::start(&["stress-files".into(), text(&files), plan.seed.to_string()])?;
            load.files.push((place, writer));
        }
        for (_, running) in &mut load.stress_ng {
            running.wait_until_at_work()?;
        }
        if plan.redis {
            emptied(&redis_folder())?;
            let server = redis::serve(&redis_folder(), GROUP)?;
            let mut client = Writer::start(&["stress-redis".into(), plan.seed.to_string()])?;
            // A server that has yet to be loaded from the disk would not be asleep but absent.
            if let Some(why) = client.stands_still("the client of redis", REDIS_START_TIMEOUT) {
                return Err(GuestError::Other(why));
            }
            load.redis = Some((server, client));
        }
        Ok(load)
    }

    pub fn durable(&self) -> Durable {
        Durable {
            files: self
                .files
                .iter()
                .map(|(place, writer)| (*place, writer.count()))
                .collect(),
            redis_keys: self.redis.as_ref().map_or(0, |(_, client)| client.count()),
        }
    }

    /// Compares everything and sees that all goes on.
    pub fn verify(&mut self) -> StressVerdict {
        let mut verdict = self.compare();
        for (place, running) in &mut self.stress_ng {
            let name = format!("stress-ng on {}", place.name());
            verdict
                .load
                .extend(running.ended().map(|why| format!("{name} {why}")));
        }
        for (place, writer) in &mut self.files {
            let name = format!("the writer of files on {}", place.name());
            verdict
                .load
                .extend(writer.stands_still(&name, PROGRESS_TIMEOUT));
        }
        if let Some((_, client)) = &mut self.redis {
            verdict
                .redis
                .extend(client.stands_still("the client of redis", PROGRESS_TIMEOUT));
        }
        verdict
    }

    fn compare(&mut self) -> StressVerdict {
        let mut verdict = StressVerdict::default();
        for (place, writer) in &self.files {
            let files = folder(*place, "files");
            verdict
                .files
                .extend(files::verify(&files, self.plan.seed, writer.count()));
        }
        if let Some((server, client)) = &mut self.redis {
            verdict.redis.extend(match server.try_wait() {
                Ok(Some(status)) => vec![format!("redis has ended with {status}")],
                _ => redis::verify(self.plan.seed, client.count()),
            });
        }
        verdict
    }

    /// Ends everything, and compares what it left.
    pub fn stop(mut self) -> StressVerdict {
        let mut ended = StressVerdict::default();
        for (place, running) in &mut self.stress_ng {
            let name = format!("stress-ng on {}", place.name());
            ended.load.extend(match running.stop(Signal::INT) {
                Ok((0, _)) => None,
                Ok((code, said)) => Some(format!("{name} ended with {code}: {said}")),
                Err(error) => Some(format!("{name}: {error}")),
            });
        }
        let writers = self.files.iter_mut().map(|(_, writer)| writer);
        for writer in writers.chain(self.redis.iter_mut().map(|(_, client)| client)) {
            let _ = writer.running.stop(Signal::KILL);
        }
        let compared = self.compare();
        ended.files.extend(compared.files);
        ended.redis.extend(compared.redis);
        ended
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some((server, _)) = &mut self.redis {
            let _ = server.kill();
            let _ = server.wait();
        }
        // Whatever stress-ng has forked goes as well.
        if let Ok(group) = cgroups::path_of(GROUP) {
            let _ = fs::write(group.join("cgroup.kill"), "1");
        }
    }
}

/// After a cold boot: compares what was durable before, on file systems whose journals were
/// replayed.
pub fn verify_durable(plan: &StressPlan, durable: &Durable) -> StressVerdict {
    let mut verdict = StressVerdict::default();
    for (place, count) in &durable.files {
        let files = folder(*place, "files");
        verdict
            .files
            .extend(files::verify(&files, plan.seed, *count));
    }
    if plan.redis && durable.redis_keys > 0 {
        let folder = redis_folder();
        let server = redis::cut_off_torn_end(&folder).and_then(|()| redis::serve(&folder, GROUP));
        match server {
            Ok(mut server) => {
                verdict
                    .redis
                    .extend(redis::verify(plan.seed, durable.redis_keys));
                let _ = server.kill();
                let _ = server.wait();
            }
            Err(error) => verdict.redis.push(error.to_string()),
        }
    }
    verdict
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl Running {
    fn start(command: &mut Command) -> Result<Running, GuestError> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = run::spawn_in(command, GROUP)?;
        let said = Some(run::collect(child.stderr.take()));
        Ok(Running { child, said })
    }

    /// Waits for its first worker. Before that, stress-ng 0.15.06 reads the processors' caches in
    /// /sys. If a sleep takes a processor offline at that moment, the read fails with ENODEV,
    /// stress-ng writes a zero before the start of its buffer, and crashes.
    fn wait_until_at_work(&mut self) -> Result<(), GuestError> {
        let pid = self.child.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let started = Instant::now();
        while fs::read_to_string(&children).unwrap_or_default().is_empty() {
            if let Some(why) = self.ended() {
                return Err(GuestError::Other(format!("stress-ng {why}")));
            }
            if started.elapsed() > START_TIMEOUT {
                let why = format!("stress-ng has no worker after {START_TIMEOUT:?}");
                return Err(GuestError::Other(why));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// How it ended, if it has.
    fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!(
            "has ended with {}: {}",
            run::code(status),
            self.said()
        ))
    }

    fn said(&mut self) -> String {
        let Some(reader) = self.said.take() else {
            return String::new();
        };
        // A child that it left behind may hold its standard error open for ever.
        let started = Instant::now();
        while !reader.is_finished() && started.elapsed() < LAST_WORDS_TIMEOUT {
            thread::sleep(POLL);
        }
        if !reader.is_finished() {
            return "(its children live on)".to_owned();
        }
        let said = reader.join().unwrap_or_default();
        // The end says why; the beginning repeats its arguments.
        let lines: Vec<&str> = said.lines().rev().take(6).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    /// Asks it to end; its exit code and last words.
    fn stop(&mut self, signal: Signal) -> Result<(i32, String), GuestError> {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, signal);
        }
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().doing("wait for its end")? {
                break status;
            }
            if started.elapsed() > END_TIMEOUT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return Err(GuestError::Other("does not end".into()));
            }
            thread::sleep(POLL);
        };
        Ok((run::code(status), self.said()))
    }
}

impl Writer {
    fn start(arguments: &[String]) -> Result<Writer, GuestError> {
        let mut command = Command::new("/proc/self/exe");
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = run::spawn_in(&mut command, GROUP)?;
        let durable = Arc::new(AtomicU64::new(0));
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let said = Some(run::collect(child.stderr.take()));
        let counted = Arc::clone(&durable);
        thread::spawn(move || {
            for count in lines
                .map_while(Result::ok)
                .filter_map(|line| line.parse().ok())
            {
                counted.store(count, Ordering::Release);
            }
        });
        Ok(Writer {
            running: Running { child, said },
            durable,
        })
    }

    fn count(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Why it does not go on, if it does not.
    fn stands_still(&mut self, name: &str, timeout: Duration) -> Option<String> {
        let before = self.count();
        let started = Instant::now();
        while self.count() == before {
            if let Some(why) = self.running.ended() {
                return Some(format!("{name} {why}"));
            }
            if started.elapsed() > timeout {
                return Some(format!("{name} stands still after {before} writes"));
            }
            thread::sleep(POLL);
        }
        None
    }
}
