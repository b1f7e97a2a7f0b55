//! Processes of this machine, as tests look for them.

use dormouse_system::{Root, proc};

/// These processes and all that descend from them, parents first.
pub fn with_descendants(mut all: Vec<i32>) -> Vec<i32> {
    let root = Root::host();
    let parents: Vec<(i32, i32)> = proc::pids(&root)
        .into_iter()
        .filter_map(|pid| Some((proc::stat(&root, pid).ok()?.parent, pid)))
        .collect();
    let mut at = 0;
    while let Some(&parent) = all.get(at) {
        for &(of, pid) in &parents {
            if of == parent && !all.contains(&pid) {
                all.push(pid);
            }
        }
        at += 1;
    }
    all
}
