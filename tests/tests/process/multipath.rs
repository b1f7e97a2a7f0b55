//! Multipath TCP, with which servers written in Go listen by default: the listening socket and the TCP
//! connections of ordinary clients come back; a connection of several paths is refused by name.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use dormouse_tests::alone::alone;
use dormouse_tests::program::Program;

/// Protocol number of multipath TCP.
const MPTCP: i32 = 262;

/// Serves each client in a thread: sends the protocol that the listening socket has, then each byte back.
/// It exchanges numbers with itself by TCP and, with the argument `several`, has a connection of multipath TCP, which has
/// ended with unread data with the argument `ended`.
const SERVER: &str = "
import select, socket, sys, threading, time
MPTCP = 262
server, idle = socket.socket(proto=MPTCP), socket.socket(proto=MPTCP)
server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
server.bind(('127.0.0.1', 0))
server.listen(7)
def serve(there):
    there.sendall(b'%d\\n' % server.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL))
    while True:
        got = there.recv(64)
        if not got:
            there.close()
            return
        there.sendall(got)
def accept():
    while True:
        there, _ = server.accept()
        threading.Thread(target=serve, args=(there,), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
own = socket.create_connection(server.getsockname())
own.recv(64)
if sys.argv[1] != 'one':
    idle.connect(server.getsockname())
    idle.recv(64)
if sys.argv[1] == 'ended':
    idle.sendall(b'unread')
    idle.shutdown(socket.SHUT_WR)
    poll = select.poll()
    poll.register(idle, select.POLLRDHUP)
    poll.poll()
print('port', server.getsockname()[1], flush=True)
n = 0
while True:
    own.sendall(b'%08d' % n)
    assert own.recv(8) == b'%08d' % n
    print('ok', n, idle.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL), flush=True)
    n += 1
    time.sleep(0.02)
";

/// Whether this kernel speaks it.
fn is_known() -> bool {
    // SAFETY: no memory involved; the descriptor is new and closed here.
    let known = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, MPTCP);
        fd >= 0 && libc::close(fd) == 0
    };
    if !known {
        eprintln!("skipped: this kernel has no multipath TCP, or net.mptcp.enabled is 0");
    }
    known
}

fn served(paths: &str) -> (tempfile::TempDir, Program) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = ["--on-power-loss", "none", "--epoch-interval", "60min"];
    let command = ["python3", "-c", SERVER, paths];
    let mut program = Program::new(alone(), directory.path(), "server", &options, &command);
    program.run();
    program.until("its first exchange", |program| {
        program.said().contains("\nok ")
    });
    (directory, program)
}

/// A new client's exchange with the server.
fn greets(program: &Program) {
    let said = program.said();
    let mut lines = said.lines().filter_map(|line| line.strip_prefix("port "));
    let port: u16 = lines
        .next()
        .and_then(|port| port.parse().ok())
        .expect("its port");
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a limit");
    client.write_all(b"hello").expect("sent");
    let mut answer = [0; 9];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"262\nhello");
}

#[test]
fn a_multipath_listener_and_its_tcp_connections_go_on() {
    if !is_known() {
        return;
    }
    let (_directory, mut program) = served("one");
    greets(&program);
    let said = program.verb("persist", &["--then", "kill"]);
    assert_eq!(said.code, 0, "{}", said.all());
    program.cut(true);
    let before = program.said().len();
    program.run();
    program.until("an exchange behind the restore", |program| {
        program.said()[before..]
            .lines()
            .filter(|line| line.starts_with("ok"))
            .count()
            > 1
    });
    let said = program.said().split_off(before);
    assert!(
        said.lines()
            .filter(|line| line.starts_with("ok"))
            .all(|line| line.ends_with(" 262")),
        "{said}"
    );
    greets(&program);
}

fn is_refused(paths: &str) {
    if !is_known() {
        return;
    }
    let (_directory, mut program) = served(paths);
    let said = program.verb("persist", &["--then", "kill"]);
    assert_ne!(said.code, 0, "{}", said.all());
    let reason = "connection of multipath TCP";
    assert!(said.all().contains(reason), "{}", said.all());
    let exchanges = program.said().matches("ok ").count();
    program.until("it goes on", |program| {
        program.said().matches("ok ").count() > exchanges
    });
}

#[test]
fn a_connection_of_several_paths_is_refused_by_name() {
    is_refused("several");
}

#[test]
fn an_ended_connection_of_several_paths_with_unread_data_is_refused_by_name() {
    is_refused("ended");
}
