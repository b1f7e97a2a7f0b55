//! The files of one emulated machine: everything that survives a power loss.
//!
//! ```text
//! out/lab/<name>/
//!   machine.json       sizes, the CXL device's serial number, its dirty-shutdown count
//!   cxl.mem            the contents of the CXL device, or a link to them (see memory_file)
//!   head.mem           under stock firmware: those of the NVDIMM for the kernel's snapshot
//!   cxl.labels         of a CXL memory device: what names its parts
//!   uefi.vars          under UEFI: its variables
//!   disk.qcow2         what changed on the root disk
//!   wake.initrd, tpm/  where sleep images are sealed (see sealing)
//!   swap.img           the disk that it hibernates to, or a link to it; where there is one
//!   scratch.img        a second disk, where one was made
//!   console-001.log …  the serial console, one file for each power-on
//!   events.jsonl       the timeline
//!   lock               held while a run uses the machine
//! ```

pub mod gpf;
pub(crate) mod image_file;
mod memory_file;
mod scratch;
pub mod sealing;
mod sizes;

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, LabError};
use dormouse_system::arguments::Size;
use gpf::Gpf;
use sealing::Sealing;
pub use sizes::SizeArgs;

/// Where machines live if no other folder is named.
pub const DEFAULT_ROOT: &str = "out/lab";
/// The q35 board can have this much memory below 4 GiB.
const MAX_LOW_BYTES: u64 = 2 << 30;
const CXL_FILE: &str = "cxl.mem";
const SWAP_FILE: &str = "swap.img";
const HEAD_FILE: &str = "head.mem";
const TPM_FOLDER: &str = "tpm";
/// Modules for the kernel's snapshot are at least so large, and a multiple of it.
const HEAD_STEP_BYTES: u64 = 256 << 20;
/// The host provides all of it.
const MAX_HEAD_BYTES: u64 = 1 << 30;
const FOUR_GIB: u64 = 4 << 30;
/// DRAM beyond the size of soft-reserved memory: enough for what the kernel itself takes (about
/// 130 MiB were seen) and for some hundred threads.
const THREADS_BYTES: u64 = 256 << 20;

/// A bare name is a folder below the default root; anything else is a path.
pub fn machine_folder(machine: &Path) -> PathBuf {
    if machine.components().count() == 1 && !machine.starts_with(".") {
        Path::new(DEFAULT_ROOT).join(machine)
    } else {
        machine.to_owned()
    }
}

/// What the machine is made of; kept in `machine.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineConfig {
    /// DRAM in bytes.
    pub dram_bytes: u64,
    /// CXL memory in bytes.
    pub cxl_bytes: u64,
    /// Number of processors.
    pub cpus: u32,
    /// Identifies the CXL device; an image that another device made is not restored.
    pub device_serial: u64,
    /// How often the CXL device lost writes.
    pub dirty_shutdown_count: u64,
    /// Whether the device's last writes survive a power loss.
    #[serde(default)]
    pub gpf: Gpf,
    /// Under stock firmware: what the persistent memory is.
    #[serde(default)]
    pub memory: PersistentMemory,
    /// Size of the NVDIMM for the kernel's snapshot, where DRAM has another size since it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made_head_bytes: Option<u64>,
}

/// Persistent memory of a machine with stock firmware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PersistentMemory {
    /// Two virtual NVDIMMs: one for the kernel's snapshot, one for programs' pages.
    #[default]
    Nvdimms,
    /// One CXL memory device (type 3) behind a host bridge of its own, with labels: all of it is one
    /// region. The emulator executes each access to it by itself, so it is slow.
    CxlType3,
}

impl MachineConfig {
    /// A new device in a machine of these sizes.
    ///
    /// # Errors
    /// The sizes do not suit the board.
    pub fn new(dram: Size, cxl: Size, cpus: u32) -> Result<MachineConfig, LabError> {
        let config = MachineConfig {
            dram_bytes: dram.0,
            cxl_bytes: cxl.0,
            cpus,
            device_serial: random_serial()?,
            dirty_shutdown_count: 0,
            gpf: Gpf::default(),
            memory: PersistentMemory::default(),
            made_head_bytes: None,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), LabError> {
        let block = 128u64 << 20;
        let usage = |text: String| Err(LabError::Usage(text));
        if !self.dram_bytes.is_multiple_of(block) || self.dram_bytes < 2 * block {
            return usage(format!(
                "{} of DRAM: a multiple of 128 MiB, at least 256 MiB",
                Size(self.dram_bytes)
            ));
        }
        if !self.cxl_bytes.is_multiple_of(block) || self.cxl_bytes < 2 * block {
            return usage(format!(
                "{} of CXL memory: a multiple of 128 MiB, at least 256 MiB",
                Size(self.cxl_bytes)
            ));
        }
        // Linux 6.12 takes soft-reserved memory off the memory that it sizes its thread limit by:
        // where little is left it cannot even start its own threads, and dies while booting. (Where
        // the difference is negative it wraps around, and all is well.)
        let soft_reserved = self.cxl_bytes - block;
        if soft_reserved < self.dram_bytes && self.dram_bytes - soft_reserved < THREADS_BYTES {
            return usage(format!(
                "{} of CXL memory beside {} of DRAM: Linux cannot boot with nearly as much \
                 soft-reserved memory as DRAM; take {} more, or less",
                Size(self.cxl_bytes),
                Size(self.dram_bytes),
                Size(self.dram_bytes - soft_reserved)
            ));
        }
        if !(1..=64).contains(&self.cpus) {
            return usage(format!("{} CPUs: 1 to 64", self.cpus));
        }
        Ok(())
    }

    /// Another amount of DRAM from the next power-on; the devices stay as they are.
    pub fn set_dram(&mut self, bytes: u64) {
        self.made_head_bytes = Some(self.head_bytes());
        self.dram_bytes = bytes;
    }

    /// Size of the NVDIMM for the kernel's snapshot, under stock firmware: half of DRAM, because the
    /// kernel saves no more than that, up to a gibibyte.
    pub fn head_bytes(&self) -> u64 {
        if let Some(made) = self.made_head_bytes {
            return made;
        }
        let half = (self.dram_bytes / 2).min(MAX_HEAD_BYTES);
        half.div_ceil(HEAD_STEP_BYTES).max(1) * HEAD_STEP_BYTES
    }

    /// DRAM below 4 GiB; the rest lies above it, and the CXL device after that.
    pub fn low_bytes(&self) -> u64 {
        self.dram_bytes.min(MAX_LOW_BYTES)
    }

    /// Physical address of the CXL window.
    pub fn cxl_base(&self) -> u64 {
        FOUR_GIB + self.dram_bytes - self.low_bytes()
    }

    /// What firmware reads from `opt/dormouse/device`: base, bytes, serial, dirty-shutdown count,
    /// what the board states about losing power.
    pub fn device_description(&self) -> [u8; 40] {
        let fields = [
            self.cxl_base(),
            self.cxl_bytes,
            self.device_serial,
            self.dirty_shutdown_count,
            self.gpf.statement(),
        ];
        let mut bytes = [0; 40];
        for (slot, field) in bytes.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }
}

fn random_serial() -> Result<u64, LabError> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .doing("read /dev/urandom")?;
    // Bit 0 set: never the 0 that stands for "no serial number".
    Ok(u64::from_le_bytes(bytes) | 1)
}

/// A machine's folder, locked.
pub struct Machine {
    folder: PathBuf,
    /// Sizes and settings.
    pub config: MachineConfig,
    /// For sealed sleep images.
    pub sealing: Sealing,
    power_ons: u32,
    /// Released when it is closed.
    _lock: File,
}

impl Machine {
    /// Makes a machine anew: empty CXL device with a new serial number, unwritten disk, no logs.
    ///
    /// # Errors
    /// Another run uses it, or files cannot be written.
    pub fn create(
        folder: &Path,
        config: MachineConfig,
        rootfs: &Path,
    ) -> Result<Machine, LabError> {
        config.check()?;
        let lock = lock(folder)?;
        for entry in fs::read_dir(folder)
            .doing(format!("read {}", folder.display()))?
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if [CXL_FILE, SWAP_FILE, HEAD_FILE].contains(&name.as_str()) {
                memory_file::remove(&entry.path());
            } else if name == TPM_FOLDER {
                fs::remove_dir_all(entry.path()).doing("remove the old TPM")?;
            } else if is_ours(&name) {
                fs::remove_file(entry.path()).doing(format!("remove old {name}"))?;
            }
        }
        let mut machine = Machine::new(folder, config, lock);
        machine.make_disk(rootfs)?;
        let config = &machine.config;
        memory_file::prepare(&machine.cxl_file(), config.cxl_bytes, config.dram_bytes)?;
        machine.resize_cxl(machine.config.cxl_bytes)?;
        Ok(machine)
    }

    /// A machine that was never switched on.
    fn new(folder: &Path, config: MachineConfig, lock: File) -> Machine {
        Machine {
            folder: folder.to_owned(),
            config,
            sealing: Sealing::default(),
            power_ons: 0,
            _lock: lock,
        }
    }

    /// Takes a machine as an earlier run left it; None where there is none.
    ///
    /// # Errors
    /// Another run uses it, or its files are damaged.
    pub fn open(folder: &Path) -> Result<Option<Machine>, LabError> {
        let file = folder.join("machine.json");
        if !file.exists() {
            return Ok(None);
        }
        let lock = lock(folder)?;
        let text = fs::read_to_string(&file).doing(format!("read {}", file.display()))?;
        let config: MachineConfig = serde_json::from_str(&text)
            .map_err(|error| LabError::Unexpected(format!("{}: {error}", file.display())))?;
        config.check()?;
        let mut machine = Machine::new(folder, config, lock);
        while machine.console_log(machine.power_ons + 1).exists() {
            machine.power_ons += 1;
        }
        if !machine.cxl_file().exists() || !machine.disk().exists() {
            return Ok(None);
        }
        Ok(Some(machine))
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file with the contents of the CXL device.
    pub fn cxl_file(&self) -> PathBuf {
        self.folder.join(CXL_FILE)
    }

    /// The NVDIMM for the kernel's snapshot; it is not there but under stock firmware.
    pub fn head_file(&self) -> PathBuf {
        self.folder.join(HEAD_FILE)
    }

    /// The label area of a CXL memory device; the emulator makes it.
    pub fn labels_file(&self) -> PathBuf {
        self.folder.join("cxl.labels")
    }

    /// UEFI's variables.
    pub fn variables_file(&self) -> PathBuf {
        self.folder.join("uefi.vars")
    }

    /// Makes what stock firmware needs, where it is not there yet. `variables`: UEFI's, as they
    /// are at first.
    ///
    /// # Errors
    /// The files cannot be made.
    pub fn make_stock_parts(&self, variables: Option<&Path>) -> Result<(), LabError> {
        let path = self.head_file();
        if self.config.memory == PersistentMemory::Nvdimms && !path.exists() {
            let bytes = self.config.head_bytes();
            memory_file::prepare(&path, bytes, self.config.dram_bytes)?;
            File::create(&path)
                .and_then(|file| file.set_len(bytes))
                .doing(format!("make {} {} large", path.display(), Size(bytes)))?;
        }
        if let Some(from) = variables
            && !self.variables_file().exists()
        {
            fs::copy(from, self.variables_file())
                .doing(format!("copy {} (package ovmf)", from.display()))?;
        }
        Ok(())
    }

    /// The initrd of a machine that seals its sleep images.
    pub fn wake_initrd(&self) -> PathBuf {
        sealing::initrd(&self.folder)
    }

    /// The memory of its TPM; it has none where this is not there.
    pub fn tpm_folder(&self) -> PathBuf {
        sealing::tpm_folder(&self.folder)
    }

    /// The overlay of the root disk.
    pub fn disk(&self) -> PathBuf {
        self.folder.join("disk.qcow2")
    }

    /// The disk for hibernation; not there unless [`Machine::make_swap_disk`] made it.
    pub fn swap_disk(&self) -> PathBuf {
        self.folder.join(SWAP_FILE)
    }

    /// A second disk; it is not there unless [`Machine::make_scratch_disk`] made it.
    pub fn scratch_disk(&self) -> PathBuf {
        self.folder.join("scratch.img")
    }

    /// The timeline.
    pub fn events_file(&self) -> PathBuf {
        self.folder.join("events.jsonl")
    }

    /// Where a console can be attached to while the machine runs.
    pub fn attach_socket(&self) -> PathBuf {
        self.folder.join("console.sock")
    }

    /// Number of power-ons so far.
    pub fn power_ons(&self) -> u32 {
        self.power_ons
    }

    /// Counts a power-on.
    pub fn next_power_on(&mut self) -> u32 {
        self.power_ons += 1;
        self.power_ons
    }

    /// The console log of a power-on.
    pub fn console_log(&self, power_on: u32) -> PathBuf {
        self.folder.join(format!("console-{power_on:03}.log"))
    }

    /// What QEMU itself says.
    pub fn emulator_log(&self, power_on: u32) -> PathBuf {
        self.folder.join(format!("qemu-{power_on:03}.log"))
    }

    /// Makes the CXL device (and its file) larger or smaller; what remains keeps its contents.
    ///
    /// # Errors
    /// The file cannot be changed.
    pub fn resize_cxl(&mut self, bytes: u64) -> Result<(), LabError> {
        self.config.cxl_bytes = bytes;
        let path = self.cxl_file();
        OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .and_then(|file| file.set_len(bytes))
            .doing(format!("make {} {} large", path.display(), Size(bytes)))?;
        self.save()
    }

    /// Makes an empty disk to hibernate to. It lies beside the CXL device's contents, on tmpfs
    /// where there is room: no disk is faster.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn make_swap_disk(&self, bytes: u64) -> Result<(), LabError> {
        let path = self.swap_disk();
        memory_file::prepare(&path, bytes, self.config.dram_bytes)?;
        File::create(&path)
            .and_then(|file| file.set_len(bytes))
            .doing(format!("make {} {} large", path.display(), Size(bytes)))
    }

    /// Writes `machine.json` after the configuration was changed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self) -> Result<(), LabError> {
        self.config.check()?;
        let path = self.folder.join("machine.json");
        let text = serde_json::to_string_pretty(&self.config).expect("plain data");
        fs::write(&path, text + "\n").doing(format!("write {}", path.display()))
    }

    /// Removes what is large: the CXL device's contents and the disk. Logs stay.
    pub fn discard(&self) {
        memory_file::remove(&self.cxl_file());
        memory_file::remove(&self.swap_disk());
        memory_file::remove(&self.head_file());
        let _ = fs::remove_file(self.disk());
        let _ = fs::remove_file(self.scratch_disk());
    }

    fn make_disk(&self, rootfs: &Path) -> Result<(), LabError> {
        let output = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
            .arg(rootfs)
            .arg(self.disk())
            .output()
            .map_err(|_| LabError::MissingTool {
                program: "qemu-img".into(),
            })?;
        if output.status.success() {
            return Ok(());
        }
        Err(LabError::Unexpected(format!(
            "qemu-img failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )))
    }
}

/// Whether a file in a machine's folder was made by the lab.
fn is_ours(name: &str) -> bool {
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(".log"))
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    [
        "machine.json",
        "disk.qcow2",
        "scratch.img",
        "uefi.vars",
        "wake.initrd",
        "events.jsonl",
        "cycles.jsonl",
        "console.sock",
    ]
    .contains(&name)
        || numbered("console-")
        || numbered("qemu-")
        || numbered("tpm-")
}

fn lock(folder: &Path) -> Result<File, LabError> {
    fs::create_dir_all(folder).doing(format!("create {}", folder.display()))?;
    let path = folder.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .doing(format!("open {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LabError::Busy {
            path: folder.to_owned(),
        }),
        Err(error) => Err(error).doing(format!("lock {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dram_mib: u64) -> MachineConfig {
        MachineConfig::new(Size::mib(dram_mib), Size::mib(8192), 2).unwrap()
    }

    #[test]
    fn the_cxl_window_starts_above_4_gib_whatever_the_dram() {
        assert_eq!(config(512).cxl_base(), 4 << 30);
        assert_eq!(config(2048).cxl_base(), 4 << 30);
        assert_eq!(config(3072).cxl_base(), 5 << 30);
    }

    #[test]
    fn the_head_keeps_its_size_when_dram_changes() {
        let mut config = config(1024);
        let head = config.head_bytes();
        config.set_dram(1152 << 20);
        assert_eq!(config.head_bytes(), head);
        config.set_dram(2048 << 20);
        assert_eq!(config.head_bytes(), head);
        assert!(super::tests::config(2048).head_bytes() > head);
    }

    #[test]
    fn firmware_gets_the_device_in_five_little_endian_words() {
        let mut config = config(1024);
        config.device_serial = 0x1122;
        config.dirty_shutdown_count = 3;
        let bytes = config.device_description();
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words, [4 << 30, 8 << 30, 0x1122, 3, 7]);
    }

    #[test]
    fn sizes_that_no_memory_block_fits_are_a_usage_error() {
        for (dram, cxl) in [(100, 1024), (1024, 100), (1024, 0), (512, 512)] {
            let error = MachineConfig::new(Size::mib(dram), Size::mib(cxl), 2).unwrap_err();
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn two_runs_do_not_share_a_machine() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path()).unwrap();
        assert!(matches!(lock(folder.path()), Err(LabError::Busy { .. })));
        drop(held);
        assert!(lock(folder.path()).is_ok());
    }

    #[test]
    fn only_our_files_are_ever_removed() {
        for name in ["machine.json", "console-001.log", "qemu-012.log"] {
            assert!(is_ours(name), "{name}");
        }
        for name in ["notes.txt", "console-x.log", "console-.txt", "lock"] {
            assert!(!is_ours(name), "{name}");
        }
    }

    #[test]
    fn a_name_is_a_folder_in_the_output_and_a_path_is_a_path() {
        assert_eq!(machine_folder(Path::new("demo")), Path::new("out/lab/demo"));
        assert_eq!(machine_folder(Path::new("./demo")), Path::new("./demo"));
        assert_eq!(
            machine_folder(Path::new("/tmp/demo")),
            Path::new("/tmp/demo")
        );
    }
}
