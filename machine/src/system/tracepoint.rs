//! Reads a tracepoint of one thread through perf_event_open(2): a ring buffer that the
//! kernel fills and that is gone when it is closed, however this process ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use dormouse_system::Root;

/// Where tracefs is: mounted by every distribution, since Linux 4.1.
pub const TRACEFS: &str = "sys/kernel/tracing";

const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
/// The bit `use_clockid` of the attributes.
const PERF_USE_CLOCKID: u64 = 1 << 25;
const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const PERF_EVENT_IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;
const HEADER_BYTES: usize = 8;
/// In perf_event_mmap_page (include/uapi/linux/perf_event.h).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// perf_event_attr as of Linux 4.1 (PERF_ATTR_SIZE_VER4, 104 bytes): every later kernel takes it.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
}

/// What a reader wants of each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// The record alone: reading a clock for each costs.
    None,
    /// And when it was, on CLOCK_MONOTONIC. Readable while the kernel's time stands still, too.
    Monotonic,
}

/// Where a field lies in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    bytes: usize,
}

impl Field {
    /// The number in a record, or none if the record is too short.
    pub fn of(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset + self.bytes)?;
        match self.bytes {
            1 => Some(u64::from(bytes[0])),
            4 => Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
            8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }
}

/// Finds a field in the `format` file of a tracepoint.
pub fn parse_field(format: &str, name: &str) -> Option<Field> {
    let line = format.lines().find(|line| {
        line.trim()
            .strip_prefix("field:")
            .and_then(|rest| rest.split(';').next())
            .is_some_and(|declaration| declaration.split_ascii_whitespace().last() == Some(name))
    })?;
    let value = |key: &str| -> Option<usize> {
        let part = line.split(';').map(str::trim);
        part.filter_map(|part| part.strip_prefix(key))
            .next()?
            .parse()
            .ok()
    };
    let field = Field {
        offset: value("offset:")?,
        bytes: value("size:")?,
    };
    (matches!(field.bytes, 1 | 4 | 8) && field.offset < 4096).then_some(field)
}

/// The number and the format of `event` (`damon/damon_aggregated`), if this kernel has it and
/// shows it.
pub fn describe(root: &Root, event: &str) -> Option<(u64, String)> {
    let folder = format!("{TRACEFS}/events/{event}");
    let number = root.read(&format!("{folder}/id")).ok()?.parse().ok()?;
    Some((number, root.read(&format!("{folder}/format")).ok()?))
}

/// An open tracepoint; closing it ends the tracing.
pub struct Tracepoint {
    file: File,
    base: *mut u8,
    data_bytes: usize,
    page_bytes: usize,
    stamp: Stamp,
    /// Records that the kernel had no room for.
    pub lost: u64,
}

// SAFETY: the mapping belongs to this value alone, and is only used through `&mut self`.
unsafe impl Send for Tracepoint {}

impl Tracepoint {
    /// Opens tracepoint `number` for what thread `pid` does, with room for `data_bytes` (a power
    /// of two of pages); 0 is the calling thread. Records that do not match `filter` are not even
    /// stored.
    ///
    /// # Errors
    /// As perf_event_open(2), mmap(2).
    pub fn open(
        number: u64,
        pid: i32,
        filter: Option<&str>,
        stamp: Stamp,
        data_bytes: usize,
    ) -> io::Result<Tracepoint> {
        let (sample_time, flags) = match stamp {
            Stamp::None => (0, 0),
            Stamp::Monotonic => (PERF_SAMPLE_TIME, PERF_USE_CLOCKID),
        };
        let attributes = Attributes {
            kind: PERF_TYPE_TRACEPOINT,
            size: size_of::<Attributes>() as u32,
            config: number,
            sample_period: 1,
            sample_type: PERF_SAMPLE_RAW | sample_time,
            flags,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads `size` bytes of the attributes.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                pid,
                -1,
                -1,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor without another owner.
        let file = unsafe { File::from_raw_fd(descriptor as i32) };
        if let Some(filter) = filter {
            set_filter(&file, filter)?;
        }
        let page_bytes = rustix::param::page_size();
        // SAFETY: a new shared mapping of the event's own pages.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page_bytes + data_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Tracepoint {
            file,
            base: base.cast(),
            data_bytes,
            page_bytes,
            stamp,
            lost: 0,
        })
    }

    /// Gives out every record since the last call: when it was (0 with [`Stamp::None`]), and its
    /// raw data.
    pub fn read(&mut self, on_record: &mut dyn FnMut(u64, &[u8])) {
        // After the header: the time, if it is there, and the length of the raw data.
        let raw_at = HEADER_BYTES + 4 + if self.stamp == Stamp::None { 0 } else { 8 };
        // SAFETY: both words lie in the control page, are aligned, and are shared with the kernel
        // as atomics are.
        let (head, tail) = unsafe {
            (
                &*self.base.add(DATA_HEAD).cast::<AtomicU64>(),
                &*self.base.add(DATA_TAIL).cast::<AtomicU64>(),
            )
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        let mut record = Vec::new();
        while at + HEADER_BYTES as u64 <= end {
            self.copy(at, HEADER_BYTES, &mut record);
            let kind = u32::from_ne_bytes(record[..4].try_into().expect("four bytes"));
            let bytes = usize::from(u16::from_ne_bytes([record[6], record[7]]));
            if bytes < HEADER_BYTES || at + bytes as u64 > end {
                break;
            }
            self.copy(at, bytes, &mut record);
            match kind {
                PERF_RECORD_SAMPLE if bytes >= raw_at => {
                    let at_ns = match self.stamp {
                        Stamp::None => 0,
                        Stamp::Monotonic => {
                            let time = record[HEADER_BYTES..HEADER_BYTES + 8].try_into();
                            u64::from_ne_bytes(time.expect("eight bytes"))
                        }
                    };
                    on_record(at_ns, &record[raw_at..]);
                }
                // An event's number, then how many were lost.
                PERF_RECORD_LOST if bytes >= HEADER_BYTES + 16 => {
                    let count = record[HEADER_BYTES + 8..HEADER_BYTES + 16].try_into();
                    self.lost += u64::from_ne_bytes(count.expect("eight bytes"));
                }
                _ => {}
            }
            at += bytes as u64;
        }
        // All reads are done before the kernel may write there again.
        fence(Ordering::SeqCst);
        tail.store(at, Ordering::Release);
    }

    /// A record may go on at the beginning of the ring.
    fn copy(&self, at: u64, bytes: usize, to: &mut Vec<u8>) {
        let data = self.page_bytes;
        let from = (at % self.data_bytes as u64) as usize;
        let first = bytes.min(self.data_bytes - from);
        to.clear();
        to.reserve(bytes);
        // SAFETY: both parts lie inside the mapping, in a region that the kernel has finished
        // writing (it is before `data_head`) and does not write before `data_tail` passes it; the
        // vector has room for both.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.add(data + from), to.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(
                self.base.add(data),
                to.as_mut_ptr().add(first),
                bytes - first,
            );
            to.set_len(bytes);
        }
    }
}

fn set_filter(file: &File, filter: &str) -> io::Result<()> {
    let filter = std::ffi::CString::new(filter).map_err(io::Error::other)?;
    // SAFETY: the kernel reads the string up to its end.
    let set = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            PERF_EVENT_IOC_SET_FILTER as _,
            filter.as_ptr(),
        )
    };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Drop for Tracepoint {
    fn drop(&mut self) {
        // SAFETY: the mapping that `open` made; nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.page_bytes + self.data_bytes) };
        // The file closes after this, and with it the event.
        let _ = &self.file;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: &str = "name: damon_aggregated\nID: 555\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n";

    #[test]
    fn fields_are_found_by_name_and_read_from_a_record() {
        let start = parse_field(FORMAT, "start").unwrap();
        assert_eq!(
            start,
            Field {
                offset: 24,
                bytes: 8
            }
        );
        let mut record = vec![0u8; 24];
        record.extend(0x1234_5000u64.to_ne_bytes());
        assert_eq!(start.of(&record), Some(0x1234_5000));
        assert_eq!(start.of(&record[..30]), None);
        assert_eq!(parse_field(FORMAT, "art"), None);
        assert_eq!(parse_field(FORMAT, "common_type"), None, "two bytes");
    }

    #[test]
    fn perf_s_attributes_have_a_published_size() {
        assert_eq!(size_of::<Attributes>(), 104);
    }

    proptest! {
        #[test]
        fn no_format_makes_the_parser_panic(text in "([ -~]|\n|\t){0,200}", number: u64) {
            let _ = parse_field(&text, "start");
            let line = format!("field:unsigned long start;offset:{number};size:{text};");
            if let Some(field) = parse_field(&line, "start") {
                let _ = field.of(&[0; 64]);
            }
        }
    }
}
