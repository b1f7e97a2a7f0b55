//! An obstacle to a restore is named, and the refused restore leaves nothing behind; without the
//! obstacle the same state is restored.

mod common;
#[path = "common/roundtrip.rs"]
mod roundtrip;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dormouse_process::restore::{Error, Options, restore};
use dormouse_process::state::{Kernel, Tree};
use dormouse_process::store::Snapshot;
use roundtrip::{Pages, finish, persist_child, recreate, start};

const SCRIPT: &str = "\
import socket, time
data = open('data', 'r+')
server = socket.create_server(('127.0.0.1', int(open('port').read())))
print('ready', flush=True)
time.sleep(60)";

/// A persisted and killed program that has a file open and listens on a port.
fn persisted(directory: &Path) -> (Pages, Tree, u16) {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("its address").port()
    };
    fs::write(directory.join("data"), "some data").expect("data");
    fs::write(directory.join("port"), port.to_string()).expect("port");
    let mut command = Command::new("python3");
    command.current_dir(directory).args(["-c", SCRIPT]);
    let child = start(&mut command, &directory.join("output"), "ready");
    let pages = persist_child(child);
    let tree = Tree::decode(pages.description()).expect("its description");
    (pages, tree, port)
}

fn refused(pages: &Pages, tree: &Tree, options: &Options) -> Error {
    let pid = tree.processes[0].pid;
    let existed = Path::new(&format!("/proc/{pid}")).exists();
    let error = restore(tree, pages, options)
        .map(drop)
        .expect_err("it is in the way");
    if !existed {
        assert!(
            !Path::new(&format!("/proc/{pid}")).exists(),
            "a process is left behind"
        );
    }
    error
}

#[test]
fn what_is_in_the_way_is_named_and_nothing_is_left_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let (pages, tree, port) = persisted(directory.path());
    let options = Options::default();

    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let error = refused(&pages, &tree, &options).to_string();
    assert!(
        error.contains(&format!("127.0.0.1:{port}")) && error.contains("in use"),
        "{error}"
    );
    drop(listener);

    let data = directory.path().join("data");
    let aside = directory.path().join("aside");
    fs::rename(&data, &aside).expect("moved");
    let error = refused(&pages, &tree, &options).to_string();
    assert!(error.contains(&data.display().to_string()), "{error}");
    fs::rename(&aside, &data).expect("moved back");

    let mut other = tree.clone();
    other.kernel = Kernel {
        vdso_digest: 1,
        release: "5.4.0-old".to_owned(),
        ..other.kernel
    };
    let error = refused(&pages, &other, &options).to_string();
    assert!(
        error.contains("5.4.0-old") && error.contains("vdso"),
        "{error}"
    );

    let mut other = tree.clone();
    other.kernel.xstate_features |= 1 << 62;
    let error = refused(&pages, &other, &options).to_string();
    assert!(error.contains("register features"), "{error}");

    // A mapping that cannot be made: the recreated processes fail, not we.
    let mut other = tree.clone();
    other.processes[0].directory = directory.path().join("port").display().to_string();
    let error = refused(&pages, &other, &options).to_string();
    assert!(
        error.contains("enter its directory") && error.contains("Not a directory"),
        "{error}"
    );

    let restored = recreate(&pages);
    let root = restored.root;
    restored.tree.thaw();
    let error = refused(&pages, &tree, &options).to_string();
    assert!(
        error.contains(&format!("PID {root} is taken by python3")),
        "{error}"
    );
    assert_eq!(finish(root, Duration::ZERO), None, "it was running");

    fs::write(&data, "other data").expect("written");
    let error = refused(&pages, &tree, &options);
    assert!(
        matches!(&error, Error::Changed { path, .. } if *path == data.display().to_string()),
        "{error}"
    );
    let accept = Options {
        accept_changed_files: true,
        ..Options::default()
    };
    let restored = restore(&tree, &pages, &accept).expect("the change is accepted");
    restored.tree.kill();
}
