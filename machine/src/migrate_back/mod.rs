//! Migrates user pages back from the CXL node, hot ones first and then most recently running
//! processes first, while they run, and takes the node offline.

pub mod hot_first;
pub mod prefetch;

use std::collections::HashMap;

use dormouse_report::{Event, Kind};
use dormouse_system::Root;
use dormouse_system::memory::of_node;
use dormouse_system::proc::numa_maps;

use crate::error::SleepError;
use crate::hotness::sampler::Pace;
use crate::hotness::saved;
use crate::hotness::watch;
use crate::memory;
use crate::migrate;
use crate::migrate::rate::{TokenBucket, piece_bytes};
use crate::migrate::{Outcome, Settings, Task};
use crate::migrate_back::prefetch::PrefetchPass;
use crate::node::offline;
use crate::node::{self, CxlNode};
use crate::options::Policy;
use crate::options::{MigrateBackOptions, NodeChoice};
use crate::parallel::{cpus, jobs_or};
use crate::processes::freezer;
use crate::processes::order;
use crate::processes::{self, Process};
use crate::report::MigrateBackReport;
use crate::snapshot;
use crate::system::clock::{event, monotonic_ns, seconds};
use crate::system::lock;
use crate::system::module;
use crate::system::state::{self, Entry};
use crate::target::Machine;

/// Without a rate limit: large enough to be quick, small enough that a process waits for a page
/// of it only for milliseconds.
const BATCH_BYTES: u64 = 8 << 20;
/// Below this a process migrates back by one call (only without a rate limit).
const WHOLE_UP_TO_BYTES: u64 = 2 << 20;

const PHASE: &str = "home";

/// See [`crate::migrate_back()`].
///
/// # Errors
/// There is no CXL node, or another dormouse holds the lock.
pub fn run(
    machine: &Machine<'_>,
    options: &MigrateBackOptions,
    events: &mut dyn FnMut(&Event),
) -> Result<MigrateBackReport, SleepError> {
    let root = machine.root;
    let _lock = lock::take(root, "migrate-back", false)?;
    machine.sampler.clean_up();
    let state = state::load(root);
    if let Some(state) = &state
        && !state.frozen.is_empty()
    {
        // A sleep was killed before it could let user space run again.
        let mount = freezer::mount(root)?;
        let _ = freezer::thaw(root, mount, &state.frozen);
    }
    let choice = match (options.node, &state) {
        (NodeChoice::Auto, Some(state)) => NodeChoice::Node(state.node),
        (choice, _) => choice,
    };
    let status = module::status(root).ok();
    let cxl = match set_up_node(root, choice, status.is_some()) {
        Some(cxl) => cxl,
        None => node::find(root, choice, status.as_ref())?,
    };
    let entries = state.map(|state| state.order).unwrap_or_default();
    let report = migrate_back_from(machine, &cxl, &entries, options, events);
    if report.offline {
        state::remove(root);
    }
    Ok(report)
}

/// The node of a machine that is set up for stock firmware, where the head is a dax device, too, and may
/// lie on the same node.
fn set_up_node(root: &Root, choice: NodeChoice, has_firmware: bool) -> Option<CxlNode> {
    if has_firmware {
        return None;
    }
    let device = snapshot::find(root).ok()?.node;
    let is_meant = match choice {
        NodeChoice::Auto => true,
        NodeChoice::Node(node) => node == device.node,
    };
    is_meant.then_some(CxlNode {
        node: device.node,
        device: Some(device),
    })
}

/// Migrates pages back and takes the node offline, as far as it goes; never fails, but reports what
/// is left.
pub fn migrate_back_from(
    machine: &Machine<'_>,
    cxl: &CxlNode,
    entries: &[Entry],
    options: &MigrateBackOptions,
    events: &mut dyn FnMut(&Event),
) -> MigrateBackReport {
    let root = machine.root;
    let mut report = MigrateBackReport {
        node: cxl.node,
        ..MigrateBackReport::default()
    };
    if offline::online_blocks(root, cxl).is_empty() {
        report.offline = true;
        return report;
    }
    node::refresh_counters(root);
    let begin_bytes = node::user_bytes(root, cxl.node);
    let begin = event(PHASE, "home", Kind::Begin);
    events(
        &begin
            .clone()
            .with("bytes", begin_bytes)
            .with("node", cxl.node),
    );

    let outcome = move_pages_back(
        machine,
        cxl,
        entries,
        options,
        begin_bytes,
        &mut report,
        events,
    );
    report.processes = outcome.processes;
    report.failed_pages = outcome.failed_pages;
    report.hot_bytes = outcome.hot_bytes;

    events(&event(PHASE, "node-offline", Kind::Begin));
    let blocks_left = match room_in_dram(root, cxl) && !options.cancel.is_set() {
        true => offline::node_offline(root, cxl, &options.cancel),
        false => offline::online_blocks(root, cxl).len(),
    };
    node::refresh_counters(root);
    report.offline = blocks_left == 0;
    report.stopped = options.cancel.is_set() && !report.offline;
    let user_bytes_left = if report.offline {
        0
    } else {
        node::user_bytes(root, cxl.node)
    };
    report.left_bytes = if report.offline {
        0
    } else {
        used_bytes(root, cxl.node)
    };
    report.home_bytes = begin_bytes.saturating_sub(user_bytes_left);
    let end = event(PHASE, "node-offline", Kind::End);
    events(&end.with("blocks_left", blocks_left as u64));

    let end = event(PHASE, "home", Kind::End);
    report.home_s = seconds(begin.t_ns, end.t_ns);
    events(
        &end.with("bytes", report.home_bytes)
            .with("left_bytes", report.left_bytes)
            .with("processes", report.processes)
            .with("offline", report.offline),
    );
    report
}

fn move_pages_back(
    machine: &Machine<'_>,
    cxl: &CxlNode,
    entries: &[Entry],
    options: &MigrateBackOptions,
    total_bytes: u64,
    report: &mut MigrateBackReport,
    events: &mut dyn FnMut(&Event),
) -> Outcome {
    let root = machine.root;
    let hotness = saved::take(root);
    report.policy = options.policy.name().to_owned();
    let dram_nodes = node::dram_nodes(root, cxl.node);
    let Some(default_node) = dram_nodes.first().copied() else {
        return Outcome::default();
    };
    let mut found = processes::list(root);
    // Only those that the sleep did not see need the time when they last ran.
    processes::add_exec_start(root, &mut found);
    order::for_migrate_back(options.policy, &mut found);
    let ordered = in_order(entries, &found, |process| match dram_nodes.as_slice() {
        [only] => *only,
        several => {
            memory::main_node(&numa_maps::read(root, process.pid), several).unwrap_or(default_node)
        }
    });
    let order: Vec<Entry> = ordered.iter().map(|(entry, _)| entry.clone()).collect();
    let tasks = ordered
        .iter()
        .map(|(entry, bytes)| Task {
            pid: entry.pid,
            bytes: *bytes,
            to_node: entry.home_node.unwrap_or(default_node),
        })
        .collect();
    let rate = options.rate_bytes_per_s;
    let batch_bytes = piece_bytes(rate, BATCH_BYTES);
    let settings = Settings {
        jobs: jobs_or(options.jobs, cpus() / 2),
        from_nodes: &[cxl.node],
        is_full: &|node| node::is_full(root, node),
        whole_up_to_bytes: if rate.is_some() { 0 } else { WHOLE_UP_TO_BYTES },
        batch_bytes,
        ask_first: true,
        bucket: rate.map(|rate| TokenBucket::new(rate, batch_bytes, monotonic_ns())),
        cancel: &options.cancel,
    };
    let watch =
        Box::new(|| watch::begin(root, machine.sampler, options.policy, &order, Pace::Gentle));
    let mut prefetch = PrefetchPass::new(machine.pages, &order, batch_bytes, watch);
    let known = match options.policy {
        Policy::ProcessOrder => &[][..],
        Policy::HotFirst => &hotness,
    };
    let urgent = prefetch.begin(known).unwrap_or_else(|why| {
        events(&watch::warning(PHASE, &why));
        report.warning = Some(why.to_string());
        report.policy = Policy::ProcessOrder.name().to_owned();
        Vec::new()
    });
    let mut reported_bytes = 0;
    let mut hot_waits = !urgent.is_empty();
    migrate::run_with_urgent(machine.pages, urgent, tasks, &settings, &mut |now| {
        if now.moved_bytes > reported_bytes {
            reported_bytes = now.moved_bytes;
            let mark = event(PHASE, "home", Kind::Mark).with("bytes", now.moved_bytes);
            events(
                &mark
                    .with("total_bytes", total_bytes)
                    .with("hot_bytes", now.hot_bytes),
            );
        }
        if hot_waits && now.urgent_batches == 0 {
            let mark = event(PHASE, "hot-home", Kind::Mark).with("bytes", now.moved_bytes);
            events(&mark.with("hot_bytes", now.hot_bytes));
        }
        let more = prefetch.next(now.urgent_batches).unwrap_or_else(|why| {
            events(&watch::warning(PHASE, &why));
            report.warning = Some(why.to_string());
            Vec::new()
        });
        hot_waits = now.urgent_batches > 0 || !more.is_empty();
        more
    })
}

/// The processes of the sleep's order that still live, then those that are new since then: each
/// with the node that it goes to, and its bytes.
fn in_order(
    entries: &[Entry],
    found: &[Process],
    home_node: impl Fn(&Process) -> u32,
) -> Vec<(Entry, u64)> {
    let mut rest: HashMap<(i32, u64), &Process> = found
        .iter()
        .map(|process| ((process.pid, process.start_ticks), process))
        .collect();
    let known: Vec<(&Process, Option<u32>)> = entries
        .iter()
        .filter_map(|entry| {
            Some((
                rest.remove(&(entry.pid, entry.start_ticks))?,
                entry.home_node,
            ))
        })
        .collect();
    let new = found
        .iter()
        .filter(|process| rest.contains_key(&(process.pid, process.start_ticks)))
        .map(|process| (process, None));
    known
        .into_iter()
        .chain(new)
        .map(|(process, node)| {
            let entry = Entry {
                pid: process.pid,
                start_ticks: process.start_ticks,
                home_node: Some(node.unwrap_or_else(|| home_node(process))),
            };
            (entry, process.rss_bytes)
        })
        .collect()
}

/// Bytes in use on a node.
fn used_bytes(root: &Root, node: u32) -> u64 {
    let info = of_node(root, node);
    let value = |name: &str| info.get(name).copied().unwrap_or(0);
    value("MemTotal").saturating_sub(value("MemFree"))
}

/// Whether DRAM can take what is left: taking a block offline would else try for ever.
fn room_in_dram(root: &Root, cxl: &CxlNode) -> bool {
    let free_bytes: u64 = node::dram_nodes(root, cxl.node)
        .into_iter()
        .map(|node| {
            let info = of_node(root, node);
            let value = |name: &str| info.get(name).copied().unwrap_or(0);
            value("MemFree") + value("Active(file)") + value("Inactive(file)")
        })
        .sum();
    used_bytes(root, cxl.node) <= free_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, start_ticks: u64) -> Process {
        Process {
            pid,
            name: String::new(),
            start_ticks,
            rss_bytes: 1,
            exec_start_ns: None,
            kernel: false,
        }
    }

    #[test]
    fn the_order_of_the_sleep_counts_and_new_or_recycled_pids_come_after() {
        let entry = |pid, start_ticks| Entry {
            pid,
            start_ticks,
            home_node: Some(3),
        };
        let entries = [entry(30, 1), entry(10, 1), entry(99, 1), entry(20, 1)];
        // 99 has ended; 20 is another process with the same pid; 40 is new.
        let found = [
            process(10, 1),
            process(20, 7),
            process(30, 1),
            process(40, 9),
        ];
        let ordered = in_order(&entries, &found, |_| 0);
        let order: Vec<(i32, Option<u32>)> = ordered
            .iter()
            .map(|(entry, _)| (entry.pid, entry.home_node))
            .collect();
        assert_eq!(
            order,
            [(30, Some(3)), (10, Some(3)), (20, Some(0)), (40, Some(0))]
        );
    }

    /// The head and the node are two dax devices on one node.
    #[test]
    fn on_stock_firmware_the_node_is_that_of_the_set_up() {
        use dormouse_image::check::Geometry;
        use dormouse_image::head::Head;
        use dormouse_image::snapshot::{Facts, Machine as Snapshotted};
        const HEAD: (u64, u64) = (8 << 30, 4 << 20);
        const NODE: (u64, u64) = (16 << 30, 64 << 20);
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (name, (base, bytes)) in [("dax0.0", HEAD), ("dax1.0", NODE)] {
            let device = root.path(&format!("sys/bus/dax/devices/{name}"));
            std::fs::create_dir_all(&device).unwrap();
            let write = |name: &str, text: String| std::fs::write(device.join(name), text).unwrap();
            write("target_node", "1\n".to_owned());
            write("resource", format!("{base:#x}\n"));
            write("size", format!("{bytes}\n"));
        }
        let found = |choice, has_firmware| {
            set_up_node(&root, choice, has_firmware).and_then(|cxl| Some(cxl.device?.name))
        };
        assert_eq!(found(NodeChoice::Auto, false), None, "no head yet");
        let path = root.path("dev/dax0.0");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::File::create(&path)
            .unwrap()
            .set_len(HEAD.1)
            .unwrap();
        let geometry = Geometry::new(HEAD.0, HEAD.1, HEAD.1, &[(1 << 20, 1 << 30)]).unwrap();
        let machine = Snapshotted {
            node_base: NODE.0,
            node_bytes: NODE.1,
            present_pages: 100,
            ..Snapshotted::default()
        };
        let mut header = Facts::new(&geometry, machine).new_header(None).unwrap();
        Head::open(&path, HEAD.1, true).unwrap().commit(&mut header);
        assert!(
            node::find(&root, NodeChoice::Auto, None).is_err(),
            "there are two"
        );
        let node = Some("dax1.0".to_owned());
        assert_eq!(found(NodeChoice::Auto, false), node);
        assert_eq!(found(NodeChoice::Node(1), false), node);
        assert_eq!(found(NodeChoice::Node(2), false), None);
        assert_eq!(
            found(NodeChoice::Auto, true),
            None,
            "firmware's window counts"
        );
    }
}
