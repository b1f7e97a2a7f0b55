//! The screen of `dormouse bandwidth top` on a terminal.
//!
//! ```text
//!  status                          total and threshold, latency, counters
//!  ██████████████░░░░░░            total relative to the threshold
//!  ▁▂▃▅▇▇▆▆▆▆                      the total of the last minutes
//!  users                           a line each; ↑ ↓ scroll, s sorts, q quits
//! ```

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row, Sparkline, Table, TableState};

use crate::daemon::status::{DeviceStatus, Status, UserStatus};

/// Time between two readings of the daemon's status; it writes one twice a second.
const REFRESH: Duration = Duration::from_millis(500);
/// Readings in the history.
const HISTORY: usize = 600;
/// A status older than this, in seconds, means that the daemon hangs.
const STALE_S: u64 = 5;
/// Lines of devices at most.
const MAX_DEVICES: u16 = 8;
/// The height of the history, relative to the threshold.
const HEIGHT: f64 = 1.5;

/// The order of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Bandwidth,
    Cpu,
    Memory,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Bandwidth => Self::Cpu,
            Self::Cpu => Self::Memory,
            Self::Memory => Self::Bandwidth,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Cpu => "CPU time",
            Self::Memory => "memory",
        }
    }

    fn sort(self, users: &mut [UserStatus]) {
        users.sort_by(|a, b| match self {
            Self::Bandwidth => b.gib_s.total_cmp(&a.gib_s),
            Self::Cpu => b.cpus.total_cmp(&a.cpus),
            Self::Memory => b.resident_bytes.cmp(&a.resident_bytes),
        });
    }
}

/// The state of the screen.
struct Screen {
    status: Status,
    /// The daemon has ended; the status is its last one.
    gone: bool,
    /// Totals in thousandths of the threshold, the newest one first.
    totals: VecDeque<u64>,
    order: Order,
    table: TableState,
}

impl Screen {
    fn new(status: Status) -> Self {
        let mut screen = Self {
            status: Status::default(),
            gone: false,
            totals: VecDeque::new(),
            order: Order::Bandwidth,
            table: TableState::new().with_selected(0),
        };
        screen.take(Some(status));
        screen
    }

    fn take(&mut self, status: Option<Status>) {
        match status {
            Some(mut status) => {
                let part = status.total_gib_s / status.threshold_gib_s.max(f64::MIN_POSITIVE);
                self.totals.push_front((1000.0 * part) as u64);
                self.totals.truncate(HISTORY);
                self.order.sort(&mut status.users);
                self.status = status;
                self.gone = false;
            }
            None => self.gone = true,
        }
    }

    /// Handles a key; returns whether to quit.
    fn press(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.order.sort(&mut self.status.users);
            }
            KeyCode::Down | KeyCode::Char('j') => self.table.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.table.select_previous(),
            KeyCode::PageDown => self.table.scroll_down_by(10),
            KeyCode::PageUp => self.table.scroll_up_by(10),
            KeyCode::Home => self.table.select_first(),
            KeyCode::End => self.table.select_last(),
            _ => (),
        }
        false
    }

    fn draw(&mut self, frame: &mut Frame<'_>, now_s: u64) {
        // A single device is the head line.
        let devices = match self.status.devices.len() {
            0 | 1 => 0,
            count => u16::try_from(count).unwrap_or(u16::MAX).min(MAX_DEVICES),
        };
        let rows = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(devices),
            Constraint::Length(4),
            Constraint::Min(3),
            Constraint::Length(1),
        ]);
        let [head, gauge, each, history, users, foot] = rows.areas(frame.area());
        let lines: Vec<Line<'_>> = self.status.devices.iter().map(device_line).collect();
        frame.render_widget(Paragraph::new(lines), each);
        frame.render_widget(Paragraph::new(self.head(now_s)), head);
        self.draw_gauge(frame, gauge);
        let spark = Sparkline::default()
            .data(self.totals.iter().take(history.width.into()).rev())
            .max((1000.0 * HEIGHT) as u64)
            .style(self.color());
        let title = format!("the last {} s", history.width / 2);
        frame.render_widget(spark.block(Block::new().title(title.dim())), history);
        self.draw_users(frame, users);
        let keys = format!("q quits   s sorts (by {})   ↑ ↓ scroll", self.order.name());
        frame.render_widget(Paragraph::new(keys.dim()), foot);
    }

    fn head(&self, now_s: u64) -> Line<'_> {
        let status = &self.status;
        let mut line = Line::from(format!(
            "{:.2} of {:.2} GiB/s",
            status.total_gib_s, status.threshold_gib_s
        ));
        if let Some(ns) = status.latency_ns {
            line.push_span(format!(", an access takes {ns:.0} ns"));
        }
        if status.derated {
            line.push_span(format!("   {}", status.derating()).yellow().bold());
        }
        if !status.trusted {
            line.push_span("   counters at fault".red().bold());
        }
        let age = now_s.saturating_sub(status.at);
        if self.gone {
            line.push_span("   the daemon has ended".red().bold());
        } else if age > STALE_S {
            line.push_span(format!("   no news for {age} s").red().bold());
        }
        line.push_span(format!(
            "   {} passes of {:.0} µs, {} limits written",
            status.passes, status.pass_us, status.writes
        ));
        line
    }

    /// The color of the load.
    fn color(&self) -> Color {
        let part = self.status.total_gib_s / self.status.threshold_gib_s;
        match part {
            _ if part > 1.05 => Color::Red,
            _ if part > 0.95 => Color::Yellow,
            _ => Color::Green,
        }
    }

    fn draw_gauge(&self, frame: &mut Frame<'_>, area: Rect) {
        let part = self.status.total_gib_s / self.status.threshold_gib_s;
        let part = if part.is_finite() { part.max(0.0) } else { 0.0 };
        let gauge = Gauge::default()
            .ratio(part.min(1.0))
            .label(format!("{:.0} %", 100.0 * part))
            .use_unicode(true)
            .gauge_style(self.color());
        frame.render_widget(gauge, area);
    }

    fn draw_users(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let heading = ["GiB/s", "CPUs", "limit", "on CXL, MiB", "weight", "cgroup"];
        let rows = self.status.users.iter().map(|user| {
            let (limit, style) = match (user.limit_cpus, user.protected) {
                (Some(cpu), _) => (format!("{cpu:.3}"), Style::new().yellow()),
                (None, true) => ("protected".to_owned(), Style::new().cyan()),
                (None, false) => ("-".to_owned(), Style::new()),
            };
            Row::new([
                right(format!("{:.3}", user.gib_s)),
                right(format!("{:.2}", user.cpus)),
                right(limit),
                right((user.resident_bytes >> 20).to_string()),
                right(format!("{:.2}", user.weight)),
                Cell::from(user.label()),
            ])
            .style(style)
        });
        let widths = [8, 7, 9, 11, 7].map(Constraint::Length);
        let widths = widths.into_iter().chain([Constraint::Min(10)]);
        let head = heading.map(|name| match name {
            "cgroup" => Cell::from(name),
            _ => right(name.to_owned()),
        });
        let table = Table::new(rows, widths)
            .header(Row::new(head).style(Style::new().reversed()))
            .row_highlight_style(Style::new().bold());
        frame.render_stateful_widget(table, area, &mut self.table);
    }
}

fn device_line(device: &DeviceStatus) -> Line<'_> {
    let mut line = Line::from(format!(
        "{}: {:.2} of {:.2} GiB/s",
        device.name, device.total_gib_s, device.threshold_gib_s
    ));
    if let Some([half, _, slow]) = device.latency_quantiles_ns {
        line.push_span(format!(", an access takes {half:.0} ns (p99 {slow:.0})"));
    }
    if device.derated {
        line.push_span("   derated".yellow());
    }
    if !device.trusted {
        line.push_span("   counters at fault".red());
    }
    line
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(Span::raw(text)).right_aligned())
}

/// Shows the daemon's status until q or Ctrl-C is pressed; `read` reads it.
///
/// # Errors
/// The terminal is gone.
pub fn show(first: Status, read: impl Fn() -> Option<Status>) -> io::Result<()> {
    ratatui::run(|terminal| {
        let draw = |screen: &mut Screen| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now_s = now.map_or(0, |time| time.as_secs());
            terminal.draw(|frame| screen.draw(frame, now_s)).map(|_| ())
        };
        follow(&mut Screen::new(first), draw, read, event_within)
    })
}

/// The terminal's next event within this time.
fn event_within(time: Duration) -> io::Result<Option<Event>> {
    event::poll(time)?.then(event::read).transpose()
}

fn follow(
    screen: &mut Screen,
    mut draw: impl FnMut(&mut Screen) -> io::Result<()>,
    mut read: impl FnMut() -> Option<Status>,
    mut event_within: impl FnMut(Duration) -> io::Result<Option<Event>>,
) -> io::Result<()> {
    let mut due = Instant::now() + REFRESH;
    loop {
        draw(screen)?;
        let event = event_within(due.saturating_duration_since(Instant::now()))?;
        if let Some(Event::Key(key)) = event
            && key.kind != KeyEventKind::Release
            && screen.press(key.code, key.modifiers)
        {
            return Ok(());
        }
        // The status is refreshed even while a key is held down.
        if Instant::now() >= due {
            screen.take(read());
            due = Instant::now() + REFRESH;
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn shown(screen: &mut Screen, now_s: u64) -> String {
        let mut terminal = Terminal::new(TestBackend::new(90, 12)).unwrap();
        terminal.draw(|frame| screen.draw(frame, now_s)).unwrap();
        terminal.backend().to_string()
    }

    fn screen() -> Screen {
        let mut status = Status::example();
        status.threshold_gib_s = 4.0;
        status.trusted = true;
        status.latency_ns = Some(480.0);
        status.at = 1000;
        Screen::new(status)
    }

    #[test]
    fn the_screen_shows_the_load_and_the_limited_users() {
        let text = shown(&mut screen(), 1001);
        for said in ["2.00 of 4.00 GiB/s", "takes 480 ns", "50 %", "0.250", "/c"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(
            !text.contains("fault") && !text.contains("no news"),
            "{text}"
        );
    }

    #[test]
    fn faults_of_counters_and_of_the_daemon_are_shown() {
        let mut screen = screen();
        screen.status.trusted = false;
        assert!(shown(&mut screen, 1001).contains("counters at fault"));
        assert!(shown(&mut screen, 1009).contains("no news for 9 s"));
        screen.take(None);
        assert!(shown(&mut screen, 1009).contains("the daemon has ended"));
    }

    #[test]
    fn keys_sort_scroll_and_end() {
        let mut screen = screen();
        screen.status.users[1].resident_bytes = 1 << 40;
        let none = KeyModifiers::NONE;
        for _ in 0..2 {
            assert!(!screen.press(KeyCode::Char('s'), none));
        }
        assert_eq!(screen.order, Order::Memory);
        assert_eq!(screen.status.users[0].cgroup, "/c");
        screen.press(KeyCode::Down, none);
        assert_eq!(screen.table.selected(), Some(1));
        assert!(!screen.press(KeyCode::Char('c'), none));
        assert!(screen.press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(screen.press(KeyCode::Char('q'), none));
    }

    #[test]
    fn the_status_is_read_while_keys_are_pressed_all_the_time() {
        let scans = std::cell::Cell::new(0);
        let look = || {
            scans.set(scans.get() + 1);
            Some(Status::default())
        };
        let began = Instant::now();
        let press = |time: Duration| {
            assert!(time <= REFRESH && began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
            let key = if scans.get() < 2 { 'j' } else { 'q' };
            Ok(Some(Event::Key(KeyCode::Char(key).into())))
        };
        follow(&mut screen(), |_| Ok(()), look, press).unwrap();
        assert_eq!(scans.get(), 2);
        assert!(began.elapsed() >= 2 * REFRESH, "and no sooner than that");
    }

    #[test]
    fn a_threshold_of_nothing_and_an_empty_terminal_are_no_fault() {
        let mut screen = Screen::new(Status::default());
        shown(&mut screen, 0);
        let mut terminal = Terminal::new(TestBackend::new(1, 1)).unwrap();
        terminal.draw(|frame| screen.draw(frame, 0)).unwrap();
    }
}
