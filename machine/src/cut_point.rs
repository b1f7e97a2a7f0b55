//! Cut points: a laboratory stops `dormouse sleep` between two steps, so that a test can cut the
//! power exactly there, however fast the machine is.
//!
//! ```text
//!  host: -fw_cfg name=opt/dormouse/fault,string=after-freeze
//!    │                                                        the same file as firmware reads
//!    ▼                                                        for its own points
//!  /sys/firmware/qemu_fw_cfg/by_name/opt/dormouse/fault/raw
//!    │
//!    ▼
//!  … freeze ──▶ ■ "dormouse: fault point after-freeze reached" on the console; never returns
//! ```
//!
//! Only QEMU has that file. No option, environment variable or file on a disk sets a point, so
//! nothing can stop a sleep on hardware here, by accident or on purpose.
//!
//! Each step's events name the points around it: `before-STEP` and `after-STEP`. Two more lie
//! inside a step: `migrating` and `migrating-back`, when half of the user pages have moved.

use std::io;
use std::sync::{Once, OnceLock};

use dormouse_report::{Event, Kind};
use dormouse_system::Root;

use crate::node;
use crate::system::pages::{Pages, Run};
use crate::target::Machine;

/// Where Linux shows the file of the emulator that names the point.
const SELECTED: &str = "sys/firmware/qemu_fw_cfg/by_name/opt/dormouse/fault/raw";
const KERNEL_LOG: &str = "dev/kmsg";

/// The point at which this sleep stops, if a laboratory named one.
pub struct CutPoint<'a> {
    root: &'a Root,
    name: Option<String>,
    stopped: Once,
}

impl<'a> CutPoint<'a> {
    /// Reads the point once: after waking, the emulator may describe another one.
    pub fn read(root: &'a Root) -> CutPoint<'a> {
        CutPoint {
            root,
            name: root.read(SELECTED).ok().filter(|name| !name.is_empty()),
            stopped: Once::new(),
        }
    }

    /// Stops for ever if this event stands at the point.
    pub fn pass(&self, event: &Event) {
        if let Some(name) = &self.name
            && stands_at(event, name)
        {
            self.stop(name);
        }
    }

    /// Stops for ever if this is the name of the point.
    pub fn pass_named(&self, name: &str) {
        if self.name.as_deref() == Some(name) {
            self.stop(name);
        }
    }

    /// The machine's pages; moving them stops at a point inside a migration.
    pub fn pages(&'a self, machine: &Machine<'a>) -> CutPages<'a> {
        CutPages {
            inner: machine.pages,
            point: self,
            halfway: OnceLock::new(),
        }
    }

    /// Reports the point to the host and never returns; threads that come later wait here, too.
    fn stop(&self, name: &str) {
        self.stopped.call_once(|| {
            let line = format!("<5>dormouse: fault point {name} reached\n");
            if let Err(error) = self.root.write(KERNEL_LOG, &line) {
                eprintln!("dormouse: stopped at fault point {name}, not reported: {error}");
            }
            loop {
                std::thread::park();
            }
        });
    }
}

/// Whether the point of that name is at this event; a step that failed has no end.
fn stands_at(event: &Event, name: &str) -> bool {
    let failed = ["failed", "refused"]
        .iter()
        .any(|key| event.detail.contains_key(*key));
    let side = match event.kind {
        Kind::End => "after-",
        Kind::Begin | Kind::Mark => "before-",
    };
    !failed && name.strip_prefix(side) == Some(&event.name)
}

/// Pages that stop moving halfway, where the point lies in that migration.
pub struct CutPages<'a> {
    inner: &'a dyn Pages,
    point: &'a CutPoint<'a>,
    /// User bytes on the target node at which half of the others' have arrived.
    halfway: OnceLock<u64>,
}

impl CutPages<'_> {
    /// Whether the point lies inside a migration to this node: node 0 is DRAM in the lab.
    fn lies_in_migration_to(&self, node: u32) -> Option<&str> {
        let name = self.point.name.as_deref()?;
        let inside = if node == 0 {
            "migrating-back"
        } else {
            "migrating"
        };
        (name == inside).then_some(name)
    }

    fn user_bytes(&self, node: u32) -> u64 {
        node::refresh_counters(self.point.root);
        node::user_bytes(self.point.root, node)
    }

    /// Around each move: the first one sets the mark, and the one that reaches it does not return.
    fn moving<T>(&self, node: u32, move_pages: impl FnOnce() -> T) -> T {
        let Some(name) = self.lies_in_migration_to(node) else {
            return move_pages();
        };
        let other = u32::from(node == 0);
        let halfway = *self
            .halfway
            .get_or_init(|| self.user_bytes(node) + self.user_bytes(other) / 2);
        let moved = move_pages();
        if self.user_bytes(node) >= halfway {
            self.point.stop(name);
        }
        moved
    }
}

impl Pages for CutPages<'_> {
    fn scan(&self, pid: i32, found: &mut dyn FnMut(Run)) -> io::Result<()> {
        self.inner.scan(pid, found)
    }

    fn nodes(&self, pid: i32, pages: &[u64], status: &mut [i32]) -> io::Result<()> {
        self.inner.nodes(pid, pages, status)
    }

    fn move_to(&self, pid: i32, pages: &[u64], node: u32, status: &mut [i32]) -> io::Result<u64> {
        self.moving(node, || self.inner.move_to(pid, pages, node, status))
    }

    fn move_all(&self, pid: i32, from: &[u32], to: u32) -> io::Result<u64> {
        self.moving(to, || self.inner.move_all(pid, from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::clock::event;

    #[test]
    fn a_point_is_before_or_after_its_own_step_only() {
        let at = |name: &str, kind, point: &str| stands_at(&event("suspend", name, kind), point);
        assert!(at("freeze", Kind::End, "after-freeze"));
        assert!(at("freeze", Kind::Begin, "before-freeze"));
        assert!(at("enter", Kind::Mark, "before-enter"));
        assert!(!at("freeze", Kind::Begin, "after-freeze"));
        assert!(!at("thaw", Kind::End, "after-freeze"));
        assert!(!at("freeze", Kind::End, "saving"));
    }

    #[test]
    fn a_step_that_failed_is_not_passed() {
        let failed = event("suspend", "freeze", Kind::End).with("failed", "freeze-timeout");
        assert!(!stands_at(&failed, "after-freeze"));
    }

    #[test]
    fn a_machine_that_is_no_laboratory_has_no_point() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let point = CutPoint::read(&root);
        assert!(point.name.is_none());
        // Returns.
        point.pass(&event("suspend", "freeze", Kind::End));
    }
}
