//! The emulator's command line, and starting it so that it never outlives the lab.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dormouse_guest::protocol::SWAP_DISK;
use dormouse_guest::protocol::stress::SCRATCH_DISK;

use crate::build::Artefacts;
use crate::child;
use crate::emulator::accelerator::{Accelerator, TCG_PROCESSOR};
use crate::error::{Doing, LabError};
use crate::machine::gpf::Gpf;
use crate::machine::{MachineConfig, PersistentMemory};

/// The emulator.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// The disks' serial numbers, by which init in the machine finds them.
const ROOT_SERIAL: &str = "dormouse-root";
const PAYLOAD_SERIAL: &str = "dormouse-payload";
/// Memory is there when a machine is switched on. Without this, the host would hand it over and
/// clear it page by page, whenever the machine touches some for the first time: more than half of
/// a migration's time, and nothing that hardware does.
const POPULATED: &str = ",prealloc=on,prealloc-threads=2";

/// The label area of a CXL memory device.
const LABEL_BYTES: u64 = 1 << 20;
/// Room for the alignment of NVDIMMs, a GiB each.
const NVDIMM_PLACES_BYTES: u64 = 4 << 30;

/// Which firmware starts the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Firmware {
    /// coreboot with our driver: the machine that can sleep in CXL memory
    #[default]
    Coreboot,
    /// UEFI as the distribution packages it, with two NVDIMMs as persistent memory
    Ovmf,
    /// BIOS as the distribution packages it, with two NVDIMMs as persistent memory
    Seabios,
}

impl Firmware {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Firmware::Coreboot => "coreboot",
            Firmware::Ovmf => "ovmf",
            Firmware::Seabios => "seabios",
        }
    }

    /// Whether it knows nothing of us: the machine then sleeps by the kernel's own snapshot.
    pub fn is_stock(self) -> bool {
        self != Firmware::Coreboot
    }
}

/// UEFI as the distribution's package has it.
pub const OVMF_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
/// UEFI's variables as they are at first.
pub const OVMF_VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// What a machine boots from.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The flash contents.
    pub firmware_rom: PathBuf,
    /// The image of the kernel; empty where firmware is to find one on a disk.
    pub kernel: PathBuf,
    /// The first file system.
    pub initrd: PathBuf,
    /// The same with what wakes a machine under stock firmware.
    pub wake_initrd: PathBuf,
    /// The root disk.
    pub rootfs: PathBuf,
    /// A further part of an initrd: what talks to a TPM.
    pub tpm_tools: PathBuf,
    /// The disk with our programs and modules.
    pub payload: PathBuf,
    /// The kernel's command line.
    pub cmdline: String,
    /// Release of the kernel.
    pub kernel_release: String,
}

impl From<&Artefacts> for Parts {
    fn from(artefacts: &Artefacts) -> Parts {
        Parts {
            firmware_rom: artefacts.firmware_rom.clone(),
            kernel: artefacts.kernel.clone(),
            initrd: artefacts.initrd.clone(),
            wake_initrd: artefacts.wake_initrd.clone(),
            rootfs: artefacts.rootfs.clone(),
            tpm_tools: artefacts.tpm_tools.clone(),
            payload: artefacts.payload.clone(),
            cmdline: artefacts.cmdline.clone(),
            kernel_release: artefacts.kernel_release.clone(),
        }
    }
}

/// All that one power-on needs to know.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// Firmware, kernel and disks.
    pub parts: &'a Parts,
    /// Sizes of the machine.
    pub config: &'a MachineConfig,
    /// The firmware that starts the machine.
    pub firmware: Firmware,
    /// How the machine is executed.
    pub accelerator: Accelerator,
    /// The file of the CXL device.
    pub cxl_file: &'a Path,
    /// Under stock firmware: the memory of the NVDIMM for the kernel's snapshot.
    pub head_file: &'a Path,
    /// The label area of a CXL memory device.
    pub labels_file: &'a Path,
    /// UEFI's variables.
    pub variables_file: &'a Path,
    /// The root disk.
    pub disk: &'a Path,
    /// The disk to hibernate to, where there is one.
    pub swap_disk: Option<&'a Path>,
    /// A second, raw disk that may be there.
    pub scratch_disk: Option<&'a Path>,
    /// Holds [`MachineConfig::device_description`].
    pub device_file: &'a Path,
    /// Where firmware is to stop for ever.
    pub fault: Option<&'a str>,
    /// In place of the usual one that looks for an image.
    pub wake_initrd: Option<&'a Path>,
    /// The control socket of a TPM in software, where there is one.
    pub tpm_socket: Option<&'a Path>,
    /// Further arguments of the emulator: devices, each at a place of its own.
    pub more: &'a [String],
}

/// The host's ends of the machine's lines.
pub struct Lines {
    /// The first serial line.
    pub console: UnixStream,
    /// The second serial line.
    pub control: UnixStream,
    /// The control socket.
    pub qmp: UnixStream,
}

/// The emulator's arguments; the numbers are the file descriptors of its ends of the lines.
pub fn arguments(launch: &Launch, console: i32, control: i32, qmp: i32) -> Vec<OsString> {
    let config = launch.config;
    let (accelerator, processor) = match launch.accelerator {
        Accelerator::Kvm => ("kvm", "max"),
        // One thread for all processors: with several, QEMU 7.2 on a busy host now and then runs
        // code that another processor has just patched, and the kernel dies of a stale int3.
        Accelerator::Tcg => ("tcg,thread=single", TCG_PROCESSOR),
    };
    let low_mib = config.low_bytes() >> 20;
    let total_mib = (config.dram_bytes + config.cxl_bytes) >> 20;
    let last_cpu = config.cpus - 1;
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |text: &str| words.extend(text.split(' ').map(OsString::from));

    // Stopped until everybody listens: the time of power-on is then known, and free of what the
    // host needs to prepare a machine.
    add("-S -no-user-config -nodefaults -display none -no-reboot");
    let hidden = match launch.firmware.is_stock() && config.memory == PersistentMemory::CxlType3 {
        // Linux flushes caches for a new CXL region, and does not believe that a hypervisor does.
        true => ",-hypervisor",
        false => "",
    };
    add(&format!(
        "-accel {accelerator} -cpu {processor}{hidden} -smp {}",
        config.cpus
    ));
    let stock = launch.firmware.is_stock();
    let type3 = stock && config.memory == PersistentMemory::CxlType3;
    if type3 {
        // A window of physical addresses that is as large as the device; no NVDIMM.
        add(&format!(
            "-M q35,smm=on,max-ram-below-4g={low_mib}M,cxl=on,cxl-fmw.0.targets.0=cxl-bridge,\
             cxl-fmw.0.size={}M",
            config.cxl_bytes >> 20
        ));
        add(&format!("-m {}M", config.dram_bytes >> 20));
    } else if stock {
        // NVDIMMs take places of their own behind DRAM.
        let max_mib = total_mib + (config.head_bytes() >> 20) + (NVDIMM_PLACES_BYTES >> 20);
        // What a platform states in its ACPI tables, where it flushes when power goes.
        let persistence = match config.gpf {
            Gpf::Absent => "",
            Gpf::Works | Gpf::Fails => ",nvdimm-persistence=mem-ctrl",
        };
        add(&format!(
            "-M q35,smm=on,nvdimm=on{persistence},max-ram-below-4g={low_mib}M"
        ));
        add(&format!(
            "-m {}M,slots=4,maxmem={max_mib}M",
            config.dram_bytes >> 20
        ));
    } else {
        add(&format!(
            "-M q35,smm=on,max-ram-below-4g={low_mib}M -m {total_mib}M"
        ));
    }
    add("-global ICH9-LPC.disable_s3=0");
    add(&format!(
        "-object memory-backend-ram,id=dram,size={}{POPULATED}",
        config.dram_bytes
    ));
    add(&format!(
        "-numa node,nodeid=0,memdev=dram,cpus=0-{last_cpu}"
    ));
    if type3 {
        // Linux makes a node of its own for the window.
        add("-device pxb-cxl,id=cxl-bridge,bus=pcie.0,bus_nr=128");
        add("-device cxl-rp,id=cxl-port,bus=cxl-bridge,chassis=0,port=0,slot=1");
        // Without a serial number Linux does not find its labels again.
        add(&format!(
            "-device cxl-type3,id=cxl-memory,bus=cxl-port,memdev=cxl,lsa=labels,sn={:#x}",
            config.device_serial
        ));
    } else if stock {
        add("-numa node,nodeid=1 -numa dist,src=0,dst=1,val=20");
        // Modules differ by their places: another place is another module.
        let place = (config.device_serial >> 8 & 1) * 2;
        for (number, name) in [(place, "head"), (place + 1, "cxl")] {
            add(&format!(
                "-device nvdimm,id=nv-{name},memdev={name},node=1,slot={number}"
            ));
        }
    } else {
        add("-numa node,nodeid=1,memdev=cxl -numa dist,src=0,dst=1,val=20");
    }
    for (id, fd) in [("console", console), ("control", control), ("qmp", qmp)] {
        add(&format!("-chardev socket,id={id},fd={fd}"));
    }
    add("-serial chardev:console -serial chardev:control -mon chardev=qmp,mode=control");
    // Before the disks, which take whatever places are free.
    words.extend(launch.more.iter().map(OsString::from));
    let mut add = |text: &str| words.extend(text.split(' ').map(OsString::from));
    // QEMU's CXL memory is not RAM for its disks, which break where they are given a page of it: the kernel is
    // to copy through DRAM (`swiotlb=force`), as for a device that cannot reach all memory.
    let through_dram = if type3 {
        ",disable-legacy=on,iommu_platform=on"
    } else {
        ""
    };
    // Before the root disk: init looks for an image as soon as it has found that one.
    if launch.swap_disk.is_some() {
        add(&format!(
            "-device virtio-blk-pci,bus=pcie.0{through_dram},drive=swap,serial={SWAP_DISK}"
        ));
    }
    add(&format!(
        "-device virtio-blk-pci,bus=pcie.0{through_dram},drive=root,serial={ROOT_SERIAL}"
    ));
    add(&format!(
        "-device virtio-blk-pci,bus=pcie.0{through_dram},drive=payload,serial={PAYLOAD_SERIAL}"
    ));
    if let Some(fault) = launch.fault {
        add(&format!("-fw_cfg name=opt/dormouse/fault,string={fault}"));
    }

    if launch.scratch_disk.is_some() {
        add(&format!(
            "-device virtio-blk-pci,bus=pcie.0{through_dram},drive=scratch,serial={SCRATCH_DISK}"
        ));
    }

    // Options with paths, which may hold anything.
    let mut add_path = |option: &str, before: &str, path: &Path, after: &str| {
        words.push(option.into());
        let mut value = OsString::from(before);
        value.push(escaped(path));
        value.push(after);
        words.push(value);
    };
    let cxl = format!(
        "memory-backend-file,id=cxl,size={},share=on{POPULATED},mem-path=",
        config.cxl_bytes
    );
    add_path("-object", &cxl, launch.cxl_file, "");
    if type3 {
        let labels = format!("memory-backend-file,id=labels,size={LABEL_BYTES},share=on,mem-path=");
        add_path("-object", &labels, launch.labels_file, "");
    } else if stock {
        let head = format!(
            "memory-backend-file,id=head,size={},share=on{POPULATED},mem-path=",
            config.head_bytes()
        );
        add_path("-object", &head, launch.head_file, "");
    }
    if launch.firmware == Firmware::Ovmf {
        let code = "if=pflash,format=raw,unit=0,readonly=on,file=";
        add_path("-drive", code, Path::new(OVMF_CODE), "");
        let variables = "if=pflash,format=raw,unit=1,file=";
        add_path("-drive", variables, launch.variables_file, "");
    }
    add_path(
        "-drive",
        "if=none,id=root,format=qcow2,cache=writeback,file=",
        launch.disk,
        "",
    );
    if let Some(swap) = launch.swap_disk {
        // The host does not lose its memory when the machine loses its power: waiting for the
        // host's disk would only make hibernation look slow.
        add_path(
            "-drive",
            "if=none,id=swap,format=raw,cache=unsafe,discard=unmap,file=",
            swap,
            "",
        );
    }
    if let Some(socket) = launch.tpm_socket {
        add_path("-chardev", "socket,id=tpm,path=", socket, "");
        for (option, value) in [
            ("-tpmdev", "emulator,id=tpm0,chardev=tpm"),
            ("-device", "tpm-tis,tpmdev=tpm0"),
        ] {
            add_path(option, value, Path::new(""), "");
        }
    }
    if let Some(scratch) = launch.scratch_disk {
        let options = "if=none,id=scratch,format=raw,cache=writeback,file=";
        add_path("-drive", options, scratch, "");
    }
    let payload = "if=none,id=payload,format=raw,readonly=on,file=";
    add_path("-drive", payload, &launch.parts.payload, "");
    add_path(
        "-fw_cfg",
        "name=opt/dormouse/device,file=",
        launch.device_file,
        "",
    );
    match launch.firmware {
        Firmware::Coreboot => words.extend(["-bios".into(), plain(&launch.parts.firmware_rom)]),
        Firmware::Ovmf | Firmware::Seabios if launch.parts.kernel.as_os_str().is_empty() => {}
        Firmware::Ovmf | Firmware::Seabios => {
            words.extend(["-kernel".into(), plain(&launch.parts.kernel)]);
            let usual = launch.parts.wake_initrd.as_path();
            let initrd = launch.wake_initrd.unwrap_or(usual);
            words.extend(["-initrd".into(), plain(initrd)]);
            words.extend(["-append".into(), OsString::from(&launch.parts.cmdline)]);
        }
    }
    words
}

fn plain(path: &Path) -> OsString {
    path.as_os_str().to_owned()
}

/// In the emulator's option lists a comma is written twice.
pub(crate) fn escaped(path: &Path) -> OsString {
    match path.to_str() {
        Some(text) => text.replace(',', ",,").into(),
        None => plain(path),
    }
}

/// Starts the emulator; it is killed when the calling thread or process ends.
///
/// # Errors
/// The emulator is not installed or cannot be started.
pub fn spawn(launch: &Launch, log: &Path) -> Result<(Child, Lines), LabError> {
    let pair = || UnixStream::pair().doing("make a line to the machine");
    let (console, console_end) = pair()?;
    let (control, control_end) = pair()?;
    let (qmp, qmp_end) = pair()?;
    let ends: [OwnedFd; 3] = [console_end.into(), control_end.into(), qmp_end.into()];
    let numbers = ends.each_ref().map(|end| end.as_raw_fd());

    let log_file = File::create(log).doing(format!("create {}", log.display()))?;
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments(launch, numbers[0], numbers[1], numbers[2]))
        .stdin(Stdio::null())
        .stdout(log_file.try_clone().doing("share the emulator's log")?)
        .stderr(log_file);
    child::keep_open(&mut command, ends);
    let child = child::spawn(&mut command)?;
    Ok((
        child,
        Lines {
            console,
            control,
            qmp,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_system::arguments::Size;

    fn text(dram_mib: u64, firmware: Firmware, fault: Option<&str>) -> String {
        let config = MachineConfig::new(Size::mib(dram_mib), Size::mib(2048), 2).unwrap();
        text_of(&config, firmware, fault)
    }

    fn text_of(config: &MachineConfig, firmware: Firmware, fault: Option<&str>) -> String {
        text_with_kernel(config, firmware, fault, "kernel")
    }

    fn text_with_kernel(
        config: &MachineConfig,
        firmware: Firmware,
        fault: Option<&str>,
        kernel: &str,
    ) -> String {
        text_with(config, firmware, fault, kernel, &[])
    }

    fn text_with(
        config: &MachineConfig,
        firmware: Firmware,
        fault: Option<&str>,
        kernel: &str,
        more: &[String],
    ) -> String {
        let parts = Parts {
            firmware_rom: "rom".into(),
            kernel: kernel.into(),
            initrd: "initrd".into(),
            wake_initrd: "wake-initrd".into(),
            rootfs: "rootfs".into(),
            tpm_tools: "tpm".into(),
            payload: "payload".into(),
            cmdline: "console=ttyS0".into(),
            kernel_release: "6.12".into(),
        };
        let launch = Launch {
            parts: &parts,
            config,
            firmware,
            accelerator: Accelerator::Tcg,
            cxl_file: Path::new("a,b/cxl.mem"),
            head_file: Path::new("a,b/head.mem"),
            labels_file: Path::new("a,b/labels"),
            variables_file: Path::new("variables"),
            disk: Path::new("disk"),
            swap_disk: None,
            scratch_disk: None,
            device_file: Path::new("device"),
            fault,
            wake_initrd: None,
            tpm_socket: Some(Path::new("tpm")),
            more,
        };
        let words = arguments(&launch, 3, 4, 5);
        words
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_cxl_device_is_a_shared_file_of_its_own_node() {
        let text = text(1024, Firmware::Coreboot, None);
        assert!(text.contains(
            "id=cxl,size=2147483648,share=on,prealloc=on,prealloc-threads=2,mem-path=a,,b/cxl.mem"
        ));
        assert!(text.contains("-numa node,nodeid=1,memdev=cxl"));
        assert!(text.contains("max-ram-below-4g=1024M -m 3072M"));
        assert!(text.contains("-bios rom"));
        assert!(!text.contains("opt/dormouse/fault"));
    }

    #[test]
    fn further_devices_keep_the_places_that_disks_would_take() {
        let more = ["-device".to_owned(), "nvme,addr=1".to_owned()];
        let config = MachineConfig::new(Size::mib(1024), Size::mib(2048), 2).unwrap();
        let text = text_with(&config, Firmware::Coreboot, None, "kernel", &more);
        let place = |part: &str| text.find(part).unwrap();
        assert!(place("-device nvme,addr=1") < place("drive=root"), "{text}");
    }

    #[test]
    fn a_fault_reaches_the_firmware() {
        let text = text(3072, Firmware::Coreboot, Some("saving"));
        assert!(text.contains("-fw_cfg name=opt/dormouse/fault,string=saving"));
        assert!(text.contains("max-ram-below-4g=2048M"));
    }

    #[test]
    fn plain_firmware_gets_kernel_and_initrd() {
        let text = text(512, Firmware::Seabios, None);
        assert!(text.contains("-kernel kernel -initrd wake-initrd -append console=ttyS0"));
        assert!(!text.contains("-bios") && !text.contains("pflash"));
        assert!(
            text.contains("-chardev socket,id=tpm,path=tpm -tpmdev emulator"),
            "{text}"
        );
        let config = MachineConfig::new(Size::mib(512), Size::mib(2048), 2).unwrap();
        let text = text_with_kernel(&config, Firmware::Ovmf, None, "");
        assert!(
            !text.contains("-kernel") && !text.contains("-append"),
            "{text}"
        );
        let text = self::text(512, Firmware::Ovmf, None);
        assert!(text.contains("pflash,format=raw,unit=1,file=variables"));
    }

    #[test]
    fn stock_firmware_has_two_nvdimms_that_it_leaves_alone() {
        let text = text(1024, Firmware::Seabios, None);
        assert!(
            text.contains("nvdimm=on,nvdimm-persistence=mem-ctrl"),
            "{text}"
        );
        assert!(text.contains("-m 1024M,slots=4,maxmem="), "{text}");
        assert!(text.contains("id=head,size=536870912,share=on"), "{text}");
        assert!(text.contains("memdev=head,node=1") && text.contains("memdev=cxl,node=1"));
        assert!(!text.contains("nodeid=1,memdev=cxl"), "{text}");
    }

    #[test]
    fn a_cxl_memory_device_takes_the_place_of_both_nvdimms() {
        let mut config = MachineConfig::new(Size::mib(1024), Size::mib(2048), 2).unwrap();
        config.memory = PersistentMemory::CxlType3;
        let text = text_of(&config, Firmware::Seabios, None);
        assert!(
            text.contains("cxl=on,cxl-fmw.0.targets.0=cxl-bridge,cxl-fmw.0.size=2048M -m 1024M")
        );
        assert!(
            text.contains("-device cxl-type3,id=cxl-memory,bus=cxl-port,memdev=cxl,lsa=labels")
        );
        assert!(text.contains("id=labels,size=1048576,share=on,mem-path=a,,b/labels"));
        assert!(text.contains(",-hypervisor -smp"));
        assert!(
            !text.contains("nvdimm") && !text.contains("id=head"),
            "{text}"
        );
        // coreboot's machine has its own device.
        let text = text_of(&config, Firmware::Coreboot, None);
        assert!(
            !text.contains("type3")
                && !text.contains("-hypervisor")
                && !text.contains("iommu_platform"),
            "{text}"
        );
    }
}
