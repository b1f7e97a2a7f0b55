//! Stored pages that a restored program still lacks, and their present addresses. Pure.
//!
//! A program may move, unmap, drop or fork memory that is not filled yet. A userfaultfd reports it,
//! and this map is updated.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::store::SpaceId;

/// Memory that is being filled: where it is now, and where it was when it was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First address now.
    pub start: u64,
    /// Address after the last now.
    pub end: u64,
    /// Its space in the store.
    pub space: SpaceId,
    /// First address in the store.
    pub stored: u64,
}

impl Piece {
    fn part(&self, range: &Range<u64>) -> Option<Self> {
        let start = self.start.max(range.start);
        let end = self.end.min(range.end);
        (start < end).then(|| Self {
            start,
            end,
            space: self.space,
            stored: self.stored + (start - self.start),
        })
    }
}

/// All memory of an address space that is being filled.
#[derive(Debug, Clone, Default)]
pub struct Lacking {
    /// By first address.
    pieces: BTreeMap<u64, Piece>,
}

impl Lacking {
    /// Adds memory; nothing of it is there yet.
    pub fn add(&mut self, piece: Piece) {
        self.pieces.insert(piece.start, piece);
    }

    /// All pieces, ascending.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.values()
    }

    /// The piece that an address is in.
    pub fn at(&self, address: u64) -> Option<Piece> {
        let (_, piece) = self.pieces.range(..=address).next_back()?;
        Some(*piece).filter(|piece| address < piece.end)
    }

    /// Where a stored range is needed now: the program's addresses, and the stored one of each.
    pub fn places(&self, space: SpaceId, stored: &Range<u64>) -> Vec<Piece> {
        self.pieces
            .values()
            .filter(|piece| piece.space == space)
            .filter_map(|piece| {
                let length = piece.end - piece.start;
                let from = stored.start.max(piece.stored);
                let to = stored.end.min(piece.stored + length);
                (from < to).then(|| Piece {
                    start: piece.start + (from - piece.stored),
                    end: piece.start + (to - piece.stored),
                    space,
                    stored: from,
                })
            })
            .collect()
    }

    /// The program has dropped or unmapped a range: what is read there is not ours any more.
    pub fn remove(&mut self, range: &Range<u64>) -> Vec<Piece> {
        let touched: Vec<Piece> = self
            .pieces
            .range(..range.end)
            .rev()
            .map(|(_, piece)| *piece)
            .take_while(|piece| piece.end > range.start)
            .collect();
        let mut removed = Vec::new();
        for piece in touched {
            self.pieces.remove(&piece.start);
            removed.extend(piece.part(range));
            for rest in [piece.start..range.start, range.end..piece.end] {
                if rest.start < rest.end
                    && let Some(rest) = piece.part(&rest)
                {
                    self.add(rest);
                }
            }
        }
        removed
    }

    /// The program has moved a range.
    pub fn moved(&mut self, from: &Range<u64>, to: u64) {
        let length = from.end - from.start;
        let taken = self.remove(from);
        self.remove(&(to..to + length));
        for piece in taken {
            self.add(Piece {
                start: piece.start - from.start + to,
                end: piece.end - from.start + to,
                ..piece
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address now → address stored, for each unit.
    fn model(lacking: &Lacking) -> BTreeMap<u64, u64> {
        let of = |piece: &Piece| {
            let piece = *piece;
            (piece.start..piece.end).map(move |at| (at, piece.stored + (at - piece.start)))
        };
        lacking.pieces().flat_map(of).collect()
    }

    proptest::proptest! {
        /// Against a plain map, unit by unit.
        #[test]
        fn the_map_follows_what_the_program_does(
            steps in proptest::collection::vec((0u8..3, 0u64..120, 1u64..50, 0u64..120), 0..30)
        ) {
            let mut lacking = Lacking::default();
            let space = SpaceId(1);
            for (start, end) in [(10, 40), (40, 60), (80, 100)] {
                lacking.add(Piece { start, end, space, stored: start + 1000 });
            }
            let mut plain = model(&lacking);
            for (kind, from, length, to) in steps {
                let range = from..from + length;
                if kind == 0 {
                    let taken: Vec<_> = plain
                        .range(range.clone())
                        .map(|(at, stored)| (at - from + to, *stored))
                        .collect();
                    plain.retain(|at, _| !range.contains(at));
                    plain.retain(|at, _| !(to..to + length).contains(at));
                    plain.extend(taken);
                    lacking.moved(&range, to);
                } else {
                    plain.retain(|at, _| !range.contains(at));
                    lacking.remove(&range);
                }
                proptest::prop_assert_eq!(&model(&lacking), &plain);
                for at in 0..200 {
                    let found = lacking.at(at).map(|p| p.stored + (at - p.start));
                    proptest::prop_assert_eq!(found, plain.get(&at).copied());
                }
                let places = lacking.places(space, &(1015..1085));
                let found: usize = places.iter().map(|p| (p.end - p.start) as usize).sum();
                let wanted = plain.values().filter(|v| (1015..1085).contains(*v)).count();
                proptest::prop_assert_eq!(found, wanted);
            }
        }
    }
}
