//! What is needed of GDB's remote protocol, over a Unix socket: stop an emulated machine at an
//! address, read and write registers. QEMU's ARM: registers 0 to 15, 25 is CPSR, others by the name
//! that its description has.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{OffloadError, io};

const CPSR: u32 = 25;
/// For one answer; the machine may have to boot until it has one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// A machine that waits.
pub struct Gdb {
    stream: UnixStream,
}

fn machine<T>(message: impl Into<String>) -> Result<T, OffloadError> {
    Err(OffloadError::BigMachine(message.into()))
}

fn checksum(data: &[u8]) -> u8 {
    data.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// A little-endian word as the protocol writes it.
fn word(hex: &str) -> Option<u32> {
    u32::from_str_radix(hex.get(..8)?, 16)
        .ok()
        .map(u32::swap_bytes)
}

impl Gdb {
    /// Waits until an emulator listens there. Its socket is there before it does.
    ///
    /// # Errors
    /// None does within the limit.
    pub fn connect(path: &Path, limit: Duration) -> Result<Gdb, OffloadError> {
        let start = Instant::now();
        let early = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused);
        let stream = loop {
            match UnixStream::connect(path) {
                Err(error) if early(error.kind()) && start.elapsed() < limit => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => break other.map_err(io("connect to", path))?,
            }
        };
        stream
            .set_read_timeout(Some(ANSWER_TIMEOUT))
            .map_err(io("set up", path))?;
        let mut gdb = Gdb { stream };
        // The machine serves single registers only to a client that has read their description.
        gdb.request("qXfer:features:read:target.xml:0,ffb")?;
        Ok(gdb)
    }

    fn byte(&mut self) -> Result<u8, OffloadError> {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(1) => Ok(byte[0]),
            Ok(_) => machine("has ended"),
            Err(error) => machine(format!("does not answer: {error}")),
        }
    }

    fn send(&mut self, text: &str) -> Result<(), OffloadError> {
        let packet = format!("${text}#{:02x}", checksum(text.as_bytes()));
        self.stream
            .write_all(packet.as_bytes())
            .or_else(|error| machine(format!("does not listen: {error}")))
    }

    fn receive(&mut self) -> Result<String, OffloadError> {
        while self.byte()? != b'$' {}
        let mut data = Vec::new();
        loop {
            match self.byte()? {
                b'#' => break,
                byte => data.push(byte),
            }
        }
        let sum = [self.byte()?, self.byte()?];
        let answer = std::str::from_utf8(&sum)
            .ok()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if answer != Some(checksum(&data)) {
            return machine("sent a packet with a wrong checksum");
        }
        self.stream
            .write_all(b"+")
            .or_else(|error| machine(format!("does not listen: {error}")))?;
        // `}` escapes; only descriptions have it.
        let mut text = Vec::new();
        let mut bytes = data.into_iter();
        while let Some(byte) = bytes.next() {
            text.push(match byte {
                b'}' => bytes.next().unwrap_or_default() ^ 0x20,
                byte => byte,
            });
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn request(&mut self, text: &str) -> Result<String, OffloadError> {
        self.send(text)?;
        self.receive()
    }

    fn must(&mut self, text: &str) -> Result<(), OffloadError> {
        match self.request(text)?.as_str() {
            "OK" => Ok(()),
            other => machine(format!("refuses {text:?}: {other:?}")),
        }
    }

    /// # Errors
    /// The machine has no such register, or does not answer.
    pub fn register(&mut self, number: u32) -> Result<u32, OffloadError> {
        let answer = self.request(&format!("p{number:x}"))?;
        word(&answer).map_or_else(
            || machine(format!("has no register {number}: {answer:?}")),
            Ok,
        )
    }

    /// # Errors
    /// The machine does not answer.
    pub fn registers(&mut self) -> Result<[u32; 16], OffloadError> {
        let mut registers = [0; 16];
        for (number, register) in registers.iter_mut().enumerate() {
            *register = self.register(number as u32)?;
        }
        Ok(registers)
    }

    /// # Errors
    /// The machine does not take them.
    pub fn set_registers(&mut self, registers: &[u32; 16]) -> Result<(), OffloadError> {
        for (number, value) in registers.iter().enumerate() {
            self.set_register(number as u32, *value)?;
        }
        Ok(())
    }

    /// # Errors
    /// The machine does not take it.
    pub fn set_register(&mut self, number: u32, value: u32) -> Result<(), OffloadError> {
        self.must(&format!("P{number:x}={:08x}", value.swap_bytes()))
    }

    /// # Errors
    /// The machine does not answer.
    pub fn status(&mut self) -> Result<u32, OffloadError> {
        self.register(CPSR)
    }

    /// # Errors
    /// The machine does not take it.
    pub fn set_status(&mut self, value: u32) -> Result<(), OffloadError> {
        self.set_register(CPSR, value)
    }

    /// The number of each named system register.
    ///
    /// # Errors
    /// The machine describes no such register.
    pub fn numbers(&mut self, names: &[&str]) -> Result<Vec<u32>, OffloadError> {
        let mut description = String::new();
        loop {
            let at = description.len();
            let answer = self.request(&format!(
                "qXfer:features:read:system-registers.xml:{at:x},ffb"
            ))?;
            let (Some(kind), Some(part)) = (answer.get(..1), answer.get(1..)) else {
                return machine("describes no system registers");
            };
            description.push_str(part);
            if kind != "m" {
                break;
            }
        }
        let number = |name: &&str| {
            let attribute = format!("name=\"{name}\"");
            let element = description
                .split('<')
                .find(|element| element.contains(&attribute))?;
            let digits = element.split("regnum=\"").nth(1)?.split('"').next()?;
            digits.parse().ok()
        };
        names
            .iter()
            .map(|name| number(name).map_or_else(|| machine(format!("has no register {name}")), Ok))
            .collect()
    }

    /// A word at a physical address, a device's too.
    ///
    /// # Errors
    /// The machine has nothing there.
    pub fn physical(&mut self, address: u32) -> Result<u32, OffloadError> {
        self.address_physically(true)?;
        let value = self.read(address, 4)?;
        self.address_physically(false)?;
        Ok(value)
    }

    /// # Errors
    /// The machine does not take it.
    pub fn set_physical(&mut self, address: u32, value: u32) -> Result<(), OffloadError> {
        self.address_physically(true)?;
        self.write(address, 4, value)?;
        self.address_physically(false)
    }

    /// What packets about memory mean from now on: physical addresses, or those of the processor.
    ///
    /// # Errors
    /// The machine cannot tell them apart.
    pub fn address_physically(&mut self, physical: bool) -> Result<(), OffloadError> {
        self.must(&format!("Qqemu.PhyMemMode:{}", u8::from(physical)))
    }

    /// Reads 1, 2 or 4 bytes, in one access.
    ///
    /// # Errors
    /// The machine has nothing there.
    pub fn read(&mut self, address: u32, bytes: u32) -> Result<u32, OffloadError> {
        let answer = self.request(&format!("m{address:x},{bytes}"))?;
        // Little-endian, as long as it is.
        let value = (answer.len() == 2 * bytes as usize)
            .then(|| u32::from_str_radix(&answer, 16).ok())
            .flatten();
        value.map_or_else(
            || machine(format!("has nothing at {address:#x}: {answer:?}")),
            |value| Ok(value.swap_bytes() >> (32 - 8 * bytes)),
        )
    }

    /// Writes 1, 2 or 4 bytes, in one access.
    ///
    /// # Errors
    /// The machine does not take it.
    pub fn write(&mut self, address: u32, bytes: u32, value: u32) -> Result<(), OffloadError> {
        let value = (value << (32 - 8 * bytes)).swap_bytes();
        let digits = 2 * bytes as usize;
        self.must(&format!("M{address:x},{bytes}:{value:0digits$x}"))
    }

    /// Goes on until a function has returned to an address in the frame that called it: other threads may
    /// return there, too.
    ///
    /// # Errors
    /// As [`Gdb::run_to`].
    pub fn run_to_frame(&mut self, symbol: u32, sp: u32) -> Result<(), OffloadError> {
        self.run_to(symbol)?;
        while self.register(13)? != sp {
            // Off the address, where it would stop at once.
            self.step()?;
            self.run_to(symbol)?;
        }
        Ok(())
    }

    /// Executes one instruction.
    ///
    /// # Errors
    /// The machine does not answer.
    pub fn step(&mut self) -> Result<(), OffloadError> {
        self.request("s").map(drop)
    }

    /// Goes on until an address is executed; bit 0 of a symbol in T32 is no part of it.
    ///
    /// # Errors
    /// The machine ends before that, or stops elsewhere.
    pub fn run_to(&mut self, symbol: u32) -> Result<(), OffloadError> {
        let address = symbol & !1;
        self.must(&format!("Z1,{address:x},{:x}", 4 - 2 * (symbol & 1)))?;
        let answer = self.request("c")?;
        self.must(&format!("z1,{address:x},{:x}", 4 - 2 * (symbol & 1)))?;
        let at = self.register(15)?;
        if at != address {
            return machine(format!("stopped at {at:#x}, not {address:#x}: {answer}"));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn an_emulator_that_does_not_listen_yet_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gdb");
        // There, and nobody listens.
        drop(UnixListener::bind(&path).unwrap());
        let refused = UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(Gdb::connect(&path, Duration::ZERO).is_err());
        let late = path.clone();
        std::thread::spawn(move || {
            std::fs::remove_file(&late).unwrap();
            let (mut stream, _) = UnixListener::bind(&late).unwrap().accept().unwrap();
            let mut bytes = [0; 256];
            loop {
                let count = stream.read(&mut bytes).unwrap();
                if bytes[..count].contains(&b'#') {
                    break;
                }
            }
            let answer = format!("+$l<target/>#{:02x}", checksum(b"l<target/>"));
            stream.write_all(answer.as_bytes()).unwrap();
            while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
        });
        Gdb::connect(&path, LONG).unwrap();
    }

    /// A machine that gives these answers, whatever the request.
    pub fn machine_that_answers(answers: &'static [&'static str]) -> (Gdb, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gdb");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 256];
            for answer in std::iter::once(&"l<target/>").chain(answers) {
                // Acknowledgements come alone or with the next packet.
                loop {
                    let count = stream.read(&mut bytes).unwrap();
                    if count == 0 || bytes[..count].contains(&b'#') {
                        break;
                    }
                }
                let packet = format!("+${answer}#{:02x}", checksum(answer.as_bytes()));
                stream.write_all(packet.as_bytes()).unwrap();
            }
            // The last answer is acknowledged, too: until then somebody listens.
            while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
        });
        (Gdb::connect(&path, LONG).unwrap(), folder)
    }

    #[test]
    fn registers_are_little_endian() {
        let (mut gdb, _folder) = machine_that_answers(&["78563412"]);
        assert_eq!(gdb.register(3).unwrap(), 0x1234_5678);
    }

    #[test]
    fn memory_is_read_in_the_size_that_is_wanted() {
        let (mut gdb, _folder) = machine_that_answers(&["78563412", "3412", "ff", "3412"]);
        assert_eq!(gdb.read(0, 4).unwrap(), 0x1234_5678);
        assert_eq!(gdb.read(0, 2).unwrap(), 0x1234);
        assert_eq!(gdb.read(0, 1).unwrap(), 0xff);
        // Of two bytes nobody makes four.
        assert!(gdb.read(0, 4).is_err());
    }

    #[test]
    fn registers_are_found_by_name() {
        let (mut gdb, _folder) = machine_that_answers(&[
            "m<reg name=\"A\" regnum=\"40\"/><reg name=\"TPID",
            "lRURO\" bitsize=\"32\" regnum=\"58\"/>",
        ]);
        assert_eq!(gdb.numbers(&["TPIDRURO", "A"]).unwrap(), [58, 40]);
    }

    #[test]
    fn another_thread_that_returns_to_the_same_address_is_passed() {
        let (mut gdb, _folder) = machine_that_answers(&[
            "OK", "T05", "OK", "008000c0", "00100000", // another stack
            "T05",      // one instruction
            "OK", "T05", "OK", "008000c0", "00200000",
        ]);
        gdb.run_to_frame(0xc000_8000, 0x2000).unwrap();
    }

    #[test]
    fn a_machine_that_stops_elsewhere_is_an_error() {
        let (mut gdb, _folder) = machine_that_answers(&["OK", "T05", "OK", "00000060"]);
        let error = gdb.run_to(0xc000_8000).unwrap_err().to_string();
        assert!(error.contains("0x60000000"), "{error}");
    }
}
