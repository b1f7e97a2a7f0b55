//! Pages that are swapped out while the machine sleeps: to a file on the disk, and to zram.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};

use super::memory::{PAGE, Region, anonymous, counter, ok};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};
use crate::system::modules;

const FILE: &str = "/var/tmp/hard-to-move-swap";
const ZRAM: &str = "/dev/zram0";
const ZRAM_BLOCK: &str = "/sys/block/zram0";
/// Higher is used first.
const DISK_PRIORITY: i32 = 5;
const ZRAM_PRIORITY: i32 = 10;

// include/linux/swap.h
const SWAP_FLAG_PREFER: i32 = 0x8000;
const SWAP_FLAG_PRIO_MASK: i32 = 0x7fff;

pub struct Swapped {
    region: Region,
    device: &'static str,
    seed: u64,
}

/// Out to a file on the disk. To be set up before zram, which is used first.
pub fn disk(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let bytes = plan.bytes * 2 + PAGE;
    // No holes: swap files must not have any.
    fs::write(FILE, vec![0; bytes]).doing(format!("write {FILE}"))?;
    fs::set_permissions(FILE, fs::Permissions::from_mode(0o600)).doing("close the swap file")?;
    swap_on(FILE, bytes, DISK_PRIORITY)?;
    swapped_out(plan, FILE)
}

/// Out to compressed memory: pages of the kernel's, full of pages of users'.
pub fn zram(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let complaints = modules::load_all(&modules::more_modules());
    let size = format!("{ZRAM_BLOCK}/disksize");
    let bytes = plan.bytes * 2 + PAGE;
    fs::write(&size, bytes.to_string())
        .doing(format!("write {size} ({})", complaints.join("; ")))?;
    swap_on(ZRAM, bytes, ZRAM_PRIORITY)?;
    swapped_out(plan, ZRAM)
}

/// Writes the header of a swap area (what mkswap writes) and adds it.
fn swap_on(path: &str, bytes: usize, priority: i32) -> Result<(), GuestError> {
    let mut header = vec![0u8; PAGE];
    let last_page = (bytes / PAGE - 1) as u32;
    header[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    header[1028..1032].copy_from_slice(&last_page.to_le_bytes());
    header[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
    let file = File::options()
        .write(true)
        .open(path)
        .doing(format!("open {path}"))?;
    file.write_all_at(&header, 0)
        .and_then(|()| file.sync_all())
        .doing(format!("write the header of {path}"))?;
    let name = std::ffi::CString::new(path).expect("our own text");
    let flags = SWAP_FLAG_PREFER | (priority & SWAP_FLAG_PRIO_MASK);
    // SAFETY: a path that ends with a zero.
    ok(unsafe { libc::swapon(name.as_ptr(), flags) }).doing(format!("add swap on {path}"))?;
    Ok(())
}

/// Used kilobytes of a swap area, from /proc/swaps.
fn used_kib(device: &str) -> u64 {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    text.lines()
        .find(|line| line.starts_with(device))
        .and_then(|line| line.split_ascii_whitespace().nth(3)?.parse().ok())
        .unwrap_or(0)
}

fn swapped_out(plan: &Plan, device: &'static str) -> Result<Box<dyn Kind>, GuestError> {
    let mut region = anonymous(plan.bytes, 0)?;
    region.advise(libc::MADV_NOHUGEPAGE, "ask for small pages")?;
    region.fill(plan.seed);
    let swapped = Swapped {
        region,
        device,
        seed: plan.seed,
    };
    swapped.page_out()?;
    Ok(Box::new(swapped))
}

impl Swapped {
    fn page_out(&self) -> Result<(), GuestError> {
        self.region.advise(libc::MADV_PAGEOUT, "swap pages out")?;
        let out = self.region.smaps("Swap")?;
        if out < self.region.bytes() as u64 / 2 || used_kib(self.device) == 0 {
            let text = format!(
                "{out} of {} bytes are swapped out, {} KiB of {} used, {} pages ever",
                self.region.bytes(),
                used_kib(self.device),
                self.device,
                counter("/proc/vmstat", "pswpout")
            );
            return Err(GuestError::Other(text));
        }
        Ok(())
    }
}

impl Kind for Swapped {
    fn verify(&mut self) -> Result<(), String> {
        self.region.verify(self.seed)?;
        // Out again for the next sleep.
        self.page_out().map_err(|error| error.to_string())
    }
}
