//! Learns what the bits of a word of flags mean, from words whose names are known. Pure.

use std::collections::BTreeMap;

/// Bits that were always set together, and the names that were always shown together with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Group {
    bits: u64,
    names: Vec<String>,
}

/// What bits mean.
///
/// The kernel shows a name if and only if one bit is set. So the bit of a name occurs in the same words as
/// the name does: bits and names that occur in the same ones belong together. If several do, it need not
/// be known which is which, as long as all of the bits are set, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Legend {
    groups: Vec<Group>,
}

impl Legend {
    /// From words and their names; `None` if a name occurs where no bit does: it means something else.
    pub fn learn(known: &[(u64, Vec<String>)]) -> Option<Self> {
        // By the words that it occurs in.
        let mut groups: BTreeMap<Vec<bool>, Group> = BTreeMap::new();
        for bit in (0..64).map(|bit| 1_u64 << bit) {
            let occurs: Vec<bool> = known.iter().map(|(word, _)| word & bit != 0).collect();
            groups.entry(occurs).or_default().bits |= bit;
        }
        let mut names: Vec<&String> = known.iter().flat_map(|(_, names)| names).collect();
        names.sort();
        names.dedup();
        for name in names {
            let occurs = known
                .iter()
                .map(|(_, names)| names.contains(name))
                .collect();
            groups.entry(occurs).or_default().names.push(name.clone());
        }
        if groups.values().any(|group| group.bits == 0) {
            return None;
        }
        // Bits that no word has may mean anything.
        let seen = groups
            .into_iter()
            .filter(|(occurs, _)| occurs.contains(&true));
        Some(Self {
            groups: seen.map(|(_, group)| group).collect(),
        })
    }

    /// The names of a word's flags in the order of their bits where that is known; `None` if a set bit's
    /// meaning is not known.
    pub fn names(&self, word: u64) -> Option<Vec<String>> {
        let mut left = word;
        let mut found: Vec<&Group> = Vec::new();
        for group in &self.groups {
            if word & group.bits == group.bits {
                left &= !group.bits;
                found.push(group);
            }
        }
        found.sort_by_key(|group| group.bits);
        let names = found.iter().flat_map(|group| group.names.iter().cloned());
        (left == 0).then(|| names.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A kernel: the name of each bit; a bit may have none.
    fn shown(kernel: &[Option<String>], word: u64) -> Vec<String> {
        let set = |bit: &usize| word & (1 << bit) != 0;
        let names = (0..64).filter(set).filter_map(|bit| kernel[bit].clone());
        names.collect()
    }

    fn sorted(mut names: Vec<String>) -> Vec<String> {
        names.sort();
        names
    }

    proptest! {
        /// Whatever a kernel's bits mean and whatever was seen of it: a word is read as this kernel
        /// shows it, or not at all.
        #[test]
        fn a_word_is_read_as_the_kernel_shows_it_or_not_at_all(
            order in Just((0..64_usize).collect::<Vec<_>>()).prop_shuffle(),
            hidden in any::<u64>(),
            seen in prop::collection::vec(any::<u64>(), 0..24),
            word in any::<u64>(),
            mask in any::<u64>(),
        ) {
            let kernel: Vec<Option<String>> = (0..64)
                .map(|bit| (hidden & (1 << bit) == 0 || bit % 3 != 0).then(|| format!("{:02}", order[bit])))
                .collect();
            let known: Vec<_> = seen.iter().map(|word| (*word & mask, shown(&kernel, word & mask))).collect();
            let legend = Legend::learn(&known).unwrap();
            for word in [word, word & mask] {
                if let Some(names) = legend.names(word) {
                    prop_assert_eq!(sorted(names), sorted(shown(&kernel, word)));
                }
            }
            for (word, names) in known {
                prop_assert_eq!(legend.names(word).map(sorted), Some(sorted(names)));
            }
        }
    }

    #[test]
    fn bits_that_were_always_seen_together_are_read_together_only() {
        let names = |names: &str| names.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let legend =
            Legend::learn(&[(0b0011, names("rd mr")), (0b1111, names("rd mr io pf"))]).unwrap();
        assert_eq!(legend.names(0b0011), Some(names("mr rd")));
        assert_eq!(legend.names(0b1100), Some(names("io pf")));
        assert_eq!(legend.names(0b0100), None);
        assert_eq!(legend.names(0b10000), None);
        assert_eq!(legend.names(0), Some(Vec::new()));
    }

    /// One name for two bits that occur apart, or a name for something else.
    #[test]
    fn a_name_that_no_bit_explains_is_no_legend() {
        let names = |names: &str| names.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let both = [
            (0b01, names("rd ??")),
            (0b11, names("rd ??")),
            (0b10, names("??")),
        ];
        assert_eq!(Legend::learn(&both), None);
    }
}
