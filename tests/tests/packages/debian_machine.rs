//! The lab's machine with a Debian system on its disk, under systemd.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dormouse_guest::protocol::{Call, FromGuest, RunPlan};
use dormouse_lab::build::{Artefacts, BuildOptions, Quiet, build};
use dormouse_lab::emulator::lab::Lab;
use dormouse_lab::emulator::power::{PowerOn, What};
use dormouse_lab::emulator::qemu::{Firmware, Parts};
use dormouse_lab::emulator::qmp::StopCause;
use dormouse_lab::machine::{MachineConfig, PersistentMemory};
use dormouse_system::arguments::Size;
use dormouse_tests::machine_folder;

use super::built::{Packages, script, succeeds};

/// systemd and dozens of services start in an emulated processor, beside whatever the host does.
const BOOT: Duration = Duration::from_secs(1800);
/// A package with a kernel module to compile.
const WORK: Duration = Duration::from_secs(3600);
const SLEEP: Duration = Duration::from_secs(1200);

/// What such machines differ in.
pub struct Kind {
    /// The package that makes initial ram disks.
    pub initramfs: &'static str,
    pub memory: PersistentMemory,
    /// The distribution's.
    pub firmware: Firmware,
}

impl Default for Kind {
    fn default() -> Kind {
        Kind {
            initramfs: "initramfs-tools",
            memory: PersistentMemory::Nvdimms,
            firmware: Firmware::Seabios,
        }
    }
}

pub struct DebianMachine {
    lab: Lab,
    power: Option<PowerOn>,
}

impl DebianMachine {
    /// A machine with a fresh Debian, and these packages on its second disk, which is not mounted.
    pub fn new(name: &str, packages: &[(&str, &Packages)]) -> Self {
        Self::with(Firmware::Coreboot, &Kind::default(), name, packages)
    }

    /// The same under the distribution's own firmware: it boots by the distribution's own initial ram
    /// disk.
    pub fn on_stock_firmware(kind: &Kind, name: &str, packages: &[(&str, &Packages)]) -> Self {
        Self::with(kind.firmware, kind, name, packages)
    }

    fn with(firmware: Firmware, kind: &Kind, name: &str, packages: &[(&str, &Packages)]) -> Self {
        let folder = machine_folder(name);
        std::fs::create_dir_all(&folder).expect("it can be made");
        let artefacts = build(&BuildOptions::default(), &Quiet).expect("the lab's parts");
        let mut words = vec![Path::new(kind.initramfs)];
        if firmware == Firmware::Ovmf {
            words.push(Path::new("uefi"));
        }
        let system = script("disk.sh", &[&script("base.sh", &words)]);
        let mut parts = parts(&artefacts, &system, &folder);
        if firmware.is_stock() {
            parts.wake_initrd = system.join("initrd.debian");
            parts.cmdline = stock_cmdline(&parts.cmdline);
        }
        let mut config = MachineConfig::new(Size::mib(1024), Size::mib(2048), 2).expect("sizes");
        config.memory = kind.memory;
        if kind.memory == PersistentMemory::CxlType3 {
            // QEMU 7.2 has no interrupts for a device's events, which Linux asks for where the platform
            // leaves them to it; its disks reach DRAM only.
            parts.cmdline += " pcie_ports=compat swiotlb=force";
        }
        let lab = Lab::open(&folder, config, false, parts, firmware).expect("a machine");
        make_package_disk(packages, &lab.machine.scratch_disk());
        Self { lab, power: None }
    }

    /// Switches it on and waits until its services run.
    pub fn boot(&mut self) {
        let mut power = self.lab.power_on(None).expect("it starts");
        power.wait_ready(BOOT).expect("Debian boots");
        self.power = Some(power);
    }

    /// What a line of shell prints; it must succeed.
    pub fn run(&mut self, line: &str) -> String {
        eprintln!("# {line}");
        let power = self.power.as_mut().expect("it is on");
        let script =
            format!("export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive; set -e; {line}");
        let result = power.shell(&script, WORK).expect("the agent answers");
        eprint!("{}", result.stderr);
        assert_eq!(
            result.status, 0,
            "{line}\n--- stdout\n{}\n--- stderr\n{}",
            result.stdout, result.stderr
        );
        result.stdout.trim().to_owned()
    }

    /// Switches it off and on, with a further word on the kernel's command line; it boots by the
    /// initial ram disk that it has made itself, which goes through the second disk.
    pub fn reboot_with_own_initrd(&mut self, word: &str) {
        const DISK: &str = "/dev/disk/by-id/virtio-dormouse-scratch";
        let bytes = self.run(&format!(
            "dd if=/boot/initrd.img-$(uname -r) of={DISK} bs=1M conv=fsync status=none; \
             stat -c %s /boot/initrd.img-$(uname -r)"
        ));
        let bytes: usize = bytes.parse().expect("a size");
        let mut power = self.power.take().expect("it is on");
        power.power_off(SLEEP).expect("it switches itself off");
        let disk = std::fs::read(self.lab.machine.scratch_disk()).expect("the second disk");
        let path = self.lab.machine.folder().join("initrd.own");
        std::fs::write(&path, &disk[..bytes]).expect("it can be written");
        let parts = &mut self.lab.setting.parts;
        parts.wake_initrd = path;
        parts.cmdline = format!("{} {word}", parts.cmdline);
        self.boot();
    }

    /// Switches it off and on, with a further word on the kernel's command line; UEFI finds its loader,
    /// its kernel and the initial ram disk that it has made itself on the second disk, as an installer
    /// leaves them.
    pub fn reboot_by_uefi(&mut self, word: &str) {
        let parts = &mut self.lab.setting.parts;
        parts.cmdline = format!("{} {word}", parts.cmdline);
        parts.kernel = PathBuf::new();
        let cmdline = parts.cmdline.clone();
        let script = UEFI_DISK.replace("CMDLINE", &cmdline);
        self.run(&script);
        self.switch_off();
        self.boot();
    }

    /// Switches it off in order.
    pub fn switch_off(&mut self) {
        let mut power = self.power.take().expect("it is on");
        power.power_off(SLEEP).expect("it switches itself off");
    }

    /// Switches it on and waits until it has reset itself.
    pub fn power_on_until_reset(&mut self) {
        let mut power = self.lab.power_on(None).expect("it starts");
        power
            .wait("the machine to reset itself", SLEEP, |signal| {
                matches!(signal.what, What::Stopped).then_some(())
            })
            .expect("it resets itself");
        assert_eq!(power.stop_cause(), Some(StopCause::Reset));
    }

    /// Asks for a sleep by `systemctl suspend`, and waits until the machine has switched itself
    /// off.
    pub fn suspend(&mut self) {
        self.sleep_by("systemctl suspend");
    }

    /// The same by a line of shell.
    pub fn sleep_by(&mut self, line: &str) {
        let mut power = self.power.take().expect("it is on");
        let words = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        let plan = RunPlan {
            argv: words,
            stdin: String::new(),
            cgroup: None,
            timeout_s: 0,
        };
        power.send(Call::Run(plan)).expect("the agent listens");
        power
            .wait("the machine to fall asleep", SLEEP, |signal| {
                matches!(signal.what, What::Stopped).then_some(())
            })
            .expect("it falls asleep");
        assert_eq!(power.stop_cause(), Some(StopCause::PoweredOff));
    }

    /// Switches it on in a new emulator, and waits until it woke; a boot is no waking.
    pub fn wake(&mut self) {
        let began = Instant::now();
        let mut power = self.lab.power_on(None).expect("it starts");
        let woke = power
            .wait("the machine to wake", SLEEP, |signal| match &signal.what {
                What::Agent(FromGuest::Awake { .. }) => Some(true),
                What::Agent(FromGuest::Ready(_)) => Some(false),
                _ => None,
            })
            .expect("it starts");
        assert!(woke, "it booted instead of waking");
        eprintln!(
            "# awake {:.1} s after the power-on",
            began.elapsed().as_secs_f64()
        );
        self.power = Some(power);
    }

    /// Damages a page of the kernel's that an image has.
    pub fn damage_image(&mut self) {
        use std::os::unix::fs::FileExt;
        // Far behind what describes it, and far before the end of any kernel's snapshot.
        const PLACE: u64 = 48 << 20;
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(self.lab.machine.head_file())
            .expect("the head's memory");
        let mut byte = [0];
        file.read_exact_at(&mut byte, PLACE)
            .expect("it is as large");
        file.write_all_at(&[!byte[0]], PLACE)
            .expect("it can be written");
    }

    /// Takes the power away at this instant.
    pub fn cut_power(&mut self) {
        self.power.take().expect("it is on").cut_power();
    }
}

/// Makes the second disk the one that UEFI boots from, by systemd's boot loader.
const UEFI_DISK: &str = "\
    disk=/dev/disk/by-id/virtio-dormouse-scratch; \
    echo type=uefi | sfdisk --quiet --label gpt $disk; udevadm settle; \
    mkfs.vfat -F 32 $disk-part1 >/dev/null; \
    mkdir -p /boot/efi; echo $disk-part1 /boot/efi vfat umask=0077 0 0 >>/etc/fstab; \
    systemctl daemon-reload; mount /boot/efi; cd /boot/efi; mkdir -p EFI/BOOT loader/entries; \
    cp /usr/lib/systemd/boot/efi/systemd-bootx64.efi EFI/BOOT/BOOTX64.EFI; \
    cp /boot/vmlinuz-$(uname -r) vmlinuz; cp /boot/initrd.img-$(uname -r) initrd.img; \
    echo timeout 0 >loader/loader.conf; \
    printf '%s\\n' 'title Debian' 'linux /vmlinuz' 'initrd /initrd.img' 'options CMDLINE' \
    >loader/entries/debian.conf; cd /; sync";

/// What the emulator and the disk need of the lab's own line, and nothing that a sleep needs: that
/// is for the page to say.
fn stock_cmdline(lab: &str) -> String {
    let needed = ["console=", "no_timer_check", "tsc_early_khz=", "systemd."];
    let is_needed = |word: &&str| needed.iter().any(|beginning| word.starts_with(beginning));
    let words: Vec<&str> = lab.split_whitespace().filter(is_needed).collect();
    format!("{} root=LABEL=dormouse-root ro", words.join(" "))
}

/// The lab's machine with another disk, kernel and flash image.
fn parts(artefacts: &Artefacts, system: &Path, folder: &Path) -> Parts {
    let cmdline = format!("{} systemd.show_status=1", artefacts.cmdline);
    let rom: PathBuf = folder.join("debian.rom");
    script(
        "rom.sh",
        &[&artefacts.firmware_rom, system, Path::new(&cmdline), &rom],
    );
    let release = std::fs::read_to_string(system.join("release")).expect("a release");
    Parts {
        firmware_rom: rom,
        kernel: system.join("vmlinuz"),
        initrd: system.join("initrd.gz"),
        wake_initrd: artefacts.wake_initrd.clone(),
        rootfs: system.join("root.img"),
        tpm_tools: artefacts.tpm_tools.clone(),
        payload: artefacts.payload.clone(),
        cmdline,
        kernel_release: release.trim().to_owned(),
    }
}

/// An ext4 image with a folder of packages for each name.
fn make_package_disk(packages: &[(&str, &Packages)], image: &Path) {
    let tree = tempfile::tempdir().expect("a temporary folder");
    for (name, packages) in packages {
        let folder = tree.path().join(name);
        std::fs::create_dir(&folder).expect("it can be made");
        for name in ["dormouse", "dormouse-dkms", "dormouse-firmware"] {
            let deb = packages.deb(name);
            let target = folder.join(deb.file_name().expect("a file"));
            std::fs::copy(&deb, target).expect("it can be copied");
        }
    }
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-d"]);
    succeeds(command.arg(tree.path()).arg(image).arg("192M"));
}
