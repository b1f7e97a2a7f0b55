//! The image in a machine's files, for what damages it: at the beginning of the CXL device, or under
//! stock firmware on two NVDIMMs.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use dormouse_image::{ImageKind, UserCheck, edit};

use crate::error::{Doing, LabError};
use crate::machine::Machine;

pub const PAGE_BYTES: u64 = 4096;
/// Where both copies of the header are.
pub const HEADERS_BYTES: usize = 8192;
/// Linux keeps a description of its own before the data of an NVDIMM.
const NVDIMM_DATA_OFFSET: u64 = 2 << 20;

pub type Header = dormouse_image::sys::dormouse_header;

/// A file, and where in it the device begins that Linux shows.
pub struct DeviceFile {
    file: File,
    offset: u64,
}

impl DeviceFile {
    fn open(path: &std::path::Path, offset: u64) -> Result<DeviceFile, LabError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .doing(format!("open {}", path.display()))?;
        Ok(DeviceFile { file, offset })
    }

    /// The device with the header.
    ///
    /// # Errors
    /// There is no such file.
    pub fn with_header(machine: &Machine) -> Result<DeviceFile, LabError> {
        if machine.head_file().exists() {
            DeviceFile::open(&machine.head_file(), NVDIMM_DATA_OFFSET)
        } else {
            DeviceFile::open(&machine.cxl_file(), 0)
        }
    }

    /// The device with the programs' pages.
    ///
    /// # Errors
    /// There is no such file.
    pub fn with_user_pages(machine: &Machine) -> Result<DeviceFile, LabError> {
        let stock = machine.head_file().exists();
        let offset = if stock { NVDIMM_DATA_OFFSET } else { 0 };
        DeviceFile::open(&machine.cxl_file(), offset)
    }

    /// A file without anything before the image.
    ///
    /// # Errors
    /// There is no such file.
    pub fn plain(path: &std::path::Path) -> Result<DeviceFile, LabError> {
        DeviceFile::open(path, 0)
    }

    /// Reads a part.
    ///
    /// # Errors
    /// The file is too short or cannot be read.
    pub fn read(&self, to: &mut [u8], at: u64) -> Result<(), LabError> {
        let at = self.offset + at;
        self.file.read_exact_at(to, at).doing("read the image")
    }

    /// Writes a part.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<(), LabError> {
        let at = self.offset + at;
        self.file.write_all_at(bytes, at).doing("change the image")
    }
}

/// Both copies of the header.
///
/// # Errors
/// The file is too short or cannot be read.
pub fn read_headers(file: &DeviceFile) -> Result<Vec<u8>, LabError> {
    let mut window = vec![0; HEADERS_BYTES];
    file.read(&mut window, 0)?;
    Ok(window)
}

/// The header that counts, and which copy it is.
///
/// # Errors
/// There is none.
pub fn newest_copy(file: &DeviceFile) -> Result<(usize, Box<Header>), LabError> {
    let window = read_headers(file)?;
    let copy = edit::newest(&window)
        .map_err(|why| LabError::Unexpected(format!("there is no image to damage: {why}")))?;
    let header = edit::read_header(&window, copy).expect("the window has both copies");
    Ok((copy, header))
}

/// A part of the image before its saved pages.
///
/// # Errors
/// The file is too short or cannot be read.
pub fn read_part(file: &DeviceFile, offset: u64, bytes: u64) -> Result<Vec<u8>, LabError> {
    let mut part = vec![0; bytes as usize];
    file.read(&mut part, offset)?;
    Ok(part)
}

/// Pages that programs occupied: behind the reserved part, where all pages have a digest only
/// those that have one (memory that Linux had not put online counts as occupied too).
///
/// # Errors
/// The file is too short or cannot be read.
pub fn user_pages(file: &DeviceFile, header: &Header) -> Result<Vec<u64>, LabError> {
    let bitmap = read_part(file, header.cxl_bitmap_offset, header.cxl_bitmap_bytes)?;
    let table = read_part(file, header.user_table_offset, header.user_table_bytes)?;
    let all = header.user_check == UserCheck::ALL.0;
    let has_digest = |page: u64| {
        let at = (page / dormouse_image::user_pages::GROUP_PAGES * 8) as usize;
        table[at..at + 8].iter().any(|&byte| byte != 0)
    };
    // The kernel's snapshot has a device for them alone.
    let pages = if header.kind == ImageKind::SNAPSHOT.0 {
        0..header.snapshot.node_bytes / PAGE_BYTES
    } else {
        header.reserved_bytes / PAGE_BYTES..header.cxl_bytes / PAGE_BYTES
    };
    Ok(pages
        .filter(|page| bitmap[(page / 8) as usize] >> (page % 8) & 1 == 1)
        .filter(|&page| !all || has_digest(page))
        .collect())
}
