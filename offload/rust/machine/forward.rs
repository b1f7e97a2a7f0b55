//! Serves the accesses to devices that the executor forwards (`target/device_forward.c`), and its waits for an
//! interrupt: through two FIFOs in the emulator's folder, one request and one answer at a time. While the executor
//! waits for the answer its machine stands still, so neither takes any of its time.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::error::{OffloadError, io};

/// One access to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Physical address.
    pub physical: u32,
    /// Bytes: 1, 2 or 4.
    pub bytes: u32,
    /// What is written; none: it is a read.
    pub written: Option<u32>,
}

/// Where the big core's devices are.
pub trait Bus {
    /// Makes an access; what a read gives (0 for a write), or none if it is refused. Of a refused access nothing
    /// was done.
    ///
    /// # Errors
    /// The board does not answer.
    fn access(&mut self, access: Access) -> Result<Option<u32>, OffloadError>;

    /// Lets the devices go on until one of them interrupts; false: it cannot.
    ///
    /// # Errors
    /// The board does not answer.
    fn wait(&mut self) -> Result<bool, OffloadError>;
}

/// What the executor asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Access(Access),
    Wait,
}

/// A request as the executor sends it: address; bytes, and bit 8 if it writes; value. Bit 9 instead of all that: a
/// wait.
fn request_of(request: [u8; 12]) -> Option<Request> {
    let word = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&request[at..at + 4]);
        u32::from_le_bytes(bytes)
    };
    let bytes = word(4) & 0xff;
    let writes = word(4) >> 8;
    if (bytes, writes) == (0, 2) {
        return Some(Request::Wait);
    }
    let known = matches!(bytes, 1 | 2 | 4) && writes <= 1;
    known.then(|| {
        Request::Access(Access {
            physical: word(0),
            bytes,
            written: (writes == 1).then(|| word(8)),
        })
    })
}

/// Both FIFOs. Each is open for reading and writing here, so that nobody waits for anybody to open it.
pub struct Link {
    requests: File,
    answers: File,
}

impl Link {
    /// Makes them in a folder.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn new(folder: &Path) -> Result<Link, OffloadError> {
        let open = |name: &str| {
            let path = folder.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
                .map_err(|error| io("create", &path)(error.into()))?;
            File::options()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(io("open", &path))
        };
        Ok(Link {
            requests: open("requests")?,
            answers: open("answers")?,
        })
    }

    /// Serves until there has been no request for so long.
    ///
    /// # Errors
    /// The bus fails, or the executor sends what is no request.
    pub fn serve(&mut self, bus: &mut dyn Bus, quiet: Duration) -> Result<(), OffloadError> {
        let timeout = Timespec {
            tv_sec: quiet.as_secs().cast_signed(),
            tv_nsec: quiet.subsec_nanos().into(),
        };
        loop {
            let mut waits = [PollFd::new(&self.requests, PollFlags::IN)];
            match poll(&mut waits, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(io("read", "the executor's requests")(error.into())),
            }
            let mut request = [0; 12];
            self.requests
                .read_exact(&mut request)
                .map_err(io("read", "the executor's requests"))?;
            let request = request_of(request).ok_or_else(|| {
                OffloadError::Machine(format!("sent no request to a device: {request:02x?}"))
            })?;
            let answer = match request {
                Request::Access(access) => bus.access(access)?,
                Request::Wait => bus.wait()?.then_some(0),
            };
            let mut bytes = [0; 8];
            bytes[0] = u8::from(answer.is_some());
            bytes[4..].copy_from_slice(&answer.unwrap_or_default().to_le_bytes());
            self.answers
                .write_all(&bytes)
                .map_err(io("write", "an answer to the executor"))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_an_access_or_an_error() {
        let request = |words: [u32; 3]| {
            let mut bytes = [0; 12];
            for (at, word) in words.iter().enumerate() {
                bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
            }
            request_of(bytes)
        };
        let physical = 0x1001_7000;
        let read = Access {
            physical,
            bytes: 4,
            written: None,
        };
        assert_eq!(request([physical, 4, 7]), Some(Request::Access(read)));
        let write = Access {
            bytes: 2,
            written: Some(7),
            ..read
        };
        assert_eq!(request([physical, 0x102, 7]), Some(Request::Access(write)));
        assert_eq!(request([0, 0x200, 0]), Some(Request::Wait));
        for bad in [0, 3, 5, 8, 0x204, 0x300, 0x8000_0004] {
            assert_eq!(request([physical, bad, 0]), None, "{bad:#x}");
        }
    }

    /// A bus with one register, which refuses everything else.
    struct OneRegister(u32);

    impl Bus for OneRegister {
        fn access(&mut self, access: Access) -> Result<Option<u32>, OffloadError> {
            if access.physical != 8 {
                return Ok(None);
            }
            self.0 = access.written.unwrap_or(self.0);
            Ok(Some(self.0))
        }

        fn wait(&mut self) -> Result<bool, OffloadError> {
            Ok(self.0 == 9)
        }
    }

    #[test]
    fn each_request_has_its_answer_and_a_refusal_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut link = Link::new(folder.path()).unwrap();
        let mut bus = OneRegister(5);
        let mut ask = |words: [u32; 3]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            (&link.requests).write_all(&bytes).unwrap();
            link.serve(&mut bus, Duration::ZERO).unwrap();
            let mut answer = [0; 8];
            (&link.answers).read_exact(&mut answer).unwrap();
            (answer[0], answer[4])
        };
        assert_eq!(ask([8, 4, 0]), (1, 5));
        assert_eq!(ask([0, 0x200, 0]).0, 0);
        assert_eq!(ask([8, 0x104, 9]), (1, 9));
        assert_eq!(ask([0, 0x200, 0]).0, 1);
        assert_eq!(ask([12, 4, 0]), (0, 0));
        assert_eq!(ask([8, 4, 0]), (1, 9));
    }
}
