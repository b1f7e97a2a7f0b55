//! Compares what was observed of a program with what was observed of its copy. Pure.

use std::collections::BTreeMap;

/// What a process tree is like: for each thing, in words, its value.
pub type Observation = BTreeMap<String, String>;

/// Differences that are named; there may be more.
const NAMED_MAX: usize = 10;

/// Each difference, in words.
pub fn differences(program: &Observation, copy: &Observation) -> Vec<String> {
    let mut found = Vec::new();
    for (thing, was) in program {
        match copy.get(thing) {
            Some(is) if is == was => {}
            Some(is) => found.push(format!("{thing}: {was}, in the copy {is}")),
            None => found.push(format!("{thing}: {was}, in the copy not there")),
        }
    }
    let only_there = copy
        .iter()
        .filter(|(thing, _)| !program.contains_key(*thing));
    found.extend(only_there.map(|(thing, is)| format!("{thing}: not there, in the copy {is}")));
    found
}

/// The first differences as one text.
pub fn text(differences: &[String]) -> String {
    let named: Vec<_> = differences.iter().take(NAMED_MAX).cloned().collect();
    let mut text = named.join("; ");
    if let Some(more @ 1..) = differences.len().checked_sub(NAMED_MAX) {
        text += &format!("; and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(things: &[(&str, &str)]) -> Observation {
        let own = |&(thing, value): &(&str, &str)| (thing.to_owned(), value.to_owned());
        things.iter().map(own).collect()
    }

    #[test]
    fn each_difference_is_named_with_both_values() {
        let program = observed(&[("rip", "1"), ("rsp", "2"), ("descriptor 3", "a file")]);
        let copy = observed(&[("rip", "1"), ("rsp", "4"), ("descriptor 5", "a pipe")]);
        assert_eq!(
            differences(&program, &copy),
            [
                "descriptor 3: a file, in the copy not there",
                "rsp: 2, in the copy 4",
                "descriptor 5: not there, in the copy a pipe"
            ]
        );
        assert!(differences(&program, &program).is_empty());
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let all: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        assert!(text(&all).ends_with("9; and 2 more"), "{}", text(&all));
        assert_eq!(text(&all[..10]), "0; 1; 2; 3; 4; 5; 6; 7; 8; 9");
    }
}
