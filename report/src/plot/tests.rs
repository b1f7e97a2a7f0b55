use proptest::prelude::*;

use super::*;

fn frame() -> Frame {
    Frame::new("A title", Axis::new("memory"), Axis::new("time [s]"))
}

fn all_kinds(text: &str, values: &[f64]) -> Vec<String> {
    let sample = |group: &str| Sample::new(group, text, values);
    let points: Vec<(f64, f64)> = values
        .iter()
        .copied()
        .zip(values.iter().rev().copied())
        .collect();
    let marker = Marker {
        x: 1.0,
        name: text.to_owned(),
    };
    let frame = Frame::new(text, Axis::new(text), Axis::new(text));
    let logarithmic = Frame::new(
        text,
        Axis::new(text).logarithmic().durations(),
        Axis::new(text).logarithmic(),
    );
    let bar_list: Vec<Bar> = values
        .iter()
        .map(|v| Bar::new(text, text, *v).text(text))
        .collect();
    let stack = Stack::new(text, values.iter().map(|v| (text, *v))).text(text);
    let line = Line::new(text, points);
    [
        violins(&frame, &[sample("a"), sample(text)]),
        boxes(&logarithmic, &[sample("a"), sample(text)]),
        bars(&frame, &bar_list),
        bars(&logarithmic, &bar_list),
        stacked_bars(&frame, &[stack.clone(), stack]),
        lines(&frame, &[line.clone(), line.clone().stepped()], &[marker]),
        lines(&logarithmic, &[line], &[]),
    ]
    .into_iter()
    .map(|svg| svg.expect("every kind draws"))
    .collect()
}

/// How often an element begins.
fn count(svg: &str, element: &str) -> usize {
    svg.matches(&format!("<{element} ")).count()
}

#[test]
fn every_value_of_a_violin_is_a_point() {
    let values: Vec<f64> = (0..20).map(f64::from).collect();
    let svg = violins(&frame(), &[Sample::new("4 GiB", "ours", &values)]).unwrap();
    assert_eq!(count(&svg, "circle"), 20);
    assert!(count(&svg, "polygon") == 1);
    for text in ["A title", "memory", "time [s]", "4 GiB", "ours"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn few_values_are_points_without_a_shape() {
    let svg = violins(&frame(), &[Sample::new("4 GiB", "", &[1.0, 2.0])]).unwrap();
    assert_eq!((count(&svg, "circle"), count(&svg, "polygon")), (2, 0));
}

#[test]
fn an_error_tick_is_drawn_only_where_there_is_an_error() {
    let plain = bars(&frame(), &[Bar::new("a", "s", 3.0)]).unwrap();
    let bar = Bar {
        low: 2.0,
        high: 3.0,
        ..Bar::new("a", "s", 3.0)
    };
    let with_error = bars(&frame(), &[bar]).unwrap();
    assert_eq!(
        count(&with_error, "polyline"),
        count(&plain, "polyline") + 3
    );
}

#[test]
fn parts_of_a_name_have_one_colour_in_every_stack() {
    let stacks = [
        Stack::new("one", [("migrate", 2.0), ("firmware", 1.0)]),
        Stack::new("two", [("firmware", 3.0)]),
    ];
    let svg = stacked_bars(&frame(), &stacks).unwrap();
    let drawn = svg.lines().filter(|line| line.starts_with("<rect"));
    // Two bars and the legend.
    assert_eq!(
        drawn
            .filter(|line| line.contains("fill=\"#C24A00\""))
            .count(),
        3
    );
}

#[test]
fn a_step_keeps_its_value_until_the_next_point() {
    let line = Line::new("bytes", vec![(0.0, 10.0), (4.0, 0.0)]).stepped();
    let svg = lines(&frame(), &[line], &[]).unwrap();
    let paths = svg
        .lines()
        .filter(|l| l.contains("<polyline") && l.contains("#0064A8"));
    let points = |path: &str| path.matches(',').count();
    // The legend's line and the step with its corner.
    assert_eq!(paths.map(points).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_drawing_follows_a_dark_setting_and_names_itself() {
    let svg = bars(&frame(), &[Bar::new("a", "s", 3.0)]).unwrap();
    assert!(svg.contains("prefers-color-scheme:dark"));
    assert!(svg.contains("role=\"img\" aria-label=\"A title\""));
    assert!(svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("<svg").count(), 1);
}

#[test]
fn hostile_names_never_become_markup() {
    for svg in all_kinds("</text><script>\"'&\u{0}\u{1b}", &[1.0, 2.0, 3.0]) {
        assert!(!svg.contains("<script") && !svg.contains('\u{0}') && !svg.contains('\u{1b}'));
        assert_eq!(svg.matches("<svg").count(), 1);
    }
}

#[test]
fn nothing_gives_an_empty_frame() {
    for svg in [
        violins(&frame(), &[]),
        boxes(&frame(), &[]),
        bars(&frame(), &[]),
        stacked_bars(&frame(), &[]),
        lines(&frame(), &[], &[]),
    ] {
        assert!(svg.unwrap().contains("A title"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_values_make_a_drawing_fail_or_leave_its_frame(
        values in proptest::collection::vec(prop_oneof![any::<f64>(), -1e3..1e3], 0..12),
        text in ".{0,80}"
    ) {
        for svg in all_kinds(&text, &values) {
            let numbers = svg
                .split(['"', ' ', ','])
                .filter_map(|word| word.parse::<i64>().ok());
            for number in numbers {
                prop_assert!((-4000..=8000).contains(&number), "{number} in {svg}");
            }
        }
    }
}
