//! Measures a device's latency curve: pointer chasing beside a load that is stepped up.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use super::load::ROUND;
use super::load::{Load, pin};
use super::memory::{MemoryError, free_bytes};
use super::{Chase, NodeMemory};
use crate::curve::GIB;

/// Load of the steps, relative to the maximum.
const STEPS: [f64; 14] = [
    0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
];
/// Reads of a chase between two clock readings.
const READS: usize = 64;
/// The fraction of a step that is discarded while the threads adapt.
const WARM_UP: f64 = 0.2;
/// Memory of the chase.
const CHASE_BYTES: usize = 32 << 20;
/// A point with less additional bandwidth is merged with the last one.
const SAME: f64 = 1.01;

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    pub node: u32,
    /// The first one chases, the others load.
    pub cpus: Vec<usize>,
    /// Memory of each load thread, in bytes.
    pub bytes: usize,
    /// Of sixteen lines, how many are written.
    pub writes: usize,
    pub step: Duration,
}

/// One step: the total in bytes a second, the latency in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub bytes_s: f64,
    pub ns: f64,
}

/// The number of steps.
pub fn steps() -> usize {
    STEPS.len() + 1
}

/// Memory of each load thread, so that caches cannot serve it: twice the largest cache divided by
/// the threads, at least 8 MiB.
pub fn bytes_for(threads: usize) -> usize {
    let kib = |index: usize| -> Option<usize> {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse().ok()
    };
    let largest = (0..8).filter_map(kib).max().unwrap_or(32 << 10) << 10;
    (2 * largest / threads.max(1)).max(8 << 20)
}

/// Measures a node's curve; calls `on_step` after each step. Returns `None` if `stop` was set
/// meanwhile.
///
/// # Errors
/// There is no such memory.
pub fn sweep(
    plan: &Plan,
    stop: &AtomicBool,
    mut on_step: impl FnMut(usize, Point),
) -> Result<Option<Vec<Point>>, MemoryError> {
    let (&first, others) = plan.cpus.split_first().expect("a processor at least");
    pin(first);
    let wanted = CHASE_BYTES + others.len() * plan.bytes;
    // Allocates everything or nothing.
    if free_bytes(plan.node)? < wanted as u64 {
        NodeMemory::on(plan.node, wanted)?;
    }
    let mut chase = Chase::new(plan.node, CHASE_BYTES)?;
    let load = Load::start(plan.node, others, plan.bytes, plan.writes)?;
    // The maximum comes first: the other steps are fractions of it.
    let Some(last) = measure(&mut chase, &load, None, plan.step, stop) else {
        return Ok(None);
    };
    on_step(0, last);
    let mut points = Vec::with_capacity(steps());
    for (at, part) in STEPS.iter().enumerate() {
        let rate = Some(part * last.bytes_s);
        let Some(point) = measure(&mut chase, &load, rate, plan.step, stop) else {
            return Ok(None);
        };
        points.push(point);
        on_step(at + 1, point);
    }
    points.push(last);
    Ok(Some(points))
}

/// One step; `None` if it was stopped.
fn measure(
    chase: &mut Chase,
    load: &Load,
    rate: Option<f64>,
    time: Duration,
    stop: &AtomicBool,
) -> Option<Point> {
    load.set_rate(rate);
    let settle = Instant::now();
    while settle.elapsed() < time.mul_f64(WARM_UP) && !stop.load(Ordering::Relaxed) {
        chase.median_ns(READS);
    }
    let (began, before) = (Instant::now(), load.moved());
    let (mut sum, mut count) = (0.0, 0.0);
    while began.elapsed() < time {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        sum += chase.median_ns(READS);
        count += 1.0;
    }
    let seconds = began.elapsed().as_secs_f64();
    let own = count * READS as f64 * super::memory::LINE_BYTES as f64;
    Some(Point {
        bytes_s: ((load.moved() - before) as f64 + own) / seconds,
        ns: sum / count,
    })
}

/// Turns points into a curve: bandwidth increases, and latency does not decrease (points that
/// violate this are noise and are merged with the one before).
pub fn shaped(points: &[Point]) -> Vec<Point> {
    let mut curve: Vec<Point> = Vec::with_capacity(points.len());
    for &point in points {
        match curve.last_mut() {
            Some(last) if point.bytes_s <= last.bytes_s * SAME => last.ns = last.ns.max(point.ns),
            _ => curve.push(point),
        }
    }
    // Decreasing latencies are pooled (pool adjacent violators, Ayer and others, 1955).
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for point in &curve {
        pools.push((point.ns, 1));
        while let [.., (before, n), (last, m)] = pools[..]
            && last < before
        {
            pools.truncate(pools.len() - 2);
            pools.push((
                (before * n as f64 + last * m as f64) / (n + m) as f64,
                n + m,
            ));
        }
    }
    let levels = pools.iter().flat_map(|&(ns, n)| std::iter::repeat_n(ns, n));
    for (point, ns) in curve.iter_mut().zip(levels) {
        point.ns = ns;
    }
    curve
}

/// The lines of a curve file.
pub fn lines(points: &[Point]) -> String {
    let line = |point: &Point| format!("{:.4},{:.1}\n", point.bytes_s / GIB, point.ns);
    points.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::Curve;

    fn points(all: &[(f64, f64)]) -> Vec<Point> {
        let point = |&(gib_s, ns): &(f64, f64)| Point {
            bytes_s: gib_s * GIB,
            ns,
        };
        all.iter().map(point).collect()
    }

    #[test]
    fn measured_points_become_a_valid_curve() {
        // Noise: a decreasing latency. Saturation: decreasing bandwidth while latency increases.
        let measured = [
            (0.1, 100.0),
            (1.0, 104.0),
            (2.0, 102.0),
            (3.0, 150.0),
            (2.9, 400.0),
        ];
        let shaped = shaped(&points(&measured));
        let expected = [(0.1, 100.0), (1.0, 103.0), (2.0, 103.0), (3.0, 400.0)];
        assert_eq!(shaped, points(&expected));
        let curve = Curve::parse("measured", &lines(&shaped)).unwrap();
        assert_eq!(curve.working_point(), 2.0 * GIB);
    }

    #[test]
    fn a_device_that_answers_as_fast_under_load_has_no_knee() {
        let flat = shaped(&points(&[(0.1, 100.0), (1.0, 99.0), (2.0, 98.0)]));
        let said = Curve::parse("measured", &lines(&flat)).unwrap_err();
        assert!(said.to_string().contains("knee"), "{said}");
    }

    fn plan(step: Duration) -> Plan {
        let cpus: Vec<usize> = (0..std::thread::available_parallelism().unwrap().get()).collect();
        Plan {
            node: 0,
            bytes: 8 << 20,
            writes: 4,
            step,
            cpus: cpus[..cpus.len().min(2)].to_vec(),
        }
    }

    #[test]
    fn this_machines_memory_has_a_latency_at_each_step() {
        let plan = plan(Duration::from_millis(10));
        let mut seen = 0;
        let points = sweep(&plan, &AtomicBool::new(false), |_, _| seen += 1);
        let points = points.unwrap().unwrap();
        assert_eq!((points.len(), seen), (steps(), steps()));
        assert!(
            points
                .iter()
                .all(|point| point.ns > 0.0 && point.bytes_s > 0.0)
        );
    }

    #[test]
    fn it_stops_in_the_middle_of_a_step() {
        let stop = AtomicBool::new(false);
        let step = Duration::from_secs(600);
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                stop.store(true, Ordering::Relaxed);
            });
            let points = sweep(&plan(step), &stop, |_, _| ());
            assert!(points.unwrap().is_none());
        });
        assert!(began.elapsed() < step, "it waited for the end of the step");
    }
}
