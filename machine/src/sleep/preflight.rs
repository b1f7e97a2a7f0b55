//! Everything that can be known before anything is changed: can this machine sleep, what will
//! move, and does it fit.

use dormouse_system::memory::of_node;
use dormouse_system::proc::numa_maps;
use dormouse_system::{Root, cgroup};

use crate::error::SleepError;
use crate::memory;
use crate::memory::owners;
use crate::node::{self, CxlNode};
use crate::options::{SleepOptions, WayChoice};
use crate::parallel::{self, cpus};
use crate::persistence::{self, Verdict};
use crate::processes::freezer;
use crate::processes::order;
use crate::processes::{self, Process};
use crate::report::{Plan, UnfrozenProcess};
use crate::sleep::power;
use crate::snapshot::boot_entry::{self, Waker};
use crate::snapshot::{self, Setup, devices, facts, kernel};
use crate::system::module::{self, Status};
use crate::system::state::Entry;

/// What saves the kernel's pages.
#[derive(Debug)]
pub enum Way {
    /// Firmware; the module's status before the sleep.
    Firmware(Status),
    /// The kernel's own snapshot, and what wakes the machine.
    Snapshot(Setup, Waker),
}

/// A machine that may sleep.
#[derive(Debug)]
pub struct Ready {
    pub way: Way,
    pub cxl: CxlNode,
    pub dram_nodes: Vec<u32>,
    /// Processes in the order in which they migrate back.
    pub order: Vec<Entry>,
    pub cgroup_mount: &'static str,
    pub freeze: Vec<String>,
    pub plan: Plan,
    pub persistence: Verdict,
}

/// The numbers that decide about space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Anonymous and mapped pages in DRAM.
    pub user_bytes: u64,
    /// What firmware would have to save if the machine slept now, user pages included.
    pub save_bytes: u64,
    /// Page cache and slabs that dropping the caches frees, at best.
    pub droppable_bytes: u64,
    /// Room for user pages on the CXL node.
    pub node_bytes: u64,
    /// Room for saved pages outside of the node, in the image's own part.
    pub image_bytes: u64,
}

/// Needed and available bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub kernel_bytes: u64,
    pub needed_bytes: u64,
    pub available_bytes: u64,
}

/// Decides whether a sleep has a chance. It refuses only what cannot work: the exact check comes
/// when all pages have moved and the caches are dropped, before anything is final.
///
/// # Errors
/// [`SleepError::NoSpace`] with both numbers.
pub fn decide(facts: &Facts) -> Result<Space, SleepError> {
    let kernel_bytes = facts
        .save_bytes
        .saturating_sub(facts.user_bytes)
        .saturating_sub(facts.droppable_bytes);
    // The allocator keeps the last pages of a node to itself (its watermarks, below 1 %).
    let node_bytes = facts.node_bytes - facts.node_bytes / 100;
    let space = Space {
        kernel_bytes,
        needed_bytes: facts.user_bytes.saturating_add(kernel_bytes),
        available_bytes: node_bytes.saturating_add(facts.image_bytes),
    };
    if facts.user_bytes > node_bytes {
        return Err(SleepError::NoSpace {
            stage: "user pages on the CXL node",
            needed_bytes: facts.user_bytes,
            available_bytes: node_bytes,
            owners: Vec::new(),
        });
    }
    if space.needed_bytes > space.available_bytes {
        return Err(SleepError::NoSpace {
            stage: "user pages and the kernel's",
            needed_bytes: space.needed_bytes,
            available_bytes: space.available_bytes,
            owners: Vec::new(),
        });
    }
    Ok(space)
}

/// States of the header in which a new sleep may begin.
fn may_begin(state: &str) -> bool {
    // prepared and saving: an earlier try was refused or cut off, nothing was committed.
    matches!(state, "" | "empty" | "consumed" | "prepared" | "saving")
}

/// Checks the machine and plans the sleep. Changes nothing.
///
/// # Errors
/// The first thing that forbids the sleep.
pub fn run(root: &Root, options: &SleepOptions) -> Result<Ready, SleepError> {
    if by_snapshot(root, options.way) {
        run_snapshot(root, options)
    } else {
        run_firmware(root, options)
    }
}

/// Firmware is faster; on a machine that has neither, the error names the firmware's module, unless
/// its persistent memory was set up for the other way.
pub fn by_snapshot(root: &Root, choice: WayChoice) -> bool {
    match choice {
        WayChoice::Firmware => false,
        WayChoice::Snapshot => true,
        WayChoice::Auto => {
            !root.exists(module::DIRECTORY)
                && (root.exists(kernel::NOSAVE) || snapshot::find(root).is_ok())
        }
    }
}

fn run_snapshot(root: &Root, options: &SleepOptions) -> Result<Ready, SleepError> {
    let setup = snapshot::find(root)?;
    if !may_begin(&setup.state) {
        return Err(SleepError::ImageExists { state: setup.state });
    }
    snapshot::check_kernel(root, &setup)?;
    let answer = devices::persistence(root, [&setup.head, &setup.node]);
    let verdict = persistence::decide([(persistence::Persistence::DEVICE, answer)]);
    let persistence = persistence::accept(verdict, options.accept_volatile)?;
    let cxl = CxlNode {
        node: setup.node.node,
        device: Some(setup.node.clone()),
    };
    let waker = boot_entry::waker(root, &setup);
    plan(root, options, Way::Snapshot(setup, waker), cxl, persistence)
}

fn run_firmware(root: &Root, options: &SleepOptions) -> Result<Ready, SleepError> {
    let status = module::status(root)?;
    if !status.enabled {
        let path = root.path(module::DIRECTORY).join("enabled");
        return Err(SleepError::Disabled { path });
    }
    if !may_begin(&status.state) {
        return Err(SleepError::ImageExists {
            state: status.state,
        });
    }
    power::check(root)?;
    let persistence = persistence::check(root, &status, options.accept_volatile)?;
    let cxl = node::find(root, options.node, Some(&status))?;
    plan(root, options, Way::Firmware(status), cxl, persistence)
}

fn plan(
    root: &Root,
    options: &SleepOptions,
    way: Way,
    cxl: CxlNode,
    persistence: Verdict,
) -> Result<Ready, SleepError> {
    let cgroup_mount = freezer::mount(root)?;
    let dram_nodes = node::dram_nodes(root, cxl.node);

    let mut facts = space_facts(root, &cxl, &dram_nodes);
    if let Way::Snapshot(setup, _) = &way {
        facts.image_bytes = setup.room_bytes;
        facts.save_bytes += reserved_bytes(root, &dram_nodes);
    }
    let mut processes = processes::list(root);
    let space = decide(&facts).map_err(|error| {
        let kernel_bytes = facts.save_bytes.saturating_sub(facts.user_bytes);
        error.with_owners(|| owners::largest(root, &processes, &dram_nodes, kernel_bytes))
    })?;

    if let Way::Snapshot(setup, _) = &way {
        check_snapshot_space(root, space.kernel_bytes, setup.room_bytes, &dram_nodes)?;
    }

    processes::add_exec_start(root, &mut processes);
    order::for_migrate_back(options.migrate_back_options.policy, &mut processes);
    let (freeze, not_frozen) = plan_freeze(root, cgroup_mount, &processes, options);
    let plan = Plan {
        node: cxl.node,
        device: cxl.device.as_ref().map(|device| device.name.clone()),
        user_bytes: facts.user_bytes,
        kernel_bytes: space.kernel_bytes,
        needed_bytes: space.needed_bytes,
        available_bytes: space.available_bytes,
        processes: processes.len() as u64,
        freeze: freeze.clone(),
        not_frozen,
        home_order: processes.iter().map(|process| process.pid).collect(),
        persistence: persistence.persistence.to_string(),
        persistence_reasons: persistence.reasons.clone(),
        woken_by: match &way {
            Way::Firmware(_) => "firmware".to_owned(),
            Way::Snapshot(_, waker) => waker.describe(),
        },
    };
    let order = parallel::map(cpus(), &processes, |process| {
        entry(root, process, &dram_nodes)
    });
    Ok(Ready {
        way,
        cxl,
        dram_nodes,
        order,
        cgroup_mount,
        freeze,
        plan,
        persistence,
    })
}

/// What the kernel keeps from its allocator, and a snapshot holds: its image, its tables.
fn reserved_bytes(root: &Root, dram_nodes: &[u32]) -> u64 {
    let pages = facts::reserved_pages(root);
    let own = pages.iter().filter(|(node, _)| dram_nodes.contains(node));
    own.map(|(_, pages)| pages * 4096).sum()
}

/// The kernel's pages go to the head, and are copied in DRAM before.
fn check_snapshot_space(
    root: &Root,
    kernel_bytes: u64,
    room_bytes: u64,
    dram_nodes: &[u32],
) -> Result<(), SleepError> {
    let no_space = |stage, needed_bytes, available_bytes| SleepError::NoSpace {
        stage,
        needed_bytes,
        available_bytes,
        owners: Vec::new(),
    };
    if kernel_bytes > room_bytes {
        let stage = "the kernel's snapshot on the head";
        return Err(no_space(stage, kernel_bytes, room_bytes));
    }
    let total = |node: &u32| of_node(root, *node).get("MemTotal").copied().unwrap_or(0);
    let dram_bytes: u64 = dram_nodes.iter().map(total).sum();
    let twice = kernel_bytes.saturating_mul(2);
    if dram_bytes > 0 && twice > dram_bytes {
        let stage = "the kernel's pages and their copy in DRAM";
        return Err(no_space(stage, twice, dram_bytes));
    }
    Ok(())
}

fn entry(root: &Root, process: &Process, dram_nodes: &[u32]) -> Entry {
    // Looking costs a walk over the process's page tables: only where there is a choice.
    let home_node = match dram_nodes {
        [only] => Some(*only),
        several => memory::main_node(&numa_maps::read(root, process.pid), several),
    };
    Entry {
        pid: process.pid,
        start_ticks: process.start_ticks,
        home_node,
    }
}

fn space_facts(root: &Root, cxl: &CxlNode, dram_nodes: &[u32]) -> Facts {
    node::refresh_counters(root);
    let mut facts = Facts {
        node_bytes: node::capacity_bytes(root, cxl),
        ..Facts::default()
    };
    let mut used_bytes = 0;
    for dram_node in dram_nodes {
        let info = of_node(root, *dram_node);
        let value = |name: &str| info.get(name).copied().unwrap_or(0);
        facts.user_bytes += value("AnonPages") + value("Mapped");
        // How much of the mapped pages is shared memory is not known: taken so that the result is
        // rather too large.
        facts.droppable_bytes += value("KReclaimable")
            + value("FilePages").saturating_sub(value("Mapped").max(value("Shmem")));
        used_bytes += value("MemTotal").saturating_sub(value("MemFree"));
    }
    match module::estimate(root) {
        Some(estimate) => {
            facts.save_bytes = estimate.save_bytes;
            // Free pages of the node, if it is online already, are in both numbers.
            let node_free = of_node(root, cxl.node).get("MemFree").copied().unwrap_or(0);
            facts.image_bytes = estimate.free_bytes.saturating_sub(node_free);
        }
        None => facts.save_bytes = used_bytes,
    }
    facts
}

fn plan_freeze(
    root: &Root,
    mount: &str,
    processes: &[Process],
    options: &SleepOptions,
) -> (Vec<String>, Vec<UnfrozenProcess>) {
    let mut kept = options.keep_running.clone();
    kept.extend(cgroup::own(root));
    // Freezing PID 1 would stop whoever could help if we died.
    kept.extend(cgroup::of_process(root, 1));
    let groups = freezer::choose(&freezer::read_groups(root, mount, ""), &kept);
    let not_frozen = processes
        .iter()
        .filter(|process| process.pid != std::process::id() as i32)
        .filter(|process| {
            cgroup::of_process(root, process.pid)
                .is_some_and(|path| !freezer::is_covered(&path, &groups))
        })
        .map(|process| UnfrozenProcess {
            pid: process.pid,
            name: process.name.clone(),
        })
        .collect();
    (freezer::to_freeze(root, mount, groups), not_frozen)
}

/// The exact check, after migration: what is left to save against the room that is left.
///
/// # Errors
/// [`SleepError::NoSpace`] with both numbers.
pub fn check_after_migration(root: &Root) -> Result<Option<module::Estimate>, SleepError> {
    let estimate = module::estimate(root);
    match estimate {
        Some(estimate) if estimate.save_bytes > estimate.free_bytes => Err(SleepError::NoSpace {
            stage: "the kernel's pages, after all others moved",
            needed_bytes: estimate.save_bytes,
            available_bytes: estimate.free_bytes,
            owners: Vec::new(),
        }),
        estimate => Ok(estimate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn facts() -> Facts {
        Facts {
            user_bytes: 500 * MIB,
            save_bytes: 700 * MIB,
            droppable_bytes: 80 * MIB,
            node_bytes: 1000 * MIB,
            image_bytes: 50 * MIB,
        }
    }

    #[test]
    fn what_fits_is_accepted_with_its_numbers() {
        let space = decide(&facts()).unwrap();
        assert_eq!(space.kernel_bytes, 120 * MIB);
        assert_eq!(space.needed_bytes, 620 * MIB);
        assert_eq!(space.available_bytes, 1040 * MIB);
    }

    #[test]
    fn too_many_user_pages_are_refused_with_both_numbers() {
        let error = decide(&Facts {
            node_bytes: 400 * MIB,
            ..facts()
        })
        .unwrap_err();
        assert_eq!(error.reason(), "no-space");
        assert_eq!(error.space_bytes(), Some((500 * MIB, 396 * MIB)));
    }

    #[test]
    fn too_many_pages_in_all_are_refused_with_both_numbers() {
        let facts = Facts {
            node_bytes: 600 * MIB,
            image_bytes: 0,
            ..facts()
        };
        let error = decide(&facts).unwrap_err();
        assert_eq!(error.space_bytes(), Some((620 * MIB, 594 * MIB)));
    }

    #[test]
    fn a_waiting_image_is_never_overwritten() {
        assert!(!may_begin("suspended") && !may_begin("restoring") && !may_begin("unknown"));
        assert!(may_begin("empty") && may_begin("consumed"));
    }

    proptest! {
        #[test]
        fn more_room_never_turns_a_yes_into_a_no(
            user in 0u64..1 << 40, save in 0u64..1 << 41, droppable in 0u64..1 << 40,
            node in 0u64..1 << 41, image in 0u64..1 << 30, more in 0u64..1 << 40,
        ) {
            let facts = Facts {
                user_bytes: user, save_bytes: save, droppable_bytes: droppable,
                node_bytes: node, image_bytes: image,
            };
            if let Ok(space) = decide(&facts) {
                prop_assert!(space.needed_bytes <= space.available_bytes);
                let larger = decide(&Facts { node_bytes: node + more, ..facts });
                prop_assert!(larger.is_ok());
            }
        }
    }
}
