//! Injected faults: power cuts, damaged images, a CXL device that loses writes.

pub mod failed_flush;
pub mod power_cut;
pub mod replay;
pub mod tamper;

/// A number below `limit` that depends on seed and stream only: a failed run can be repeated.
pub fn draw_below(seed: u64, stream: u64, limit: u64) -> u64 {
    let mut word = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word ^ (word >> 27)) % limit
}
