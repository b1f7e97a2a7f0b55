//! What a record of the ring says.

use perf_event::data::{DataSource, MemLevel, MemLevelNum, MemOp, Record};
use perf_event_open_sys::bindings::PERF_MEM_LVLNUM_CXL;

use super::presets::{Op, Place};

/// One access of a process to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub pid: i32,
    pub op: Op,
    /// Physical; nothing where the processor or the kernel did not know it.
    pub address: Option<u64>,
}

/// What one record was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Access(Access),
    /// A sample that says nothing of memory: a cache had the line, nobody's process.
    Elsewhere,
    /// So many records found no room.
    Lost(u64),
    /// The kernel samples no more for a while, because it takes too long.
    Throttled,
    /// Something else.
    Other,
}

/// What a record of an event says that does `op` and is known to be of the device by `place`.
pub fn told(record: &Record, op: Op, place: Place) -> Told {
    match record {
        Record::Sample(sample) => {
            let pid = sample.pid().map_or(0, |pid| pid as i32);
            let address = sample.phys_addr().filter(|address| *address != 0);
            match of_memory(sample.data_src(), op, place).filter(|_| pid > 0) {
                Some(op) => Told::Access(Access { pid, op, address }),
                None => Told::Elsewhere,
            }
        }
        Record::Lost(lost) => Told::Lost(lost.lost),
        Record::LostSamples(lost) => Told::Lost(lost.lost),
        Record::Throttle(_) => Told::Throttled,
        _ => Told::Other,
    }
}

/// What a sample did, if a line was moved between memory and caches for it.
fn of_memory(source: Option<DataSource>, op: Op, place: Place) -> Option<Op> {
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
        Place::Address => from_cxl || !by_cache(level, source.mem_lvl()),
    };
    moved.then_some(op)
}

/// Whether a cache had the line, or it was under way for somebody else already.
fn by_cache(number: MemLevelNum, level: MemLevel) -> bool {
    let caches = MemLevel::L1 | MemLevel::L2 | MemLevel::L3 | MemLevel::LFB;
    let caches = caches | MemLevel::REM_CCE1 | MemLevel::REM_CCE2;
    if level.contains(MemLevel::MISS) && !level.contains(MemLevel::HIT) {
        // A store's first level is all that is known of it.
        return false;
    }
    let by_number = matches!(
        number,
        MemLevelNum::L1
            | MemLevelNum::L2
            | MemLevelNum::L3
            | MemLevelNum::L4
            | MemLevelNum::ANY_CACHE
            | MemLevelNum::LFB
    );
    by_number || (level.contains(MemLevel::HIT) && level.intersects(caches))
}
