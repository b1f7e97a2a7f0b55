//! Sorted ranges of addresses that do not touch. Pure.

use std::ops::Range;

/// Adds a range behind all others.
pub fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// Those parts of ranges that lie in `within`.
pub fn clip<'ranges>(
    ranges: &'ranges [Range<u64>],
    within: &Range<u64>,
) -> impl Iterator<Item = Range<u64>> + use<'ranges> {
    let (start, end) = (within.start, within.end);
    let first = ranges.partition_point(|range| range.end <= start);
    let rest = ranges[first..].iter();
    rest.take_while(move |range| range.start < end)
        .map(move |range| range.start.max(start)..range.end.min(end))
}

/// What of `within` lies in none of the ranges.
pub fn outside(ranges: &[Range<u64>], within: &Range<u64>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut from = within.start;
    for range in clip(ranges, within) {
        if from < range.start {
            found.push(from..range.start);
        }
        from = range.end;
    }
    if from < within.end {
        found.push(from..within.end);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_ranges_and_what_is_not_make_the_whole() {
        let mut ranges = Vec::new();
        for start in [10, 20, 30, 60] {
            push(&mut ranges, start..start + 10);
        }
        assert_eq!(ranges, [10..40, 60..70]);
        let within = 15..65;
        assert_eq!(clip(&ranges, &within).collect::<Vec<_>>(), [15..40, 60..65]);
        assert_eq!(outside(&ranges, &within), [Range { start: 40, end: 60 }]);
        assert_eq!(outside(&ranges, &(0..80)), [0..10, 40..60, 70..80]);
        assert_eq!(outside(&[], &(0..80)), [Range { start: 0, end: 80 }]);
    }
}
