//! Tests of the rings with real samples of this kernel's page faults, and with arbitrary records.

use perf_event::data::Record;
use perf_event::data::endian::Native;
use perf_event::data::parse::{ParseConfig, Parser};
use perf_event_open_sys::bindings as sys;
use proptest::prelude::*;

use super::*;
use crate::perf::blocks::{Blocks, SYSTEM};
use crate::perf::pmu::DEVICES;
use crate::perf::presets::SampleKind;
use crate::perf::tests_support::fresh;

fn page_faults(ring_bytes: usize) -> Option<Rings> {
    let devices = Path::new(DEVICES);
    let open = |name: &str| Pmu::open(devices, name).ok();
    let events = SampleKind::PageFaults.events(open).unwrap();
    Rings::open(devices, &events[0], 1, ring_bytes)
        .map_err(|error| eprintln!("left out: page faults cannot be sampled here: {error}"))
        .ok()
}

fn me() -> i32 {
    std::process::id() as i32
}

/// Faults of other programs may fill the rings in between; then the test tries again.
const TRIES: usize = 50;

#[test]
fn real_faults_are_charged_to_their_process_with_an_address_on_its_node() {
    let pages = 300;
    let blocks = Blocks::read(Path::new(SYSTEM));
    let mut tally = Tally::default();
    for _ in 0..TRIES {
        let Some(mut rings) = page_faults(RING_BYTES) else {
            return;
        };
        let mut memory = fresh(pages);
        memory.touch(0..pages);
        let (mut mine, mut placed) = (0, 0);
        tally = Tally::default();
        rings.drain(&mut tally, |access| {
            if access.pid == me() {
                mine += 1;
                let node = access.address.zip(blocks.as_ref().ok());
                placed +=
                    usize::from(node.is_some_and(|(at, blocks)| blocks.node_of(at).is_some()));
            }
        });
        assert_eq!(tally.damaged, 0);
        // A page may be reclaimed before the kernel looks its address up, but rarely.
        if mine >= pages && (blocks.is_err() || placed * 10 >= mine * 9) {
            return;
        }
    }
    panic!("never as many samples as pages: {tally:?}");
}

#[test]
fn a_ring_that_wraps_loses_nothing_while_it_is_emptied() {
    // A ring of 4 KiB holds some 100 samples: it wraps eight times.
    let (rounds, pages) = (40, 20);
    let mut tally = Tally::default();
    for _ in 0..TRIES {
        let Some(mut rings) = page_faults(4096) else {
            return;
        };
        let mut memory = fresh(rounds * pages);
        let mut mine = 0;
        tally = Tally::default();
        for round in 0..rounds {
            memory.touch(round * pages..(round + 1) * pages);
            rings.drain(&mut tally, |access| mine += usize::from(access.pid == me()));
        }
        assert_eq!(tally.damaged, 0);
        if tally.lost == 0 && mine >= rounds * pages {
            return;
        }
    }
    panic!("samples were lost every time: {tally:?}");
}

#[test]
fn a_ring_that_overflows_says_how_many_were_lost() {
    let Some(mut rings) = page_faults(4096) else {
        return;
    };
    let pages = 1000;
    let mut memory = fresh(2 * pages);
    memory.touch(0..pages);
    let mut tally = Tally::default();
    rings.drain(&mut tally, |_| ());
    // The kernel reports losses with the next sample of that CPU that fits.
    for page in 0..pages {
        memory.touch(pages + page..pages + page + 1);
        rings.drain(&mut tally, |_| ());
    }
    assert!(tally.lost > 0, "{tally:?}");
    assert_eq!(tally.damaged, 0);
}

/// The sample format of the rings.
fn config() -> ParseConfig<Native> {
    let mut attr = sys::perf_event_attr::default();
    attr.sample_type = u64::from(
        sys::PERF_SAMPLE_TID
            | sys::PERF_SAMPLE_ADDR
            | sys::PERF_SAMPLE_PHYS_ADDR
            | sys::PERF_SAMPLE_DATA_SRC,
    );
    ParseConfig::from(attr)
}

fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
    let size = 8 + body.len() as u16 * 8;
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

fn sample(pid: u32, source: u64, address: u64) -> Vec<u8> {
    let tid = u64::from_ne_bytes(
        [pid.to_ne_bytes(), pid.to_ne_bytes()]
            .concat()
            .try_into()
            .unwrap(),
    );
    record(sys::PERF_RECORD_SAMPLE, 2, &[tid, 0x7000, source, address])
}

fn said(bytes: &[u8], op: Op, place: Place) -> Option<Decoded> {
    let record: Record = Parser::new(bytes, config()).parse().ok()?;
    Some(decode(&record, op, place))
}

const LOAD: u64 = sys::PERF_MEM_OP_LOAD as u64;
const STORE: u64 = sys::PERF_MEM_OP_STORE as u64;

fn level(bits: u32) -> u64 {
    u64::from(bits) << sys::PERF_MEM_LVL_SHIFT
}

fn number(number: u32) -> u64 {
    u64::from(number) << sys::PERF_MEM_LVLNUM_SHIFT
}

#[test]
fn cache_hits_are_no_traffic_and_memory_accesses_are() {
    let (hit, miss) = (sys::PERF_MEM_LVL_HIT, sys::PERF_MEM_LVL_MISS);
    let access = |op| {
        let address = Some(0x1234_5000);
        Some(Decoded::Access(Access {
            pid: 7,
            op,
            address,
        }))
    };
    let by = |source, place| said(&sample(7, source, 0x1234_5000), Op::Load, place);
    let l3 = LOAD | level(hit | sys::PERF_MEM_LVL_L3) | number(sys::PERF_MEM_LVLNUM_L3);
    assert_eq!(by(l3, Place::Address), Some(Decoded::Elsewhere));
    let remote = LOAD | level(hit | sys::PERF_MEM_LVL_REM_RAM1) | number(sys::PERF_MEM_LVLNUM_RAM);
    assert_eq!(by(remote, Place::Address), access(Op::Load));
    assert_eq!(by(remote, Place::Source), Some(Decoded::Elsewhere));
    let cxl = LOAD | number(sys::PERF_MEM_LVLNUM_CXL);
    assert_eq!(by(cxl, Place::Source), access(Op::Load));
    // A store that missed the first cache: no more is known, so it counts.
    let store = STORE | level(miss | sys::PERF_MEM_LVL_L1) | number(sys::PERF_MEM_LVLNUM_L1);
    assert_eq!(by(store, Place::Address), access(Op::Store));
    let cached = STORE | level(hit | sys::PERF_MEM_LVL_L1) | number(sys::PERF_MEM_LVLNUM_L1);
    assert_eq!(by(cached, Place::Address), Some(Decoded::Elsewhere));
    assert_eq!(by(l3, Place::Event), access(Op::Load));
}

#[test]
fn a_line_that_was_on_its_way_is_charged_once() {
    let (hit, lfb) = (sys::PERF_MEM_LVL_HIT, sys::PERF_MEM_LVL_LFB);
    // In both notations of the kernel.
    for source in [
        LOAD | number(sys::PERF_MEM_LVLNUM_LFB),
        LOAD | level(hit | lfb),
    ] {
        let charged = |address: u64| {
            let said = said(&sample(7, source, address), Op::Load, Place::Address);
            matches!(said, Some(Decoded::Access(_)))
        };
        // The loads of a stream from one line: the first word's stands for the line.
        let line = 0x1234_5000..0x1234_5040u64;
        let words: Vec<u64> = line
            .step_by(8)
            .filter(|&address| charged(address))
            .collect();
        assert_eq!(words, [0x1234_5000]);
        let unknown = said(&sample(7, source, 0), Op::Load, Place::Address);
        assert_eq!(unknown, Some(Decoded::Elsewhere));
    }
}

#[test]
fn idle_time_and_unknown_addresses_are_distinguished() {
    let none = said(&sample(0, LOAD, 0x5000), Op::Load, Place::Address);
    assert_eq!(none, Some(Decoded::Elsewhere));
    let outside = said(&sample(u32::MAX, LOAD, 0x5000), Op::Load, Place::Address);
    assert_eq!(outside, Some(Decoded::Elsewhere), "another PID namespace");
    let unmapped = said(&sample(7, LOAD, 0), Op::Load, Place::Address);
    let access = Access {
        pid: 7,
        op: Op::Load,
        address: None,
    };
    assert_eq!(unmapped, Some(Decoded::Access(access)));
}

#[test]
fn lost_records_and_throttling_are_noticed() {
    let lost = record(sys::PERF_RECORD_LOST, 0, &[1, 77]);
    assert_eq!(
        said(&lost, Op::Load, Place::Address),
        Some(Decoded::Lost(77))
    );
    let lost = record(sys::PERF_RECORD_LOST_SAMPLES, 0, &[5]);
    assert_eq!(
        said(&lost, Op::Load, Place::Address),
        Some(Decoded::Lost(5))
    );
    let throttled = record(sys::PERF_RECORD_THROTTLE, 0, &[1, 2, 3]);
    assert_eq!(
        said(&throttled, Op::Load, Place::Address),
        Some(Decoded::Throttled)
    );
    let again = record(sys::PERF_RECORD_UNTHROTTLE, 0, &[1, 2, 3]);
    assert_eq!(said(&again, Op::Load, Place::Address), Some(Decoded::Other));
}

proptest! {
    #[test]
    fn no_record_ends_the_program(
        kind in prop_oneof![0u32..24, any::<u32>()], misc in any::<u16>(),
        body in prop::collection::vec(any::<u8>(), 0..200), claims in any::<u16>(),
        op in prop_oneof![Just(Op::Load), Just(Op::Store)],
        place in prop_oneof![Just(Place::Address), Just(Place::Source), Just(Place::Event)],
    ) {
        let mut bytes = record(kind, misc, &[]);
        bytes.extend(&body);
        let _ = said(&bytes, op, place);
        // A wrong size.
        bytes[6..8].copy_from_slice(&claims.to_ne_bytes());
        let _ = said(&bytes, op, place);
    }

    #[test]
    fn samples_are_decoded_exactly(
        pid in 1u32..1 << 22, address in 1u64..1 << 52, store in any::<bool>(),
    ) {
        let op = if store { Op::Store } else { Op::Load };
        let source = if store { STORE } else { LOAD } | number(sys::PERF_MEM_LVLNUM_RAM);
        let expected = Access { pid: pid as i32, op, address: Some(address) };
        let decoded = said(&sample(pid, source, address), Op::Load, Place::Address);
        prop_assert_eq!(decoded, Some(Decoded::Access(expected)));
        // A truncated record is rejected.
        let bytes = sample(pid, source, address);
        prop_assert_eq!(said(&bytes[..bytes.len() - 1], Op::Load, Place::Address), None);
    }
}
