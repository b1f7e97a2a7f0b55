//! Describing a program changes nothing in it.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Killed;
use dormouse_process::capture::{AdviceCache, Options, capture};
use dormouse_process::memory;
use dormouse_process::ptrace::FrozenTree;
use dormouse_process::state::{Backing, Tree};
use dormouse_process::store::SpaceId;

/// Runs a script until it says that it is ready.
fn python(script: &str) -> Killed {
    let mut command = Command::new("python3");
    command
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = Killed(command.spawn().expect("python"));
    let mut line = String::new();
    let output = child.0.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child
}

/// Every private writable page of a process, by mapping.
fn memory_of(pid: i32, tree: &Tree) -> Vec<(u64, Vec<u8>)> {
    tree.processes[0]
        .mappings
        .iter()
        .filter(|mapping| mapping.protection & 2 != 0 && mapping.backing == Backing::Anonymous)
        .map(|mapping| {
            let mut bytes = vec![0u8; (mapping.end - mapping.start) as usize];
            let got = memory::read(pid, mapping.start, &mut bytes).unwrap_or(0);
            bytes.truncate(got);
            // The kernel notes the CPU there whenever a thread leaves it.
            for thread in &tree.processes[0].threads {
                let (rseq, length, _) = thread.rseq;
                if mapping.start <= rseq && rseq < mapping.end {
                    let at = (rseq - mapping.start) as usize;
                    bytes[at..at + length as usize].fill(0);
                }
            }
            (mapping.start, bytes)
        })
        .collect()
}

#[test]
fn a_description_is_complete_and_its_making_leaves_no_trace() {
    let script = "import threading,time,signal\n\
                  signal.signal(signal.SIGUSR1, lambda *a: None)\n\
                  [threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(4)]\n\
                  print('ready', flush=True);time.sleep(60)";
    let child = python(script);
    let mut advice = AdviceCache::default();
    let mut before = Vec::new();
    let mut last: Option<Tree> = None;
    for round in 0..5 {
        let started = Instant::now();
        let mut frozen = FrozenTree::freeze(&[child.pid()]).expect("frozen");
        let stopped = started.elapsed();
        if let Some(tree) = &last {
            before = memory_of(child.pid(), tree);
        }
        let started = Instant::now();
        let captured = capture(
            &mut frozen,
            Options {
                space_of: &|_| SpaceId(1),
                object_space: &mut |_, _| SpaceId(2),
                advice: &mut advice,
                keep_connections: false,
                data: &[],
                stopped_by_us: false,
                settle_limit: Duration::ZERO,
                cgroups: None,
            },
        )
        .expect("described");
        eprintln!(
            "round {round}: stopped in {stopped:?}, described in {:?}",
            started.elapsed()
        );
        if last.is_some() {
            assert!(
                memory_of(child.pid(), &captured.tree) == before,
                "its memory has changed"
            );
        }
        let tree = captured.tree;
        let process = &tree.processes[0];
        assert_eq!(process.pid, child.pid());
        assert_eq!(process.threads.len(), 5);
        assert!(
            process
                .actions
                .iter()
                .any(|action| i32::from(action.signal) == libc::SIGUSR1)
        );
        assert!(
            process
                .threads
                .iter()
                .all(|thread| thread.rseq.0 != 0 && thread.clear_tid != 0)
        );
        assert_eq!(Tree::decode(&tree.encode()).expect("its encoding"), tree);
        last = Some(tree);
        frozen.thaw();
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Each program has one thing that cannot be restored, and is refused by its name.
#[test]
fn what_cannot_be_restored_is_refused_by_name() {
    let programs: HashMap<&str, &str> = HashMap::from([
        (
            "packet filter",
            "import socket,struct,ctypes,time\n\
          s=socket.socket(socket.AF_INET,socket.SOCK_STREAM)\n\
          b=ctypes.create_string_buffer(struct.pack('HBBI',6,0,0,0xffff))\n\
          s.setsockopt(1,26,struct.pack('HL',1,ctypes.addressof(b)))\n\
          print('ready', flush=True);time.sleep(60)",
        ),
        (
            "pseudo-terminal with unread input or output",
            "import os,time;m,s=os.openpty();os.write(m,b'x\\n');print('ready', flush=True);time.sleep(60)",
        ),
    ]);
    for (name, program) in programs {
        let child = python(program);
        let mut frozen = FrozenTree::freeze(&[child.pid()]).expect("frozen");
        let result = capture(
            &mut frozen,
            Options {
                space_of: &|_| SpaceId(1),
                object_space: &mut |_, _| SpaceId(2),
                advice: &mut AdviceCache::default(),
                keep_connections: false,
                data: &[],
                stopped_by_us: false,
                settle_limit: Duration::ZERO,
                cgroups: None,
            },
        );
        let message = result.map(drop).expect_err(name).to_string();
        assert!(message.contains(name), "{name}: {message}");
        assert!(
            message.contains(&format!("process {}", child.pid())),
            "{message}"
        );
        assert!(message.contains("not supported"), "{message}");
        frozen.thaw();
    }
}
