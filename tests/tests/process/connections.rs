//! TCP connections across a power loss: both ends in the tree, one end outside, and a peer that is
//! gone.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use dormouse_tests::alone::alone;
use dormouse_tests::program::{Chance, Program};

/// One process streams numbered blocks to the other, which compares each and answers.
const PAIR: &str = "
import hashlib, os, socket, threading
server = socket.create_server(('127.0.0.1', 0))
def block(n):
    return hashlib.sha256(b'%d' % n).digest() * 600
def fail(*what):
    print('DIFFERS', *what, flush=True)
    os._exit(1)
if os.fork() == 0:
    there = socket.create_connection(server.getsockname())
    blocks, n = there.makefile('rb'), 0
    while True:
        if blocks.read(19200) != block(n):
            fail('block', n)
        there.sendall(b'%010d' % n)
        n += 1
there, _ = server.accept()
answers = there.makefile('rb')
def send(n=0):
    while True:
        there.sendall(block(n))
        n += 1
threading.Thread(target=send, daemon=True).start()
n = 0
while True:
    if answers.read(10) != b'%010d' % n:
        fail('answer', n)
    n += 1
    if n % 200 == 0:
        print('ok', n, os.getpid(), flush=True)
";

#[test]
fn a_connection_inside_the_tree_goes_on_from_every_epoch() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = [
        "--on-power-loss",
        "none",
        "--epoch-interval",
        "200ms",
        "--pause",
        "500ms",
    ];
    let mut program = Program::new(
        alone(),
        directory.path(),
        "pair",
        &options,
        &["python3", "-c", PAIR],
    );
    let mut chance = Chance::new(3);
    let mut pid = String::new();
    for cut in 0..6 {
        let before = program.said().len();
        program.run();
        assert!(program.wait_for("ok", 2), "cut {cut}: {}", program.said());
        let said = program.said().split_off(before);
        assert!(!said.contains("DIFFERS"), "cut {cut}: {said}");
        let line = said
            .lines()
            .find(|line| line.starts_with("ok"))
            .expect("it works");
        let its = line.rsplit(' ').next().expect("a word").to_owned();
        assert!(
            pid.is_empty() || pid == its,
            "cut {cut}: another process: {said}"
        );
        pid = its;
        // With and without a word of warning.
        if cut % 2 == 0 {
            program.until("an epoch", |program| {
                program.status()["tracker"]["epochs"]
                    .as_u64()
                    .is_some_and(|epochs| epochs > 0)
            });
            std::thread::sleep(Duration::from_millis(chance.below(300)));
        } else {
            let then = ["continue", "stop", "kill"][cut / 2];
            let said = program.verb("persist", &["--then", then]);
            assert_eq!(said.code, 0, "{}", said.all());
        }
        program.cut(cut % 4 < 2);
    }
}

/// Accepts one client, and answers each of its bytes with the next one, slowly.
const SERVER: &str = "
import socket, sys, time
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
print('ready', flush=True)
there, _ = server.accept()
while True:
    try:
        got = there.recv(64)
    except ConnectionResetError:
        print('reset', flush=True)
        there, _ = server.accept()
        continue
    if not got:
        print('end', flush=True)
        break
    there.sendall(bytes((byte + 1) % 256 for byte in got))
    time.sleep(0.002)
";

fn served() -> (tempfile::TempDir, Program, TcpStream) {
    let directory = tempfile::tempdir().expect("a directory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    drop(listener);
    let options = ["--on-power-loss", "none", "--epoch-interval", "60min"];
    let command = ["python3", "-c", SERVER, &port.to_string()];
    let mut program = Program::new(alone(), directory.path(), "server", &options, &command);
    program.run();
    assert!(program.wait_for("ready", 1), "{}", program.said());
    let client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a limit");
    (directory, program, client)
}

#[test]
fn a_client_outside_keeps_its_connection_when_the_program_is_persisted_and_killed() {
    let (_directory, mut program, mut client) = served();
    // More than has been answered when power fails: it waits in queues at both ends.
    let (mut asked, mut answered) = (0u64, 0u64);
    for life in 0..3 {
        let question: Vec<u8> = (asked..asked + 20_000).map(|n| (n % 251) as u8).collect();
        client.write_all(&question).expect("sent");
        asked += question.len() as u64;
        let mut some = [0u8; 1000];
        client.read_exact(&mut some).expect("answers");
        check(&some, &mut answered);
        program.persist_and_kill(&format!("life {life}"));
        program.run();
        // Until it is there, whatever the client sent would be answered with a reset.
        program.until("restored", |program| !program.status()["tracker"].is_null());
    }
    let mut rest = vec![0u8; (asked - answered) as usize];
    client.read_exact(&mut rest).expect("answers");
    check(&rest, &mut answered);
    drop(client);
    assert_eq!(program.wait(), 0, "{}", program.said());
    let said = program.said();
    assert!(said.contains("end") && !said.contains("reset"), "{said}");
}

fn check(answers: &[u8], answered: &mut u64) {
    for answer in answers {
        assert_eq!(u64::from(*answer), *answered % 251 + 1, "answer {answered}");
        *answered += 1;
    }
}

/// The program is killed without a word: its end of the connection is closed. What the epoch
/// knows of it is of yesterday, and must not be taken up again.
#[test]
fn a_client_outside_sees_an_end_and_the_program_a_reset_when_nobody_could_hold_the_connection() {
    let (directory, mut program, mut client) = served();
    client.write_all(&[1, 2, 3]).expect("sent");
    client.read_exact(&mut [0u8; 3]).expect("answers");
    let said = program.verb("persist", &[]);
    assert_eq!(said.code, 0, "{}", said.all());
    // After the epoch.
    client.write_all(&[4, 5, 6]).expect("sent");
    client.read_exact(&mut [0u8; 3]).expect("answers");
    program.cut(false);
    match client.read(&mut [0u8; 8]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the connection should have ended: {other:?}"),
    }
    program.run();
    let started = Instant::now();
    while !program.said().contains("reset") {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{}",
            program.said()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    // It listens where it listened.
    let peer = client.peer_addr().expect("it was connected");
    let mut again = TcpStream::connect(peer).expect("it listens");
    again.write_all(&[7]).expect("sent");
    let mut answer = [0u8];
    again.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, [8]);
    assert!(fs::exists(directory.path().join("server.store")).expect("a directory"));
}

/// A persist that fails, and one after which the program goes on, leave connections as they were.
#[test]
fn a_connection_works_on_after_a_persist_that_the_program_survives() {
    let (_directory, program, mut client) = served();
    let mut answered = 0u64;
    for then in ["continue", "continue"] {
        let said = program.verb("persist", &["--then", then]);
        assert_eq!(said.code, 0, "{}", said.all());
        let question: Vec<u8> = (answered..answered + 5000)
            .map(|n| (n % 251) as u8)
            .collect();
        client.write_all(&question).expect("sent");
        let mut answers = vec![0u8; question.len()];
        client.read_exact(&mut answers).expect("answers");
        check(&answers, &mut answered);
    }
}
