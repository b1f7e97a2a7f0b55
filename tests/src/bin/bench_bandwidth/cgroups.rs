//! Cgroups with a task each. They are removed at the end, also after Ctrl-C; the next run removes
//! those of a killed run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_bandwidth::enforce::cgroup::{Hierarchy, Version};
use dormouse_bandwidth::enforce::meter::accounting_root;

const PREFIX: &str = "dormouse-bench-";
/// Tasks that compute all the time; the others run briefly every 50 ms.
const BUSY: usize = 2;
/// The maximum time until cgroups of killed processes can be removed.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Cgroups with a task each; they are removed with this value.
pub struct Tasks {
    roots: Vec<PathBuf>,
    /// The name of their parent.
    pub name: String,
    children: Vec<Child>,
}

/// Where cgroups are created: version 1 may account for CPU time in another hierarchy.
fn roots(hierarchy: &Hierarchy) -> Vec<PathBuf> {
    let other = accounting_root().filter(|root| *root != hierarchy.root);
    let other = other.filter(|_| hierarchy.version == Version::V1);
    std::iter::once(hierarchy.root.clone())
        .chain(other)
        .collect()
}

impl Tasks {
    pub fn new(hierarchy: &Hierarchy, count: usize) -> Result<Self, String> {
        let mut tasks = Self {
            roots: roots(hierarchy),
            name: format!("{PREFIX}{}", std::process::id()),
            children: Vec::new(),
        };
        tasks
            .start(count)
            .map_err(|error| format!("cgroups cannot be made here: {error}"))?;
        Ok(tasks)
    }

    fn start(&mut self, count: usize) -> std::io::Result<()> {
        for root in &self.roots {
            fs::create_dir(root.join(&self.name))?;
            let _ = fs::write(root.join(&self.name).join("cgroup.subtree_control"), "+cpu");
        }
        let program = std::env::current_exe()?;
        for at in 0..count {
            let kind = if at < BUSY { "busy" } else { "little" };
            let child = Command::new("nice")
                .args(["-n", "19"])
                .arg(&program)
                .args(["--task", kind])
                .stdin(Stdio::null())
                .spawn()?;
            let pid = child.id().to_string();
            self.children.push(child);
            for root in &self.roots {
                let folder = root.join(&self.name).join(at.to_string());
                fs::create_dir(&folder)?;
                fs::write(folder.join("cgroup.procs"), &pid)?;
            }
        }
        Ok(())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for root in &self.roots {
            remove(&root.join(&self.name));
        }
    }
}

/// Removes the cgroups of killed runs; their tasks have ended.
pub fn remove_leftovers(hierarchy: &Hierarchy) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    for root in roots(hierarchy) {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let run = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let ended = run.is_some_and(|run| !Path::new("/proc").join(run).exists());
            if ended && remove(&entry.path()) {
                removed.push(entry.path());
            }
        }
    }
    removed
}

/// Removes a cgroup and its children; returns whether it is gone.
fn remove(path: &Path) -> bool {
    let deadline = Instant::now() + MAX_WAIT;
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for folder in below.map(|entry| entry.path()).chain([path.to_owned()]) {
        // Killed processes stay in it until they have exited.
        while folder.exists() && fs::remove_dir(&folder).is_err() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    true
}
