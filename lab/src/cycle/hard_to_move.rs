//! The option `--hard-to-move`: which kinds of hard-to-move memory, and how much of each.

use dormouse_guest::protocol::HardToMovePlan;
use dormouse_guest::protocol::hard_to_move_kinds::{HARD_TO_MOVE_KINDS, by_name};

use crate::error::LabError;
use dormouse_system::arguments::Size;

/// Enough pages to be counted, few enough to be quick in an emulated machine.
const USUAL_BYTES: u64 = 4 << 20;

/// Reads `KIND`, `KIND=SIZE` and `all`; a kind that is named twice takes the later size.
///
/// # Errors
/// There is no such kind or size.
pub(crate) fn plans(words: &[String]) -> Result<Vec<HardToMovePlan>, LabError> {
    let mut plans: Vec<HardToMovePlan> = Vec::new();
    for word in words {
        let (name, size) = word.split_once('=').unwrap_or((word, ""));
        let bytes = match size {
            "" => USUAL_BYTES,
            size => size.parse::<Size>().map_err(LabError::Usage)?.0,
        };
        let names: Vec<&str> = match by_name(name) {
            Some(kind) => vec![kind.name],
            None if name == "all" => {
                let usual = HARD_TO_MOVE_KINDS.iter().filter(|kind| kind.in_all);
                usual.map(|kind| kind.name).collect()
            }
            None => {
                return Err(LabError::Usage(format!(
                    "there is no hard-to-move memory `{name}`; `--hard-to-move list` prints the kinds"
                )));
            }
        };
        for name in names {
            plans.retain(|plan| plan.kind != name);
            plans.push(HardToMovePlan {
                kind: name.to_owned(),
                bytes,
            });
        }
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans_of(words: &[&str]) -> Result<Vec<HardToMovePlan>, LabError> {
        plans(
            &words
                .iter()
                .map(|&word| word.to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn all_leaves_out_what_prevents_a_sleep_and_a_named_kind_has_its_size() {
        let plans = plans_of(&["all", "hugetlb=96M"]).unwrap();
        let bytes = |name: &str| Some(plans.iter().find(|plan| plan.kind == name)?.bytes);
        assert_eq!(bytes("hugetlb"), Some(96 << 20));
        assert_eq!(bytes("pinned"), Some(USUAL_BYTES));
        assert_eq!(bytes("stuck"), None);
    }

    #[test]
    fn an_unknown_kind_or_size_is_wrong_usage() {
        for words in [["nothing"], ["pinned=much"]] {
            assert_eq!(plans_of(&words).unwrap_err().exit_code(), 2);
        }
    }
}
