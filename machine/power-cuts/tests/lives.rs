//! Random lives of random machines: sleeps and wakes, cut in any step, many cuts in a row.

use dormouse_medium::Contents;
use dormouse_power_cuts::{End, LifeShape, Machine, Method, Shape, Tracked, Way, live};

fn live_all(seeds: std::ops::Range<u64>, shape: LifeShape) {
    let (mut resumed, mut cold, mut cut) = (0, 0, 0);
    for seed in seeds {
        let lived = live(seed, shape).unwrap_or_else(|(cycle, wrong)| {
            panic!("DORMOUSE_SEED={seed}, {shape:?}, cycle {cycle}: {wrong}")
        });
        resumed += lived.resumed;
        cold += lived.cold;
        cut += lived.cut;
    }
    println!("{resumed} resumed, {cold} cold boots, {cut} power cuts");
    // A search in which one of these never happens has tried nothing.
    assert!(
        resumed > 10 && cold > 10 && cut > 10,
        "{resumed} {cold} {cut}"
    );
}

#[test]
fn a_life_of_sleeps_and_power_cuts_never_resumes_wrongly() {
    live_all(
        0..40,
        LifeShape {
            pages: 60,
            cycles: 20,
            way: Way::Firmware,
        },
    );
}

#[test]
fn a_life_of_sleeps_by_the_kernel_s_snapshot_never_resumes_wrongly() {
    live_all(
        0..40,
        LifeShape {
            pages: 60,
            cycles: 20,
            way: Way::Snapshot,
        },
    );
}

/// `DORMOUSE_SEED=N`: from this life on; a failure prints it.
#[test]
#[ignore = "make test-full: 300 lives of up to 1,200 pages, minutes; the quick test has 40 of up to 60"]
fn long_lives_of_large_machines_never_resume_wrongly() {
    let first = std::env::var("DORMOUSE_SEED").map_or(1000, |seed| seed.parse().expect("a number"));
    for (pages, cycles) in [(400, 40), (1200, 20)] {
        for way in [Way::Firmware, Way::Snapshot] {
            live_all(first..first + 150, LifeShape { pages, cycles, way });
        }
    }
}

/// Sleeps; returns what the device holds.
fn slept(machine: &mut Machine) -> Contents {
    let cold = machine.power_on(&Contents::default(), Some(Tracked::until(usize::MAX)));
    assert_eq!(cold, End::Returned);
    machine.programs_run(dormouse_power_cuts::Content(5));
    assert_eq!(machine.sleep(), End::Off);
    machine.take_record().durable().clone()
}

#[test]
fn a_restore_that_never_ends_is_tried_eight_times() {
    let mut machine = Machine::new(Shape::small(Method::Movnti));
    let mut device = slept(&mut machine);
    for _ in 0..8 {
        // Step 0 clears the mailbox, 1 commits RESTORING, 2 is a piece of the copy.
        assert_eq!(machine.power_on(&device, Some(Tracked::until(2))), End::Cut);
        device = machine.take_record().durable().clone();
    }
    assert_eq!(machine.power_on(&device, None), End::Returned);
    assert_eq!(machine.cold_boot_reason(), Some("attempts"));
}

#[test]
fn a_machine_that_resumed_by_the_kernel_s_snapshot_resumes_only_once() {
    let mut machine = Machine::new(Shape::small(Method::Movdir64b).by(Way::Snapshot));
    let device = slept(&mut machine);
    let woken = machine.power_on(&device, Some(Tracked::until(usize::MAX)));
    assert_eq!(woken, End::Resumed);
    let device = machine.take_record().durable().clone();
    assert_eq!(machine.power_on(&device, None), End::Returned);
    assert_eq!(machine.cold_boot_reason(), Some("no-image"));
}

#[test]
fn a_machine_that_resumed_resumes_only_once() {
    let mut machine = Machine::new(Shape::small(Method::Movdir64b));
    let device = slept(&mut machine);
    let woken = machine.power_on(&device, Some(Tracked::until(usize::MAX)));
    assert_eq!(woken, End::Resumed);
    let device = machine.take_record().durable().clone();
    assert_eq!(machine.power_on(&device, None), End::Returned);
    assert_eq!(machine.cold_boot_reason(), Some("consumed"));
}
