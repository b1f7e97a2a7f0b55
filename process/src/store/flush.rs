//! Getting bytes out of the processor's caches: what makes a store to DAX memory durable.
//!
//! Source of the rules: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1,
//! 10.4.6 (non-temporal stores) and volume 2, CLWB/CLFLUSHOPT/CLFLUSH, SFENCE.

use std::arch::x86_64::{
    __m128i, _mm_clflush, _mm_load_si128, _mm_loadu_si128, _mm_sfence, _mm_stream_si128,
};
use std::sync::OnceLock;

use raw_cpuid::CpuId;

const LINE: usize = 64;

/// How this processor writes a cache line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineFlush {
    /// CLWB: the line may stay cached.
    Clwb,
    /// CLFLUSHOPT.
    Clflushopt,
    /// CLFLUSH: one after the other.
    Clflush,
}

/// The best one that this processor has.
pub fn line_flush() -> LineFlush {
    static BEST: OnceLock<LineFlush> = OnceLock::new();
    *BEST.get_or_init(|| match CpuId::new().get_extended_feature_info() {
        Some(features) if features.has_clwb() => LineFlush::Clwb,
        Some(features) if features.has_clflushopt() => LineFlush::Clflushopt,
        _ => LineFlush::Clflush,
    })
}

/// Writes the lines of these bytes back to memory; durable after the next [`fence`] of the same
/// thread.
pub fn write_back(bytes: &[u8]) {
    let kind = line_flush();
    let start = bytes.as_ptr().addr() & !(LINE - 1);
    for line in (start..bytes.as_ptr().addr() + bytes.len()).step_by(LINE) {
        let line = line as *const u8;
        // SAFETY: the line overlaps `bytes`, so it is mapped; these instructions change no data.
        // CLWB and CLFLUSHOPT are used only where cpuid names them.
        unsafe {
            match kind {
                LineFlush::Clwb => {
                    std::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                LineFlush::Clflushopt => {
                    std::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                LineFlush::Clflush => _mm_clflush(line),
            }
        }
    }
}

/// Waits for this thread's write-backs and non-temporal stores.
pub fn fence() {
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() }
}

/// Copies past the caches; durable after the next [`fence`] of the same thread.
///
/// # Safety
/// `to` must be valid for writes of `from.len()` bytes, must not overlap `from`, and both the
/// address and the length must be multiples of 64.
pub unsafe fn copy_non_temporal(to: *mut u8, from: &[u8]) {
    debug_assert!(to.addr().is_multiple_of(LINE) && from.len().is_multiple_of(LINE));
    let aligned = from.as_ptr().addr().is_multiple_of(16);
    for at in (0..from.len()).step_by(16) {
        // SAFETY: within both ranges; the caller answers for `to` and its alignment. SSE2 is part
        // of x86-64.
        unsafe {
            let source = from.as_ptr().add(at).cast::<__m128i>();
            let value = if aligned {
                _mm_load_si128(source)
            } else {
                _mm_loadu_si128(source)
            };
            _mm_stream_si128(to.add(at).cast::<__m128i>(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_past_the_caches_is_a_copy() {
        let from: Vec<u8> = (0..4096u32 + 64).map(|n| (n * 7) as u8).collect();
        let mut to = vec![0u8; 4096 + 64];
        let skip = to.as_ptr().align_offset(64);
        for shift in [0, 1, 16] {
            // SAFETY: `to` has 4096 bytes from `skip` on, aligned to 64.
            unsafe { copy_non_temporal(to.as_mut_ptr().add(skip), &from[shift..shift + 4096]) };
            fence();
            assert_eq!(&to[skip..skip + 4096], &from[shift..shift + 4096]);
        }
        write_back(&to[1..4000]);
        fence();
    }
}
