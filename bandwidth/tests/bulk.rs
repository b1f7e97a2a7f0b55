//! CPU times read by the BPF program are those of the files.
//!
//! A group for which this machine lacks something is left out, and says so.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use dormouse_bandwidth::enforce::bulk::{Bulk, Location};
use dormouse_bandwidth::enforce::cgroup::{Cgroup, Hierarchy, Usage, Version, cpu_hierarchy};
use dormouse_bandwidth::enforce::meter::{Meter, accounting_root};

/// Cgroups of this machine, and a process in each; removed with this value.
struct Tree {
    hierarchy: Hierarchy,
    accounting: Option<PathBuf>,
    roots: Vec<PathBuf>,
    name: String,
    cgroups: usize,
    children: Vec<Child>,
}

impl Tree {
    fn new(name: &str, cgroups: usize) -> Option<Self> {
        let hierarchy = cpu_hierarchy().ok()?;
        let accounting = accounting_root().filter(|root| *root != hierarchy.root);
        let other = accounting
            .iter()
            .filter(|_| hierarchy.version == Version::V1);
        let mut tree = Self {
            roots: std::iter::once(&hierarchy.root)
                .chain(other)
                .cloned()
                .collect(),
            hierarchy: hierarchy.clone(),
            accounting: accounting.clone(),
            name: format!("dormouse-bulk-{name}-{}", std::process::id()),
            cgroups,
            children: Vec::new(),
        };
        for root in &tree.roots {
            fs::create_dir(root.join(&tree.name)).ok()?;
            let _ = fs::write(root.join(&tree.name).join("cgroup.subtree_control"), "+cpu");
        }
        for at in 0..cgroups {
            // It enters the cgroup first, computes, and waits for its end.
            let folders: Vec<PathBuf> = tree
                .roots
                .iter()
                .map(|root| root.join(&tree.name).join(at.to_string()))
                .collect();
            let mut script = String::new();
            for folder in &folders {
                fs::create_dir(folder).ok()?;
                script += &format!("echo $$ > {}/cgroup.procs; ", folder.display());
            }
            script += &format!(
                "i=0; while [ $i -lt {} ]; do i=$((i+1)); done; echo; read x",
                at * 1000
            );
            let mut child = Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .ok()?;
            let mut line = [0];
            let output = child.stdout.as_mut()?;
            std::io::Read::read_exact(output, &mut line).ok()?;
            tree.children.push(child);
        }
        Some(tree)
    }

    fn cgroup(&self, at: usize) -> Cgroup {
        let path = self.hierarchy.root.join(&self.name).join(at.to_string());
        Cgroup::new(path, self.hierarchy.version)
    }

    fn meter(&self, at: usize) -> Meter {
        let accounting = self.accounting.as_deref();
        Meter::open(&self.cgroup(at), &self.hierarchy, accounting, true).unwrap()
    }

    /// Ends the process of a cgroup, and removes it.
    fn remove(&mut self, at: usize) {
        let child = &mut self.children[at];
        let _ = child.kill();
        let _ = child.wait();
        for root in &self.roots {
            let path = root.join(&self.name).join(at.to_string());
            while path.exists() && fs::remove_dir(&path).is_err() {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for at in 0..self.children.len() {
            self.remove(at);
        }
        for root in &self.roots {
            for at in self.children.len()..self.cgroups {
                let _ = fs::remove_dir(root.join(&self.name).join(at.to_string()));
            }
            let _ = fs::remove_dir(root.join(&self.name));
        }
    }
}

/// The programs and a tree, or why not.
fn set_up(name: &str, cgroups: usize) -> Option<(Bulk, Tree)> {
    let Some(tree) = Tree::new(name, cgroups) else {
        eprintln!("left out: no cgroups with the cpu controller can be made here");
        return None;
    };
    match Bulk::load(&tree.hierarchy) {
        Ok(bulk) => Some((bulk, tree)),
        Err(why) => {
            eprintln!("left out: {why}");
            None
        }
    }
}

fn wanted(meters: &[Meter]) -> Vec<(usize, Location, bool)> {
    let all = meters.iter().enumerate();
    let wanted = all.filter_map(|(at, meter)| {
        let (location, throttled) = meter.wanted(None)?;
        Some((at, location, throttled))
    });
    wanted.collect()
}

#[test]
fn what_is_read_at_once_is_what_the_files_say() {
    let Some((mut bulk, tree)) = set_up("same", 40) else {
        return;
    };
    let mut meters: Vec<Meter> = (0..40).map(|at| tree.meter(at)).collect();
    meters.iter_mut().for_each(|meter| meter.locate(&mut bulk));
    let wanted = wanted(&meters);
    assert_eq!(wanted.len(), 40, "each one was found");
    // All processes wait: nothing changes any more.
    let files: Vec<Usage> = meters
        .iter_mut()
        .map(|meter| meter.usage(None).unwrap())
        .collect();
    let mut read = vec![None; 40];
    bulk.read(&wanted, |at, usage| {
        meters[at].provide(usage);
        read[at] = Some(meters[at].usage(None).unwrap());
    });
    let read: Vec<Usage> = read.into_iter().flatten().collect();
    assert_eq!(read, files);
    assert!(files.iter().all(|usage| usage.cpu_ns > 0), "each one ran");
}

#[test]
fn more_cgroups_than_fit_into_one_call_are_read() {
    let Some((mut bulk, tree)) = set_up("many", 2) else {
        return;
    };
    let mut meters: Vec<Meter> = (0..2).map(|at| tree.meter(at)).collect();
    meters.iter_mut().for_each(|meter| meter.locate(&mut bulk));
    let two = wanted(&meters);
    let wanted: Vec<_> = (0..5000).map(|at| (at, two[at % 2].1, true)).collect();
    let mut read = Vec::new();
    bulk.read(&wanted, |at, usage| read.push((at, usage)));
    let files: Vec<Usage> = meters
        .iter_mut()
        .map(|meter| meter.usage(None).unwrap())
        .collect();
    assert_eq!(read.len(), 5000);
    let is_same = |(at, usage): &(usize, Usage)| {
        meters[at % 2].provide(*usage);
        meters[at % 2].usage(None).unwrap() == files[at % 2]
    };
    assert!(read.iter().enumerate().all(|(at, read)| read.0 == at));
    assert!(read.iter().all(is_same));
}

#[test]
fn a_cgroup_that_is_gone_is_never_read_even_if_another_has_its_name() {
    let Some((mut bulk, mut tree)) = set_up("gone", 3) else {
        return;
    };
    let mut meters: Vec<Meter> = (0..3).map(|at| tree.meter(at)).collect();
    meters.iter_mut().for_each(|meter| meter.locate(&mut bulk));
    let wanted = wanted(&meters);
    tree.remove(1);
    let read = |bulk: &mut Bulk| {
        let mut read = Vec::new();
        bulk.read(&wanted, |at, _| read.push(at));
        read
    };
    assert_eq!(read(&mut bulk), [0, 2]);
    assert!(meters[1].usage(None).unwrap_err().is_gone());
    for root in &tree.roots {
        fs::create_dir(root.join(&tree.name).join("1")).unwrap();
    }
    assert_eq!(read(&mut bulk), [0, 2]);
    // Opened before, found by its name afterwards: the files decide.
    meters[1].locate(&mut bulk);
    assert!(meters[1].wanted(None).is_none());
    // The new one.
    let mut new = tree.meter(1);
    new.locate(&mut bulk);
    assert!(new.wanted(None).is_some());
    drop(new);
}

#[test]
fn what_cannot_be_found_is_read_from_its_files() {
    let Some((mut bulk, tree)) = set_up("files", 1) else {
        return;
    };
    // A directory that looks like a cgroup and is none, as one that must not be opened.
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("cpu.stat"),
        "nr_throttled 3\nusage_usec 70\n",
    )
    .unwrap();
    let fake = Hierarchy {
        root: folder.path().to_owned(),
        version: Version::V2,
    };
    let cgroup = Cgroup::new(folder.path(), Version::V2);
    let mut meter = Meter::open(&cgroup, &fake, None, true).unwrap();
    meter.locate(&mut bulk);
    assert!(meter.wanted(None).is_none());
    assert_eq!(meter.usage(None).unwrap().cpu_ns, 70_000);
    drop(tree);
}
