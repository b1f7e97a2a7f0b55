//! Tracks and depths: which spans are drawn above each other.

use std::collections::BTreeMap;

use super::Span;
use super::align::Lane;

/// Overlapping spans of one lane beyond this many rows are drawn over each other.
pub(super) const MAX_TRACKS: usize = 8;
/// Deeper nesting than this is drawn at this depth.
pub(super) const MAX_DEPTH: usize = 12;

/// Gives each span a track on which it nests properly, and its depth there.
pub fn lay_out(spans: &mut [Span]) {
    // For each lane and track, the end times of the spans that are open, outermost first.
    let mut tracks: BTreeMap<Lane, Vec<Vec<u64>>> = BTreeMap::new();
    for span in spans {
        let tracks = tracks.entry(span.lane).or_default();
        let mut chosen = None;
        for (index, open) in tracks.iter_mut().enumerate() {
            while open.last().is_some_and(|&end_ns| end_ns <= span.begin_ns) {
                open.pop();
            }
            if open.last().is_none_or(|&end_ns| span.end_ns <= end_ns) {
                chosen = Some(index);
                break;
            }
        }
        let track = chosen.unwrap_or_else(|| {
            if tracks.len() < MAX_TRACKS {
                tracks.push(Vec::new());
            }
            tracks.len() - 1
        });
        span.track = track;
        span.depth = tracks[track].len().min(MAX_DEPTH - 1);
        tracks[track].push(span.end_ns);
    }
}
