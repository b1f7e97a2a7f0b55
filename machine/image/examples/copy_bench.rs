//! Measures firmware's copy methods on this CPU against memcpy and memcpy + XXH64.
//!
//! `cargo run --release -p dormouse-image --example copy_bench -- [--json FILE] [--runs N]`
//!
//! Each run of ours alternates with one of the peer's. Ratios are taken from such pairs, and
//! above 1 ours is faster. `plain` asks CPUID how to write lines back, once for each piece:
//! in a virtual machine that costs more than copying a page. The rows have the format of all benchmark results of the project.

use std::arch::x86_64::{_mm_sfence, _mm_stream_si64};
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dormouse_image::digest::{CopyMethod, Xxh64, copy_digest};
use memmap2::MmapMut;
use serde_json::{Value, json};
use xxhash_rust::xxh64::xxh64;

const PAGE_BYTES: usize = 4096;
const GIB: f64 = (1u64 << 30) as f64;

/// Copies all of the second to the first.
type Copying<'a> = dyn FnMut(&mut [u8], &[u8]) + 'a;

struct Case {
    name: &'static str,
    /// Bytes copied in a run.
    bytes: usize,
    /// Bytes of one contiguous piece.
    piece_bytes: usize,
}

const CASES: &[Case] = &[
    // The kernel's pages: far more than the caches, in long runs.
    Case {
        name: "128M",
        bytes: 128 << 20,
        piece_bytes: 2 << 20,
    },
    // A fragmented image: single pages.
    Case {
        name: "128M pages",
        bytes: 128 << 20,
        piece_bytes: PAGE_BYTES,
    },
    // Stays in the caches: the cost of the instructions.
    Case {
        name: "256K",
        bytes: 256 << 10,
        piece_bytes: 256 << 10,
    },
];

struct Buffers {
    src: MmapMut,
    dst: MmapMut,
}

impl Buffers {
    fn new() -> std::io::Result<Self> {
        let largest = CASES.iter().map(|case| case.bytes).max().unwrap_or(0);
        let (mut src, mut dst) = (MmapMut::map_anon(largest)?, MmapMut::map_anon(largest)?);
        // Firmware maps memory with large pages as well.
        src.advise(memmap2::Advice::HugePage)?;
        dst.advise(memmap2::Advice::HugePage)?;
        for (word, index) in src.chunks_exact_mut(8).zip(0u64..) {
            word.copy_from_slice(&index.wrapping_mul(0x9e37_79b1_85eb_ca87).to_le_bytes());
        }
        dst.fill(1);
        Ok(Self { src, dst })
    }

    /// Copies the case's bytes with `copy`, piece by piece, and returns GiB/s.
    fn run(&mut self, case: &Case, copy: &mut Copying<'_>) -> f64 {
        let begin = Instant::now();
        let pieces = self.dst[..case.bytes].chunks_exact_mut(case.piece_bytes);
        for (dst, src) in pieces.zip(self.src.chunks_exact(case.piece_bytes)) {
            copy(dst, src);
        }
        case.bytes as f64 / GIB / begin.elapsed().as_secs_f64()
    }
}

/// The stores of a method without a digest.
fn copy_only(method: CopyMethod, dst: &mut [u8], src: &[u8]) {
    match method {
        CopyMethod::Plain => {
            for (to, from) in dst.chunks_exact_mut(8).zip(src.chunks_exact(8)) {
                to.copy_from_slice(from);
            }
        }
        CopyMethod::Movnti => {
            for (to, from) in dst.chunks_exact_mut(8).zip(src.chunks_exact(8)) {
                let word = i64::from_le_bytes(from.try_into().expect("8 bytes"));
                // SAFETY: `to` has 8 bytes; every x86-64 CPU has MOVNTI.
                unsafe { _mm_stream_si64(to.as_mut_ptr().cast(), word) };
            }
        }
        CopyMethod::Movdir64b => {
            assert!(method.is_supported() && dst.as_ptr().align_offset(64) == 0);
            for (to, from) in dst.chunks_exact_mut(64).zip(src.chunks_exact(64)) {
                // SAFETY: both have 64 bytes, `to` is aligned, the CPU has the instruction.
                unsafe {
                    std::arch::asm!(
                        "movdir64b {to}, [{from}]",
                        to = in(reg) to.as_mut_ptr(),
                        from = in(reg) from.as_ptr(),
                    )
                };
            }
        }
    }
    // SAFETY: every x86-64 CPU has SFENCE.
    unsafe { _mm_sfence() };
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs ours and the peer's in turn and makes a row of it.
fn compare(
    buffers: &mut Buffers,
    case: &Case,
    label: String,
    (ours, peer): (&mut Copying<'_>, &mut Copying<'_>),
    peer_name: &str,
    runs: usize,
) -> Value {
    // Runs that are too short to time are repeated.
    let repeat = ((32 << 20) / case.bytes).max(1);
    let mut rate = |copy: &mut Copying<'_>| {
        let mut rates: Vec<f64> = (0..repeat).map(|_| buffers.run(case, copy)).collect();
        middle(&mut rates)
    };
    rate(ours);
    rate(peer);
    let (mut own, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs {
        // The order alternates as well.
        let (a, b) = if run % 2 == 0 {
            let a = rate(ours);
            (a, rate(peer))
        } else {
            let b = rate(peer);
            (rate(ours), b)
        };
        own.push(a);
        others.push(b);
        ratios.push(a / b);
    }
    let median = middle(&mut own);
    json!({
        "metric": "copy", "case": label, "unit": "GiB/s",
        "ours": median, "peer": middle(&mut others), "peer_name": peer_name,
        "ratio": middle(&mut ratios), "n": runs, "spread": [own[0], median, own[runs - 1]],
        "goal": null, "met": null,
    })
}

fn with_goal(mut row: Value, is_best: bool) -> Value {
    if is_best {
        row["goal"] = json!("ratio >= 1");
        row["met"] = json!(row["ratio"].as_f64() >= Some(1.0));
    }
    row
}

fn measure(runs: usize) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut buffers = Buffers::new()?;
    let mut rows = Vec::new();
    let best = CopyMethod::best(true);
    println!(
        "{:<38} {:>8} {:>8} {:>7}   peer (GiB/s, ratio above 1: ours is faster)",
        "case", "ours", "peer", "ratio"
    );
    for case in CASES {
        for digest in [true, false] {
            for method in CopyMethod::ALL {
                let with = if digest { "copy+digest" } else { "copy" };
                let label = format!("{} {with} {}", method.name(), case.name);
                let peer_name = if digest {
                    "memcpy, then xxh64"
                } else {
                    "memcpy"
                };
                if !method.is_supported() {
                    println!("{label:<38} {:>8}", "this CPU lacks it");
                    rows.push(json!({
                        "metric": "copy", "case": label, "unit": "GiB/s", "ours": null,
                        "peer": null, "peer_name": peer_name, "why": "this CPU lacks it",
                    }));
                    continue;
                }
                let mut hash = Xxh64::new();
                let mut fused =
                    |dst: &mut [u8], src: &[u8]| copy_digest(method, dst, src, &mut hash);
                let mut plain = |dst: &mut [u8], src: &[u8]| copy_only(method, dst, src);
                let mut memcpy_digest = |dst: &mut [u8], src: &[u8]| {
                    dst.copy_from_slice(src);
                    black_box(xxh64(src, 0));
                };
                let mut memcpy = |dst: &mut [u8], src: &[u8]| {
                    dst.copy_from_slice(src);
                    black_box(&dst);
                };
                let pair: (&mut Copying<'_>, &mut Copying<'_>) = if digest {
                    (&mut fused, &mut memcpy_digest)
                } else {
                    (&mut plain, &mut memcpy)
                };
                let row = compare(&mut buffers, case, label, pair, peer_name, runs);
                println!(
                    "{:<38} {:>8.2} {:>8.2} {:>7.2}   {peer_name}{}",
                    row["case"].as_str().unwrap_or(""),
                    row["ours"].as_f64().unwrap_or(0.0),
                    row["peer"].as_f64().unwrap_or(0.0),
                    row["ratio"].as_f64().unwrap_or(0.0),
                    if digest && method == best {
                        "   <- firmware's choice"
                    } else {
                        ""
                    },
                );
                rows.push(with_goal(row, digest && method == best));
            }
        }
    }
    Ok(rows)
}

/// Days since 1970 as year, month, day.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut left, mut year, mut month) = (days, 1970, 1);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    for length in [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
    ] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

fn result(rows: &[Value]) -> Result<Value, Box<dyn Error>> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let (year, month, day) = civil_date(seconds / 86400);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let command: Vec<String> = std::env::args().collect();
    Ok(json!({
        "name": "copy",
        "date": format!("{year}-{month:02}-{day:02}"),
        "command": command.join(" "),
        "machine": {
            "cpu": model.map(|text| text.trim_start_matches([' ', '\t', ':'])),
            "cores": std::thread::available_parallelism()?.get(),
            "kernel": fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
            "accelerator": null,
        },
        "rows": rows,
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut json_file, mut runs) = (None, 15);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--json", Some(file)) => json_file = Some(file),
            ("--runs", Some(number)) => runs = number.parse::<usize>()?.max(1),
            _ => return Err("usage: copy_bench [--json FILE] [--runs N]".into()),
        }
    }
    let rows = measure(runs)?;
    println!(
        "firmware takes {} to CXL memory and {} to DRAM",
        CopyMethod::best(true).name(),
        CopyMethod::best(false).name()
    );
    if let Some(file) = json_file {
        fs::write(file, serde_json::to_string_pretty(&result(&rows)?)?)?;
    }
    Ok(())
}
