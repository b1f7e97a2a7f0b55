//! A tracked program in the lab's machine, on the distribution's own kernel: the machine loses
//! power without a warning, boots again, and the program continues from its last epoch.

use dormouse_tests::{Said, dormouse, machine_folder};

const RUN: &str = r#"
run() {
    (setsid dormouse process run cache --store /root/store --on-power-loss none \
        --epoch-interval 500ms -- redis-server --save "" --port 7001 >>/root/log 2>&1 &)
    for try in $(seq 240); do
        redis-cli -p 7001 ping 2>/dev/null | grep -q PONG && return
        sleep .5
    done
    cat /root/log >&2
    exit 1
}
# The tracker has no socket before redis runs, and a number that is missing is no number of epochs.
epochs() {
    until count=$(dormouse process status cache --store /root/store --json |
        grep -o '"epochs": *[0-9]*' | tr -dc 0-9) && [ -n "$count" ]; do
        sleep .2
    done
    echo "$count"
}
"#;

/// Numbers that no other program of the next boot has when the program wants them back.
const UNTIL_POWER_FAILS: &str = r#"
echo 5000 >/proc/sys/kernel/ns_last_pid
run
for key in $(seq 500); do echo "set key$key $((key * key))"; done | redis-cli -p 7001 >/dev/null
pgrep -x redis-server >/root/pid
sync
before=$(epochs)
while [ "$(epochs)" -lt $((before + 2)) ]; do sleep .2; done
redis-cli -p 7001 set late maybe
# No file system is asked before.
echo o >/proc/sysrq-trigger
sleep 1000
"#;

const AFTER_THE_BOOT: &str = r#"
run
echo "was $(cat /root/pid), is $(pgrep -x redis-server)"
echo "keys $(redis-cli -p 7001 dbsize)"
echo "last $(redis-cli -p 7001 get key500)"
redis-cli -p 7001 set another one
echo "tracking $(dormouse process status cache --store /root/store --json |
    grep -o '"tracking": *"[a-z-]*"' | cut -d'"' -f4)"
dormouse process persist cache --store /root/store --then kill || exit
while pgrep -x "redis-server|dormouse"; do sleep .2; done
dormouse process verify cache --store /root/store
"#;

fn boot(folder: &str, script: &str) -> Said {
    let script = [RUN, script].concat();
    let words = ["lab", "boot", "--keep", "--machine", folder, "--command"];
    dormouse(&[&words[..], &[&script]].concat())
}

#[test]
#[ignore = "make test-full: it boots a machine twice; programs are killed at any instant on the host, and make test-kernels does this on each kernel"]
fn a_program_goes_on_after_the_machine_lost_power_without_a_warning() {
    let folder = machine_folder("process-machine");
    let folder = folder.to_str().expect("a path");
    let said = boot(folder, UNTIL_POWER_FAILS);
    assert!(said.all().contains("switched itself off"), "{}", said.all());
    let said = boot(folder, AFTER_THE_BOOT);
    assert_eq!(said.code, 0, "{}", said.all());
    let line = |word: &str| {
        let mut lines = said.stdout.lines();
        let rest = lines.find_map(|line| line.strip_prefix(word));
        rest.unwrap_or_else(|| panic!("no {word:?} in {}", said.all()))
    };
    let (was, is) = line("was ").split_once(", is ").expect("two numbers");
    assert_eq!(was, is, "{}", said.all());
    let keys: u32 = line("keys ").parse().expect("a number");
    // The last one was written after the newest epoch, perhaps.
    assert!(keys == 500 || keys == 501, "{}", said.all());
    assert_eq!(line("last "), "250000", "{}", said.all());
    // What the tracker tries at its start works on this kernel, too.
    assert_eq!(line("tracking "), "write-protect", "{}", said.all());
    assert!(
        said.stdout.lines().any(|line| line == "OK"),
        "{}",
        said.all()
    );
}

/// Three programs that write files and close them, new ones and old ones, in place as well, and sync none:
/// one that is persisted and killed, one with background epochs that is idle by then, and one whose directory
/// is compared as a whole. They check what they have written before they write again.
const WRITERS: &str = r#"
# Without programs besides: a fork takes long where everything is emulated.
CHECK='if [ $n != 0 ]; then
    read a <new.$n; read b <closed; while read d; do c=$d; done <longer
    [ "$a $b $c" = "$n $n $n" ] || echo "LOST $n"
fi'
WRITE='n=$((n+1)); echo $n >new.$n; echo $n >closed; printf %06d $n 1<>inplace; echo $n >>longer; echo "wrote $n"'
ON="n=0; while :; do $CHECK; $WRITE; sleep .1; done"
IDLE="n=0; while [ \$n -lt 30 ]; do $CHECK; $WRITE; done; while :; do $CHECK; sleep .1; echo idle; done"
start() {
    name=$1 words=$2
    shift 2
    (cd /root/$name && exec setsid dormouse process run $name --store /root/store --on-power-loss none "$@" \
        -- sh -c "$words") >>/root/$name.log 2>&1 &
    until grep -q "$SAYS" /root/$name.log; do
        grep -q "^dormouse: " /root/$name.log && cat /root/$name.log && exit 1
        sleep .2
    done
}
all() {
    start busy "$ON" --epoch-interval 1h
    start idle "$IDLE" --epoch-interval 500ms
    start kept "$ON" --epoch-interval 1h --data /root/kept
}
"#;

const WRITE: &str = r#"
echo 5000 >/proc/sys/kernel/ns_last_pid
for name in busy idle kept; do
    mkdir /root/$name
    dd if=/dev/zero of=/root/$name/inplace bs=4096 count=16 2>/dev/null
done
sync
SAYS='wrote 30'
all
epochs() {
    dormouse process status idle --store /root/store --json | grep -o '"epochs": *[0-9]*' | tr -dc 0-9
}
SAYS=idle
until grep -q idle /root/idle.log; do sleep .2; done
before=$(epochs)
while [ "$(epochs)" -lt $((before + 2)) ]; do sleep .2; done
for name in busy kept; do dormouse process persist $name --store /root/store --then kill || exit 1; done
echo o >/proc/sysrq-trigger
sleep 1000
"#;

const GO_ON: &str = r#"
for name in busy idle kept; do echo "=" >/root/$name.log; done
SAYS='wrote [0-9]\|idle'
all
grep -h -m 1 wrote /root/busy.log /root/kept.log
for name in busy idle kept; do
    until [ "$(grep -c "$SAYS" /root/$name.log)" -ge 3 ]; do sleep .2; done
    grep LOST /root/$name.log
done
true
"#;

#[test]
fn files_that_a_program_wrote_before_its_epoch_are_as_they_were_after_the_power_was_cut() {
    let folder = machine_folder("process-files");
    let folder = folder.to_str().expect("a path");
    let boot = |script: &str| {
        let script = [WRITERS, script].concat();
        let words = ["lab", "boot", "--keep", "--machine", folder, "--command"];
        dormouse(&[&words[..], &[&script]].concat())
    };
    let said = boot(WRITE);
    assert!(said.all().contains("switched itself off"), "{}", said.all());
    let said = boot(GO_ON);
    assert_eq!(said.code, 0, "{}", said.all());
    assert!(!said.stdout.contains("LOST"), "{}", said.all());
    // They go on where they were, and do not begin again.
    let numbers = said
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("wrote "));
    let numbers: Vec<u32> = numbers
        .map(|number| number.parse().expect("a number"))
        .collect();
    assert_eq!(numbers.len(), 2, "{}", said.all());
    assert!(numbers.iter().all(|number| *number > 30), "{}", said.all());
}

const WITHOUT_A_LIST_OF_SOCKETS: &str = r#"
cat >/root/program.py <<END
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 7002))
s.connect(("127.0.0.1", 7003))
s.shutdown(socket.SHUT_WR)
while True:
    try:
        s.send(b"x")
        print("sent", flush=True)
    except BrokenPipeError:
        print("shut down", flush=True)
    time.sleep(.1)
END
start() {
    (exec setsid dormouse process run udp --store /root/store --on-power-loss none --epoch-interval 1h \
        -- python3 /root/program.py >>/root/log 2>&1) &
}
says_more() {
    lines=$(wc -l </root/log)
    until [ "$(wc -l </root/log)" -gt "$lines" ]; do sleep .2; done
}
>/root/log
rmmod udp_diag
start
says_more
dormouse process persist udp --store /root/store --then kill 2>&1
echo "without the module: $?"
says_more
insmod /run/dormouse/modules/udp_diag.ko
dormouse process persist udp --store /root/store --then kill || exit 1
start
says_more
cat /root/log
"#;

#[test]
fn a_udp_socket_of_which_the_kernel_does_not_tell_enough_is_named_and_the_program_runs_on() {
    let said = dormouse(&["lab", "boot", "--command", WITHOUT_A_LIST_OF_SOCKETS]);
    assert_eq!(said.code, 0, "{}", said.all());
    let refused =
        "a UDP socket, and the kernel does not tell which directions are shut down (udp_diag)";
    assert!(said.stdout.contains(refused), "{}", said.all());
    assert!(
        said.stdout.contains("without the module: 1"),
        "{}",
        said.all()
    );
    // With the module it comes back as it was.
    assert!(said.stdout.contains("shut down"), "{}", said.all());
    assert!(!said.stdout.contains("sent"), "{}", said.all());
}

/// Fills memory, protects it from everything, and prints a digest before it and when it is asked to after it.
const PROTECTED: &str = r#"
cat >/root/program.py <<END
import ctypes, hashlib, mmap, os, random, time
memory = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(random.Random(1).randbytes(len(memory)))
print(hashlib.sha256(memory).hexdigest(), flush=True)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
mprotect = ctypes.CDLL(None, use_errno=True).mprotect
mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
assert mprotect(address, len(memory), 0) == 0
open("/root/protected", "w").close()
while not os.path.exists("/root/show"):
    time.sleep(.1)
assert mprotect(address, len(memory), mmap.PROT_READ) == 0
print(hashlib.sha256(memory).hexdigest(), flush=True)
END
run() {
    setsid dormouse process run protected --store /root/store --on-power-loss none --epoch-interval 1h \
        -- python3 /root/program.py >>/root/log 2>&1
}
run >/dev/null 2>&1 &
until [ -e /root/protected ]; do sleep .2; done
dormouse process persist protected --store /root/store --rehearse || exit 1
dormouse process persist protected --store /root/store --then kill || exit 1
wait
touch /root/show
run
cat /root/log
"#;

#[test]
fn memory_that_only_a_tracer_may_read_comes_back() {
    let tracer = ["--cmdline", "proc_mem.force_override=ptrace"];
    let words = ["lab", "boot", "--command", PROTECTED];
    let said = dormouse(&[&words[..], &tracer].concat());
    assert_eq!(said.code, 0, "{}", said.all());
    let digests: Vec<_> = said
        .stdout
        .lines()
        .filter(|line| line.len() == 64)
        .collect();
    assert_eq!(digests.len(), 2, "{}", said.all());
    assert_eq!(digests[0], digests[1], "{}", said.all());
}
