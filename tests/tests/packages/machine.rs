//! A user's week with the packages, in the emulated machine under systemd: install, sleep by
//! `systemctl suspend`, keep a service through a power cut, upgrade, remove, purge.

use super::built::{Packages, built, newer};
use super::chroot::{difference, list_files};
use super::debian_machine::DebianMachine;

/// Waits until a line of shell succeeds.
const WAIT: &str =
    "until_ok() { for try in $(seq 600); do \"$@\" && return; sleep 1; done; exit 1; }";
/// PIDs and data of the service, as its client sees them.
const SERVICE: &str = "echo pid $(pgrep -x redis-server) keys $(redis-cli -p 7001 dbsize) \
     last $(redis-cli -p 7001 get key500)";
const CACHE_CONF: &str = "COMMAND=/usr/bin/setpriv --reuid=redis --regid=redis --clear-groups \
     /usr/bin/redis-server --port 7001 --save '' --dir /var/lib/redis\n\
     OPTIONS=--epoch-interval 1s\nDORMOUSE_ON_POWER_LOSS=none\n";

fn mount_packages(machine: &mut DebianMachine) {
    machine.run("mount -o ro /dev/disk/by-id/virtio-dormouse-scratch /mnt");
}

fn install(machine: &mut DebianMachine, packages: &Packages) {
    // This machine starts from its flash image, so nothing would read the initial RAM disk that each
    // step makes anew for minutes. The chroot's test has it, and the one of stock firmware boots it.
    machine.run(
        "sed -i 's/^update_initramfs=.*/update_initramfs=no/' /etc/initramfs-tools/update-initramfs.conf",
    );
    machine.run("cd /mnt/first && apt-get install -y ./dormouse_*.deb ./dormouse-dkms_*.deb");
    let kernel = machine.run("uname -r");
    let version = packages.version();
    let status = machine.run("dkms status");
    let installed = format!("dormouse/{version}, {kernel}, x86_64: installed");
    assert!(status.contains(&installed), "{status}");
    // No unit is enabled, and all of them are right.
    let enabled = "systemctl list-unit-files --no-legend --state=enabled 'dormouse*' || true";
    assert_eq!(machine.run(enabled), "");
    let verified = machine.run(
        "systemd-analyze verify --man=no /lib/systemd/system/dormouse-*.service 2>&1 | grep dormouse || true",
    );
    assert_eq!(verified, "");
}

/// Waits until a unit has run and ended well.
///
/// By what systemd wrote into the journal: a unit that has ended well and that no active unit needs
/// is forgotten at once, and `systemctl show` prints the defaults of one that has never run.
fn wait_for_end(machine: &mut DebianMachine, unit: &str) {
    const SUCCEEDED: &str = "MESSAGE_ID=7ad2d189f7e94e70a38c781354912448";
    const FAILED: &str = "MESSAGE_ID=d9b373ed55a64feb8242e02dbe79a49c";
    let entries = format!("journalctl --boot --quiet --output cat UNIT={unit}");
    machine.run(&format!(
        "ended() {{ {entries} {SUCCEEDED} {FAILED} | grep .; }}; {WAIT}; until_ok ended"
    ));
    let failures = machine.run(&format!("{entries} {FAILED}"));
    let journal = machine.run(&format!("journalctl --boot --quiet --unit {unit}"));
    assert_eq!(failures, "", "{journal}");
}

/// Memory, processes and files that no boot would bring back are as before the sleep.
fn sleeps_and_wakes(machine: &mut DebianMachine) {
    machine.run("modprobe -a dormouse dax_hmem device_dax kmem");
    machine.run("systemctl enable dormouse-suspend.service dormouse-home.service");
    machine.run("head -c 100M /dev/urandom >/dev/shm/data");
    machine.run("systemd-run --unit=counter sh -c 'i=0; while :; do i=$((i+1)); echo $i >/run/counter; sleep 1; done'");
    let state = "cat /proc/sys/kernel/random/boot_id; sha256sum /dev/shm/data; \
                 systemctl show -P MainPID counter; systemctl show -P MainPID systemd-journald";
    let before = machine.run(state);
    let doctor = machine.run("dormouse doctor sleep || true");
    eprintln!("{doctor}");
    machine.suspend();
    machine.wake();
    assert_eq!(machine.run(state), before);
    let count: u64 = machine.run("cat /run/counter").parse().expect("a number");
    machine.run(&format!(
        "{WAIT}; until_ok sh -c 'test $(cat /run/counter) -gt {count}'"
    ));
    // systemd saw its own suspend succeed, and pages migrate back by the unit that does that.
    machine.run(&format!(
        "{WAIT}; until_ok systemctl is-active -q sysinit.target"
    ));
    let result = machine.run("systemctl show -P Result systemd-suspend.service");
    assert_eq!(result, "success");
    wait_for_end(machine, "dormouse-home.service");
    assert_eq!(
        machine.run("cat /sys/power/dormouse/last_outcome"),
        "resumed"
    );
}

fn start_service(machine: &mut DebianMachine) {
    machine.run(&format!(
        "printf \"{CACHE_CONF}\" >/etc/dormouse/process/cache.conf"
    ));
    machine.run("systemctl enable --now dormouse-process@cache.service");
    machine.run(&format!("{WAIT}; until_ok redis-cli -p 7001 ping"));
    machine.run(
        "for key in $(seq 500); do echo set key$key $((key * key)); done | redis-cli -p 7001 >/dev/null",
    );
}

/// An epoch that began after this call is complete.
fn wait_for_epoch(machine: &mut DebianMachine) {
    machine.run(
        "epochs() { dormouse process status cache --json | grep -o '\"epochs\": *[0-9]*' | tr -dc 0-9; }
         before=$(epochs); while [ \"$(epochs)\" -lt $((before + 2)) ]; do sleep 1; done; sync",
    );
}

fn a_service_survives_a_power_cut(machine: &mut DebianMachine) {
    start_service(machine);
    wait_for_epoch(machine);
    let before = machine.run(SERVICE);
    assert!(before.ends_with("keys 500 last 250000"), "{before}");
    machine.cut_power();
    machine.boot();
    machine.run(&format!("{WAIT}; until_ok redis-cli -p 7001 ping"));
    assert_eq!(machine.run(SERVICE), before);
    // The firmware's device loaded the module of DKMS by itself.
    machine.run("test -d /sys/power/dormouse");
}

fn a_tracked_program_goes_on_through_an_upgrade(machine: &mut DebianMachine, next: &Packages) {
    let tracker = "systemctl show -P MainPID dormouse-process@cache";
    let (service, before) = (machine.run(SERVICE), machine.run(tracker));
    mount_packages(machine);
    machine.run("cd /mnt/next && apt-get install -y ./dormouse_*.deb");
    let version = "dpkg-query -W -f '${Version}' dormouse";
    assert_eq!(machine.run(version), next.version());
    assert_eq!(machine.run(SERVICE), service);
    assert_eq!(machine.run(tracker), before, "the tracker runs on");
    // The new command talks to the old tracker; the unit's restart takes the new one.
    machine.run("dormouse process persist cache");
    machine.run("systemctl restart dormouse-process@cache");
    machine.run(&format!("{WAIT}; until_ok redis-cli -p 7001 ping"));
    assert_eq!(machine.run(SERVICE), service);
    assert_ne!(machine.run(tracker), before);
    machine.run("systemctl is-enabled dormouse-suspend.service dormouse-home.service");
}

fn nothing_is_left_after_a_purge(machine: &mut DebianMachine, before: &str) {
    machine.run("apt-get remove -y dormouse dormouse-dkms");
    // The program was made safe and ended, and suspend is systemd's own again.
    machine.run("! pgrep -x redis-server && test -e /var/lib/dormouse/process/cache.store");
    let suspend = machine.run("systemctl show -P ExecStart systemd-suspend.service");
    assert!(suspend.contains("systemd-sleep"), "{suspend}");
    machine.run("dpkg --purge dormouse dormouse-dkms && umount /mnt");
    let after = machine.run(&list_files());
    assert_eq!(difference(before, &after), Vec::<String>::new());
    let units = machine
        .run("systemctl list-units --all --no-legend 'dormouse*' | grep -v not-found || true");
    assert_eq!(units, "");
}

#[test]
#[ignore = "make test-packages: a quarter of an hour in an emulated machine, as root"]
fn packages_serve_a_machine_under_systemd_from_install_to_purge() {
    let (first, next) = (built(), newer());
    let mut machine = DebianMachine::new("packages", &[("first", &first), ("next", &next)]);
    machine.boot();
    mount_packages(&mut machine);
    let before = machine.run(&list_files());
    install(&mut machine, &first);
    sleeps_and_wakes(&mut machine);
    a_service_survives_a_power_cut(&mut machine);
    a_tracked_program_goes_on_through_an_upgrade(&mut machine, &next);
    nothing_is_left_after_a_purge(&mut machine, &before);
}
