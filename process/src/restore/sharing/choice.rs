//! What the processes of a family are to have of one page at the time when each creates its children.
//! Pure.
//!
//! A child begins with what its parent has then. So a process takes its own contents of a page early if
//! a descendant has the same; if not, those that several of its children have; else it keeps what it
//! has inherited itself. Afterwards each process replaces what is not its own.

/// The choice for one page; kept from page to page for its memory.
#[derive(Debug, Default)]
pub struct Choice {
    /// For each process the contents that it has when it creates its children.
    pub early: Vec<Option<u32>>,
    useful: Vec<bool>,
    wanted: Vec<(usize, u32)>,
}

impl Choice {
    /// `parents`: of each process the index of its parent, which stands before it. `own`: of each process
    /// the contents of its page, as numbers that are equal where contents are.
    pub fn make(&mut self, parents: &[Option<usize>], own: &[Option<u32>]) {
        self.useful.clear();
        self.useful.resize(own.len(), false);
        self.wanted.clear();
        for (at, class) in own.iter().enumerate() {
            let Some(class) = *class else {
                continue;
            };
            let next = |ancestor: &usize| parents[*ancestor];
            let mut ancestors = std::iter::successors(parents[at], next);
            match ancestors.find(|ancestor| own[*ancestor] == Some(class)) {
                Some(ancestor) => self.useful[ancestor] = true,
                None => self
                    .wanted
                    .extend(parents[at].map(|parent| (parent, class))),
            }
        }
        self.wanted.sort_unstable();
        self.early.clear();
        for (at, parent) in parents.iter().enumerate() {
            let early = if self.useful[at] {
                own[at]
            } else {
                let inherited = parent.and_then(|parent| self.early[parent]);
                self.of_children(at).or(inherited)
            };
            self.early.push(early);
        }
    }

    /// The contents that most children of a process share, if no ancestor has them.
    fn of_children(&self, parent: usize) -> Option<u32> {
        let from = self.wanted.partition_point(|(of, _)| *of < parent);
        let own = self.wanted[from..]
            .iter()
            .take_while(|(of, _)| *of == parent);
        let (mut best, mut last, mut count) = ((1, None), None, 0);
        for (_, class) in own {
            count = if last == Some(*class) { count + 1 } else { 1 };
            last = Some(*class);
            if count > best.0 {
                best = (count, last);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn early(parents: &[Option<usize>], own: &[Option<u32>]) -> Vec<Option<u32>> {
        let mut choice = Choice::default();
        choice.make(parents, own);
        choice.early
    }

    #[test]
    fn a_parent_has_its_page_early_only_if_a_child_has_the_same() {
        let parents = [None, Some(0), Some(0)];
        assert_eq!(early(&parents, &[Some(1), Some(1), Some(2)]), [Some(1); 3]);
        assert_eq!(early(&parents, &[Some(1), Some(2), Some(3)]), [None; 3]);
        assert_eq!(early(&parents, &[Some(1), None, None]), [None; 3]);
    }

    #[test]
    fn children_share_what_their_parent_has_changed_since() {
        let parents = [None, Some(0), Some(0), Some(0)];
        let own = [Some(1), Some(2), Some(3), Some(2)];
        assert_eq!(early(&parents, &own), [Some(2); 4]);
        assert_eq!(
            early(&parents, &[None, Some(2), Some(2), None]),
            [Some(2); 4]
        );
    }

    #[test]
    fn a_grandchild_inherits_through_a_child_that_has_changed_its_page() {
        let parents = [None, Some(0), Some(1)];
        assert_eq!(early(&parents, &[Some(1), Some(2), Some(1)]), [Some(1); 3]);
    }

    #[test]
    fn a_child_that_shares_with_its_own_child_changes_the_page_first() {
        let parents = [None, Some(0), Some(1), Some(0)];
        let own = [Some(1), Some(2), Some(2), Some(1)];
        assert_eq!(early(&parents, &own), [Some(1), Some(2), Some(2), Some(1)]);
    }
}
