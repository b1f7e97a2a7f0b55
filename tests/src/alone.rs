//! Turns of tests that programs' PIDs or ports keep apart. Each test is a process of its own under `make test`, and
//! a thread under `cargo test`: the lock of a file holds for both.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

/// Of all tests on this machine, the one that has this.
pub struct Alone {
    _file: File,
}

/// One of several tests that can run beside each other, but beside none that must be alone.
pub struct Beside {
    _file: File,
}

fn locked(operation: FlockOperation) -> File {
    let name = format!("dormouse-tests-{}.lock", rustix::process::getuid().as_raw());
    let path = std::env::temp_dir().join(name);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    flock(&file, operation).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file
}

/// Waits for all others. To be called before a test starts anything: programs want their PIDs back, and some tests
/// take such PIDs on purpose.
pub fn alone() -> Alone {
    Alone {
        _file: locked(FlockOperation::LockExclusive),
    }
}

/// Waits for a test that must be alone. To be called before a test starts anything.
pub fn beside() -> Beside {
    Beside {
        _file: locked(FlockOperation::LockShared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_alone_waits_for_all_that_stand_each_other() {
        let (first, second) = (beside(), beside());
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            let _alone = alone();
            sender.send(()).expect("the test waits for it");
        });
        drop(first);
        assert!(receiver.try_recv().is_err());
        drop(second);
        receiver.recv().expect("its turn");
        waiting.join().expect("no panic");
    }
}
