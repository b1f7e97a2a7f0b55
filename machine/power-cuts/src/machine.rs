//! The machine: power cycles, programs, sleeps, and a record of all moments to cut the power at.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, MutexGuard};

use dormouse_medium::{Contents, LINE_BYTES, Medium};

use crate::memory::{BLOCK_WORDS, CXL_BASE, CXL_BYTES, Content, Memory, PAGE, Shape, Way};
use crate::sys;

/// How a part of a machine's life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Firmware booted cold, or refused to sleep.
    Returned,
    /// Firmware jumped to the wake vector.
    Resumed,
    /// Firmware switched the power off.
    Off,
    /// The power was cut.
    Cut,
}

/// What the flush of a step is left out of. A step ends with a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Lines of this step are not written back.
    NoWriteBack(usize),
    /// Stores past the caches of this step are ordinary ones.
    NoStorePastCaches(usize),
    /// The step ends without its fence.
    NoFence(usize),
    /// Linux does not write its caches back before it calls the module.
    NoWriteBackAll,
}

/// A moment just before a fence: what the medium may hold, and what it must hold.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The step that this fence ends.
    pub step: usize,
    /// The medium.
    pub medium: Medium,
    /// The header that the program sees, and the one that it saw at the fence before, which is
    /// durable by now.
    pub headers: [Option<sys::dormouse_header>; 2],
}

/// What was written back or stored past the caches between two fences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Names of the parts, each once: `header`, `mailbox`, `dram-bitmap`, …
    pub parts: Vec<&'static str>,
    /// The state that the newest header had at its end.
    pub state: Option<u32>,
    /// Lines written back.
    pub written_back: u64,
    /// Lines stored past the caches.
    pub past_caches: u64,
}

/// The record of a run.
#[derive(Debug, Default)]
pub struct Tracked {
    medium: Medium,
    mutation: Option<Mutation>,
    /// Cut the power at the end of this step.
    stop_at: Option<usize>,
    keep_cuts: bool,
    /// The moments to cut at, oldest first.
    pub cuts: Vec<Cut>,
    /// The steps, one for each fence.
    pub steps: Vec<Step>,
    open: Step,
    durable_header: Option<sys::dormouse_header>,
}

/// One simulated machine; there is one in a process at a time.
pub struct Machine {
    /// What it is made of.
    pub shape: Shape,
    pub(crate) memory: Memory,
    tracked: Option<Tracked>,
    lines: Vec<String>,
    cycles: u64,
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    /// The machine that runs on this thread, for the hooks.
    static RUNNING: Cell<*mut Machine> = const { Cell::new(std::ptr::null_mut()) };
}

impl Machine {
    /// A machine with an empty device, switched off. Waits for the one before to be dropped.
    pub fn new(shape: Shape) -> Self {
        // A test that failed leaves nothing behind: memory is mapped anew.
        let alone = ALONE
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        Self {
            memory: Memory::map(shape.high_pages),
            shape,
            tracked: None,
            lines: Vec::new(),
            cycles: 0,
            _alone: alone,
        }
    }

    /// Switches it on with what the device holds; `track`: with a record of what it stores.
    pub fn power_on(&mut self, device: &Contents, track: Option<Tracked>) -> End {
        self.cycles += 1;
        self.memory
            .power_cycle(device, 0xdead_0000_0000_0000 | self.cycles);
        self.lines.clear();
        self.tracked = track;
        if let Some(tracked) = &mut self.tracked {
            tracked.medium = Medium::new(device.clone());
            tracked.durable_header = self.memory.header();
        }
        self.shape.method.select();
        let wake_vector = (self.shape.wake_page() * PAGE) as u32 + 0x20;
        // SAFETY: copies the geometry; the C side is this thread's while self lives.
        unsafe {
            sys::sim_board(&self.shape.geometry(), wake_vector);
            sys::sim_snapshot_board(&self.shape.geometry());
        }
        let (dram, cxl) = self.shape.marks();
        self.request(&dram, &cxl);
        match self.shape.way {
            Way::Firmware => self.run(sys::sim_power_on),
            Way::Snapshot => self.run(sys::sim_snapshot_power_on),
        }
    }

    /// The header that counts on a device.
    pub(crate) fn header_on(&mut self, device: &Contents) -> Option<sys::dormouse_header> {
        self.memory.power_cycle(device, 0);
        self.memory.header()
    }

    /// Programs and kernel write to their pages. Not yet durable: they are in the caches.
    pub fn programs_run(&mut self, content: Content) {
        for page in self.shape.saved_pages().collect::<Vec<_>>() {
            self.memory.fill_dram(page, content);
        }
        for page in self.shape.user.clone() {
            self.memory.fill_window(page, content);
            if let Some(tracked) = &mut self.tracked {
                tracked.medium.observe(&self.memory, page * PAGE, PAGE);
            }
        }
    }

    /// Power will be cut at the end of the step after so many more.
    pub fn stop_after(&mut self, steps: usize) {
        if let Some(tracked) = &mut self.tracked {
            tracked.stop_at = Some(tracked.steps.len() + steps);
        }
    }

    /// Goes to sleep.
    pub fn sleep(&mut self) -> End {
        let (dram, cxl) = self.shape.marks();
        self.request(&dram, &cxl);
        match self.shape.way {
            Way::Firmware => self.run(sys::sim_sleep),
            Way::Snapshot => self.run(sys::sim_snapshot_sleep),
        }
    }

    /// The pages in use; the caller keeps both bitmaps until the run is over.
    fn request(&self, dram: &[u64], cxl: &[u64]) {
        let check = self.shape.user_check;
        // SAFETY: both bitmaps outlive the run, and have the bits of the geometry; the second block's
        // words are the node's.
        unsafe {
            sys::sim_request(CXL_BASE, dram.as_ptr(), cxl.as_ptr(), check);
            sys::sim_snapshot_request(dram.as_ptr(), cxl[BLOCK_WORDS..].as_ptr(), check);
        }
    }

    fn run(&mut self, part: unsafe extern "C" fn()) -> End {
        RUNNING.set(self);
        // SAFETY: the C side jumps only over its own frames, and calls hooks that do not unwind.
        let end = unsafe { sys::sim_run(part) };
        RUNNING.set(std::ptr::null_mut());
        match end {
            0 => End::Returned,
            1 => End::Resumed,
            2 => End::Off,
            _ => End::Cut,
        }
    }

    /// The record until now; nothing is recorded from here on.
    ///
    /// # Panics
    /// When there is none.
    pub fn take_record(&mut self) -> Tracked {
        let mut tracked = self.tracked.take().expect("a tracked run");
        tracked.cut(&self.memory);
        tracked
    }

    /// What firmware printed since power-on.
    pub fn console(&self) -> &[String] {
        &self.lines
    }

    /// The reason that firmware gave for a cold boot.
    pub fn cold_boot_reason(&self) -> Option<&str> {
        let line = self
            .lines
            .iter()
            .find_map(|line| line.strip_prefix("dormouse: cold boot: "))?;
        line.split(':').next()
    }
}

impl Tracked {
    /// A record of all moments, with a mutation.
    pub fn all(mutation: Option<Mutation>) -> Self {
        Self {
            mutation,
            keep_cuts: true,
            ..Default::default()
        }
    }

    /// Power is cut at the end of a step; only that moment is recorded.
    pub fn until(step: usize) -> Self {
        Self {
            stop_at: Some(step),
            ..Default::default()
        }
    }

    /// What the medium certainly holds.
    pub fn durable(&self) -> &Contents {
        self.medium.durable()
    }

    fn changed(&mut self, mutation: impl Fn(usize) -> Mutation) -> bool {
        self.mutation == Some(mutation(self.steps.len()))
    }

    /// Everything below the saved pages may have been stored to without a hook.
    fn observe_metadata(&mut self, memory: &Memory) {
        let end = memory
            .header()
            .map_or(16 * PAGE, |header| header.data_offset);
        self.medium.observe(memory, 0, end.min(64 * PAGE));
    }

    fn cut(&mut self, memory: &Memory) {
        self.observe_metadata(memory);
        self.cuts.push(Cut {
            step: self.steps.len(),
            medium: self.medium.clone(),
            headers: [memory.header(), self.durable_header],
        });
    }

    /// True: the power is cut before the fence.
    fn fence(&mut self, memory: &Memory) -> bool {
        let stop = self.stop_at == Some(self.steps.len());
        if self.keep_cuts || stop {
            self.cut(memory);
        } else {
            self.observe_metadata(memory);
        }
        if stop {
            return true;
        }
        if !self.changed(Mutation::NoFence) {
            self.medium.fence();
        }
        self.durable_header = memory.header();
        self.open.state = self.durable_header.map(|header| header.state);
        self.steps.push(std::mem::take(&mut self.open));
        false
    }

    fn line_leaves(&mut self, memory: &mut Memory, offset: u64, past_caches: bool) {
        memory.note_window_page(offset / PAGE);
        let part = part_of(memory, offset);
        if !self.open.parts.contains(&part) {
            self.open.parts.push(part);
        }
        let ignored = if past_caches {
            self.open.past_caches += 1;
            self.changed(Mutation::NoStorePastCaches)
        } else {
            self.open.written_back += 1;
            self.changed(Mutation::NoWriteBack)
        };
        if ignored {
            self.medium.observe(memory, offset, LINE_BYTES);
        } else {
            self.medium.write_back(memory, offset, LINE_BYTES);
        }
    }
}

fn part_of(memory: &Memory, offset: u64) -> &'static str {
    let header = memory.header().unwrap_or_default();
    match offset {
        0..0x2000 => "header",
        0x2000..0x3000 => "mailbox",
        _ if offset < header.cxl_bitmap_offset => "dram-bitmap",
        _ if offset < header.user_table_offset => "cxl-bitmap",
        _ if offset < header.data_offset => "user-digests",
        _ => "saved-pages",
    }
}

/// The running machine's record, if there is one. Never unwinds: C frames lie above.
fn with_record(act: impl FnOnce(&mut Tracked, &mut Memory) -> bool) -> i32 {
    let machine = RUNNING.get();
    // SAFETY: set by `run` for as long as the C side runs; the Rust side waits in `run`.
    let machine = unsafe { machine.as_mut() };
    let stop = machine.is_some_and(|machine| {
        let memory = &mut machine.memory;
        machine
            .tracked
            .as_mut()
            .is_some_and(|record| act(record, memory))
    });
    stop.into()
}

#[unsafe(no_mangle)]
extern "C" fn sim_on_write_back(line: *const c_void, past_caches: i32) -> i32 {
    let address = line.addr() as u64;
    if !(CXL_BASE..CXL_BASE + CXL_BYTES).contains(&address) {
        return 0;
    }
    if let Some(machine) = unsafe_running() {
        machine.memory.note_window_page((address - CXL_BASE) / PAGE);
    }
    with_record(|record, memory| {
        record.line_leaves(memory, address - CXL_BASE, past_caches != 0);
        false
    })
}

fn unsafe_running<'a>() -> Option<&'a mut Machine> {
    // SAFETY: as in `with_record`; used for one statement.
    unsafe { RUNNING.get().as_mut() }
}

#[unsafe(no_mangle)]
extern "C" fn sim_on_fence() -> i32 {
    with_record(|record, memory| record.fence(memory))
}

#[unsafe(no_mangle)]
extern "C" fn sim_on_observe() -> i32 {
    with_record(|record, memory| {
        record.observe_metadata(memory);
        false
    })
}

#[unsafe(no_mangle)]
extern "C" fn sim_on_write_back_all() -> i32 {
    with_record(|record, memory| {
        if record.mutation != Some(Mutation::NoWriteBackAll) {
            for page in memory.window_pages() {
                record.medium.write_back(memory, page * PAGE, PAGE);
            }
        }
        record.fence(memory)
    })
}

#[unsafe(no_mangle)]
extern "C" fn sim_line(line: *const c_char) {
    if let Some(machine) = unsafe_running() {
        // SAFETY: the C side passes a terminated buffer.
        let line = unsafe { CStr::from_ptr(line) };
        machine
            .lines
            .push(line.to_string_lossy().trim_end().to_owned());
    }
}
