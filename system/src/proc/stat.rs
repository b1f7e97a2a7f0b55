//! `/proc/PID/stat`, the line of numbers.

/// `PF_KTHREAD` in the flags: a kernel thread, without memory of its own.
const KERNEL_THREAD_FLAG: u64 = 0x0020_0000;

/// One line of `/proc/PID/stat` or `/proc/PID/task/TID/stat`. Fields that have no member here are
/// read with [`Stat::number`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process, or the thread.
    pub pid: i32,
    /// Its name (at most 15 bytes); may hold spaces and brackets.
    pub name: String,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: char,
    /// The parent process.
    pub parent: i32,
    /// The process group.
    pub group: i32,
    /// The session.
    pub session: i32,
    /// When it started, in clock ticks since boot: with the PID, the identity of a process.
    pub start_ticks: u64,
    /// Resident pages.
    pub resident_pages: u64,
    /// Whether it is a kernel thread.
    pub is_kernel_thread: bool,
    fields: Vec<String>,
}

impl Stat {
    /// Parses the line; none if a field that every kernel since 2.6 writes is missing.
    pub fn parse(text: &str) -> Option<Stat> {
        // The name may hold spaces and brackets: it ends at the last one.
        let open = text.find('(')?;
        let close = text.rfind(')')?;
        let fields: Vec<String> = text
            .get(close + 1..)?
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect();
        let mut stat = Stat {
            pid: text.get(..open)?.trim().parse().ok()?,
            name: text.get(open + 1..close)?.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: 0,
            group: 0,
            session: 0,
            start_ticks: 0,
            resident_pages: 0,
            is_kernel_thread: false,
            fields,
        };
        stat.parent = stat.number(4)?;
        stat.group = stat.number(5)?;
        stat.session = stat.number(6)?;
        stat.is_kernel_thread = stat.number::<u64>(9)? & KERNEL_THREAD_FLAG != 0;
        stat.start_ticks = stat.number(22)?;
        stat.resident_pages = stat.number(24)?;
        Some(stat)
    }

    /// A field by its number in proc_pid_stat(5), where the state is number 3.
    pub fn number<T: std::str::FromStr>(&self, field: usize) -> Option<T> {
        self.fields.get(field.checked_sub(3)?)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "4711 (a (b) c) S 1 4710 4709 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 \
                        55512 1000 256 18446744073709551615 11 12 13";

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = Stat::parse(LINE).unwrap();
        assert_eq!(
            (stat.pid, stat.name.as_str(), stat.state),
            (4711, "a (b) c", 'S')
        );
        assert_eq!((stat.parent, stat.group, stat.session), (1, 4710, 4709));
        assert_eq!((stat.start_ticks, stat.resident_pages), (55512, 256));
        assert_eq!(stat.number::<u64>(26), Some(11));
        assert_eq!(stat.number::<u64>(52), None);
        assert!(!stat.is_kernel_thread);
    }

    #[test]
    fn a_kernel_thread_is_known_by_its_flag() {
        let line = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0";
        assert!(Stat::parse(line).unwrap().is_kernel_thread);
    }

    #[test]
    fn a_line_that_is_cut_is_not_understood() {
        for cut in [0, 5, 12, 20, 60] {
            assert_eq!(Stat::parse(&LINE[..cut]), None, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9() é-]{0,80}") {
            let _ = Stat::parse(&text);
        }
    }
}
