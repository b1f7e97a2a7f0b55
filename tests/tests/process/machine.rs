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
