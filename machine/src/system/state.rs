//! What a sleep leaves in /run/dormouse for the process that migrates pages back, or that cleans up after a
//! sleep that was killed.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::system::lock::RUN_DIRECTORY;
use crate::system::tree::Tree;

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

/// This boot; a state of an earlier one means nothing.
pub fn boot_id(tree: &Tree) -> String {
    tree.read("proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
}

/// Writes the state; a failure is no reason not to sleep, the order is then made anew.
pub fn save(tree: &Tree, state: &State) {
    let text = serde_json::to_string(state).expect("plain data serialises");
    let written = fs::create_dir_all(tree.path(RUN_DIRECTORY))
        .and_then(|()| fs::write(tree.path("run/dormouse/sleep.json.new"), text))
        .and_then(|()| fs::rename(tree.path("run/dormouse/sleep.json.new"), tree.path(FILE)));
    drop(written);
}

/// The state of this boot's last sleep, if there is one.
pub fn load(tree: &Tree) -> Option<State> {
    let state: State = serde_json::from_str(&tree.read(FILE).ok()?).ok()?;
    (state.boot_id == boot_id(tree)).then_some(state)
}

/// Everything is as before the sleep.
pub fn remove(tree: &Tree) {
    let _ = fs::remove_file(tree.path(FILE));
    let _ = fs::remove_file(tree.path(HOTNESS_FILE));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_an_earlier_boot_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::at(directory.path());
        let random = tree.path("proc/sys/kernel/random");
        fs::create_dir_all(&random).unwrap();
        fs::write(random.join("boot_id"), "one\n").unwrap();
        let state = State {
            boot_id: "one".into(),
            node: 1,
            ..State::default()
        };
        save(&tree, &state);
        assert_eq!(load(&tree), Some(state));
        fs::write(random.join("boot_id"), "two\n").unwrap();
        assert_eq!(load(&tree), None);
    }
}
