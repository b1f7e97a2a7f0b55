//! Real programs, persisted in the middle of their work, killed and recreated.

mod common;
#[path = "common/roundtrip.rs"]
mod roundtrip;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use roundtrip::{assert_good_end, finish, start, through_death, wait_for};

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

fn connect(port: u16) -> TcpStream {
    let started = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => {
                assert!(
                    started.elapsed() < Duration::from_secs(20),
                    "no connection: {error}"
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Writes one key after the other until the connection breaks; notes what was acknowledged.
fn write_keys(port: u16, acknowledged: &AtomicU64) -> std::io::Result<()> {
    let stream = connect(port);
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let mut answer = String::new();
    loop {
        let next = acknowledged.load(Ordering::SeqCst) + 1;
        stream.write_all(format!("SET key:{next} value:{next}\r\n").as_bytes())?;
        answer.clear();
        answers.read_line(&mut answer)?;
        if answer != "+OK\r\n" {
            return Err(std::io::Error::other(answer));
        }
        acknowledged.store(next, Ordering::SeqCst);
    }
}

#[test]
fn redis_has_every_acknowledged_write_after_each_cut() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let port = free_port();
    let mut command = Command::new("redis-server");
    command
        .current_dir(directory.path())
        .args([
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--appendonly",
            "no",
        ])
        .args(["--io-threads", "2", "--dir", "."]);
    let mut child = Some(start(&mut command, &output, "Ready to accept"));
    let pid = child.as_ref().expect("it").id() as i32;
    let acknowledged = Arc::new(AtomicU64::new(0));
    for round in 0..5u64 {
        let before = acknowledged.load(Ordering::SeqCst);
        let writer = {
            let acknowledged = Arc::clone(&acknowledged);
            std::thread::spawn(move || write_keys(port, &acknowledged))
        };
        let cut = Instant::now() + Duration::from_millis(100 + round * 37);
        while Instant::now() < cut || acknowledged.load(Ordering::SeqCst) < before + 50 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let root = match child.take() {
            Some(child) => through_death(child),
            None => roundtrip::through_death_of(pid),
        };
        assert_eq!(root, pid);
        writer
            .join()
            .expect("the writer")
            .expect_err("its connection broke");
        let last = acknowledged.load(Ordering::SeqCst);
        assert!(last >= before + 50);
        let stream = connect(port);
        let mut answers = BufReader::new(stream.try_clone().expect("a copy"));
        let mut stream = stream;
        for key in 1..=last {
            stream
                .write_all(format!("GET key:{key}\r\n").as_bytes())
                .expect("sent");
            let mut line = String::new();
            answers.read_line(&mut line).expect("an answer");
            line.clear();
            answers.read_line(&mut line).expect("the value");
            assert_eq!(line, format!("value:{key}\r\n"), "round {round}");
        }
    }
    let mut stream = connect(port);
    stream.write_all(b"SHUTDOWN NOSAVE\r\n").expect("sent");
    assert_eq!(finish(pid, Duration::from_secs(20)), Some(0));
}

#[test]
fn python_with_eight_threads_writes_what_it_would_have_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let script = r#"
import hashlib, threading, os
lines = {}
log = open("log", "w")
lock = threading.Lock()
def work(number):
    digest = b"%d" % number
    for step in range(300):
        for _ in range(200):
            digest = hashlib.sha256(digest).digest()
        with lock:
            log.write("%d %d %s\n" % (number, step, digest.hex()))
            if step % 16 == 0:
                log.flush()
            if number == 0 and step == 20:
                print("ready", flush=True)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
log.close()
for line in open("log"):
    number, step, digest = line.split()
    lines.setdefault(int(number), []).append((int(step), digest))
for number in range(8):
    digest = b"%d" % number
    assert len(lines[number]) == 300, (number, len(lines[number]))
    for step in range(300):
        for _ in range(200):
            digest = hashlib.sha256(digest).digest()
        assert lines[number][step] == (step, digest.hex()), (number, step)
print("all right", flush=True)
"#;
    let mut command = Command::new("python3");
    command.current_dir(directory.path()).args(["-c", script]);
    let root = through_death(start(&mut command, &output, "ready"));
    assert_good_end(root, &output);
    assert!(
        std::fs::read_to_string(&output)
            .expect("the output")
            .contains("all right")
    );
}

#[test]
fn sqlite_in_a_loop_of_transactions_commits_each_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let mut script =
        "PRAGMA synchronous=OFF;\nCREATE TABLE t(n INTEGER PRIMARY KEY, v TEXT);\n".to_owned();
    for n in 0..400 {
        script += &format!(
            "BEGIN;\nINSERT INTO t VALUES({n}, hex(randomblob(600)));\n\
             UPDATE t SET v = v || 'x' WHERE n <= {n} AND n > {n} - 5;\nCOMMIT;\n"
        );
        if n == 60 {
            script += "SELECT 'ready';\n";
        }
    }
    script += "SELECT 'rows', count(*), sum(length(v)) FROM t;\nPRAGMA integrity_check;\n";
    std::fs::write(directory.path().join("script"), &script).expect("the script");
    let mut command = Command::new("sqlite3");
    command
        .current_dir(directory.path())
        .args(["-bail", "database", ".read script"]);
    let root = through_death(start(&mut command, &output, "ready"));
    assert_good_end(root, &output);
    let text = std::fs::read_to_string(&output).expect("the output");
    // Each row has 1200 digits and one letter for each of the five updates that reach it.
    let letters: u64 = (0..400).map(|n: u64| (400 - n).min(5)).sum();
    assert!(
        text.contains(&format!("rows|400|{}", 400 * 1200 + letters)),
        "{text}"
    );
    assert!(text.contains("\nok\n"), "{text}");
}

#[test]
fn a_shell_pipeline_loses_and_repeats_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let script = "seq 1 3000 | while read n; do echo $n; done | sed 's/$/ x/' \
                  | while read n x; do echo $n >&2; echo $n; [ $n = 200 ] && echo ready >> marks; done \
                  2>>seen | awk '{ sum += $1; n++ } END { print n, sum }'";
    let mut command = Command::new("bash");
    command.current_dir(directory.path()).args(["-c", script]);
    let child = start(&mut command, &output, "");
    wait_for(&directory.path().join("marks"), "ready");
    let root = through_death(child);
    assert_good_end(root, &output);
    let text = std::fs::read_to_string(&output).expect("the output");
    assert_eq!(text, format!("3000 {}\n", 3000 * 3001 / 2));
    let seen = std::fs::read_to_string(directory.path().join("seen")).expect("the lines");
    let wanted: String = (1..=3000).map(|n| format!("{n}\n")).collect();
    assert!(seen == wanted, "lines are lost or repeated");
}

fn get(port: u16, path: &str) -> String {
    let mut stream = connect(port);
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes())
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn nginx_configuration(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    format!(
        "daemon off; worker_processes 2; pid {directory}/pid; error_log {directory}/error;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {directory}; proxy_temp_path {directory};\n\
         fastcgi_temp_path {directory}; uwsgi_temp_path {directory}; scgi_temp_path {directory};\n\
         limit_req_zone $binary_remote_addr zone=one:1m rate=100000r/s;\n\
         server {{ listen 127.0.0.1:{port}; root {directory}/www; }} }}\n"
    )
}

#[test]
fn nginx_with_workers_serves_on_and_reloads() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("its mode");
    let output = directory.path().join("output");
    let port = free_port();
    std::fs::create_dir(directory.path().join("www")).expect("a directory");
    std::fs::write(directory.path().join("www/page"), "the page").expect("a page");
    let configuration = directory.path().join("conf");
    std::fs::write(&configuration, nginx_configuration(directory.path(), port)).expect("written");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&configuration);
    let child = start(&mut command, &output, "");
    let pid = child.id() as i32;
    assert!(get(port, "/page").ends_with("the page"));
    std::thread::sleep(Duration::from_millis(200));
    let root = through_death(child);
    assert_eq!(root, pid);
    for _ in 0..20 {
        assert!(get(port, "/page").ends_with("the page"));
    }
    // The master works, too: it makes new workers on a signal, and ends well on another.
    // SAFETY: no memory involved.
    unsafe { libc::kill(pid, libc::SIGHUP) };
    std::thread::sleep(Duration::from_millis(300));
    assert!(get(port, "/page").ends_with("the page"));
    // SAFETY: no memory involved.
    unsafe { libc::kill(pid, libc::SIGQUIT) };
    assert_eq!(finish(pid, Duration::from_secs(20)), Some(0));
}
