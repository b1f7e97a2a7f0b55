//! Tests of the encoding and of its checks.

use proptest::prelude::*;

use super::*;
use crate::store::SpaceId;

fn thread(tid: i32) -> Thread {
    Thread {
        tid,
        name: b"redis-server".to_vec(),
        registers: Registers::from_user(
            // SAFETY: plain integers.
            &unsafe { std::mem::zeroed::<libc::user_regs_struct>() },
        ),
        xstate: vec![1, 2, 3],
        xstate_bytes: 2696,
        blocked: 0x1_0000,
        pending: vec![SignalInfo(vec![7; 128])],
        alternate_stack: (0x7f00_0000_0000, 0, 8192),
        robust_list: (0x7f00_0000_1000, 24),
        clear_tid: 0x7f00_0000_2000,
        rseq: (0x7f00_0000_3000, 32, 0x5305_3053),
        credentials: Credentials {
            users: [1000; 4],
            groups: [1000; 4],
            supplementary: vec![4, 24],
            capabilities: [0, 0, 0, u64::MAX >> 23, 0],
            securebits: 0,
            no_new_privileges: true,
        },
        scheduling: Scheduling {
            policy: 0,
            flags: 0,
            nice: 5,
            priority: 0,
            deadline_ns: [0; 3],
            affinity: vec![],
            io_priority: 0,
        },
        parent_death_signal: 0,
        restrictions: Restrictions {
            strict: false,
            filters: vec![0],
        },
        settings: Settings::default(),
    }
}

fn process(pid: i32, parent: i32) -> Process {
    Process {
        group: pid,
        login_user: Some(u32::MAX),
        space: SpaceId(pid as u32),
        auxv: vec![(33, 0x7fff_0000_0000)],
        umask: 0o22,
        limits: vec![(u64::MAX, u64::MAX); 16],
        actions: vec![Action {
            signal: 15,
            handler: 0x5555,
            flags: 0,
            restorer: 0,
            mask: 0,
        }],
        mappings: vec![
            Mapping {
                start: 0x1000,
                end: 0x3000,
                protection: 1,
                shared: false,
                backing: Backing::Image {
                    image: 0,
                    writable: false,
                },
                offset: 0,
                advice: 0,
                huge_page_bytes: 0,
                name: None,
            },
            Mapping {
                start: 0x3000,
                end: 0x9000,
                protection: 3,
                shared: true,
                backing: Backing::Object(0),
                offset: 0x1000,
                advice: advice::DONT_FORK,
                huge_page_bytes: 0,
                name: None,
            },
        ],
        descriptors: vec![Descriptor {
            number: 0,
            close_on_exec: false,
            file: 0,
        }],
        threads: vec![thread(pid), thread(pid + 1)],
        ..Process::empty(pid, parent)
    }
}

fn socket(peer: u32) -> Socket {
    Socket {
        family: libc::AF_UNIX,
        kind: libc::SOCK_STREAM,
        protocol: 0,
        state: SocketState::Pair(peer),
        directory: String::new(),
        address: vec![],
        options: vec![(1, 9, vec![1, 0, 0, 0])],
        received: vec![b"half a message".to_vec()],
        passed: vec![(0, vec![0])],
        shutdown: 0,
        detached: false,
        connected_to: None,
        absent: false,
    }
}

fn tree() -> Tree {
    Tree {
        clocks: Clocks {
            monotonic_ns: 1,
            boottime_ns: 2,
            realtime_ns: 3,
        },
        kernel: Kernel {
            release: "6.12".to_owned(),
            vdso_digest: 9,
            xstate_features: 7,
        },
        parent: 99,
        processes: vec![process(100, 0), process(110, 100)],
        files: vec![File {
            kind: FileKind::Image(0),
            flags: 2,
            position: 77,
            owner: (0, 0, 0),
            lock: None,
            records: vec![],
            lease: Some(Lease::WriteToRead),
        }],
        written: vec![Image {
            path: "/var/lib/it/base".to_owned(),
            bytes: 10,
            modified_ns: 5,
            mode: 0o100_600,
            device: 0,
        }],
        images: vec![Image {
            path: "/bin/sh".to_owned(),
            bytes: 1 << 17,
            modified_ns: 5,
            mode: 0o100_755,
            device: 0,
        }],
        objects: vec![Object {
            attributes: vec![(b"user.a".to_vec(), b"v".to_vec())],
            space: SpaceId(9),
            bytes: 0x8000,
            kind: ObjectKind::SharedAnonymous,
        }],
        pipes: vec![Pipe {
            content: b"x".to_vec(),
            capacity: 65536,
            path: None,
        }],
        sockets: vec![socket(1), socket(0)],
        dead: vec![4711],
        filters: vec![Filter {
            instructions: vec![6],
            log: true,
        }],
        ghosts: vec![Ghost {
            path: "/var/tmp/gone".to_owned(),
            kind: GhostKind::Link("/elsewhere".to_owned()),
            mode: 0o777,
            owner: (1, 2),
        }],
        rings: vec![Ring {
            head: 1,
            unread: vec![[1, 2, 3, 4]],
        }],
        urings: Vec::new(),
        semaphores: Vec::new(),
        queues: Vec::new(),
        posix_queues: Vec::new(),
        terminals: Vec::new(),
        data: vec![Data {
            path: "/data".to_owned(),
            digest: 11,
        }],
    }
}

#[test]
fn what_is_decoded_is_what_was_encoded() {
    let tree = tree();
    assert_eq!(
        Tree::decode(&tree.encode()).expect("its own encoding"),
        tree
    );
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = tree().encode();
    bytes[4] = 99;
    let error = Tree::decode(&bytes)
        .expect_err("another version")
        .to_string();
    assert!(error.contains("version 99"), "{error}");
}

#[test]
fn a_description_that_is_cut_or_longer_is_refused() {
    let bytes = tree().encode();
    for length in 0..bytes.len() {
        assert!(
            Tree::decode(&bytes[..length]).is_err(),
            "cut to {length} bytes"
        );
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(matches!(
        Tree::decode(&longer),
        Err(DecodeError::Trailing(1))
    ));
}

/// One field at a time is made wrong; each must be refused.
#[test]
fn a_description_that_contradicts_itself_is_refused() {
    type Wrong = (&'static str, fn(&mut Tree));
    let wrongs: Vec<Wrong> = vec![
        ("no process", |tree| tree.processes.clear()),
        ("pid 0", |tree| tree.processes[0].pid = 0),
        ("pid twice", |tree| tree.processes[1].pid = 100),
        ("tid twice", |tree| tree.processes[1].threads[1].tid = 100),
        ("a huge tid", |tree| {
            tree.processes[1].threads[1].tid = i32::MAX
        }),
        ("parent after child", |tree| tree.processes[0].parent = 110),
        ("no main thread", |tree| tree.processes[0].threads.clear()),
        ("executable", |tree| tree.processes[0].executable = 1),
        ("relative directory", |tree| {
            tree.processes[0].directory = "tmp".to_owned()
        }),
        ("mapping not on a page", |tree| {
            tree.processes[0].mappings[0].start += 1
        }),
        ("mapping without length", |tree| {
            tree.processes[0].mappings[0].end = 0x1000
        }),
        ("mappings overlap", |tree| {
            tree.processes[0].mappings[0].end = 0x4000
        }),
        ("mapping in the kernel", |tree| {
            tree.processes[0].mappings[1].end = 1 << 63
        }),
        ("offset wraps", |tree| {
            tree.processes[0].mappings[1].offset = !0xfff
        }),
        ("no such object", |tree| {
            tree.processes[0].mappings[1].backing = Backing::Object(3)
        }),
        ("no such file", |tree| {
            tree.processes[0].descriptors[0].file = 1
        }),
        ("negative descriptor", |tree| {
            tree.processes[0].descriptors[0].number = -1
        }),
        ("no such image", |tree| {
            tree.files[0].kind = FileKind::Image(4)
        }),
        ("not a peer", |tree| {
            tree.sockets[1].state = SocketState::Pair(1)
        }),
        ("no such peer", |tree| {
            tree.sockets[1].state = SocketState::Pair(7)
        }),
        ("signal 65", |tree| tree.processes[0].actions[0].signal = 65),
        ("short siginfo", |tree| {
            tree.processes[0].threads[0].pending[0].0.truncate(3)
        }),
        ("xsave area", |tree| {
            tree.processes[0].threads[0].xstate_bytes = 2
        }),
        ("fs base in the kernel", |tree| {
            tree.processes[0].threads[0].registers.fs_base = 1 << 63
        }),
        ("a full pipe", |tree| tree.pipes[0].capacity = 0),
        ("brk in the kernel", |tree| {
            tree.processes[0].layout.brk = 1 << 63
        }),
    ];
    for (what, make_wrong) in wrongs {
        let mut wrong = tree();
        make_wrong(&mut wrong);
        let decoded = Tree::decode(&wrong.encode());
        assert!(
            matches!(decoded, Err(DecodeError::Invalid(_))),
            "{what}: {decoded:?}"
        );
    }
}

proptest! {
    #[test]
    fn random_bytes_never_make_the_decoder_fail_other_than_with_an_error(
        body in proptest::collection::vec(any::<u8>(), 0..4096),
    ) {
        let mut bytes = b"DMPT\x01\x00".to_vec();
        bytes.extend(body);
        let _ = Tree::decode(&bytes);
    }

    #[test]
    fn a_changed_description_is_refused_or_holds_all_promises(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = tree().encode();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(tree) = Tree::decode(&bytes) {
            prop_assert!(check::validate(&tree).is_ok());
        }
    }
}

/// A tree with a ring of io_uring behind its one file, which its second mapping maps.
fn with_ring() -> Tree {
    let mut tree = tree();
    tree.urings.push(IoUring {
        flags: 0,
        sq_entries: 8,
        cq_entries: 16,
        taken: 5,
        completed: 5,
        unread: 1,
        skips: false,
        clock: 1,
        queues: vec![0; 4096],
        entries: vec![0; 4096],
    });
    tree.files[0].kind = FileKind::Uring(0);
    tree.processes[0].mappings[1].backing = Backing::Uring(0);
    tree
}

#[test]
fn a_ring_that_contradicts_itself_is_refused() {
    let whole = with_ring();
    assert_eq!(Tree::decode(&whole.encode()).expect("a good one"), whole);
    type Damage = (&'static str, fn(&mut Tree));
    let damages: [Damage; 9] = [
        ("size", |tree| tree.urings[0].sq_entries = 7),
        ("size", |tree| tree.urings[0].cq_entries = 1 << 20),
        ("size", |tree| tree.urings[0].queues.truncate(4095)),
        ("size", |tree| tree.urings[0].entries = vec![0; 16 << 20]),
        ("room", |tree| tree.urings[0].unread = 17),
        ("exactly one description", |tree| {
            tree.files[0].kind = FileKind::Image(0)
        }),
        ("exactly one description", |tree| {
            tree.files.push(tree.files[0].clone());
        }),
        ("io_uring 3", |tree| {
            tree.processes[0].mappings[1].backing = Backing::Uring(3);
        }),
        ("io_uring 4", |tree| {
            let mut file = tree.files[0].clone();
            file.kind = FileKind::Uring(4);
            tree.files.push(file);
        }),
    ];
    for (word, damage) in damages {
        let mut tree = whole.clone();
        damage(&mut tree);
        let error = Tree::decode(&tree.encode()).expect_err(word).to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}
