//! Sets of pages as ascending runs. Pure.

/// Pages side by side, in units of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageRange {
    /// The first.
    pub page: u64,
    /// How many.
    pub count: u64,
}

impl PageRange {
    /// The page after the last.
    pub fn end(&self) -> u64 {
        self.page + self.count
    }
}

/// A set of pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSet {
    ranges: Vec<PageRange>,
    sorted: bool,
}

impl PageSet {
    /// Adds pages; they may be there already.
    pub fn add(&mut self, range: PageRange) {
        if range.count == 0 {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if last.end() == range.page => last.count += range.count,
            Some(last) => {
                self.sorted &= last.end() < range.page;
                self.ranges.push(range);
            }
            None => {
                self.sorted = true;
                self.ranges.push(range);
            }
        }
    }

    /// Ascending, disjoint, and as long as possible.
    pub fn ranges(&mut self) -> &[PageRange] {
        if !self.sorted {
            self.ranges.sort_unstable();
            let mut joined: Vec<PageRange> = Vec::with_capacity(self.ranges.len());
            for range in self.ranges.drain(..) {
                match joined.last_mut() {
                    Some(last) if last.end() >= range.page => {
                        last.count = last.end().max(range.end()) - last.page;
                    }
                    _ => joined.push(range),
                }
            }
            self.ranges = joined;
            self.sorted = true;
        }
        &self.ranges
    }

    /// How many.
    pub fn pages(&mut self) -> u64 {
        self.ranges().iter().map(|range| range.count).sum()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Takes the first `pages` of it out, or all that there are.
    pub fn take_first(&mut self, pages: u64) -> PageSet {
        let (mut taken, mut rest) = (PageSet::default(), PageSet::default());
        let mut left = pages;
        for range in self.ranges() {
            let count = range.count.min(left);
            left -= count;
            taken.add(PageRange {
                page: range.page,
                count,
            });
            rest.add(PageRange {
                page: range.page + count,
                count: range.count - count,
            });
        }
        *self = rest;
        taken
    }

    /// What is in this set and not among `others`, which are ascending and disjoint.
    pub fn without(&mut self, others: &[PageRange]) -> PageSet {
        let mut left = PageSet::default();
        let mut others = others.iter().copied().peekable();
        for range in self.ranges() {
            let mut at = range.page;
            while at < range.end() {
                while others.next_if(|other| other.end() <= at).is_some() {}
                match others.peek() {
                    Some(other) if other.page <= at => at = other.end(),
                    Some(other) if other.page < range.end() => {
                        left.add(PageRange {
                            page: at,
                            count: other.page - at,
                        });
                        at = other.end();
                    }
                    _ => {
                        left.add(PageRange {
                            page: at,
                            count: range.end() - at,
                        });
                        break;
                    }
                }
            }
        }
        left
    }
}

impl FromIterator<PageRange> for PageSet {
    fn from_iter<I: IntoIterator<Item = PageRange>>(ranges: I) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.add(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plain(ranges: &[(u64, u64)]) -> BTreeSet<u64> {
        let of = ranges.iter().flat_map(|(page, count)| *page..page + count);
        of.collect()
    }

    fn set(ranges: &[(u64, u64)]) -> PageSet {
        let of = ranges.iter();
        of.map(|(page, count)| PageRange {
            page: *page,
            count: *count,
        })
        .collect()
    }

    fn members(set: &mut PageSet) -> BTreeSet<u64> {
        let ranges = set.ranges().to_vec();
        for pair in ranges.windows(2) {
            assert!(pair[0].end() < pair[1].page, "{pair:?}");
        }
        ranges.iter().flat_map(|r| r.page..r.end()).collect()
    }

    proptest::proptest! {
        #[test]
        fn a_set_of_runs_is_a_set(
            a in proptest::collection::vec((0u64..200, 0u64..20), 0..30),
            b in proptest::collection::vec((0u64..200, 0u64..20), 0..30),
            limit in 0u64..300,
        ) {
            let (mut left, mut right) = (set(&a), set(&b));
            proptest::prop_assert_eq!(members(&mut left), plain(&a));
            proptest::prop_assert_eq!(left.pages(), plain(&a).len() as u64);
            let mut tail = left.clone();
            let head = members(&mut tail.take_first(limit));
            proptest::prop_assert_eq!(&head, &plain(&a).into_iter().take(limit as usize).collect());
            proptest::prop_assert_eq!(&(&plain(&a) - &head), &members(&mut tail));
            let mut rest = left.without(right.ranges());
            let expected: BTreeSet<u64> = plain(&a).difference(&plain(&b)).copied().collect();
            proptest::prop_assert_eq!(members(&mut rest), expected);
        }
    }
}
