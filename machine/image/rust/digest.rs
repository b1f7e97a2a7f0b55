//! XXH64 and the fused copy, safely: what firmware runs, for tools, tests and benchmarks.

use std::sync::LazyLock;

use raw_cpuid::{CpuId, cpuid};

use crate::sys;

/// Streaming XXH64 with seed 0, the digest of everything in an image.
#[derive(Clone)]
pub struct Xxh64(sys::dormouse_xxh64);

impl Xxh64 {
    /// The state before the first byte.
    pub fn new() -> Self {
        let mut hash = sys::dormouse_xxh64::default();
        // SAFETY: `hash` is a valid object, and the function writes all of it.
        unsafe { sys::dormouse_xxh64_init(&mut hash) };
        Self(hash)
    }

    /// Adds bytes.
    pub fn update(&mut self, data: &[u8]) {
        // SAFETY: reads exactly data.len() bytes; the state was made by `new`.
        unsafe { sys::dormouse_xxh64_update(&mut self.0, data.as_ptr().cast(), data.len() as u64) };
    }

    /// The digest of all bytes so far.
    pub fn finish(&self) -> u64 {
        // SAFETY: only reads the state.
        unsafe { sys::dormouse_xxh64_final(&self.0) }
    }
}

impl Default for Xxh64 {
    fn default() -> Self {
        Self::new()
    }
}

/// XXH64 of `data` in one call.
pub fn xxh64(data: &[u8]) -> u64 {
    // SAFETY: reads exactly data.len() bytes.
    unsafe { sys::dormouse_xxh64(data.as_ptr().cast(), data.len() as u64) }
}

/// How the copy stores what it loaded: `enum dormouse_copy_method`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// Cached stores, written back afterwards.
    Plain,
    /// Non-temporal stores of 8 bytes.
    Movnti,
    /// Direct stores of 64 bytes.
    Movdir64b,
}

impl CopyMethod {
    /// Every method.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Movnti, Self::Movdir64b];

    fn number(self) -> u32 {
        match self {
            Self::Plain => sys::DORMOUSE_COPY_PLAIN,
            Self::Movnti => sys::DORMOUSE_COPY_MOVNTI,
            Self::Movdir64b => sys::DORMOUSE_COPY_MOVDIR64B,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Movnti => "movnti",
            Self::Movdir64b => "movdir64b",
        }
    }

    /// What firmware takes on this CPU for copies to CXL memory or to DRAM.
    pub fn best(to_persistent: bool) -> Self {
        // SAFETY: reads CPUID, which every x86-64 CPU has.
        let best = unsafe { sys::dormouse_copy_best(to_persistent.into()) };
        *Self::ALL
            .iter()
            .find(|method| method.number() == best)
            .unwrap_or(&Self::Plain)
    }

    /// Whether this CPU has the instruction.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Plain | Self::Movnti => true,
            Self::Movdir64b => {
                // Asked once: a hypervisor takes many microseconds to answer.
                static HAS_MOVDIR64B: LazyLock<bool> = LazyLock::new(|| {
                    // The crate has the leaf, and no name for this bit of it.
                    CpuId::new().get_extended_feature_info().is_some()
                        && (cpuid!(7, 0).ecx >> 28) & 1 == 1
                });
                *HAS_MOVDIR64B
            }
        }
    }
}

/// Copies `src` to `dst`, adds it to `hash`, and returns when the data is on its way to
/// memory. Fastest when `dst` starts on a 64-byte line.
///
/// # Panics
/// When the lengths differ or this CPU lacks the method.
pub fn copy_digest(method: CopyMethod, dst: &mut [u8], src: &[u8], hash: &mut Xxh64) {
    assert_eq!(dst.len(), src.len(), "copy between regions of one length");
    assert!(method.is_supported(), "this CPU has no {}", method.name());
    // SAFETY: both regions have src.len() bytes; `&mut` keeps them apart; the CPU has the
    // instruction; unaligned starts and odd lengths take a slow path in C.
    unsafe {
        sys::dormouse_copy_digest(
            method.number(),
            dst.as_mut_ptr().cast(),
            src.as_ptr().cast(),
            src.len() as u64,
            &mut hash.0,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_methods_have_the_names_that_firmware_prints() {
        for method in CopyMethod::ALL {
            // SAFETY: returns a literal for any method.
            let name = unsafe {
                std::ffi::CStr::from_ptr(sys::dormouse_copy_method_name(method.number()))
            };
            assert_eq!(name.to_str(), Ok(method.name()));
        }
    }

    #[test]
    fn the_best_method_is_one_that_this_cpu_has() {
        assert!(CopyMethod::best(true).is_supported());
        assert!(CopyMethod::best(false).is_supported());
    }
}
