//! The simulated device is a fluid: its latency follows from the readers that run at the moment. A
//! real one serves line by line, and a reader that continues after a pause asks for all its lines
//! at once (a batch arrival: M[x]/D/1, Gross and Harris, *Fundamentals of Queueing Theory*,
//! section 3.1). These tests compare it with an exact simulation of each line, on the lab's device,
//! where the effect is largest, and on a fast one.

use dormouse_bandwidth::curve::{Curve, GIB};
use dormouse_bandwidth::simulate::device::{AccessProfile, balance};

const LINE_BYTES: f64 = 64.0;

/// A device that serves a line in `service_ns` and answers `answer_ns` later, and its readers.
#[derive(Clone, Copy)]
struct Device {
    service_ns: f64,
    answer_ns: f64,
    /// Reads of a reader in flight.
    depth: usize,
    /// A reader's own time from an answer to the next line in its place.
    own_ns: f64,
}

/// `dormouse lab bandwidth --latency`.
const LAB: Device = Device {
    service_ns: 50_000.0,
    answer_ns: 950_000.0,
    depth: 8,
    own_ns: 56_000.0,
};

/// 10 GiB/s, as fast as the device of Kämmerer 2025.
const FAST: Device = Device {
    service_ns: 6.0,
    answer_ns: 380.0,
    depth: 32,
    own_ns: 97.0,
};

/// Readers that run for `on_ns` of each period, from these times on.
#[derive(Clone)]
struct Turns {
    on_ns: f64,
    period_ns: f64,
    starts_ns: Vec<f64>,
}

impl Turns {
    fn new<const N: usize>(on_ms: f64, period_ms: f64, starts_ms: [f64; N]) -> Self {
        Self {
            on_ns: on_ms * 1e6,
            period_ns: period_ms * 1e6,
            starts_ns: starts_ms.map(|ms| ms * 1e6).to_vec(),
        }
    }

    /// When a reader runs next.
    fn next(&self, reader: usize, now_ns: f64) -> f64 {
        let passed = (now_ns - self.starts_ns[reader]).rem_euclid(self.period_ns);
        if passed < self.on_ns {
            now_ns
        } else {
            now_ns + self.period_ns - passed
        }
    }
}

/// Mean latency in nanoseconds, line by line.
fn exact(device: Device, turns: &Turns, periods: f64) -> f64 {
    let readers = turns.starts_ns.len();
    // When each reader goes on, and when its reads in flight are answered, oldest first.
    let mut next: Vec<f64> = (0..readers).map(|at| turns.next(at, 0.0)).collect();
    let mut answered = vec![vec![-device.own_ns; device.depth]; readers];
    let mut reads = vec![0usize; readers];
    let (mut free_ns, mut waited_ns, mut count) = (0.0f64, 0.0, 0.0);
    loop {
        let first = (0..readers).min_by(|&a, &b| next[a].total_cmp(&next[b]));
        let reader = first.unwrap_or(0);
        let now_ns = next[reader];
        if now_ns > periods * turns.period_ns {
            return waited_ns / count;
        }
        let oldest = &mut answered[reader][reads[reader] % device.depth];
        let goes_on_ns = *oldest + device.own_ns;
        if goes_on_ns > now_ns {
            next[reader] = turns.next(reader, goes_on_ns);
            continue;
        }
        free_ns = free_ns.max(now_ns) + device.service_ns;
        *oldest = free_ns + device.answer_ns;
        waited_ns += *oldest - now_ns;
        count += 1.0;
        reads[reader] += 1;
    }
}

/// The same as a fluid, as the simulator has it.
fn fluid(device: Device, turns: &Turns) -> f64 {
    let carries = LINE_BYTES * 1e9 / device.service_ns / GIB;
    let idle_ns = device.answer_ns + device.service_ns;
    let text = format!(
        "0,{idle_ns}\n{},{}\n{carries},{}\n",
        carries * 0.999,
        idle_ns * 1.001,
        idle_ns * 1000.0
    );
    let curve = Curve::parse("queue", &text).unwrap();
    let access = AccessProfile {
        lines: device.depth as f64,
        own_ns: device.own_ns,
    };
    const STEPS: usize = 2400;
    let (mut sum, mut bytes) = (0.0, 0.0);
    for step in 0..STEPS {
        let now_ns = (step as f64 + 0.5) / STEPS as f64 * turns.period_ns;
        let readers = 0..turns.starts_ns.len();
        let running = readers.filter(|&at| turns.next(at, now_ns) == now_ns);
        let (latency_ns, total) = balance(&curve, &vec![access; running.count()]);
        sum += latency_ns * total;
        bytes += total;
    }
    sum / bytes
}

#[test]
fn a_fluid_is_as_slow_as_a_queue_of_lines_where_readers_run_freely() {
    for (device, ms, counts) in [(LAB, 100.0, [1, 2, 4]), (FAST, 1.0, [1, 5, 10])] {
        for readers in counts {
            let turns = Turns {
                starts_ns: vec![0.0; readers],
                ..Turns::new(ms, ms, [0.0])
            };
            let (exact, fluid) = (exact(device, &turns, 1.0), fluid(device, &turns));
            println!("{readers}: {exact:.0} {fluid:.0}");
            assert!(
                (exact / fluid - 1.0).abs() < 0.1,
                "{readers}: {exact} {fluid}"
            );
        }
    }
}

#[test]
fn batches_after_pauses_add_less_than_a_tenth_and_readers_in_step_half() {
    // A third of a processor each on ticks of 4 ms: 8 ms of 24.
    let apart = Turns::new(8.0, 24.0, [0.0, 6.0, 12.0, 18.0]);
    let pairs = Turns::new(8.0, 24.0, [0.0, 0.0, 12.0, 12.0]);
    let in_step = Turns::new(8.0, 24.0, [0.0; 4]);
    let [apart_ns, pairs_ns, in_step_ns] =
        [&apart, &pairs, &in_step].map(|turns| (exact(LAB, turns, 100.0), fluid(LAB, turns)));
    println!("lab: apart {apart_ns:.0?}, pairs {pairs_ns:.0?}, in step {in_step_ns:.0?}");
    for (exact, fluid) in [apart_ns, in_step_ns] {
        assert!((exact / fluid - 1.0).abs() < 0.1, "{exact} {fluid}");
    }
    assert!(in_step_ns.0 > 1.4 * apart_ns.0);
    // Where lines are many, a batch is served before anything else matters.
    let bursts = Turns::new(2.0, 5.0, [0.0, 1.0, 2.0, 3.0, 4.0]);
    let (exact, fluid) = (exact(FAST, &bursts, 2.0), fluid(FAST, &bursts));
    println!("fast: {exact:.1} {fluid:.1}");
    assert!((exact / fluid - 1.0).abs() < 0.01, "{exact} {fluid}");
}
