//! An ARMv7-A Linux of our own, built from the distribution's source, and its memory at the calls
//! of chosen functions while it suspends its devices on an emulated big machine (QEMU's
//! vexpress-a9).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::error::{OffloadError, io};
use crate::guest::Guest;
use crate::machine::comma;
use crate::machine::outcome::{Outcome, Processor};
use crate::parts;
use crate::suspend::gdb::Gdb;
use crate::suspend::{MASKED, big_core, hardware};

/// Physical address of the machine's memory, and its bytes: as much as the small core has.
pub const PHYSICAL: u32 = 0x6000_0000;
const MEMORY: &str = "16M";
/// Control registers of the board's first dual timer: the kernel's ticks and its clock; the bit
/// that lets them interrupt.
const TIMERS: [u32; 2] = [0x1001_1008, 0x1001_1028];
const TIMER_INTERRUPTS: u32 = 0x20;
/// The board's counter of 24 MHz, which the kernel's scheduler reads its clock from.
pub const COUNTER: u32 = 0x1000_005c;
/// Its frequency.
pub const COUNTER_MHZ: u32 = 24;
/// The board's timer of 1 MHz that counts down, which is the kernel's clock.
pub const CLOCK: u32 = 0x1001_1024;
/// What the kernel prints, beside its memory.
const CONSOLE: &str = "console";
/// Of its end, in an error.
const CONSOLE_LINES: usize = 20;
/// What it executed, by the plugin.
const TOTALS: &str = "totals";
/// Where a kernel waits without sleeping.
const DELAY_LOOPS: [&str; 4] = [
    "__loop_udelay",
    "__loop_const_udelay",
    "__loop_delay",
    "__timer_delay",
];
/// Only the socket of the emulator is waited for.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(60);

/// What `offload/kernel/build.sh` leaves.
#[derive(Debug, Clone)]
pub struct Kernel {
    folder: PathBuf,
    /// It has drivers of the board's devices.
    real: bool,
    /// The thread that suspends calls all of their callbacks itself.
    in_order: bool,
}

/// A call of a function, natively: all of the machine before and after it. It is made twice on the
/// same memory, so that what depends on the time is known.
#[derive(Debug, Clone)]
pub struct Call {
    /// The machine at the call.
    pub arrival: Arrival,
    /// Memory after it.
    pub after: Vec<u8>,
    /// After the second time.
    pub again: Vec<u8>,
    /// What is in r0 then.
    pub result: u32,
}

impl Kernel {
    /// Builds it in A32 or T32, with or without drivers of the board's devices, unless that was done.
    ///
    /// # Errors
    /// A tool or the source is missing, or it does not build.
    pub fn ready(t32: bool, real: bool) -> Result<Kernel, OffloadError> {
        let sources = parts::source_folder()?.join("kernel");
        let work = parts::cache_folder()?.with_file_name("offload-kernel");
        let set = match (t32, real) {
            (false, false) => "a32",
            (true, false) => "t32",
            (false, true) => "a32-real",
            (true, true) => "t32-real",
        };
        let folder = work.join(format!("out-{set}"));
        let state = parts::state_of(&sources, &["."])?;
        let arguments = [work.as_os_str(), folder.as_os_str(), OsStr::new(set)];
        parts::build(&sources.join("build.sh"), &arguments, &folder, &state)?;
        Ok(Kernel {
            folder,
            real,
            in_order: false,
        })
    }

    /// The same, whose drivers that may suspend in threads of their own do not (`pm_async` is 0).
    pub fn in_order(self) -> Kernel {
        Kernel {
            in_order: true,
            ..self
        }
    }

    /// Its code and symbols, with memory as it is in a machine.
    ///
    /// # Errors
    /// It is no kernel.
    pub fn guest(&self, memory: &[u8]) -> Result<Guest, OffloadError> {
        let mut guest = Guest::read(&self.folder.join("vmlinux"))?;
        // What was code for the start is memory of the kernel's by now.
        guest.text_start = guest.address("_stext")? & !3;
        guest.text_end = (guest.address("_etext")? + 3) & !3;
        guest.end = guest.base + memory.len() as u32;
        guest.memory = memory.to_vec();
        Ok(guest)
    }

    /// Boots it and takes its memory before and after the next call of each function, in this
    /// order, while its only process suspends the devices and resumes them. During the calls
    /// nothing interrupts, so that nothing else happens in them.
    ///
    /// # Errors
    /// The emulator is missing, or the kernel does not come there.
    pub fn calls(&self, functions: &[&str]) -> Result<Vec<Call>, OffloadError> {
        let mut machine = self.boot(1)?;
        functions
            .iter()
            .map(|function| {
                let arrival = machine.run_to(function)?;
                machine.call(arrival)
            })
            .collect()
    }

    /// Boots it; its only program suspends the devices this many times.
    ///
    /// # Errors
    /// The emulator is missing or does not answer.
    pub fn boot(&self, cycles: u32) -> Result<Running, OffloadError> {
        self.boot_with(cycles, None)
    }

    /// Boots it to suspend once; a plugin of the emulator counts its instructions ([`Running::counted`]).
    ///
    /// # Errors
    /// As [`Kernel::boot`].
    pub fn boot_counted(&self, plugin: &Path) -> Result<Running, OffloadError> {
        self.boot_with(1, Some(plugin))
    }

    fn boot_with(&self, cycles: u32, plugin: Option<&Path>) -> Result<Running, OffloadError> {
        let symbols = Guest::read(&self.folder.join("vmlinux"))?;
        let folder = tempfile::tempdir().map_err(io("create", "a folder for the machine"))?;
        let socket = folder.path().join("gdb");
        let memory = folder.path().join("memory");
        let plugin = plugin.map(|plugin| {
            let loops = delay_loops(&symbols);
            let each = loops
                .iter()
                .map(|range| format!(",wait={:x}-{:x}", range.start, range.end));
            format!(
                "{},totals={}{}",
                comma(plugin),
                comma(&folder.path().join(TOTALS)),
                each.collect::<String>()
            )
        });
        let machine = BigMachine::start(self, &memory, &socket, cycles, plugin)?;
        let gdb = Gdb::connect(&socket, SOCKET_TIMEOUT)?;
        Ok(Running {
            folder,
            gdb,
            symbols,
            threads: Vec::new(),
            _machine: machine,
        })
    }
}

/// A machine whose devices are about to be suspended, in this kernel's own time.
pub struct Running {
    /// Read before the machine ends.
    folder: tempfile::TempDir,
    gdb: Gdb,
    symbols: Guest,
    threads: Vec<u32>,
    /// Ends when this is dropped.
    _machine: BigMachine,
}

/// The big core at the first instruction of a function, where it stands still.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// r0 to r15; the last is the address of the function.
    pub registers: [u32; 16],
    /// CPSR.
    pub status: u32,
    /// `COUNTER` and `CLOCK`.
    pub clocks: [u32; 2],
    /// TPIDRURW, TPIDRURO and TPIDRPRW.
    pub thread: [u32; 3],
    /// All of its memory.
    pub memory: Vec<u8>,
}

impl Running {
    /// The file that is its memory.
    pub fn memory(&self) -> PathBuf {
        self.folder.path().join("memory")
    }

    /// How it is reached.
    pub fn gdb(&mut self) -> &mut Gdb {
        &mut self.gdb
    }

    /// Instructions executed so far, and how many of them in delay loops.
    ///
    /// # Errors
    /// They are not counted.
    pub fn counted(&self) -> Result<[u64; 2], OffloadError> {
        let path = self.folder.path().join(TOTALS);
        let data = fs::read(&path).map_err(io("read", &path))?;
        let count = |at: usize| {
            data.get(at..at + 8)
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u64::from_le_bytes)
        };
        Ok([count(0), count(8)])
    }

    /// Goes on until a call has returned to an address, in the frame that made it.
    ///
    /// # Errors
    /// The machine ends before that.
    pub fn run_to_frame(&mut self, address: u32, sp: u32) -> Result<Arrival, OffloadError> {
        self.gdb.run_to_frame(address, sp)?;
        self.arrival()
    }

    /// Goes on until the function is called.
    ///
    /// # Errors
    /// The machine ends before that.
    pub fn run_to(&mut self, function: &str) -> Result<Arrival, OffloadError> {
        self.gdb.run_to(self.symbols.address(function)?)?;
        self.arrival()
    }

    /// Where it stands.
    fn arrival(&mut self) -> Result<Arrival, OffloadError> {
        if self.threads.is_empty() {
            self.threads = self.gdb.numbers(&["TPIDRURW", "TPIDRURO", "TPIDRPRW"])?;
        }
        let mut thread = [0; 3];
        for (value, number) in thread.iter_mut().zip(&self.threads) {
            *value = self.gdb.register(*number)?;
        }
        let memory = self.memory();
        Ok(Arrival {
            registers: self.gdb.registers()?,
            status: self.gdb.status()?,
            clocks: [self.gdb.physical(COUNTER)?, self.gdb.physical(CLOCK)?],
            thread,
            memory: fs::read(&memory).map_err(io("read", memory))?,
        })
    }

    /// Makes the call that it stands at, twice, with nothing that interrupts it.
    fn call(&mut self, arrival: Arrival) -> Result<Call, OffloadError> {
        let memory = self.memory();
        let read = || fs::read(&memory).map_err(io("read", &memory));
        let gdb = &mut self.gdb;
        let (registers, status) = (arrival.registers, arrival.status);
        gdb.set_status(status | MASKED)?;
        let mut controls = [0; TIMERS.len()];
        for (control, timer) in controls.iter_mut().zip(TIMERS) {
            *control = gdb.physical(timer)?;
            // To write it starts the timer anew, and one of them is the kernel's clock.
            if *control & TIMER_INTERRUPTS != 0 {
                gdb.set_physical(timer, *control & !TIMER_INTERRUPTS)?;
            }
        }
        let clocks = [gdb.physical(COUNTER)?, gdb.physical(CLOCK)?];
        let masked = gdb.status()?;
        gdb.run_to(registers[14])?;
        let after = read()?;
        put_back(&memory, &arrival.memory)?;
        gdb.set_registers(&registers)?;
        gdb.set_status(masked)?;
        gdb.run_to(registers[14])?;
        let again = read()?;
        let result = gdb.register(0)?;
        let now = gdb.status()?;
        gdb.set_status((now & !MASKED) | (status & MASKED))?;
        for (control, timer) in controls.into_iter().zip(TIMERS) {
            if control & TIMER_INTERRUPTS != 0 {
                gdb.set_physical(timer, control)?;
            }
        }
        Ok(Call {
            arrival: Arrival {
                status: status | MASKED,
                clocks,
                ..arrival
            },
            after,
            again,
            result,
        })
    }

    /// The big core goes on from this state, with the next run_to().
    ///
    /// # Errors
    /// It does not take it.
    pub fn go_on_from(
        &mut self,
        registers: &[u32; 16],
        status: u32,
        memory: &[u8],
    ) -> Result<(), OffloadError> {
        put_back(&self.memory(), memory)?;
        self.go_on(registers, status)
    }

    /// The same, with its memory as it is.
    ///
    /// # Errors
    /// It does not take it.
    pub fn go_on(&mut self, registers: &[u32; 16], status: u32) -> Result<(), OffloadError> {
        // The instruction set first: it says where the program counter may be.
        self.gdb.set_status(status)?;
        self.gdb.set_registers(registers)
    }

    /// The big core goes on from where the executor ended, in whatever thread, with the next run_to(). An interrupt
    /// handler it leaves at once. `arrival` is where it stood before.
    ///
    /// # Errors
    /// It does not take it.
    pub fn take_over(
        &mut self,
        guest: &Guest,
        arrival: &Arrival,
        outcome: &Outcome,
    ) -> Result<(), OffloadError> {
        let processor = outcome.processor.unwrap_or(Processor {
            thread: arrival.thread,
            interrupted: None,
        });
        big_core::set_thread(&mut self.gdb, guest, (arrival.thread, processor.thread))?;
        self.go_on(&outcome.registers, outcome.status())?;
        big_core::leave_interrupt(&mut self.gdb, processor)
    }

    /// Lets it go on until its first program restarts it; the answer is what it printed.
    ///
    /// # Errors
    /// It does not come there.
    pub fn run_to_restart(mut self) -> Result<String, OffloadError> {
        let restart = self.symbols.address("machine_restart")?;
        self.gdb
            .run_to(restart)
            .map_err(|error| self.explained(error))?;
        self.console()
    }

    fn console(&self) -> Result<String, OffloadError> {
        let console = self.folder.path().join(CONSOLE);
        let text = fs::read(&console).map_err(io("read", console))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// An error of this machine, with the end of what it printed: a kernel that has panicked says why.
    pub fn explained(&self, error: OffloadError) -> OffloadError {
        let OffloadError::BigMachine(text) = error else {
            return error;
        };
        let console = self.console().unwrap_or_default();
        let lines: Vec<&str> = console.lines().collect();
        let end = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
        OffloadError::BigMachine(format!(
            "{text}; the end of its console:\n{}",
            end.join("\n")
        ))
    }
}

/// Writes the memory of a machine that waits; it has the file mapped, so nothing of it is cut off.
fn put_back(memory: &Path, bytes: &[u8]) -> Result<(), OffloadError> {
    File::options()
        .write(true)
        .open(memory)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(io("write", memory))
}

/// Each delay loop of a kernel, up to the next symbol.
fn delay_loops(symbols: &Guest) -> Vec<Range<u32>> {
    let addresses: BTreeSet<u32> = symbols
        .symbols
        .values()
        .map(|address| address & !1)
        .collect();
    DELAY_LOOPS
        .iter()
        .filter_map(|name| symbols.symbols.get(*name))
        .filter_map(|start| {
            let start = start & !1;
            let end = addresses.range(start + 1..).next()?;
            Some(start..*end)
        })
        .collect()
}

/// Ends the emulator when it is dropped.
struct BigMachine(Child);

impl Drop for BigMachine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl BigMachine {
    /// Its memory is a file, so that it can be read while it waits.
    fn start(
        kernel: &Kernel,
        memory: &Path,
        socket: &Path,
        cycles: u32,
        plugin: Option<String>,
    ) -> Result<BigMachine, OffloadError> {
        let console = memory.with_file_name(CONSOLE);
        // One second between suspend and resume; the last words are the first program's.
        let (hardware, arguments) = if kernel.real {
            let hardware = hardware::words(memory.parent().unwrap_or(Path::new("")))?;
            let how = if kernel.in_order { "in-order" } else { "real" };
            (
                hardware,
                format!("{} -- {cycles} {how}", hardware::ARGUMENTS),
            )
        } else {
            let arguments = "earlyprintk keep_bootcon suspend.pm_test_delay=1";
            (Vec::new(), format!("{arguments} -- {cycles}"))
        };
        Command::new("qemu-system-arm")
            .args([
                "-machine",
                "vexpress-a9,secure=off,memory-backend=ram",
                "-m",
                MEMORY,
            ])
            .arg("-object")
            .arg(format!(
                "memory-backend-file,id=ram,size={MEMORY},mem-path={},share=on",
                comma(memory)
            ))
            .arg("-gdb")
            .arg(format!("unix:{},server=on,wait=off", comma(socket)))
            .args(["-S", "-display", "none", "-monitor", "none"])
            .arg("-serial")
            .arg(format!("file:{}", comma(&console)))
            .arg("-no-reboot")
            // One nanosecond an instruction: what the kernel decides by the time does not depend on
            // the host's load.
            .args(["-icount", "shift=0,sleep=off"])
            .args(hardware)
            .args(plugin.iter().flat_map(|words| ["-plugin", words]))
            .args(["-append", &arguments])
            // Nothing of the host's sound.
            .env("QEMU_AUDIO_DRV", "none")
            .arg("-kernel")
            .arg(kernel.folder.join("zImage"))
            .arg("-dtb")
            .arg(kernel.folder.join("board.dtb"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(BigMachine)
            .map_err(|source| OffloadError::MissingTool {
                program: "qemu-system-arm".into(),
                source,
            })
    }
}
