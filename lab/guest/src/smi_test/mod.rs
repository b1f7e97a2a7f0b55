//! Sends requests to the firmware's sleep handler that it must refuse, and reports its answers.
//!
//! `dormouse-guest smi-test CASE` takes the place of the kernel module: it writes a request like
//! the module's into the reserved part of the CXL window, with one forged field, raises the SMI and
//! prints the answer as JSON. The previous contents are restored. If the handler accepted a forged
//! field, the machine would be off before anything could be printed.

mod forged_headers;
mod iomem;
mod window;

use std::fs;
use std::io::Write;
use std::process::ExitCode;

use dormouse_image::{Reason, edit, sys};
use serde::Serialize;

use crate::error::{Doing, GuestError};
use forged_headers::{CASES, Case, Request};
use iomem::MemoryMap;
use window::Window;

const SYSFS: &str = "/sys/power/dormouse";
/// The port at which a write raises an SMI, and what is written: as in firmware's ACPI device.
const SMI_PORT: u16 = 0xb2;
const SMI_COMMAND: u8 = 0xda;

/// The outcome of one case.
#[derive(Serialize)]
struct Report {
    case: &'static str,
    answer: &'static str,
    reason: &'static str,
    detail: u64,
    needed_bytes: u64,
    available_bytes: u64,
    /// Names of the reasons that would be right.
    expected: &'static [&'static str],
    as_expected: bool,
    /// The handler left header and bitmaps as they were.
    unchanged: bool,
}

pub fn run(name: &str) -> ExitCode {
    if name == "list" {
        for case in CASES {
            println!("{:24} {}", case.name, case.meaning);
        }
        return ExitCode::SUCCESS;
    }
    let Some(case) = CASES.iter().find(|case| case.name == name) else {
        eprintln!("dormouse-guest: {name:?} is no case; smi-test list prints them");
        return ExitCode::from(2);
    };
    match test(case) {
        Ok(report) => {
            let text = serde_json::to_string(&report).expect("a report is plain data");
            let _ = writeln!(std::io::stdout(), "{text}");
            ExitCode::from(u8::from(!(report.as_expected && report.unchanged)))
        }
        Err(error) => {
            eprintln!("dormouse-guest: {error}");
            ExitCode::from(3)
        }
    }
}

fn test(case: &'static Case) -> Result<Report, GuestError> {
    let mut window = Window::map(read_number("cxl_base")?, read_number("reserved_bytes")?)?;
    let map = MemoryMap::read()?;
    let before = window.read(0, sys::DORMOUSE_BITMAPS_OFFSET as usize);
    let newest = edit::newest(&before)
        .map_err(|why| GuestError::Other(format!("firmware left no valid header: {why}")))?;
    let header = edit::read_header(&before, newest).expect("both copies were read");
    // All that a request touches; saved pages come after it.
    let before = window.read(0, header.data_offset as usize);

    let mut request = Request::honest(before.clone(), &header, &map)?;
    (case.forge)(&mut request, &map);
    let written = request.into_window();
    window.write(0, &written);
    let raised = raise_smi();
    let after = window.read(0, written.len());
    window.write(0, &before);
    raised?;

    let mailbox = read_mailbox(&after);
    let answered = mailbox.status != sys::DORMOUSE_STATUS_PENDING;
    let reason = Reason(mailbox.status).name();
    Ok(Report {
        case: case.name,
        answer: match mailbox.status {
            sys::DORMOUSE_STATUS_PENDING => "none",
            sys::DORMOUSE_OK => "accepted",
            _ => "refused",
        },
        reason: if answered { reason } else { "" },
        detail: mailbox.detail,
        needed_bytes: mailbox.needed_bytes,
        available_bytes: mailbox.available_bytes,
        expected: case.expected,
        as_expected: answered && case.expected.contains(&reason),
        unchanged: without_mailbox(&after) == without_mailbox(&written),
    })
}

fn without_mailbox(window: &[u8]) -> (&[u8], &[u8]) {
    let (headers, rest) = window.split_at(sys::DORMOUSE_MAILBOX_OFFSET as usize);
    (
        headers,
        &rest[(sys::DORMOUSE_BITMAPS_OFFSET - sys::DORMOUSE_MAILBOX_OFFSET) as usize..],
    )
}

fn read_mailbox(window: &[u8]) -> sys::dormouse_mailbox {
    let bytes = &window[sys::DORMOUSE_MAILBOX_OFFSET as usize..];
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    sys::dormouse_mailbox {
        magic: word(0),
        command: word(8) as u32,
        status: (word(8) >> 32) as u32,
        detail: word(16),
        needed_bytes: word(24),
        available_bytes: word(32),
    }
}

/// A number of the module's, decimal or hexadecimal.
fn read_number(name: &str) -> Result<u64, GuestError> {
    let path = format!("{SYSFS}/{name}");
    let text = fs::read_to_string(&path).doing(format!("read {path}"))?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|_| GuestError::Other(format!("{path} holds no number: {text:?}")))
}

/// The kernel of the emulated machine has no port device: so with the port's permission.
fn raise_smi() -> Result<(), GuestError> {
    // SAFETY: asks the kernel for permission for one port; no memory is involved.
    if unsafe { libc::ioperm(SMI_PORT.into(), 1, 1) } != 0 {
        return Err(std::io::Error::last_os_error()).doing("get permission for the SMI port");
    }
    // SAFETY: the kernel has given permission for this port. The handler runs outside of what
    // this process can see, and writes only to the window, which is read afterwards.
    unsafe {
        std::arch::asm!("out dx, al", in("dx") SMI_PORT, in("eax") u32::from(SMI_COMMAND));
    }
    Ok(())
}
