//! Decodes the records of a perf ring.

use perf_event::data::{DataSource, MemLevel, MemLevelNum, MemOp, Record};
use perf_event_open_sys::bindings::PERF_MEM_LVLNUM_CXL;

use super::presets::{Op, Place};

/// Bytes of a cache line, and of the loads of most programs.
const LINE_BYTES: u64 = 64;
const WORD_BYTES: u64 = 8;

/// One access of a process to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub pid: i32,
    pub op: Op,
    /// Physical; `None` if neither the processor nor the kernel knew it.
    pub address: Option<u64>,
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    Access(Access),
    /// A sample without memory traffic: a cache hit, or no process.
    Elsewhere,
    /// The number of records for which the ring had no room.
    Lost(u64),
    /// The kernel pauses sampling because it takes too long.
    Throttled,
    /// Another record.
    Other,
}

/// Decodes a record of an event with this operation and this location.
pub fn decode(record: &Record, op: Op, place: Place) -> Decoded {
    match record {
        Record::Sample(sample) => {
            let pid = sample.pid().map_or(0, |pid| pid as i32);
            let address = sample.phys_addr().filter(|address| *address != 0);
            match of_memory(sample.data_src(), op, place, address).filter(|_| pid > 0) {
                Some(op) => Decoded::Access(Access { pid, op, address }),
                None => Decoded::Elsewhere,
            }
        }
        Record::Lost(lost) => Decoded::Lost(lost.lost),
        Record::LostSamples(lost) => Decoded::Lost(lost.lost),
        Record::Throttle(_) => Decoded::Throttled,
        _ => Decoded::Other,
    }
}

/// The operation of a sample, if it moved a line between memory and caches.
fn of_memory(source: Option<DataSource>, op: Op, place: Place, address: Option<u64>) -> Option<Op> {
    let Some(source) = source else {
        return (place != Place::Source).then_some(op);
    };
    let said = source.mem_op();
    let op = if said.contains(MemOp::STORE) {
        Op::Store
    } else if said.contains(MemOp::LOAD) {
        Op::Load
    } else {
        op
    };
    let level = source.mem_lvl_num();
    let from_cxl = level == MemLevelNum::new(PERF_MEM_LVLNUM_CXL as u8);
    let moved = match place {
        Place::Event => true,
        Place::Source => from_cxl,
        Place::Address if by_fill_buffer(level, source.mem_lvl()) => {
            address.is_some_and(|address| address % LINE_BYTES < WORD_BYTES)
        }
        Place::Address => from_cxl || !by_cache(level, source.mem_lvl()),
    };
    moved.then_some(op)
}

/// Whether the line was on its way already (a hit of the line-fill buffer): another load of the
/// line missed, or the prefetcher asked for it. A stream's loads are nearly all like that, and a
/// line has several of them. So of these loads only those of a line's first word are charged: a
/// line that was prefetched counts once, and one whose first word missed counts with that sample.
fn by_fill_buffer(number: MemLevelNum, level: MemLevel) -> bool {
    number == MemLevelNum::LFB || level.contains(MemLevel::HIT | MemLevel::LFB)
}

/// Whether a cache had the line.
fn by_cache(number: MemLevelNum, level: MemLevel) -> bool {
    let caches = MemLevel::L1 | MemLevel::L2 | MemLevel::L3;
    let caches = caches | MemLevel::REM_CCE1 | MemLevel::REM_CCE2;
    if level.contains(MemLevel::MISS) && !level.contains(MemLevel::HIT) {
        // Only the first level of a store is known.
        return false;
    }
    let by_number = matches!(
        number,
        MemLevelNum::L1
            | MemLevelNum::L2
            | MemLevelNum::L3
            | MemLevelNum::L4
            | MemLevelNum::ANY_CACHE
    );
    by_number || (level.contains(MemLevel::HIT) && level.intersects(caches))
}
