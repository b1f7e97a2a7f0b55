//! Tests of the ledger on folders that stand for cgroups.

use super::*;

fn max(quota_us: u64, period_us: u64) -> Max {
    Max {
        quota_us: Some(quota_us),
        period_us,
    }
}

const NONE: Max = Max {
    quota_us: None,
    period_us: 100_000,
};

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state/ledger")
    }

    fn cgroup(&self, name: &str) -> Cgroup {
        let path = self.folder.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("cpu.max"), "max 100000\n").unwrap();
        Cgroup::new(path, Version::V2)
    }

    fn open(&self) -> (Ledger, Vec<Undone>) {
        Ledger::open(&self.path(), Wait::Briefly).unwrap()
    }

    /// A daemon that is killed: nothing is dropped, the lock goes.
    fn die(ledger: Ledger) {
        ledger.die();
    }
}

/// The limit in a folder's cpu.max. The kernel truncates the file, a folder does not.
fn limit(cgroup: &Cgroup) -> Max {
    cgroup.max().unwrap()
}

fn set(ledger: &mut Ledger, cgroup: &Cgroup, max: Max) -> Set {
    let set = ledger.set(cgroup, max).unwrap();
    truncated(cgroup, set.max);
    set
}

fn truncated(cgroup: &Cgroup, max: Max) {
    let quota = max.quota_us.map_or("max".to_owned(), |us| us.to_string());
    let text = format!("{quota} {}\n", max.period_us);
    fs::write(cgroup.path.join("cpu.max"), text).unwrap();
}

#[test]
fn all_limits_are_restored_at_the_end() {
    let world = World::new();
    let cgroup = world.cgroup("a");
    let (mut ledger, undone) = world.open();
    assert!(undone.is_empty());
    set(&mut ledger, &cgroup, max(1000, 10_000));
    set(&mut ledger, &cgroup, max(2000, 10_000));
    assert_eq!(limit(&cgroup), max(2000, 10_000));
    drop(ledger);
    let text = fs::read_to_string(cgroup.path.join("cpu.max")).unwrap();
    assert!(text.starts_with("max 100000"), "{text}");
}

#[test]
fn a_killed_daemons_leftovers_are_recognised_and_undone() {
    let world = World::new();
    let cgroups = [world.cgroup("a"), world.cgroup("b"), world.cgroup("c")];
    let (mut ledger, _) = world.open();
    for cgroup in &cgroups {
        set(&mut ledger, cgroup, max(1000, 10_000));
    }
    // The record of a further change exists, the change does not.
    ledger.set(&cgroups[0], max(3000, 10_000)).unwrap();
    truncated(&cgroups[0], max(1000, 10_000));
    // Another program changes one; another one is removed.
    truncated(&cgroups[1], max(7000, 10_000));
    fs::remove_dir_all(&cgroups[2].path).unwrap();
    World::die(ledger);

    let (ledger, undone) = world.open();
    let path = |at: usize| cgroups[at].path.clone();
    let expected = [
        Undone::Restored(path(0), NONE),
        Undone::LeftAlone(path(1), max(7000, 10_000)),
        Undone::Gone(path(2)),
    ];
    assert_eq!(undone, expected);
    drop(ledger);
    assert!(world.open().1.is_empty());
}

#[test]
fn a_cgroup_that_took_the_name_of_another_is_not_touched() {
    let world = World::new();
    let cgroup = world.cgroup("a");
    let (mut ledger, _) = world.open();
    set(&mut ledger, &cgroup, max(1000, 10_000));
    World::die(ledger);
    fs::rename(&cgroup.path, world.folder.path().join("old")).unwrap();
    let other = world.cgroup("a");
    truncated(&other, max(1000, 10_000));
    let (_ledger, undone) = world.open();
    assert_eq!(undone, [Undone::Gone(other.path.clone())]);
    assert_eq!(limit(&other), max(1000, 10_000));
}

#[test]
fn a_limit_of_another_program_is_never_exceeded() {
    let world = World::new();
    let cgroup = world.cgroup("a");
    truncated(&cgroup, max(5000, 10_000));
    let (mut ledger, _) = world.open();
    let made = set(&mut ledger, &cgroup, max(8000, 10_000));
    assert_eq!((made.max, made.foreign), (max(5000, 10_000), None));
    assert_eq!(
        set(&mut ledger, &cgroup, max(2000, 10_000)).max,
        max(2000, 10_000)
    );
    // Another program changes it meanwhile: that value is the original from then on.
    truncated(&cgroup, max(3000, 10_000));
    let made = set(&mut ledger, &cgroup, max(4000, 10_000));
    assert_eq!(made.max, max(3000, 10_000));
    assert_eq!(made.foreign, Some(max(3000, 10_000)));
    assert_eq!(
        set(&mut ledger, &cgroup, max(1000, 10_000)).max,
        max(1000, 10_000)
    );
    let undone = ledger.undo();
    assert_eq!(
        undone,
        [Undone::Restored(cgroup.path.clone(), max(3000, 10_000))]
    );
}

#[test]
fn a_second_daemon_is_refused_and_a_damaged_ledger_is_not_guessed_at() {
    let world = World::new();
    let cgroup = world.cgroup("a");
    let (mut ledger, _) = world.open();
    let refused = Ledger::open(&world.path(), Wait::Briefly)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("another"), "{refused}");
    set(&mut ledger, &cgroup, max(1000, 10_000));
    World::die(ledger);
    let mut text = fs::read_to_string(world.path()).unwrap();
    // A letter of the path.
    let at = text.rfind("/a\"").unwrap();
    text.replace_range(at + 1..at + 2, "b");
    fs::write(world.path(), &text).unwrap();
    let refused = Ledger::open(&world.path(), Wait::Briefly)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("damaged"), "{refused}");
    assert_eq!(limit(&cgroup), max(1000, 10_000));
    fs::write(world.path(), "something else").unwrap();
    assert!(Ledger::open(&world.path(), Wait::Briefly).is_err());
}

#[test]
fn a_record_that_was_cut_short_was_never_followed_by_a_change() {
    let world = World::new();
    let cgroup = world.cgroup("a");
    let (mut ledger, _) = world.open();
    set(&mut ledger, &cgroup, max(1000, 10_000));
    World::die(ledger);
    let text = fs::read_to_string(world.path()).unwrap();
    fs::write(world.path(), &text[..500]).unwrap();
    assert!(world.open().1.is_empty());
}

#[test]
fn a_limit_of_version_1_that_was_half_set_is_undone() {
    let world = World::new();
    let path = world.folder.path().join("a");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("cpu.cfs_quota_us"), "90000\n").unwrap();
    fs::write(path.join("cpu.cfs_period_us"), "100000\n").unwrap();
    let cgroup = Cgroup::new(&path, Version::V1);
    let (mut ledger, _) = world.open();
    ledger.set(&cgroup, max(50_000, 100_000)).unwrap();
    ledger.set(&cgroup, max(20_000, 200_000)).unwrap();
    World::die(ledger);
    // It died after setting the new period and before the new quota.
    fs::write(path.join("cpu.cfs_quota_us"), "50000\n").unwrap();
    let (_, undone) = world.open();
    let before = max(90_000, 100_000);
    assert_eq!(undone, [Undone::Restored(path, before)]);
    assert_eq!(limit(&cgroup), before);
}

/// A knob of a kdamond that runs, and its folder.
fn knob(world: &World) -> Knob {
    let folder = world.folder.path().join("damon");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("bytes"), "0\n").unwrap();
    fs::write(folder.join("state"), "on\n").unwrap();
    Knob {
        path: folder.join("bytes"),
        kdamond: Some(folder.join("state")),
    }
}

/// Its value, and what was last written to the state of its kdamond.
fn assert_knob(knob: &Knob, (value, state): (&str, &str)) {
    assert_eq!(knob.value().unwrap(), value);
    let written = fs::read_to_string(knob.kdamond.as_ref().unwrap()).unwrap();
    assert_eq!(written.trim(), state);
}

#[test]
fn a_knob_is_restored_and_taken_over_by_its_kdamond_after_the_daemon_was_killed() {
    let world = World::new();
    let knob = knob(&world);
    let (mut ledger, _) = world.open();
    assert!(!ledger.set_knob(&knob, "4096").unwrap());
    assert_knob(&knob, ("4096", "commit"));
    // The file of a folder keeps what was written; the kernel's shows `on` again.
    fs::write(knob.kdamond.as_ref().unwrap(), "on\n").unwrap();
    World::die(ledger);
    let (_, undone) = world.open();
    assert_eq!(undone, [Undone::Reset(knob.path.clone(), "0".to_owned())]);
    assert_knob(&knob, ("0", "commit"));
}

#[test]
fn a_knob_of_a_kdamond_that_has_ended_is_restored_without_it() {
    let world = World::new();
    let knob = knob(&world);
    let (mut ledger, _) = world.open();
    ledger.set_knob(&knob, "4096").unwrap();
    fs::write(knob.kdamond.as_ref().unwrap(), "off\n").unwrap();
    ledger.undo();
    assert_knob(&knob, ("0", "off"));
}

#[test]
fn a_knob_that_another_program_has_set_is_left_alone_and_one_that_is_gone_is_not_created() {
    let world = World::new();
    let knob = knob(&world);
    let (mut ledger, _) = world.open();
    ledger.set_knob(&knob, "4096").unwrap();
    fs::write(&knob.path, "77\n").unwrap();
    assert!(ledger.set_knob(&knob, "8192").unwrap(), "77 was not ours");
    fs::write(&knob.path, "99\n").unwrap();
    assert_eq!(
        ledger.undo(),
        [Undone::Kept(knob.path.clone(), "99".to_owned())]
    );
    ledger.set_knob(&knob, "1").unwrap();
    fs::remove_file(&knob.path).unwrap();
    assert_eq!(ledger.undo(), [Undone::Gone(knob.path.clone())]);
    assert!(!knob.path.exists());
}
