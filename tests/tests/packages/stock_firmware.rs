//! The how-to of stock firmware to the letter: a Debian that never saw the lab's initial ram disk, from
//! the packages to the wake, with each command as the page has it.

use dormouse_lab::machine::PersistentMemory;

use super::debian_machine::{DebianMachine, Kind};
use super::packages::built;

const PAGE: &str = include_str!("../../../docs/howto/stock-firmware.md");

/// The only command of the page that begins so, without its comment.
fn command(beginning: &str) -> String {
    let mut found = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(beginning))
        .map(|line| {
            line.split(" #")
                .next()
                .unwrap_or(line)
                .trim_end()
                .to_owned()
        });
    let first = found.next();
    let first = first.unwrap_or_else(|| panic!("the page has no command {beginning:?}"));
    assert_eq!(
        found.next(),
        None,
        "the page has two commands {beginning:?}"
    );
    first
}

#[test]
fn the_page_has_each_command_that_the_machine_is_told() {
    for beginning in COMMANDS {
        command(beginning);
    }
    let sentence = format!("Add `{COMMAND_LINE}` to the kernel's command line");
    assert!(
        PAGE.contains(&sentence),
        "the page does not say: {sentence}"
    );
}

/// What the page has the user add to the kernel's command line.
const COMMAND_LINE: &str = "memhp_default_state=offline";

const COMMANDS: [&str; 8] = [
    "ndctl create-namespace --force --reconfig namespace0.0",
    "ndctl create-namespace --force --reconfig namespace1.0",
    "dormouse setup-device --head dax0.0 --node dax1.0",
    "echo dormouse_snapshot >",
    "update-initramfs -u",
    "dormouse doctor sleep",
    "dormouse sleep --dry-run",
    "dormouse sleep --migrate-back",
];

#[test]
#[ignore = "make test-packages: a quarter of an hour in an emulated machine, as root"]
fn the_how_to_of_stock_firmware_works_to_the_letter() {
    let [head, node, setup, ..] = COMMANDS.map(command);
    let [.., initramfs, _, _, _] = COMMANDS.map(command);
    let devices = [head, node, setup];
    works_to_the_letter("stock-how-to", &Kind::default(), &devices, &initramfs);
}

/// The page names it in the comment of the command that it replaces.
const DRACUT: &str = "dracut -f";

#[test]
#[ignore = "make test-packages: a quarter of an hour in an emulated machine, as root"]
fn the_how_to_of_stock_firmware_works_with_dracut() {
    assert!(PAGE.contains(&format!("# or: {DRACUT}\n")));
    let [head, node, setup, ..] = COMMANDS.map(command);
    let kind = Kind {
        initramfs: "dracut",
        ..Kind::default()
    };
    works_to_the_letter("stock-how-to-dracut", &kind, &[head, node, setup], DRACUT);
}

/// How the page sets up a CXL memory device.
const CXL_COMMANDS: [&str; 4] = [
    "cxl create-region -t pmem -d decoder0.0 -m mem0",
    "ndctl create-namespace --mode devdax --map mem --size 1G",
    "ndctl create-namespace --mode devdax --map mem",
    "dormouse setup-device --head dax0.0 --node dax0.1",
];

#[test]
fn the_page_sets_up_a_cxl_memory_device() {
    for line in CXL_COMMANDS {
        let is_it = |said: &str| said.split(" #").next().unwrap_or(said).trim() == line;
        assert!(PAGE.lines().any(is_it), "the page does not say: {line}");
    }
}

/// The device forgets its region with each power loss: the initial ram disk makes it again.
#[test]
#[ignore = "make test-packages: half an hour in an emulated machine, as root"]
fn the_how_to_of_stock_firmware_works_with_a_cxl_memory_device() {
    let [.., initramfs, _, _, _] = COMMANDS.map(command);
    let kind = Kind {
        memory: PersistentMemory::CxlType3,
        ..Kind::default()
    };
    let devices = CXL_COMMANDS.map(str::to_owned);
    works_to_the_letter("stock-how-to-cxl", &kind, &devices, &initramfs);
}

/// `name` of the machine's folder; commands that set up the devices, and make the initial ram disk.
fn works_to_the_letter(name: &str, kind: &Kind, devices: &[String], initramfs: &str) {
    let packages = built();
    let list = [("first", &packages)];
    let mut machine = DebianMachine::on_stock_firmware(kind, name, &list);
    machine.boot();
    machine.run("mount -o ro /dev/disk/by-id/virtio-dormouse-scratch /mnt");
    machine.run("cd /mnt/first && apt-get install -y ./dormouse_*.deb ./dormouse-dkms_*.deb");
    machine.run("umount /mnt");

    let [_, _, _, load, _, doctor, plan, sleep] = COMMANDS.map(command);
    for line in devices {
        machine.run(line);
    }
    machine.run(&load);
    machine.run(initramfs);
    machine.reboot_with_own_initrd(COMMAND_LINE);
    let found = machine.run(&doctor);
    assert!(
        found.contains("snapshot: this firmware is not ours"),
        "{found}"
    );
    assert!(found.contains("plain text"), "{found}");
    let mark = machine.run("cat /run/dormouse/wake");
    assert!(mark.contains("place before-udev\n"), "{mark}");
    machine.run(&plan);

    machine.run("head -c 64M /dev/urandom >/dev/shm/data");
    let state = "cat /proc/sys/kernel/random/boot_id; sha256sum /dev/shm/data; \
                 systemctl show -P MainPID systemd-journald";
    let before = machine.run(state);
    // What the boot had to say is not of the sleep.
    machine.run("dmesg --clear");
    machine.sleep_by(&sleep);
    machine.wake();
    assert_eq!(machine.run(state), before);
    let warnings = machine.run("dmesg --level=emerg,alert,crit | grep -v dormouse || true");
    assert_eq!(warnings, "");
}
