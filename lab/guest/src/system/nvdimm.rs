//! The machine's NVDIMMs under stock firmware: made into dax devices once, as `ndctl create-namespace
//! --mode devdax --map mem` does it, and set up for sleeping by `dormouse setup-device`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dormouse_guest::protocol::SWAP_ON_PMEM;

const ND: &str = "/sys/bus/nd";
const DAX: &str = "/sys/bus/dax/devices";
/// What Linux maps at once.
const ALIGN_BYTES: &str = "2097152";
const TIMEOUT: Duration = Duration::from_secs(20);

/// Whether there is an NVDIMM.
pub fn is_there() -> bool {
    Path::new(ND).join("devices/region0").exists()
}

/// Whether the machine hibernates to an NVDIMM: then they stay block devices.
pub fn is_swap() -> bool {
    fs::read_to_string("/proc/cmdline")
        .is_ok_and(|line| line.split_whitespace().any(|word| word == SWAP_ON_PMEM))
}

/// The block device of the second NVDIMM, as soon as the kernel has made it.
pub fn swap() -> Option<String> {
    const NAME: &str = "pmem1";
    Path::new("/sys/block")
        .join(NAME)
        .exists()
        .then(|| NAME.to_owned())
}

/// Waits until the kernel has made it; without it, the machine boots.
pub fn wait_for_swap() {
    let started = Instant::now();
    while swap().is_none() && started.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(5));
    }
}

/// Sets both up where that was not done before; returns what went wrong.
pub fn set_up() -> Vec<String> {
    let mut complaints = Vec::new();
    for region in 0..2 {
        // One that was converted before is a dax device by itself.
        if !Path::new(DAX).join(format!("dax{region}.0")).exists()
            && let Err(error) = convert(region)
        {
            complaints.push(format!("region{region}: {error}"));
        }
    }
    let output = Command::new("dormouse")
        .args(["setup-device", "--head", "dax0.0", "--node", "dax1.0"])
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            complaints.push(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Err(error) => complaints.push(format!("dormouse setup-device: {error}")),
    }
    complaints
}

fn convert(region: u32) -> Result<(), String> {
    let write = |path: String, text: &str| {
        fs::write(&path, text).map_err(|error| format!("write {text} to {path}: {error}"))
    };
    let devices = format!("{ND}/devices");
    let namespace = format!("namespace{region}.0");
    let seed_file = format!("{devices}/region{region}/dax_seed");
    let seed = fs::read_to_string(&seed_file).map_err(|error| format!("{seed_file}: {error}"))?;
    let seed = seed.trim();
    let bound = format!("{devices}/{namespace}/driver");
    if Path::new(&bound).exists() {
        write(format!("{ND}/drivers/nd_pmem/unbind"), &namespace)?;
    }
    write(format!("{devices}/{seed}/uuid"), &uuid()?)?;
    write(format!("{devices}/{seed}/align"), ALIGN_BYTES)?;
    write(format!("{devices}/{seed}/mode"), "ram")?;
    write(format!("{devices}/{seed}/namespace"), &namespace)?;
    write(format!("{ND}/drivers/dax_pmem/bind"), seed)
}

fn uuid() -> Result<String, String> {
    fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map(|text| text.trim().to_owned())
        .map_err(|error| error.to_string())
}
