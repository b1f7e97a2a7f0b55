//! What a sleep leaves in /run/dormouse for the process that migrates pages back, or that cleans up after a
//! sleep that was killed.

use std::fs;

use dormouse_system::Root;
use dormouse_system::file::{Durability, read_json, replace_json};
use dormouse_system::kernel::boot_id;
use serde::{Deserialize, Serialize};

/// A larger file is not ours, and is not read.
const MAX_FILE_BYTES: u64 = 64 << 20;
const FILE: &str = "run/dormouse/sleep.json";
/// Which pages were hot: apart, because it is large and read once (`hotness::saved`).
pub const HOTNESS_FILE: &str = "run/dormouse/hotness.json";

/// One process in the order in which it migrates back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub pid: i32,
    pub start_ticks: u64,
    /// The node that held most of it before the sleep.
    pub home_node: Option<u32>,
}

/// The state of a sleep that is not undone yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    pub boot_id: String,
    pub node: u32,
    /// Most recently running first, as of before the sleep.
    pub order: Vec<Entry>,
    /// Cgroups that are frozen by us.
    pub frozen: Vec<String>,
}

/// Writes the state; a failure is no reason not to sleep, the order is then made anew.
pub fn save(root: &Root, state: &State) {
    let _ = replace_json(&root.path(FILE), state, Durability::Readers);
}

/// The state of this boot's last sleep, if there is one.
pub fn load(root: &Root) -> Option<State> {
    let state: State = read_json(&root.path(FILE), MAX_FILE_BYTES).ok()??;
    (state.boot_id == boot_id(root)).then_some(state)
}

/// Everything is as before the sleep.
pub fn remove(root: &Root) {
    let _ = fs::remove_file(root.path(FILE));
    let _ = fs::remove_file(root.path(HOTNESS_FILE));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{machine_in_boot, reboot};

    #[test]
    fn a_state_of_an_earlier_boot_is_ignored() {
        let (_directory, root) = machine_in_boot("one");
        let state = State {
            boot_id: "one".into(),
            node: 1,
            ..State::default()
        };
        save(&root, &state);
        assert_eq!(load(&root), Some(state));
        reboot(&root, "two");
        assert_eq!(load(&root), None);
    }
}
