//! The how-to of stock firmware to the letter: a Debian that never saw the lab's initial ram disk, from
//! the packages to the wake, with each command as the page has it.

use dormouse_lab::emulator::qemu::Firmware;
use dormouse_lab::machine::PersistentMemory;

use super::built::built;
use super::debian_machine::{DebianMachine, Kind};

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
    command(ENTRY);
    let sentence = format!("Add `{COMMAND_LINE}` to the kernel's command line");
    assert!(
        PAGE.contains(&sentence),
        "the page does not say: {sentence}"
    );
}

/// What the page has the user add to the kernel's command line.
const COMMAND_LINE: &str = "memhp_default_state=offline";

/// How the page makes a boot entry.
const ENTRY: &str = "dormouse setup-boot-entry";

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
    let [.., doctor, plan, sleep] = COMMANDS.map(command);
    let mut machine = set_up(name, kind, devices, initramfs);
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

    sleeps_and_wakes(&mut machine, &sleep);
}

/// From the packages to an initial ram disk of its own.
fn set_up(name: &str, kind: &Kind, devices: &[String], initramfs: &str) -> DebianMachine {
    let packages = built();
    let list = [("first", &packages)];
    let mut machine = DebianMachine::on_stock_firmware(kind, name, &list);
    machine.boot();
    machine.run("mount -o ro /dev/disk/by-id/virtio-dormouse-scratch /mnt");
    machine.run("cd /mnt/first && apt-get install -y ./dormouse_*.deb ./dormouse-dkms_*.deb");
    machine.run("umount /mnt");
    let [_, _, _, load, ..] = COMMANDS.map(command);
    for line in devices {
        machine.run(line);
    }
    machine.run(&load);
    machine.run(initramfs);
    machine
}

fn sleeps_and_wakes(machine: &mut DebianMachine, sleep: &str) {
    machine.run("head -c 64M /dev/urandom >/dev/shm/data");
    let state = "cat /proc/sys/kernel/random/boot_id; sha256sum /dev/shm/data; \
                 systemctl show -P MainPID systemd-journald";
    let before = machine.run(state);
    // What the boot had to say is not of the sleep.
    machine.run("dmesg --clear");
    machine.sleep_by(sleep);
    machine.wake();
    assert_eq!(machine.run(state), before);
    let warnings = machine.run("dmesg --level=emerg,alert,crit | grep -v dormouse || true");
    assert_eq!(warnings, "");
}

/// The entry that started a machine, and the one that our image has, as firmware numbers them.
const STARTED_BY: &str = "od -An -j4 -tx2 /sys/firmware/efi/efivars/BootCurrent-*";
const OWN_ENTRY: &str = "efibootmgr | sed -n 's/^Boot\\(....\\).*Dormouse wake.*/ \\L\\1/p'";

#[test]
#[ignore = "make test-packages: half an hour in an emulated machine, as root"]
fn the_how_to_of_stock_firmware_works_with_a_boot_entry_of_its_own() {
    let [head, node, setup, .., initramfs, doctor, plan, sleep] = COMMANDS.map(command);
    let entry = command(ENTRY);
    let kind = Kind {
        firmware: Firmware::Ovmf,
        ..Kind::default()
    };
    let mut machine = set_up(
        "stock-how-to-entry",
        &kind,
        &[head, node, setup],
        &initramfs,
    );
    machine.reboot_by_uefi(COMMAND_LINE);
    machine.run(&doctor);
    let woken_by = |machine: &mut DebianMachine| machine.run(&format!("{plan} | grep 'woken by'"));
    assert!(woken_by(&mut machine).ends_with("the usual boot"));

    machine.run(&entry);
    assert!(woken_by(&mut machine).contains("has not run yet"));
    // The entry finds no image; resets it, and the usual boot follows.
    machine.switch_off();
    machine.power_on_until_reset();
    machine.boot();
    let own = machine.run(OWN_ENTRY);
    assert_eq!(own.len(), 4, "{own}");
    assert_ne!(machine.run(STARTED_BY), own);
    let said = woken_by(&mut machine);
    assert!(
        said.to_lowercase()
            .ends_with(&format!("the boot entry boot{own}")),
        "{said}"
    );

    sleeps_and_wakes(&mut machine, &sleep);
    assert_eq!(machine.run(STARTED_BY), own);
    machine.run("dormouse migrate-back");

    // What the entry refuses, the usual boot refuses, too, and it says why.
    machine.sleep_by(&sleep);
    machine.damage_image();
    machine.power_on_until_reset();
    machine.boot();
    assert_ne!(machine.run(STARTED_BY), own);
    let log = machine.run("dmesg | grep dormouse");
    assert!(log.contains("cold boot: saved-digest"), "{log}");
    let said = woken_by(&mut machine);
    assert!(said.contains("refused the last image"), "{said}");

    machine.run(&format!("{entry} --undo"));
    assert_eq!(machine.run(OWN_ENTRY), "");
    assert!(woken_by(&mut machine).ends_with("the usual boot"));
    // Without it, the same loader and the same initial ram disk wake the machine as without this page's
    // section; both say how long it took.
    sleeps_and_wakes(&mut machine, &sleep);
    assert_ne!(machine.run(STARTED_BY), own);
}
