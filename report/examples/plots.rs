//! Draws one plot of each kind into the directory named on the command line, to look at while
//! working on them. The numbers are made up.
use dormouse_report::plot::{
    Axis, Bar, Frame, Line, Marker, Sample, Stack, bars, boxes, lines, stacked_bars, violins,
};
use dormouse_report::stats::Summary;

/// Values around a middle, some far above it.
fn around(middle: f64, count: u64) -> Vec<f64> {
    let mut state = (middle * 1000.0) as u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    (0..count)
        .map(|_| middle * (0.96 + 0.05 * (next() + next()) + 0.2 * next().powi(12)))
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: plots DIRECTORY")?;
    let directory = std::path::Path::new(&directory);
    std::fs::create_dir_all(directory)?;
    let modes = [
        ("Suspend-to-CXL", 11.3, 0.0),
        ("hibernate", 45.0, 2.0),
        ("hibernate-swap", 48.0, 0.2),
    ];
    let memory = [4.0, 8.0, 12.0];
    let mut samples = Vec::new();
    for size in memory {
        for (name, fixed, slope) in modes {
            samples.push(Sample::new(
                format!("{size} GiB"),
                name,
                &around(fixed + slope * size, 60),
            ));
        }
    }
    let frame = Frame::new(
        "Power-on to running",
        Axis::new("memory in use"),
        Axis::new("time [s]"),
    );
    let logarithmic = Frame {
        y: Axis::new("time").logarithmic().durations(),
        ..frame.clone()
    };
    let few: Vec<Sample> = samples
        .iter()
        .map(|s| Sample {
            values: s.values[..4].to_vec(),
            ..s.clone()
        })
        .collect();
    let errors: Vec<Bar> = samples
        .iter()
        .filter_map(|s| Some((s, Summary::of(s.values.iter().copied())?)))
        .map(|(s, summary)| {
            Bar::of_median(&s.group, &s.series, &summary).text(format!("{:.1}", summary.median))
        })
        .collect();
    let parts = |name: &str, scale: f64| {
        let parts = [
            ("preflight", 0.1),
            ("migrate", 7.4 * scale),
            ("devices", 0.4),
            ("kernel", 0.2),
            ("firmware", 0.5),
            ("restore", 0.3),
            ("rest", 0.3),
        ];
        let total: f64 = parts.iter().map(|part| part.1).sum();
        Stack::new(name, parts).text(format!("{total:.1} s"))
    };
    let phases = Frame::new("Going to sleep", Axis::new("time [s]"), Axis::new(""));
    let fall = |rate: f64| {
        (0..60)
            .map(|t| (f64::from(t) * 0.1, (540.0 - rate * f64::from(t)).max(0.0)))
            .collect()
    };
    let home = Frame::new(
        "Pages on their way home",
        Axis::new("time since wake [s]"),
        Axis::new("memory [MiB]"),
    );
    let asleep: Vec<f64> = (0..200).map(|n| 10f64.powf(f64::from(n) / 40.0)).collect();
    let energy = |fixed: f64, watts: f64| asleep.iter().map(|s| (*s, fixed + watts * s)).collect();
    let break_even = Frame::new(
        "Energy of a pause",
        Axis::new("time asleep").logarithmic().durations(),
        Axis::new("energy [J]").logarithmic(),
    );
    let plots = [
        ("violins", violins(&frame, &samples)?),
        ("violins-log", violins(&logarithmic, &samples)?),
        ("violins-few", violins(&frame, &few)?),
        ("boxes", boxes(&frame, &samples)?),
        ("bars", bars(&frame, &errors)?),
        ("bars-log", bars(&logarithmic, &errors)?),
        (
            "stacks",
            stacked_bars(
                &phases,
                &[
                    parts("4 GiB", 0.4),
                    parts("8 GiB", 0.7),
                    parts("12 GiB", 1.0),
                ],
            )?,
        ),
        (
            "lines",
            lines(
                &home,
                &[
                    Line::new("on CXL memory", fall(12.0)),
                    Line::new("left of hibernation's image", fall(7.0)).stepped(),
                ],
                &[Marker {
                    x: 4.5,
                    name: "all home".to_owned(),
                }],
            )?,
        ),
        (
            "break-even",
            lines(
                &break_even,
                &[
                    Line::new("idle", energy(0.0, 136.0)),
                    Line::new("S3", energy(900.0, 6.0)),
                    Line::new("Suspend-to-CXL", energy(2500.0, 0.12)),
                    Line::new("hibernate", energy(13000.0, 0.12)),
                ],
                &[
                    Marker {
                        x: 18.4,
                        name: "idle: 18 s".to_owned(),
                    },
                    Marker {
                        x: 272.0,
                        name: "S3: 4.5 min".to_owned(),
                    },
                ],
            )?,
        ),
    ];
    for (name, svg) in plots {
        let path = directory.join(format!("{name}.svg"));
        std::fs::write(&path, svg)?;
        println!("{}", path.display());
    }
    Ok(())
}
