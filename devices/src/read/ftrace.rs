//! One line of ftrace's text, or of `trace-cmd report`.
//!
//! ```text
//!  kworker/u4:2-123     [001] ..... 12.345678: device_pm_callback_start: ahci 0000:00:1f.2, parent: pci0000:00, bus [suspend]
//!  └ task ────┘ └pid┘   └cpu┘ flags └ time ──┘  └ event ───────────────┘ └ what it prints ──────────────────────────────────┘
//! ```
//!
//! With the tracer function_graph (sleepgraph's `-f` with call graphs), events are comments:
//!
//! ```text
//!  12.345678 |   1)  kworker-123  |               |  /* suspend_resume: dpm_suspend[2] begin */
//! ```
//!
//! A column with the thread group, `( 123)`, may stand before the CPU, and the flags may be
//! missing. Everything but the four events that matter is skipped.

/// An event with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent<'a> {
    /// Time on the clock of the trace, ns.
    pub t_ns: u64,
    /// The CPU of the event.
    pub cpu: u32,
    /// The thread that it happened in.
    pub thread: u32,
    /// Line of the file, from 1.
    pub line: usize,
    /// The event.
    pub what: What<'a>,
}

/// The events that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// `power:suspend_resume`
    Phase {
        /// The name of the step.
        name: &'a str,
        /// The number that the kernel gives with it.
        value: u64,
        /// Whether the step begins.
        begin: bool,
    },
    /// `power:device_pm_callback_start`
    Start {
        /// The driver.
        driver: &'a str,
        /// The name of the device.
        device: &'a str,
        /// The parent.
        parent: Option<&'a str>,
        /// `noirq bus`, `driver`, or nothing where the kernel prepares and completes.
        level: &'a str,
        /// The level and name of the callback.
        verb: &'a str,
    },
    /// `power:device_pm_callback_end`
    End {
        /// The driver.
        driver: &'a str,
        /// The name of the device.
        device: &'a str,
        /// The return value; 0 is success.
        error: i64,
    },
    /// `sched:sched_switch`
    Switch {
        /// The thread that leaves the CPU.
        previous: u32,
        /// The name of the thread that left.
        name: &'a str,
        /// The thread that left could have gone on.
        preempted: bool,
        /// The thread that gets the CPU.
        next: u32,
    },
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// An event of interest.
    Event(TraceEvent<'a>),
    /// The ring buffer lost this many events before this place.
    Lost(u64),
    /// Nothing that matters.
    Other,
    /// One of the four events, which cannot be parsed.
    Damaged(String),
}

const EVENTS: [&str; 4] = [
    "suspend_resume",
    "device_pm_callback_start",
    "device_pm_callback_end",
    "sched_switch",
];

/// Reads a line.
pub fn parse_line(text: &str, line: usize) -> Line<'_> {
    let text = text.trim_end();
    if let Some(count) = lost_events(text) {
        return Line::Lost(count);
    }
    if text.starts_with('#') {
        return Line::Other;
    }
    // Cheap, and right for nearly all lines of a trace with other events.
    let Some((name, at)) = EVENTS.iter().find_map(|&name| {
        text.match_indices(name)
            .find(|&(at, _)| text[at + name.len()..].starts_with(':') && text[..at].ends_with(' '))
            .map(|(at, _)| (name, at))
    }) else {
        return Line::Other;
    };
    let mut body = text[at + name.len() + 1..].trim_start();
    let mut before = text[..at].trim_end();
    let is_comment = before.ends_with("/*") && body.ends_with("*/");
    if is_comment {
        body = body[..body.len() - 2].trim_end();
        before = &before[..before.len() - 2];
    }
    let place = if is_comment {
        graph_head(before)
    } else {
        head(before)
    };
    let Some((thread, cpu, stamp)) = place else {
        return Line::Damaged(format!("{name}: no task, CPU and time before it"));
    };
    let Some(t_ns) = nanoseconds(stamp) else {
        return Line::Damaged(format!(
            "{name}: {stamp:?} is no time in seconds; choose a trace clock that counts time \
             (local, global, mono, boot)"
        ));
    };
    let what = match name {
        "suspend_resume" => phase(body),
        "device_pm_callback_start" => start(body),
        "device_pm_callback_end" => end(body),
        _ => switch(body),
    };
    match what {
        Some(what) => Line::Event(TraceEvent {
            t_ns,
            cpu,
            thread,
            line,
            what,
        }),
        None => Line::Damaged(format!("{name}: cannot be parsed: {}", shown(body))),
    }
}

/// The begin of a text, fit for a message.
fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// `CPU:1 [LOST 123 EVENTS]`, or trace-cmd's `CPU:1 [123 EVENTS DROPPED]`.
fn lost_events(text: &str) -> Option<u64> {
    if let Some((before, after)) = text.split_once("[LOST ")
        && before.trim_start().starts_with("CPU")
    {
        return after.split_once(" EVENTS]")?.0.trim().parse().ok();
    }
    let (before, _) = text.split_once(" EVENTS DROPPED")?;
    before.rsplit(['[', ' ']).next()?.parse().ok()
}

/// Thread, CPU and time from what stands before the event's name.
fn head(text: &str) -> Option<(u32, u32, &str)> {
    let text = text.strip_suffix(':')?;
    // A task's name may hold brackets; the CPU's are the last.
    let close = text.rfind(']')?;
    let open = text[..close].rfind('[')?;
    let cpu = text[open + 1..close].trim().parse().ok()?;
    let stamp = text[close + 1..].split_ascii_whitespace().next_back()?;
    let mut task = text[..open].trim_end();
    if let Some(without_group) = task
        .strip_suffix(')')
        .and_then(|rest| rest.rfind('(').map(|at| rest[..at].trim_end()))
    {
        task = without_group;
    }
    let thread = task.rsplit_once('-')?.1.trim().parse().ok()?;
    Some((thread, cpu, stamp))
}

/// The same of function_graph: `12.345678 |   1)  kworker-123  |               |`. Without its options
/// `funcgraph-abstime` and `funcgraph-proc` neither time nor thread is known.
fn graph_head(text: &str) -> Option<(u32, u32, &str)> {
    let (stamp, rest) = text.split_once('|')?;
    let (cpu, rest) = rest.split_once(')')?;
    // A task's name may hold bars; the columns behind it are the last.
    let (rest, _) = rest.trim_end().strip_suffix('|')?.rsplit_once('|')?;
    let thread = rest.trim_end().rsplit_once('-')?.1.parse().ok()?;
    Some((thread, cpu.trim().parse().ok()?, stamp.trim()))
}

/// `12.345678` or `12.345678901` as nanoseconds.
pub fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let seconds: u64 = seconds.parse().ok()?;
    let part: u64 = fraction.parse().ok()?;
    let part_ns = part * 10u64.pow(9 - fraction.len() as u32);
    seconds.checked_mul(1_000_000_000)?.checked_add(part_ns)
}

/// `dpm_suspend[2] begin`
fn phase(body: &str) -> Option<What<'_>> {
    let (rest, edge) = body.rsplit_once(' ')?;
    let begin = match edge {
        "begin" => true,
        "end" => false,
        _ => return None,
    };
    let (name, value) = rest.strip_suffix(']')?.rsplit_once('[')?;
    if name.is_empty() {
        return None;
    }
    Some(What::Phase {
        name,
        value: value.parse().ok()?,
        begin,
    })
}

/// `ahci 0000:00:1f.2, parent: pci0000:00, noirq bus [suspend]`
fn start(body: &str) -> Option<What<'_>> {
    let (subject, rest) = body.split_once(", parent: ")?;
    let (rest, verb) = rest.strip_suffix(']')?.rsplit_once('[')?;
    let (parent, level) = rest.split_once(',')?;
    let (driver, device) = driver_and_device(subject)?;
    Some(What::Start {
        driver,
        device,
        parent: (parent != "none").then_some(parent),
        level: level.trim(),
        verb,
    })
}

/// `ahci 0000:00:1f.2, err=0`
fn end(body: &str) -> Option<What<'_>> {
    let (subject, error) = body.rsplit_once(", err=")?;
    let (driver, device) = driver_and_device(subject)?;
    Some(What::End {
        driver,
        device,
        error: error.trim().parse().ok()?,
    })
}

/// A driver's name may hold spaces or be empty; a device's does not.
fn driver_and_device(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let (driver, device) = text.rsplit_once(' ').unwrap_or(("", text));
    (!device.is_empty()).then_some((driver.trim_end(), device))
}

/// `prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120`,
/// or trace-cmd's `a:1 [120] S ==> b:2 [120]`.
fn switch(body: &str) -> Option<What<'_>> {
    let (from, to) = body.split_once(" ==> ")?;
    let (name, previous, state, next) = if from.contains("prev_pid=") {
        let name = from.strip_prefix("prev_comm=")?;
        (
            name.rsplit_once(" prev_pid=")?.0,
            word(" prev_pid=", from)?,
            word(" prev_state=", from)?,
            word(" next_pid=", to)?,
        )
    } else {
        let (left, state) = from.trim_end().rsplit_once(' ')?;
        let (name, previous) = before_priority(left)?;
        (name, previous, state, before_priority(to)?.1)
    };
    Some(What::Switch {
        previous: previous.parse().ok()?,
        name,
        preempted: state.starts_with('R'),
        next: next.parse().ok()?,
    })
}

/// The word after the last `key`: a task's name may hold the key, too, and stands before it.
fn word<'a>(key: &str, of: &'a str) -> Option<&'a str> {
    let (_, rest) = of.rsplit_once(key)?;
    rest.split(' ').next()
}

/// Name and 12 of `name:12 [120]`.
fn before_priority(text: &str) -> Option<(&str, &str)> {
    let open = text.rfind(" [")?;
    text[..open].rsplit_once(':')
}

#[cfg(test)]
mod tests;
