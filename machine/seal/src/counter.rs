//! A counter that only goes up and that outlives the device's contents: against an older image.

use crate::source::KeyError;
use crate::source::tpm2::Tpm2;

/// Counts images. Each image carries its value; an image with another value is an older one.
pub trait Counter {
    /// Where it stands.
    ///
    /// # Errors
    /// It cannot be read: then no image may be used.
    fn read(&self) -> Result<u64, CounterError>;

    /// Raises it by one: before a sleep, for the new image, and after a wake, before anything of
    /// the operating system runs, so that the image is an older one from then on.
    ///
    /// # Errors
    /// It cannot be raised.
    fn increment(&self) -> Result<u64, CounterError>;
}

/// The counter cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the monotonic counter: {0}")]
pub struct CounterError(#[from] pub KeyError);

/// An NV index of the TPM of the type *counter*: it can be raised and never be set.
pub struct TpmCounter {
    index: u32,
    tools: Tpm2,
}

impl TpmCounter {
    /// In the range that TCG leaves to the platform's owner.
    pub const DEFAULT_INDEX: u32 = 0x0180_d0e5;

    /// The counter at an index; `tcti` as for [`crate::Tpm::new`].
    pub fn new(index: u32, tcti: Option<String>) -> Self {
        let tools = Tpm2::new(tcti);
        Self { index, tools }
    }

    fn index(&self) -> String {
        format!("{:#x}", self.index)
    }

    /// Makes it, where it is not there.
    ///
    /// # Errors
    /// The TPM or its tools are missing or refuse.
    pub fn define(&self) -> Result<(), CounterError> {
        if self.read().is_ok() {
            return Ok(());
        }
        let index = self.index();
        let attributes = "ownerread|ownerwrite|authread|authwrite|no_da|nt=counter";
        self.tools.run(
            &[
                "nvdefine", "-Q", &index, "-C", "o", "-s", "8", "-a", attributes,
            ],
            &[],
        )?;
        // A counter has no value before it was raised for the first time.
        self.increment()?;
        Ok(())
    }
}

impl Counter for TpmCounter {
    fn read(&self) -> Result<u64, CounterError> {
        let bytes = self
            .tools
            .run(&["nvread", "-C", "o", "-s", "8", &self.index()], &[])?;
        let value: [u8; 8] = bytes.as_slice().try_into().map_err(|_| KeyError::Command {
            program: "tpm2 nvread".into(),
            reason: format!("gave {} bytes, a counter has 8", bytes.len()),
        })?;
        Ok(u64::from_be_bytes(value))
    }

    fn increment(&self) -> Result<u64, CounterError> {
        self.tools
            .run(&["nvincrement", "-Q", "-C", "o", &self.index()], &[])?;
        self.read()
    }
}
