//! Parser of `/proc/PID/fdinfo`, documented in proc_pid_fdinfo(5). Pure.

use crate::procfs;
use crate::state::{DescriptionLock, EpollItem, FileKind, Lease};

/// A hexadecimal field; 0 where it is missing.
pub(super) fn hex(info: &str, name: &str) -> u64 {
    procfs::field(info, name)
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .unwrap_or(0)
}

/// What an epoll instance waits for, and the inode of each. The file is not known yet.
pub(super) fn epoll_items(info: &str) -> Vec<(EpollItem, u64)> {
    info.lines()
        .filter_map(|line| {
            // tfd:        5 events:       19 data:                5  pos:0 ino:… sdev:…
            let rest = line.strip_prefix("tfd:")?;
            let (descriptor, rest) = rest.split_once("events:")?;
            let (events, rest) = rest.split_once("data:")?;
            let mut words = rest.split_ascii_whitespace();
            let data = words.next()?;
            let inode = words.find_map(|word| word.strip_prefix("ino:"));
            let inode = inode.and_then(|inode| u64::from_str_radix(inode, 16).ok());
            let item = EpollItem {
                descriptor: descriptor.trim().parse().ok()?,
                file: 0,
                events: u32::from_str_radix(events.trim(), 16).ok()?,
                data: u64::from_str_radix(data, 16).ok()?,
            };
            Some((item, inode.unwrap_or(0)))
        })
        .collect()
}

/// A timerfd; `now_ns` is the wall-clock time.
pub(super) fn timer(info: &str, now_ns: u64) -> FileKind {
    let pair = |name| {
        let text = procfs::field(info, name).unwrap_or("(0, 0)");
        let (seconds, nanoseconds) = text
            .trim_matches(['(', ')'])
            .split_once(", ")
            .unwrap_or(("0", "0"));
        seconds.parse::<u64>().unwrap_or(0) * 1_000_000_000
            + nanoseconds.parse::<u64>().unwrap_or(0)
    };
    let clock = procfs::field(info, "clockid")
        .and_then(|clock| clock.parse().ok())
        .unwrap_or(0);
    let flags = procfs::field(info, "settime flags")
        .and_then(|flags| u32::from_str_radix(flags, 8).ok())
        .unwrap_or(0);
    let remaining_ns = pair("it_value");
    let of_wall_clock = [libc::CLOCK_REALTIME, libc::CLOCK_REALTIME_ALARM].contains(&clock);
    let absolute = flags & libc::TFD_TIMER_ABSTIME as u32 != 0;
    FileKind::Timer {
        clock,
        flags,
        remaining_ns,
        wall_clock_ns: match of_wall_clock && absolute && remaining_ns != 0 {
            true => now_ns + remaining_ns,
            false => 0,
        },
        interval_ns: pair("it_interval"),
        ticks: procfs::field(info, "ticks")
            .and_then(|ticks| ticks.parse().ok())
            .unwrap_or(0),
    }
}

/// Whether a lock of flock(2) is held on the description, and an exclusive one.
pub(super) fn flock_of(info: &str) -> Option<bool> {
    info.lines().find_map(|line| {
        let words: Vec<&str> = line
            .strip_prefix("lock:")?
            .split_ascii_whitespace()
            .collect();
        (words.get(1) == Some(&"FLOCK")).then(|| words.get(3) == Some(&"WRITE"))
    })
}

/// A lease that is held on the description. Of one that is being broken, the kernel shows what is to be
/// left of it.
pub(super) fn lease_of(info: &str, flags: u32) -> Option<Lease> {
    // lock: 1: LEASE  BREAKING  UNLCK 1234 fe:00:4711 0 EOF
    let reads_only = flags as i32 & libc::O_ACCMODE == libc::O_RDONLY;
    info.lines().find_map(|line| {
        let mut words = line.strip_prefix("lock:")?.split_ascii_whitespace().skip(1);
        let [kind, state, mode] = [words.next()?, words.next()?, words.next()?];
        if kind != "LEASE" {
            return None;
        }
        match (state, mode) {
            ("BREAKING", "READ") => Some(Lease::WriteToRead),
            ("BREAKING", _) if reads_only => Some(Lease::ReadToNone),
            ("BREAKING", _) => Some(Lease::WriteToNone),
            (_, "READ") => Some(Lease::Read),
            _ => Some(Lease::Write),
        }
    })
}

/// Record locks of the description itself (`F_OFD_SETLK`).
pub(super) fn description_locks(info: &str) -> Vec<DescriptionLock> {
    // lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:4711 0 EOF
    let lines = info.lines().filter(|line| line.starts_with("lock:"));
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, _, "OFDLCK", _, mode, _, _, start, end] = words[..] else {
                return None;
            };
            let (start, bytes) = range(start, end);
            Some(DescriptionLock {
                exclusive: mode == "WRITE",
                start,
                bytes,
            })
        })
        .collect()
}

/// First byte and length of a locked range; 0: to the end of the file.
pub(super) fn range(start: &str, end: &str) -> (u64, u64) {
    let start: u64 = start.parse().unwrap_or(0);
    let bytes = end
        .parse::<u64>()
        .map_or(0, |end| end.saturating_sub(start) + 1);
    (start, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoll_items_are_read_with_their_words() {
        let info = "pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t1057\n\
                    tfd:        5 events:       19 data: deadbeef00000005  pos:0 ino:61af sdev:7\n\
                    tfd:       11 events: 80000001 data:                b  pos:0 ino:61b0 sdev:7\n";
        let items = epoll_items(info);
        assert_eq!(items.len(), 2);
        assert_eq!(
            items[0],
            (
                EpollItem {
                    descriptor: 5,
                    file: 0,
                    events: 0x19,
                    data: 0xdead_beef_0000_0005
                },
                0x61af
            )
        );
        assert_eq!(items[1].0.events, 0x8000_0001);
    }

    #[test]
    fn locks_of_a_description_are_told_from_those_of_its_process() {
        let info = "pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE 7 fe:00:4711 0 EOF\n\
                    lock:\t2: POSIX  ADVISORY  READ 7 fe:00:4711 0 9\n\
                    lock:\t3: OFDLCK ADVISORY  READ -1 fe:00:4711 10 19\n\
                    lock:\t4: OFDLCK ADVISORY  WRITE -1 fe:00:4711 100 EOF\n";
        let lock = |exclusive, start, bytes| DescriptionLock {
            exclusive,
            start,
            bytes,
        };
        assert_eq!(
            description_locks(info),
            [lock(false, 10, 10), lock(true, 100, 0)]
        );
        assert_eq!(flock_of(info), Some(true));
    }

    #[test]
    fn a_lease_is_known_with_what_is_to_be_left_of_it() {
        let (reads, writes) = (libc::O_RDONLY as u32, libc::O_WRONLY as u32);
        for (words, flags, lease) in [
            ("LEASE  ACTIVE    READ", reads, Some(Lease::Read)),
            ("LEASE  ACTIVE    WRITE", writes, Some(Lease::Write)),
            ("LEASE  BREAKING  READ", writes, Some(Lease::WriteToRead)),
            ("LEASE  BREAKING  UNLCK", writes, Some(Lease::WriteToNone)),
            ("LEASE  BREAKING  UNLCK", reads, Some(Lease::ReadToNone)),
            ("FLOCK  ADVISORY  WRITE", writes, None),
        ] {
            let info = format!("pos:\t0\nlock:\t1: {words} 7 fe:00:4711 0 EOF\n");
            assert_eq!(lease_of(&info, flags), lease, "{words}");
        }
    }

    #[test]
    fn an_absolute_timer_of_the_wall_clock_keeps_its_time_of_day() {
        let info =
            "clockid: 0\nticks: 0\nsettime flags: 03\nit_value: (4, 0)\nit_interval: (0, 0)\n";
        let FileKind::Timer {
            wall_clock_ns,
            flags,
            ..
        } = timer(info, 1_000_000_000)
        else {
            panic!("not a timer");
        };
        assert_eq!((wall_clock_ns, flags), (5_000_000_000, 3));
    }

    #[test]
    fn a_timer_keeps_its_remaining_time_and_period() {
        let info =
            "clockid: 1\nticks: 3\nsettime flags: 01\nit_value: (4, 500)\nit_interval: (1, 0)\n";
        assert_eq!(
            timer(info, 7),
            FileKind::Timer {
                clock: 1,
                flags: 1,
                remaining_ns: 4_000_000_500,
                wall_clock_ns: 0,
                interval_ns: 1_000_000_000,
                ticks: 3
            }
        );
    }
}
