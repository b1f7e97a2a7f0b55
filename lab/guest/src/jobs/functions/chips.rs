//! The clock, the TPM, random numbers, the management controller, a memory on the SMBus.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{folder, last, other};
use crate::error::GuestError;

/// TPM2_GetRandom, 8 bytes.
const GET_RANDOM: [u8; 12] = [0x80, 1, 0, 0, 0, 12, 0, 0, 1, 0x7b, 0, 8];
/// Its answer: head, length, bytes.
const RANDOM_BYTES: usize = 10 + 2 + 8;

fn open(path: &str) -> Result<File, GuestError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| other(&format!("open {path}"), &error))
}

fn complain(what: &str) -> GuestError {
    other(what, &io::Error::last_os_error())
}

pub fn clock() -> Result<(), GuestError> {
    let path = "/sys/class/rtc/rtc0/time";
    let text = fs::read_to_string(path).map_err(|error| other(&format!("read {path}"), &error))?;
    match text.trim().split(':').count() {
        3 => Ok(()),
        _ => Err(GuestError::Other(format!("{text:?} is no time"))),
    }
}

pub fn tpm() -> Result<(), GuestError> {
    let mut tpm = open("/dev/tpm0")?;
    tpm.write_all(&GET_RANDOM)
        .map_err(|error| other("ask the TPM", &error))?;
    let mut answer = [0; 64];
    let count = tpm
        .read(&mut answer)
        .map_err(|error| other("read the TPM's answer", &error))?;
    let code = u32::from_be_bytes([answer[6], answer[7], answer[8], answer[9]]);
    match (count, code) {
        (RANDOM_BYTES, 0) => Ok(()),
        _ => Err(GuestError::Other(format!("{count} bytes, code {code:#x}"))),
    }
}

pub fn entropy() -> Result<(), GuestError> {
    let path = "/dev/hwrng";
    let mut bytes = [0; 16];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| other(&format!("read {path}"), &error))?;
    match bytes == [0; 16] {
        true => Err(GuestError::Other("16 bytes of 0".into())),
        false => Ok(()),
    }
}

/// linux/ipmi.h
#[repr(C)]
struct IpmiMessage {
    netfn: u8,
    cmd: u8,
    data_len: u16,
    data: *mut u8,
}

#[repr(C)]
struct IpmiRequest {
    address: *const IpmiAddress,
    address_len: u32,
    id: libc::c_long,
    message: IpmiMessage,
}

#[repr(C)]
struct IpmiReceived {
    kind: libc::c_int,
    address: *mut IpmiAddress,
    address_len: u32,
    id: libc::c_long,
    message: IpmiMessage,
}

#[repr(C)]
struct IpmiAddress {
    kind: libc::c_int,
    channel: libc::c_short,
    lun: u8,
    /// The kernel writes no longer address than `address_len`.
    rest: [u8; 33],
}

/// Get Device ID: of the application's functions.
const APPLICATION: u8 = 6;
const GET_DEVICE_ID: u8 = 1;

const fn ioctl_number(direction: u64, kind: u8, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | (kind as u64) << 8 | number
}

pub fn ipmi() -> Result<(), GuestError> {
    const SEND: u64 = ioctl_number(2, b'i', 13, size_of::<IpmiRequest>());
    const RECEIVE: u64 = ioctl_number(3, b'i', 11, size_of::<IpmiReceived>());
    let controller = open("/dev/ipmi0")?;
    let mut address = IpmiAddress {
        kind: 0xc,
        channel: 0xf,
        lun: 0,
        rest: [0; 33],
    };
    let request = IpmiRequest {
        address: &address,
        address_len: 8,
        id: 1,
        message: IpmiMessage {
            netfn: APPLICATION,
            cmd: GET_DEVICE_ID,
            data_len: 0,
            data: std::ptr::null_mut(),
        },
    };
    let fd = controller.as_raw_fd();
    // SAFETY: the request and its address live until the call returns.
    if unsafe { libc::ioctl(fd, SEND as _, &request) } != 0 {
        return Err(complain("ask the management controller"));
    }
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor, which lives until the call returns.
    if unsafe { libc::poll(&mut poll, 1, 5000) } != 1 {
        return Err(GuestError::Other("no answer within 5 s".into()));
    }
    let mut data = [0_u8; 64];
    let mut received = IpmiReceived {
        kind: 0,
        address: &mut address,
        address_len: size_of::<IpmiAddress>() as u32,
        id: 0,
        message: IpmiMessage {
            netfn: 0,
            cmd: 0,
            data_len: data.len() as u16,
            data: data.as_mut_ptr(),
        },
    };
    // SAFETY: all that it points to lives until the call returns, with the lengths that it says.
    if unsafe { libc::ioctl(fd, RECEIVE as _, &mut received) } != 0 {
        return Err(complain("hear the management controller"));
    }
    match (received.message.cmd, data[0]) {
        (GET_DEVICE_ID, 0) => Ok(()),
        (command, code) => Err(GuestError::Other(format!(
            "answer to command {command}, code {code:#x}"
        ))),
    }
}

/// linux/i2c-dev.h
#[repr(C)]
struct SmbusCall {
    reads: u8,
    command: u8,
    size: u32,
    data: *mut u8,
}

const I2C_SLAVE_FORCE: u64 = 0x0706;
const I2C_SMBUS: u64 = 0x0720;
const BYTE_DATA: u32 = 2;
/// Of the emulated machine's memory modules' descriptions the first one.
const MEMORY: libc::c_ulong = 0x50;
const PLACE: u8 = 0x7f;
/// Such memories take 5 to 10 ms.
const WRITE_LIMIT: Duration = Duration::from_millis(100);

pub fn smbus(value: u8) -> Result<(), GuestError> {
    let bus = folder("/sys/class/i2c-dev")?.into_iter().find(|bus| {
        fs::read_to_string(bus.join("name")).is_ok_and(|name| name.starts_with("SMBus"))
    });
    let bus = bus.ok_or_else(|| GuestError::Other("no SMBus".into()))?;
    let node = PathBuf::from("/dev").join(last(&bus));
    let file = open(&node.to_string_lossy())?;
    let fd = file.as_raw_fd();
    // SAFETY: takes a number.
    if unsafe { libc::ioctl(fd, I2C_SLAVE_FORCE as _, MEMORY) } != 0 {
        return Err(complain("choose a memory"));
    }
    // As large as the kernel's union of all sizes.
    let mut data = [0_u8; 34];
    data[0] = value;
    transfer(fd, 0, &mut data)?;
    let begin = Instant::now();
    loop {
        data[0] = !value;
        // While the memory writes, it does not answer.
        let read = transfer(fd, 1, &mut data);
        if read.is_ok() && data[0] == value {
            return Ok(());
        }
        if begin.elapsed() > WRITE_LIMIT {
            read?;
            let got = data[0];
            return Err(GuestError::Other(format!(
                "wrote {value:#x}, read {got:#x}"
            )));
        }
    }
}

fn transfer(fd: libc::c_int, reads: u8, data: &mut [u8; 34]) -> Result<(), GuestError> {
    let mut call = SmbusCall {
        reads,
        command: PLACE,
        size: BYTE_DATA,
        data: data.as_mut_ptr(),
    };
    // SAFETY: the call and its data live until it returns; the data are as long as the kernel's.
    match unsafe { libc::ioctl(fd, I2C_SMBUS as _, &mut call) } {
        0 => Ok(()),
        _ => Err(complain("talk on the SMBus")),
    }
}
