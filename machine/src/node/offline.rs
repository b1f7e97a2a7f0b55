//! Takes a node's memory blocks offline. The kernel moves what is left on a block to other nodes
//! itself, and tries for ever where that is impossible: each try has a time limit, and a request
//! to stop ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use dormouse_system::Root;

use crate::node::{self, CxlNode};
use crate::options::Cancel;

/// For one block of one try. A block of 128 MiB full of pages takes well under a second.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(20);
/// Blocks with pages that are busy at first.
const TRIES: usize = 3;

/// Takes all blocks offline, the highest first; returns how many are still online.
pub fn node_offline(root: &Root, cxl: &CxlNode, cancel: &Cancel) -> usize {
    for attempt in 0..TRIES {
        let online = online_blocks(root, cxl);
        if online.is_empty() {
            return 0;
        }
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut failed = 0;
        for block in online.iter().rev() {
            if cancel.is_set() {
                break;
            }
            failed += usize::from(!block_offline(root, block, cancel));
        }
        if cancel.is_set() || failed == 0 {
            break;
        }
    }
    online_blocks(root, cxl).len()
}

/// The blocks of the node that are online.
pub fn online_blocks(root: &Root, cxl: &CxlNode) -> Vec<String> {
    node::blocks(root, cxl)
        .into_iter()
        .filter(|block| node::is_online(root, block))
        .collect()
}

/// One block, with a time limit: the write runs in a thread of its own, and a signal to that
/// thread makes the kernel give up (it checks for one between its tries).
fn block_offline(root: &Root, block: &str, cancel: &Cancel) -> bool {
    let deadline = Instant::now() + BLOCK_TIMEOUT;
    let thread_id = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let thread_id = &thread_id;
        scope.spawn(move || {
            thread_id.store(
                rustix::thread::gettid().as_raw_nonzero().get(),
                Ordering::Release,
            );
            let _ = sender.send(root.write(&node::block_path(block), "offline").is_ok());
        });
        loop {
            match receiver.recv_timeout(Duration::from_millis(50)) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if cancel.is_set() || Instant::now() >= deadline {
                interrupt(thread_id.load(Ordering::Acquire));
            }
        }
    })
}

/// Sends SIGALRM, for which a handler that does nothing is installed, to one of our threads.
fn interrupt(thread_id: i32) {
    static HANDLER: std::sync::Once = std::sync::Once::new();
    HANDLER.call_once(|| {
        let unused = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(signal_hook::consts::SIGALRM, unused);
    });
    if thread_id > 0 {
        // SAFETY: plain system call; the thread is one of this process and alive, because its
        // scope has not ended.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread_id, libc::SIGALRM) };
    }
}
