//! Control groups: a restored program is in those of its tracker. Another one is an obstacle; a hierarchy
//! that somebody mounts while the program runs is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_tests::program::Program;

const SCRIPT: &str = "
import os, time
print('pid', os.getpid(), flush=True)
while True:
    print('ok', flush=True)
    time.sleep(0.02)
";

/// A hierarchy without controllers, mounted in a directory; unmounted when dropped.
struct Hierarchy(PathBuf);

impl Hierarchy {
    /// None: this kernel or this container has no such thing.
    fn mount(directory: &Path) -> Option<Self> {
        fs::create_dir(directory).expect("made");
        let name = format!("none,name=dormouse-test-{}", std::process::id());
        let mut mount = Command::new("mount");
        mount.args(["-t", "cgroup", "-o", &name, "none"]);
        let mounted = mount.arg(directory).output().expect("mount starts");
        if !mounted.status.success() {
            let why = String::from_utf8_lossy(&mounted.stderr);
            eprintln!("skipped: no hierarchy can be mounted here: {why}");
            return None;
        }
        Some(Self(directory.to_owned()))
    }

    fn put(&self, pid: i32, group: &str) {
        let path = self.0.join(group).join("cgroup.procs");
        fs::write(path, pid.to_string()).expect("moved");
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        // A hierarchy with a group would outlast its mount.
        let _ = fs::remove_dir(self.0.join("sub"));
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn obstacles(program: &Program) -> String {
    program.status()["tracker"]["obstacles"].to_string()
}

#[test]
fn a_hierarchy_that_is_mounted_later_is_no_obstacle_unless_the_program_is_moved_in_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = Program::script(directory.path(), "100ms", SCRIPT, &[]);
    program.run();
    assert!(program.wait_for("ok", 1), "{}", program.said());
    let Some(hierarchy) = Hierarchy::mount(&directory.path().join("mounted")) else {
        return;
    };
    let said = program.said();
    let pid = said.lines().find_map(|line| line.strip_prefix("pid "));
    let pid: i32 = pid.and_then(|pid| pid.parse().ok()).expect("its PID");
    let before = program.epochs();
    program.until("epochs beside the new hierarchy", |program| {
        assert_eq!(obstacles(program), "[]");
        program.epochs() >= before + 2
    });
    fs::create_dir(hierarchy.0.join("sub")).expect("a group");
    hierarchy.put(pid, "sub");
    let named = "it has moved to the control group /sub of name=dormouse-test-";
    program.until(named, |program| obstacles(program).contains(named));
    let said = program.verb("persist", &["--then", "kill"]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(said.stderr.contains(named), "{}", said.all());
    hierarchy.put(pid, "");
    program.until("no obstacle", |program| obstacles(program) == "[]");
    program.persist_and_kill("beside the new hierarchy");
    // It is not there any more, and nothing is missed.
    drop(hierarchy);
    program.run();
    assert!(program.wait_for("ok", 2), "{}", program.said());
}
