//! What a sleep leaves in /run/dormouse for the one who brings pages home, or cleans up after a
//! sleep that was killed.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::heat::{self, ProcessHeat};
use crate::lock::RUN_DIRECTORY;
use crate::tree::Tree;

const FILE: &str = "run/dormouse/sleep.json";
/// Apart, because it is large, and read once.
const HEAT_FILE: &str = "run/dormouse/heat.json";
/// Nothing of ours is larger; what is, is not read.
const MOST_HEAT_BYTES: u64 = 256 << 20;

/// One process in the order in which it comes home.
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

/// Writes which pages are hot, for the way home of this boot; without it, there is just no advice.
pub fn save_heat(tree: &Tree, processes: &[ProcessHeat]) {
    let text = format!("{}\n{}", boot_id(tree), heat::encode(processes));
    let written = fs::create_dir_all(tree.path(RUN_DIRECTORY))
        .and_then(|()| fs::write(tree.path(HEAT_FILE), text));
    drop(written);
}

/// Which pages were hot before this boot's last sleep. Given out once: afterwards they are home.
pub fn take_heat(tree: &Tree) -> Vec<ProcessHeat> {
    let path = tree.path(HEAT_FILE);
    let small = fs::metadata(&path).is_ok_and(|metadata| metadata.len() <= MOST_HEAT_BYTES);
    let text = small.then(|| tree.read(HEAT_FILE).ok()).flatten();
    let _ = fs::remove_file(path);
    text.as_deref()
        .and_then(|text| text.split_once('\n'))
        .filter(|(boot, _)| *boot == boot_id(tree))
        .and_then(|(_, list)| heat::decode(list))
        .unwrap_or_default()
}

/// Everything is as before the sleep.
pub fn remove(tree: &Tree) {
    let _ = fs::remove_file(tree.path(FILE));
    let _ = fs::remove_file(tree.path(HEAT_FILE));
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
        let heat = vec![ProcessHeat {
            pid: 7,
            start_ticks: 8,
            ranges: heat::sum(&[heat::HotRange {
                start: 0x1000,
                end: 0x3000,
                heat: 2,
            }]),
        }];
        save_heat(&tree, &heat);
        assert_eq!(take_heat(&tree), heat);
        assert_eq!(take_heat(&tree), [], "it is given out once");
        save_heat(&tree, &heat);
        fs::write(random.join("boot_id"), "two\n").unwrap();
        assert_eq!(load(&tree), None);
        assert_eq!(take_heat(&tree), []);
    }
}
