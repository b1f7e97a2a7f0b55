//! Sources of power-loss warnings: a real upsd with its dummy driver, and signals.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_tests::alone::alone;
use dormouse_tests::program::Program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const COUNTS: &str = "
import itertools, os, time
for count in itertools.count(1):
    print('at', count, os.getpid(), flush=True)
    time.sleep(0.02)
";

/// upsd, and its driver for a UPS that is a file.
struct Ups {
    directory: TempDir,
    driver: Child,
    upsd: Child,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

impl Ups {
    /// To be started after the [`Program`] is there: of two tests, one at a time.
    fn new(port: u16) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).expect("a file of NUT");
        };
        write(
            "ups.conf",
            "[ups]\n driver = dummy-ups\n port = ups.dev\n mode = dummy-once\n pollinterval = 1\n",
        );
        write("upsd.conf", &format!("LISTEN 127.0.0.1 {port}\nMAXAGE 3\n"));
        write("upsd.users", "");
        write("ups.dev", "ups.status: OL\n");
        // Now and then the two do not find each other when they start at the same time.
        for _ in 0..5 {
            let driver = start(directory.path(), "dummy-ups", &["-a", "ups"]);
            let socket = directory.path().join("dummy-ups-ups");
            let listens = soon(|| socket.exists());
            let upsd = start(directory.path(), "upsd", &[]);
            let mut pair = [driver, upsd];
            let on_line = |answer: String| answer.contains("\"OL\"");
            if listens && soon(|| asked(port).is_ok_and(on_line)) {
                let [driver, upsd] = pair;
                return Self {
                    directory,
                    driver,
                    upsd,
                };
            }
            for child in &mut pair {
                let _ = child.kill();
                let _ = child.wait();
            }
            let _ = fs::remove_file(&socket);
        }
        let log = fs::read_to_string(directory.path().join("upsd.log"));
        panic!("upsd never knows the UPS: {log:?}");
    }

    /// What the driver reports from now on. It reads the file again when that is newer, in whole
    /// seconds: of two that are written in the same one, it would never see the second.
    fn says(&self, status: &str) {
        let text = format!("ups.status: {status}\n");
        let path = self.directory.path().join("ups.dev");
        let second = || {
            let metadata = fs::metadata(&path).expect("the UPS");
            metadata.mtime()
        };
        let before = second();
        assert!(
            soon(|| {
                fs::write(&path, &text).expect("the UPS");
                second() > before
            }),
            "the clock stands still"
        );
    }
}

/// Whether something holds within a minute.
fn soon(holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// What upsd says of the UPS.
fn asked(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET VAR ups ups.status\n")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}

/// Debian puts the daemons of NUT here, and a script that asks for a configuration in the path.
fn start(directory: &Path, name: &str, words: &[&str]) -> Child {
    let log = fs::File::create(directory.join(name).with_extension("log")).expect("a log");
    Command::new(Path::new("/lib/nut").join(name))
        .args(words)
        .args(["-F", "-u", "root"])
        .envs(["NUT_CONFPATH", "NUT_STATEPATH", "NUT_ALTPIDPATH"].map(|name| (name, directory)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a copy"))
        .stderr(log)
        .spawn()
        .expect("nut-server is installed")
}

impl Drop for Ups {
    fn drop(&mut self) {
        for child in [&mut self.driver, &mut self.upsd] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn power(status: &Value) -> &str {
    status["tracker"]["power"].as_str().unwrap_or_default()
}

fn epochs(status: &Value) -> u64 {
    status["tracker"]["epochs"].as_u64().unwrap_or_default()
}

/// A counting program that watches this UPS. No epochs but those for the loss of power.
fn watching(directory: &Path, then: &str) -> (Program, Ups) {
    let port = free_port();
    let source = format!("nut:ups@127.0.0.1:{port}");
    let options = [
        "--on-power-loss",
        &source,
        "--then",
        then,
        "--epoch-interval",
        "60min",
    ];
    let mut program = Program::new(
        alone(),
        directory,
        "counter",
        &options,
        &["python3", "-c", COUNTS],
    );
    let ups = Ups::new(port);
    program.run();
    assert!(program.wait_for("at", 3), "{}", program.said());
    (program, ups)
}

#[test]
fn on_battery_the_program_is_made_safe_and_stopped_and_goes_on_when_power_is_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut program, ups) = watching(directory.path(), "stop");
    assert_eq!(epochs(&program.status()), 0);
    ups.says("OB DISCHRG");
    program.until("stopped", |program| {
        program.status()["tracker"]["program"] == "stopped"
    });
    let status = program.status();
    assert!(power(&status).contains("on battery"), "{status}");
    assert_eq!(epochs(&status), 1, "{status}");
    assert_eq!(status["store"]["epoch"]["cause"], "persist", "{status}");
    let counted = program.said();
    let pid = &status["tracker"]["pids"][0];
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    assert!(stat.contains(") T "), "{stat}");
    assert_eq!(program.said(), counted, "it is stopped");
    ups.says("OL CHRG");
    assert!(program.wait_for("at", 3), "{}", program.said());
    let status = program.status();
    assert_eq!(status["tracker"]["program"], "running", "{status}");
    assert!(power(&status).contains("power is back"), "{status}");

    // It fails again, and this time for good.
    ups.says("OB LB");
    program.until("stopped again", |program| {
        program.status()["tracker"]["program"] == "stopped"
    });
    drop(ups);
    program.cut(false);
    drop(program);
    // After the boot: the same command, but that the port is another.
    let port = free_port();
    let source = format!("nut:ups@127.0.0.1:{port}");
    let options = ["--on-power-loss", &source];
    let command = ["python3", "-c", COUNTS];
    let mut program = Program::new(alone(), directory.path(), "counter", &options, &command);
    let _ups = Ups::new(port);
    program.run();
    assert!(program.wait_for("at", 3), "{}", program.said());
    let said = program.said();
    let counts: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("at "))
        .collect();
    let pid = counts[0].rsplit(' ').next().expect("a word");
    for (index, line) in counts.iter().enumerate() {
        assert_eq!(*line, format!("at {} {pid}", index + 1), "{said}");
    }
}

/// systemd stops its units when the battery is nearly empty: by then the program stands already.
#[test]
fn a_program_that_was_stopped_on_battery_is_killed_by_the_shutdown_and_runs_after_the_boot() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut program, ups) = watching(directory.path(), "stop");
    ups.says("OB DISCHRG");
    program.until("stopped", |program| {
        program.status()["tracker"]["program"] == "stopped"
    });
    program.persist_and_kill("persist");
    ups.says("OL");
    program.run();
    assert!(program.wait_for("at", 3), "{}", program.said());
}

#[test]
fn a_stopped_program_that_somebody_continues_has_epochs_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = ["--on-power-loss", "none", "--epoch-interval", "300ms"];
    let command = ["python3", "-c", COUNTS];
    let mut program = Program::new(alone(), directory.path(), "counter", &options, &command);
    program.run();
    assert!(program.wait_for("at", 3), "{}", program.said());
    let said = program.verb("persist", &["--then", "stop"]);
    assert_eq!(said.code, 0, "{}", said.all());
    let status = program.status();
    assert_eq!(status["tracker"]["program"], "stopped", "{status}");
    let pid = status["tracker"]["pids"][0].as_i64().expect("a number");
    let pid = Pid::from_raw(pid as i32).expect("not zero");
    kill_process(pid, Signal::CONT).expect("it lives");
    assert!(program.wait_for("at", 3), "{}", program.said());
    let had = epochs(&status);
    program.until("running", |program| {
        program.status()["tracker"]["program"] == "running"
    });
    program.until("another epoch", |program| epochs(&program.status()) > had);
}

/// Waits for one more epoch, for this reason.
fn lost_again(program: &mut Program, had: u64, why: &str) {
    program.until(why, |program| {
        let status = program.status();
        epochs(&status) > had && power(&status).contains(why)
    });
}

#[test]
fn communication_lost_on_battery_counts_as_a_loss_of_power() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut program, mut ups) = watching(directory.path(), "continue");
    ups.says("OB DISCHRG");
    lost_again(&mut program, 0, "on battery");
    let had = epochs(&program.status());
    // The driver goes: upsd is there, and knows nothing.
    ups.driver.kill().expect("killed");
    ups.driver.wait().expect("ended");
    lost_again(&mut program, had, "no answer while on battery");
    // It comes back, and upsd goes.
    ups.driver = start(ups.directory.path(), "dummy-ups", &["-a", "ups"]);
    program.until("an answer", |program| {
        !power(&program.status()).contains("no answer")
    });
    let had = epochs(&program.status());
    ups.upsd.kill().expect("killed");
    ups.upsd.wait().expect("ended");
    lost_again(&mut program, had, "no answer while on battery");
    assert!(program.wait_for("at", 2), "it goes on: {}", program.said());
}

#[test]
fn communication_lost_on_mains_is_said_and_is_no_loss() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut program, mut ups) = watching(directory.path(), "stop");
    std::thread::sleep(std::time::Duration::from_secs(3));
    ups.upsd.kill().expect("killed");
    ups.upsd.wait().expect("ended");
    program.until("silence", |program| {
        power(&program.status()).contains("no answer")
    });
    assert!(program.wait_for("at", 3), "{}", program.said());
    let status = program.status();
    assert_eq!(epochs(&status), 0, "{status}");
    assert_eq!(status["tracker"]["program"], "running", "{status}");
}

#[test]
fn a_signal_to_the_tracker_is_a_loss_of_power() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = ["--then", "kill", "--epoch-interval", "60min"];
    let command = ["python3", "-c", COUNTS];
    for signal in [Signal::POWER, Signal::USR1] {
        let mut program = Program::new(alone(), directory.path(), "counter", &options, &command);
        program.run();
        assert!(program.wait_for("at", 3), "{}", program.said());
        let tracker = Pid::from_raw(program.tracker()).expect("not zero");
        kill_process(tracker, signal).expect("a tracker");
        assert_eq!(program.wait(), 0, "{}", program.said());
        let said = program.verb("status", &[]);
        assert!(said.stdout.contains("can be restored"), "{}", said.all());
    }
}

#[test]
fn a_tracker_that_a_signal_ends_names_the_signal_and_its_sender() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = ["--on-power-loss", "none", "--epoch-interval", "60min"];
    let command = ["python3", "-c", COUNTS];
    for (signal, name) in [
        (Signal::USR1, "SIGUSR1"),
        (Signal::BUS, "SIGBUS"),
        (Signal::ABORT, "SIGABRT"),
    ] {
        let mut program = Program::new(alone(), directory.path(), "counter", &options, &command);
        program.run();
        assert!(program.wait_for("at", 3), "{}", program.said());
        // Its socket is there: it has prepared itself.
        let said = program.verb("persist", &[]);
        assert_eq!(said.code, 0, "{}", said.all());
        let tracker = Pid::from_raw(program.tracker()).expect("not zero");
        kill_process(tracker, signal).expect("a tracker");
        assert_eq!(program.wait(), -1, "a signal ends it: {}", program.said());
        let words = format!(
            "the tracker of counter is ended by {name} from process {}; the last epoch is kept",
            std::process::id()
        );
        assert!(program.said().contains(&words), "{}", program.said());
        program.cut(false);
        // It is restored.
        program.run();
        assert!(program.wait_for("at", 3), "{}", program.said());
        program.cut(false);
    }
}
