//! Tests of attribution with cache-line samples. Files stand for the device, the kernel's records
//! of pages, and the nodes.

use std::fs;

use super::tests_support::{Fake, OFFSET};
use super::*;

const PAGE: u64 = 4096;
const BLOCK: u64 = 16 * PAGE;

/// A machine whose blocks 1 and 2 are nodes 5 and 6 of a device.
struct Machine {
    folder: tempfile::TempDir,
    device: Fake,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let make = |path: &str| fs::create_dir_all(folder.path().join(path)).unwrap();
        for path in [
            "cgroup/a",
            "cgroup/b",
            "system/memory",
            "system/node/node0/memory0",
            "system/node/node5/memory1",
            "system/node/node6/memory2",
        ] {
            make(path);
        }
        for name in ["a", "b"] {
            let charged = folder
                .path()
                .join("cgroup")
                .join(name)
                .join("memory.current");
            fs::write(charged, "0\n").unwrap();
        }
        let size = folder.path().join("system/memory/block_size_bytes");
        fs::write(size, format!("{BLOCK:x}\n")).unwrap();
        let machine = Self {
            folder,
            device: Fake::new(),
        };
        machine.own(&[]);
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn inode(&self, cgroup: &str) -> u64 {
        Names::inode(&self.path("cgroup").join(cgroup)).unwrap()
    }

    /// Charges pages to these cgroups; all others have no owner.
    fn own(&self, owned: &[(u64, u64)]) {
        let mut cgroups = vec![0u64; 3 * 16];
        for &(page, cgroup) in owned {
            cgroups[page as usize] = cgroup;
        }
        let bytes: Vec<u8> = cgroups.iter().flat_map(|one| one.to_ne_bytes()).collect();
        fs::write(self.path("kpagecgroup"), bytes).unwrap();
    }

    fn sampler(&self) -> LineSampler {
        let names = Names::open(&self.path("cgroup")).unwrap();
        self.sampler_with(Box::new(move |inode| names.path(inode)))
    }

    fn sampler_with(&self, path_of: Paths) -> LineSampler {
        let wanted = Wanted {
            path: &self.device.path(),
            offset: OFFSET,
            nodes: &[5, 6],
            cgroups: &[PathBuf::from("a"), PathBuf::from("b")],
            hierarchy: Hierarchy {
                root: self.path("cgroup"),
                version: Version::V2,
            },
        };
        let pages = Pages::open(&self.path("kpagecgroup")).unwrap();
        LineSampler::with(wanted, pages, path_of, &self.path("system")).unwrap()
    }

    fn serve(&mut self, page: u64, lines: u64) {
        for line in 0..lines {
            self.device.push(Line {
                address: page * PAGE + line * 64,
                written: line.is_multiple_of(2),
            });
        }
    }

    /// Makes the two cgroups users 1 and 2.
    fn introduce(&self, sampler: &mut LineSampler) {
        let paths = ["a", "b"].map(|name| self.path("cgroup").join(name));
        let user_ref = |at: usize| UserRef {
            path: &paths[at],
            id: at as u64 + 1,
            processes: &[],
        };
        sampler.set_users(&[user_ref(0), user_ref(1)]);
    }
}

/// A machine with two users, of which the first one has these pages.
fn sampled(pages: &[u64]) -> (Machine, LineSampler) {
    let machine = Machine::new();
    let owner = machine.inode("a");
    let owned: Vec<(u64, u64)> = pages.iter().map(|&page| (page, owner)).collect();
    machine.own(&owned);
    let mut sampler = machine.sampler();
    machine.introduce(&mut sampler);
    (machine, sampler)
}

/// A pass: lines of both users on both nodes, and unattributed lines.
fn pass(sampler: &mut LineSampler) -> ([[f64; 2]; 2], [f64; 2]) {
    assert_eq!(sampler.collect(50.0), Vec::<PathBuf>::new());
    step(sampler)
}

fn step(sampler: &mut LineSampler) -> ([[f64; 2]; 2], [f64; 2]) {
    let run = |id| Run {
        id,
        cpu_s: 0.0,
        shares: &[0.0, 0.0],
    };
    sampler.step(50.0, &[run(1), run(2)]);
    let shares = sampler.shares();
    let lines = |bytes: Option<f64>| bytes.unwrap() / LINE_BYTES;
    let user = |id| [0, 1].map(|node| lines(shares.weight(id, node, 0.0)));
    let unattributed = [0, 1].map(|node| lines(shares.unattributed_weight(node)));
    ([1, 2].map(user), unattributed)
}

#[test]
fn lines_are_charged_to_the_cgroup_that_has_their_page() {
    let mut machine = Machine::new();
    let (a, b) = (machine.inode("a"), machine.inode("b"));
    machine.own(&[(16, a), (17, b), (40, b)]);
    let mut sampler = machine.sampler();
    machine.introduce(&mut sampler);
    machine.serve(16, 3);
    machine.serve(17, 2);
    machine.serve(40, 4);
    machine.serve(33, 1);
    assert_eq!(pass(&mut sampler), ([[3.0, 0.0], [2.0, 4.0]], [0.0, 1.0]));
    // A page that changes its owner is charged to the new one.
    machine.own(&[(16, b)]);
    sampler.collect(1100.0);
    machine.serve(16, 3);
    assert_eq!(pass(&mut sampler).0, [[0.0, 0.0], [3.0, 0.0]]);
}

#[test]
fn addresses_outside_of_the_device_change_nothing() {
    let (mut machine, mut sampler) = sampled(&[3]);
    machine.serve(3, 2);
    for address in [0, 3 * BLOCK, 0x000f_ffff_ffff_ffc0] {
        machine.device.push(Line {
            address,
            written: false,
        });
    }
    assert_eq!(pass(&mut sampler), ([[0.0; 2]; 2], [0.0; 2]));
    let told = sampler.notices();
    assert!(
        told.len() == 1 && told[0].contains("none of its nodes, 5 times"),
        "{told:?}"
    );
}

#[test]
fn unwatched_and_removed_cgroups_are_unattributed() {
    let mut machine = Machine::new();
    fs::create_dir(machine.path("cgroup/other")).unwrap();
    let other = machine.inode("other");
    machine.own(&[(16, other), (17, u64::MAX / 2)]);
    let mut sampler = machine.sampler();
    for _ in 0..2 {
        machine.serve(16, 2);
        machine.serve(17, 3);
        assert_eq!(pass(&mut sampler), ([[0.0; 2]; 2], [5.0, 0.0]));
    }
}

#[test]
fn only_watched_cgroups_with_processes_become_users() {
    let mut machine = Machine::new();
    let cgroups = ["a/busy", "a/empty", "other"].map(|name| machine.path("cgroup").join(name));
    for (path, processes) in cgroups.iter().zip(["7\n", "", "7\n"]) {
        fs::create_dir(path).unwrap();
        fs::write(path.join("cgroup.procs"), processes).unwrap();
    }
    let inodes = cgroups.clone().map(|path| Names::inode(&path).unwrap());
    machine.own(&[(16, inodes[0]), (17, inodes[1]), (18, inodes[2])]);
    let known = inodes.into_iter().zip(cgroups.clone());
    let known: HashMap<u64, PathBuf> = known.collect();
    let mut sampler = machine.sampler_with(Box::new(move |inode| known.get(&inode).cloned()));
    for page in [16, 17, 18] {
        machine.serve(page, 2);
    }
    assert_eq!(sampler.collect(50.0), [cgroups[0].clone()]);
}

#[test]
fn samples_do_not_attribute_a_node_with_users_without_memory_controller() {
    let (mut machine, mut sampler) = sampled(&[16, 33]);
    assert_eq!(sampler.notices(), [""; 0]);
    // The controller is missing below a cgroup that has it.
    let path = machine.path("cgroup/b/below");
    fs::create_dir(&path).unwrap();
    let below = UserRef {
        path: &path,
        id: 3,
        processes: &[7],
    };
    let above = machine.path("cgroup/a");
    let above = UserRef {
        path: &above,
        id: 1,
        processes: &[],
    };
    sampler.set_users(&[above, below]);
    let mut fresh = |sampler: &mut LineSampler, shares: &[f64]| {
        machine.serve(16, 3);
        machine.serve(33, 1);
        sampler.collect(50.0);
        let run = |id, shares| Run {
            id,
            cpu_s: 0.01,
            shares,
        };
        sampler.step(50.0, &[run(1, &[0.5, 0.5]), run(3, shares)]);
        [0, 1].map(|node| sampler.shares().is_fresh(node))
    };
    assert_eq!(fresh(&mut sampler, &[0.0, 0.4]), [true, false]);
    let told = sampler.notices();
    assert!(
        told.len() == 1 && told[0].contains("b/below") && told[0].contains("+memory"),
        "{told:?}"
    );
    sampler.set_users(&[above, below]);
    assert_eq!(fresh(&mut sampler, &[0.0, 0.4]), [true, false]);
    sampler.collect(61_000.0);
    assert_eq!(sampler.notices(), [""; 0], "once");
    // Its memory leaves the node, and samples attribute the node again.
    assert_eq!(fresh(&mut sampler, &[0.0, 0.0]), [true, true]);
}

#[test]
fn a_device_that_is_gone_is_tried_again_once_a_second() {
    let (mut machine, mut sampler) = sampled(&[16]);
    fs::remove_file(machine.device.path()).unwrap();
    assert_eq!(pass(&mut sampler).0[0][0], 0.0);
    machine.device = machine.device.replaced();
    machine.device.word(3, 2);
    sampler.collect(900.0);
    machine.serve(16, 3);
    assert_eq!(pass(&mut sampler).0[0][0], 0.0, "not yet");
    sampler.collect(50.0);
    machine.serve(16, 3);
    assert_eq!(pass(&mut sampler).0[0][0], 6.0, "one of two now");
}

#[test]
fn samples_that_would_stand_for_more_than_can_have_been_lost_are_none() {
    let (mut machine, mut sampler) = sampled(&[16]);
    machine.device.set_head(1 << 40);
    machine.serve(16, 1);
    assert_eq!(pass(&mut sampler).0[0][0], 0.0);
    let told = sampler.notices();
    assert!(
        told.iter().any(|what| what.contains("no valid sample")),
        "{told:?}"
    );
    machine.serve(16, 2);
    assert_eq!(pass(&mut sampler).0[0][0], 2.0);
}

#[test]
fn a_new_user_is_charged_with_its_first_lines() {
    let mut machine = Machine::new();
    machine.own(&[(16, machine.inode("a"))]);
    let mut sampler = machine.sampler();
    machine.serve(16, 7);
    sampler.collect(50.0);
    machine.introduce(&mut sampler);
    assert_eq!(step(&mut sampler), ([[7.0, 0.0], [0.0, 0.0]], [0.0, 0.0]));
}

#[test]
fn lines_that_were_read_also_count_for_overwritten_ones() {
    let (mut machine, mut sampler) = sampled(&[16]);
    machine.serve(16, 40);
    assert_eq!(pass(&mut sampler), ([[40.0, 0.0], [0.0, 0.0]], [0.0, 0.0]));
    machine.serve(16, 4);
    assert_eq!(pass(&mut sampler).0[0][0], 4.0);
}

#[test]
fn problems_of_the_ring_are_reported_at_intervals() {
    let mut machine = Machine::new();
    let mut sampler = machine.sampler();
    machine.serve(16, 40);
    pass(&mut sampler);
    let told = sampler.notices();
    assert_eq!(told.len(), 1);
    assert!(
        told[0].contains("overwritten") && told[0].contains("24 times"),
        "{told:?}"
    );
    machine.device.set_head(0);
    pass(&mut sampler);
    assert!(sampler.notices().is_empty());
    sampler.collect(61_000.0);
    let told = sampler.notices();
    assert!(told[0].contains("decreased, 1 times"), "{told:?}");
    assert!(sampler.notices().is_empty());
    assert_eq!(sampler.trouble().ring.lost, 24);
}

#[test]
fn a_missing_requirement_is_named() {
    let machine = Machine::new();
    let path = machine.device.path();
    let root = machine.path("cgroup");
    let open = |version, offset| {
        let wanted = Wanted {
            path: &path,
            offset,
            nodes: &[5],
            cgroups: &[PathBuf::from("a"), PathBuf::from("not-there-yet")],
            hierarchy: Hierarchy {
                root: root.clone(),
                version,
            },
        };
        let pages = Pages::open(&machine.path("kpagecgroup")).unwrap();
        let opened = LineSampler::with(wanted, pages, Box::new(|_| None), &machine.path("system"));
        opened.err().map(|error| error.to_string())
    };
    assert_eq!(open(Version::V2, OFFSET), None);
    assert!(open(Version::V1, OFFSET).unwrap().contains("version 2"));
    let said = open(Version::V2, OFFSET + 64).unwrap();
    assert!(
        said.contains("resource2") && said.contains("no ring"),
        "{said}"
    );
    fs::remove_file(machine.path("cgroup/a/memory.current")).unwrap();
    let said = open(Version::V2, OFFSET).unwrap();
    assert!(said.contains("+memory"), "{said}");
    let said = Pages::open(Path::new("/nowhere")).unwrap_err().to_string();
    assert!(
        said.contains("/nowhere") && said.contains("CONFIG_MEMCG"),
        "{said}"
    );
}
