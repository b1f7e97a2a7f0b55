//! Sockets whose files have another name than the one that they were bound to: services bind to a name of
//! their own and rename the file over the one of their predecessor.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use dormouse_tests::program::Program;

/// Two listening sockets: one was renamed, one was renamed over another file, and its old name is taken by
/// the first one's successor. Each answers with its own name.
const SCRIPT: &str = "
import os, select, socket, sys
here = sys.argv[1]
def listen(name):
    made = socket.socket(socket.AF_UNIX)
    made.bind(f'{here}/{name}')
    made.listen()
    return made
sockets = {}
for name in ('first', 'second'):
    # The former file of the name is replaced.
    open(f'{here}/{name}', 'w').close()
    sockets[listen('new')] = name
    os.rename(f'{here}/new', f'{here}/{name}')
os.chmod(f'{here}/second', 0o640)
sockets[listen('new')] = 'new'
gone = listen('gone')
os.unlink(f'{here}/gone')
print('ready', flush=True)
while True:
    for listener in select.select(list(sockets), [], [])[0]:
        peer, _ = listener.accept()
        peer.sendall(sockets[listener].encode())
        peer.close()
";

fn answer(path: &Path) -> String {
    let mut peer = UnixStream::connect(path)
        .unwrap_or_else(|error| panic!("{} cannot be reached: {error}", path.display()));
    let mut text = String::new();
    peer.read_to_string(&mut text).expect("an answer");
    text
}

/// The program, and the folder of its sockets.
fn listening(directory: &Path, interval: &str) -> (Program, PathBuf) {
    let sockets = directory.join("sockets");
    fs::create_dir(&sockets).expect("made");
    let place = sockets.display().to_string();
    let mut program = Program::script(directory, interval, SCRIPT, &[&place]);
    program.run();
    assert!(program.wait_for("ready", 1), "{}", program.said());
    (program, sockets)
}

#[test]
fn a_unix_socket_that_was_renamed_answers_at_its_new_name() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let (mut program, sockets) = listening(directory.path(), "100ms");
    for life in 0..3 {
        for name in ["first", "second", "new"] {
            assert_eq!(answer(&sockets.join(name)), name, "life {life}");
        }
        let mut names: Vec<_> = fs::read_dir(&sockets)
            .expect("there")
            .map(|entry| entry.expect("readable").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["first", "new", "second"], "life {life}");
        let second = fs::metadata(sockets.join("second")).expect("there");
        assert_eq!(second.permissions().mode() & 0o777, 0o640, "life {life}");
        assert_eq!(second.uid(), 0);
        if life == 0 {
            program.persist_and_kill("persist");
        } else {
            program.until_epoch();
            program.cut(false);
        }
        program.run();
        // Its sockets are there by then.
        program.until("it runs", |program| {
            program.status()["tracker"]["epochs"].as_u64().is_some()
        });
    }
}

#[test]
fn another_program_at_the_name_of_a_renamed_socket_is_named_and_stays() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let (mut program, sockets) = listening(directory.path(), "1h");
    program.persist_and_kill("persist");
    let path = sockets.join("second");
    fs::remove_file(&path).expect("removed");
    let other = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    let said = program.refused(&[]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(
        said.stderr.contains(&path.display().to_string()),
        "{}",
        said.all()
    );
    UnixStream::connect(&path).expect("the other program's is there");
    drop(other);
    program.run();
    program.until("it runs", |program| {
        program.status()["tracker"]["epochs"].as_u64().is_some()
    });
    assert_eq!(answer(&path), "second");
}
