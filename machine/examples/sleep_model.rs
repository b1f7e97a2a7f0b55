//! What a sleep of a large machine takes, by step: unit costs measured on this machine, times the
//! numbers of the large one.
//!
//! `cargo run --release -p dormouse-machine --example sleep_model -- [GIB] [CPUS] [MIB_TO_MEASURE]`
//!
//! What one machine with one node cannot measure (moving a page to another node, a memory block
//! going online) is a number with its source in `FIXED`.

use std::hint::black_box;
use std::time::Instant;

use dormouse_image::digest::xxh64;
use dormouse_image::plan::{Bitmap, Plan};
use dormouse_machine::parallel::{self, cpus};
use dormouse_machine::system::pages::{Kernel, PAGE_BYTES, Pages};
use dormouse_system::Root;
use dormouse_system::proc::numa_maps;

const GIB: u64 = 1 << 30;

/// Measured in the emulated machine (docs/evaluation/machine.md), so rather too slow.
struct Fixed {
    /// One processor moves so much to another node.
    move_gib_s: f64,
    /// One block of 128 MiB goes online.
    block_online_ms: f64,
}

const FIXED: Fixed = Fixed {
    move_gib_s: 2.0,
    block_online_ms: 7.3,
};

/// What a step takes for each of its units, in seconds.
struct Units {
    scan_page: f64,
    ask_page: f64,
    call: f64,
    numa_maps_page: f64,
    digest_byte: f64,
    plan_word: f64,
}

/// Private memory with all its pages there, small ones.
struct Memory {
    at: *mut u8,
    bytes: usize,
}

impl Memory {
    fn new(bytes: usize) -> Memory {
        // SAFETY: a new mapping of this process, written inside its bounds.
        unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED, "{bytes} bytes of memory");
            libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE);
            let at: *mut u8 = at.cast();
            for page in (0..bytes).step_by(PAGE_BYTES as usize) {
                at.add(page).write_volatile(1);
            }
            Memory { at, bytes }
        }
    }

    fn pages(&self) -> Vec<u64> {
        let base = self.at.addr() as u64;
        (base..base + self.bytes as u64)
            .step_by(PAGE_BYTES as usize)
            .collect()
    }
}

/// The median of five runs, in seconds.
fn seconds(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let begin = Instant::now();
            work();
            begin.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[2]
}

fn measure(mib: usize) -> Result<Units, Box<dyn std::error::Error>> {
    let memory = Memory::new(mib << 20);
    let pid = std::process::id() as i32;
    let addresses = memory.pages();
    let pages = addresses.len() as f64;
    let mut status = vec![0; addresses.len()];

    Kernel.present(pid)?;
    let scan = seconds(|| drop(black_box(Kernel.present(pid))));
    Kernel.nodes(pid, &addresses, &mut status)?;
    let ask = seconds(|| drop(Kernel.nodes(pid, &addresses, &mut status)));
    let own_node = status[0].max(0) as u32;
    // The page is there already: what is left is what each call does on all processors.
    let mut one = [0];
    let call = seconds(|| {
        for address in &addresses[..100] {
            let _ = Kernel.move_to(pid, &[*address], own_node, &mut one);
        }
    }) / 100.0;
    let root = Root::host();
    let numa = seconds(|| drop(black_box(numa_maps::read(&root, pid))));

    let bitmap = vec![0x00ff_ff0f_0000_ffffu64; 1 << 20];
    let words = bitmap.len() as f64;
    let digest = seconds(|| {
        // SAFETY: the same memory as bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bitmap.as_ptr().cast(), bitmap.len() * 8) };
        black_box(xxh64(bytes));
    });
    let free = vec![0u64; bitmap.len()];
    let plan = seconds(|| {
        let bits = bitmap.len() as u64 * 64;
        let plan = Plan::new(Bitmap::new(&bitmap, bits), Bitmap::new(&free, bits), 0);
        black_box(plan.count());
    });
    Ok(Units {
        scan_page: scan / pages,
        ask_page: ask / pages,
        call,
        numa_maps_page: numa / pages,
        digest_byte: digest / (words * 8.0),
        plan_word: plan / words,
    })
}

/// Children that each have a part of the memory, so that there is something to ask of several.
fn questions(mib: usize) -> (f64, f64) {
    let mut children = Vec::new();
    for _ in 0..8 {
        // SAFETY: the child only touches its own memory and waits to be killed.
        match unsafe { libc::fork() } {
            0 => {
                let memory = Memory::new((mib << 20) / 8);
                black_box(&memory.bytes);
                loop {
                    // SAFETY: waits for a signal.
                    unsafe { libc::pause() };
                }
            }
            child => children.push(child),
        }
    }
    let root = Root::host();
    let expected = (mib << 20) as u64 / 8;
    let is_there = |pid: &i32| numa_maps::read(&root, *pid).values().sum::<u64>() >= expected;
    while !children.iter().all(is_there) {
        std::thread::yield_now();
    }
    let ask = |pid: &i32| numa_maps::read(&root, *pid);
    let one = seconds(|| drop(black_box(parallel::map(1, &children, ask))));
    let all = seconds(|| drop(black_box(parallel::map(cpus(), &children, ask))));
    for child in children {
        // SAFETY: our own child, ended and reaped.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
    (one, all)
}

fn row(step: &str, formula: &str, before_s: f64, now_s: f64) {
    println!("| {step} | {formula} | {before_s:.2} s | {now_s:.2} s |");
}

fn model(units: &Units, gib: u64, large_cpus: u64) {
    let pages = (gib * GIB / PAGE_BYTES) as f64;
    let (cpus, blocks) = (large_cpus as f64, gib as f64 * 8.0);
    let moving = gib as f64 / FIXED.move_gib_s / cpus;
    let scan = pages * units.scan_page;
    let bitmap_bytes = pages / 8.0;
    println!("\nA sleep with {gib} GiB in small pages of one process, {large_cpus} processors:\n");
    println!("| step | formula | before | now |\n|---|---|---|---|");
    let numa = pages * units.numa_maps_page;
    row(
        "home nodes (several DRAM nodes)",
        "pages x numa_maps, of 128 processes",
        numa,
        numa / cpus,
    );
    let online = blocks * FIXED.block_online_ms / 1000.0;
    row("node online", "blocks of 128 MiB x block", online, online);
    row(
        "scan, then move",
        "scan + moving; now the larger of both",
        scan + moving,
        scan.max(moving),
    );
    let calls = |mib: f64| gib as f64 * 1024.0 / mib * units.call;
    row(
        "calls, one at a time (32, now 128 MiB each)",
        "GiB x 1024 / MiB x call",
        calls(32.0),
        calls(128.0),
    );
    let digests = 3.0 * bitmap_bytes * units.digest_byte;
    row(
        "digests of bitmaps and table, one processor",
        "3 x pages / 8 bytes",
        digests,
        digests,
    );
    let plan = bitmap_bytes / 8.0 * units.plan_word;
    row("copy plan, all words mixed", "pages / 64 words", plan, plan);
    let listed = pages * 16.0 / GIB as f64;
    println!("\nMemory for the list of pages: {listed:.2} GiB before, below 0.01 now.");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut number = |otherwise| match arguments.next() {
        Some(Ok(number)) if number > 0 => number,
        None => otherwise,
        _ => {
            eprintln!("usage: sleep_model [GIB] [CPUS] [MIB_TO_MEASURE]");
            std::process::exit(2)
        }
    };
    let (gib, large_cpus, mib) = (number(512), number(128), number(512) as usize);
    let units = measure(mib)?;
    println!(
        "unit costs, {mib} MiB in small pages, median of 5, {} processors:\n",
        cpus()
    );
    println!("| unit | cost |\n|---|---|");
    for (name, cost) in [
        ("PAGEMAP_SCAN, a page", units.scan_page),
        ("move_pages(2) that only asks, a page", units.ask_page),
        ("move_pages(2), a call", units.call),
        ("numa_maps, a page", units.numa_maps_page),
        ("XXH64, a byte", units.digest_byte),
        ("copy plan, a word of mixed bits", units.plan_word),
    ] {
        println!("| {name} | {:.2} ns |", cost * 1e9);
    }
    let (one, all) = questions(mib);
    println!(
        "\nnuma_maps of 8 processes with {} MiB each: {:.1} ms by one thread, {:.1} ms by {}.",
        mib / 8,
        one * 1e3,
        all * 1e3,
        cpus()
    );
    model(&units, gib, large_cpus);
    Ok(())
}
