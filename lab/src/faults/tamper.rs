//! Damages the image of a sleeping machine (on its CXL device, or on the disk that it hibernated
//! to). The machine must never resume wrong memory.

use dormouse_image::{ImageKind, edit};

use crate::error::{LabError, named};
use crate::faults::draw_below;
use crate::machine::Machine;
use crate::machine::image_file::{
    DeviceFile, HEADERS_BYTES, Header, PAGE_BYTES, newest_copy, read_headers, read_part, user_pages,
};

/// The emulated board takes devices in steps of this.
const BLOCK_BYTES: u64 = 128 << 20;

/// A way to damage it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tamper {
    Header,
    Bitmap,
    Page,
    UserPage,
    UserPages,
    Version,
    Truncate,
    Foreign,
    Serial,
    DirtyShutdown,
    SwapSignature,
    Forged,
    Tag,
    Unsealed,
    WrongKey,
    NoTpm,
    Replay,
}

/// All ways, with names and what each does.
pub const TAMPERS: [(Tamper, &str, &str); 17] = [
    (Tamper::Header, "header", "flip one bit in the header"),
    (
        Tamper::Bitmap,
        "bitmap",
        "flip one bit in the bitmap of saved pages",
    ),
    (Tamper::Page, "page", "flip one bit in a saved page"),
    (
        Tamper::UserPage,
        "user-page",
        "flip one bit in a program's page (found with --verify-user-pages all)",
    ),
    (
        Tamper::UserPages,
        "user-pages",
        "write something else over every 16th page of programs",
    ),
    (
        Tamper::Version,
        "version",
        "make it an image of another version",
    ),
    (
        Tamper::Truncate,
        "truncate",
        "make the device one memory block smaller",
    ),
    (
        Tamper::Foreign,
        "foreign",
        "write something else over the whole header",
    ),
    (
        Tamper::Serial,
        "serial",
        "put another device with the same contents in its place",
    ),
    (
        Tamper::DirtyShutdown,
        "dirty-shutdown",
        "let the device lose writes, and count it",
    ),
    (
        Tamper::Forged,
        "forged",
        "change a bitmap and make all digests right again (found with --seal)",
    ),
    (
        Tamper::Tag,
        "tag",
        "flip one bit in the table of tags (with --seal)",
    ),
    (
        Tamper::Unsealed,
        "unsealed",
        "make it an image in plain text (with --seal)",
    ),
    (
        Tamper::WrongKey,
        "wrong-key",
        "give the machine another key or passphrase (with --seal)",
    ),
    (
        Tamper::NoTpm,
        "no-tpm",
        "take the TPM out (with --seal tpm)",
    ),
    (
        Tamper::Replay,
        "replay",
        "put the first cycle's image back at each later one (with --seal tpm)",
    ),
    (
        Tamper::SwapSignature,
        "swap-signature",
        "write something else over the signature of the hibernation image",
    ),
];

impl Tamper {
    /// Whether it damages what a machine hibernated to.
    pub fn is_for_hibernation(self) -> bool {
        self == Tamper::SwapSignature
    }

    /// Whether it is about sealed images only.
    pub fn needs_seal(self) -> bool {
        use Tamper::{Forged, NoTpm, Replay, Tag, Unsealed, WrongKey};
        matches!(self, Forged | Tag | Unsealed | WrongKey | NoTpm | Replay)
    }

    /// Whether it is about what only a TPM offers.
    pub fn needs_tpm(self) -> bool {
        matches!(self, Tamper::NoTpm | Tamper::Replay)
    }

    /// The way of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn by_name(name: &str) -> Result<Tamper, LabError> {
        let what = "way to damage an image";
        let (tamper, ..) = named(&TAMPERS, |(_, known, _)| known, name, what, "--tamper")?;
        Ok(tamper)
    }

    /// Tampers with a machine that is switched off; `number`s derived from the seed choose the bit.
    ///
    /// # Errors
    /// There is no image, or the file cannot be changed.
    pub fn apply(self, machine: &mut Machine, seed: u64) -> Result<(), LabError> {
        let file = if self.is_for_hibernation() {
            DeviceFile::plain(&machine.swap_disk())?
        } else {
            DeviceFile::with_header(machine)?
        };
        let random = |limit: u64| draw_below(seed, 1, limit);
        match self {
            Tamper::Header => {
                let copy = newest_copy(&file)?.0 as u64;
                flip_bit(&file, copy * PAGE_BYTES + random(PAGE_BYTES), seed)
            }
            Tamper::Bitmap => {
                let (_, header) = newest_copy(&file)?;
                // The kernel's snapshot has none of DRAM.
                let (offset, bytes) = match header.dram_bitmap_bytes {
                    0 => (header.cxl_bitmap_offset, header.cxl_bitmap_bytes),
                    bytes => (header.dram_bitmap_offset, bytes),
                };
                flip_bit(&file, offset + random(bytes), seed)
            }
            Tamper::Page => {
                let page = saved_page(&file, seed)?;
                flip_bit(&file, page * PAGE_BYTES + random(PAGE_BYTES), seed)
            }
            Tamper::UserPage => {
                let pages = pages_of_programs(&file)?;
                let page = pages[random(pages.len() as u64) as usize];
                let file = DeviceFile::with_user_pages(machine)?;
                flip_bit(&file, page * PAGE_BYTES + random(PAGE_BYTES), seed)
            }
            Tamper::UserPages => {
                let pages = pages_of_programs(&file)?;
                let file = DeviceFile::with_user_pages(machine)?;
                let garbage = [0xa5 ^ seed as u8; PAGE_BYTES as usize];
                for page in pages.iter().skip(random(16) as usize).step_by(16) {
                    file.write(&garbage, page * PAGE_BYTES)?;
                }
                Ok(())
            }
            Tamper::Version => {
                let (_, mut header) = newest_copy(&file)?;
                header.version += 1;
                edit::seal(&mut header);
                write_both(&file, &header)
            }
            Tamper::Truncate => {
                machine.resize_cxl(machine.config.cxl_bytes.saturating_sub(BLOCK_BYTES))
            }
            Tamper::Foreign => {
                let text = b"This is not a sleep image. ".repeat(HEADERS_BYTES / 27 + 1);
                file.write(&text[..HEADERS_BYTES], 0)
            }
            Tamper::Serial => {
                machine.config.device_serial ^= 0xff00;
                machine.save()
            }
            Tamper::Forged => forge_bitmap(&file, random(8)),
            Tamper::Tag => {
                let (_, header) = newest_copy(&file)?;
                let record = header.encryption;
                flip_bit(
                    &file,
                    record.tag_table_offset + random(record.tag_table_bytes),
                    seed,
                )
            }
            Tamper::Unsealed => {
                let (_, mut header) = newest_copy(&file)?;
                header.flags = 0;
                header.encryption = Default::default();
                edit::seal(&mut header);
                write_both(&file, &header)
            }
            Tamper::WrongKey | Tamper::NoTpm | Tamper::Replay => Err(LabError::Unexpected(
                "it is no change of the image alone".into(),
            )),
            Tamper::SwapSignature => file.write(b"not an img", PAGE_BYTES - 10),
            Tamper::DirtyShutdown => {
                machine.config.dirty_shutdown_count += 1;
                machine.save()
            }
        }
    }
}

/// The other copy must not be what the checker then falls back to.
fn write_both(file: &DeviceFile, header: &Header) -> Result<(), LabError> {
    let mut window = read_headers(file)?;
    for copy in [0, 1] {
        edit::write_header(&mut window, copy, header);
    }
    file.write(&window, 0)
}

/// What knowledge of the format allows: the digests of a changed bitmap are right.
fn forge_bitmap(file: &DeviceFile, byte: u64) -> Result<(), LabError> {
    let (_, mut header) = newest_copy(file)?;
    let mut bitmap = read_part(file, header.cxl_bitmap_offset, header.cxl_bitmap_bytes)?;
    bitmap[byte as usize] ^= 1;
    file.write(&bitmap, header.cxl_bitmap_offset)?;
    header.cxl_bitmap_digest = dormouse_image::digest::xxh64(&bitmap);
    edit::seal(&mut header);
    write_both(file, &header)
}

/// A page of the window that holds saved data, chosen by the seed of the random numbers.
fn saved_page(file: &DeviceFile, seed: u64) -> Result<u64, LabError> {
    let (_, header) = newest_copy(file)?;
    if header.kind == ImageKind::SNAPSHOT.0 {
        let page = draw_below(seed, 2, header.saved_pages.max(1));
        return Ok(header.data_offset / PAGE_BYTES + page);
    }
    let bitmap = read_part(file, header.cxl_bitmap_offset, header.cxl_bitmap_bytes)?;
    let wanted = draw_below(seed, 2, header.saved_pages.max(1));
    free_page(&bitmap, header.data_offset / PAGE_BYTES, wanted)
        .ok_or_else(|| LabError::Unexpected("the image has no saved page".into()))
}

fn pages_of_programs(file: &DeviceFile) -> Result<Vec<u64>, LabError> {
    let (_, header) = newest_copy(file)?;
    let pages = user_pages(file, &header)?;
    if pages.is_empty() {
        return Err(LabError::Unexpected("the image has no user page".into()));
    }
    Ok(pages)
}

/// Saved pages lie in the pages whose bit is clear, in order: the one of that number.
fn free_page(bitmap: &[u8], first_page: u64, number: u64) -> Option<u64> {
    (first_page..bitmap.len() as u64 * 8)
        .filter(|page| bitmap[(page / 8) as usize] >> (page % 8) & 1 == 0)
        .nth(usize::try_from(number).ok()?)
}

fn flip_bit(file: &DeviceFile, at: u64, seed: u64) -> Result<(), LabError> {
    let mut byte = [0];
    file.read(&mut byte, at)?;
    byte[0] ^= 1 << draw_below(seed, 3, 8);
    file.write(&byte, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_pages_are_counted_in_free_pages_only() {
        let bitmap = [0b1111_0001, 0b0000_0010];
        assert_eq!(free_page(&bitmap, 0, 0), Some(1));
        assert_eq!(free_page(&bitmap, 3, 0), Some(3));
        assert_eq!(free_page(&bitmap, 3, 1), Some(8));
        assert_eq!(free_page(&bitmap, 3, 2), Some(10));
        assert_eq!(free_page(&bitmap, 3, 99), None);
    }

    #[test]
    fn every_way_is_found_by_its_name() {
        for (tamper, name, _) in TAMPERS {
            assert_eq!(Tamper::by_name(name).unwrap(), tamper);
        }
        assert_eq!(Tamper::by_name("nothing").unwrap_err().exit_code(), 2);
    }
}
