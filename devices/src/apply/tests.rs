use super::*;
use crate::model::{Callback, Cycle, Device, DevicePhase, Graph, Recording};

struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// After an apply: what an undo in this boot would do, which changes nothing.
    fn undo_is_described(self, boot: &str) -> (Machine, Vec<Undone>) {
        self.apply(&wanted());
        let set = self.all();
        let said = undo(&self.sys(), &self.state(), boot, true).unwrap();
        assert_eq!(self.all(), set);
        (self, said.unwrap())
    }

    /// A bus with a slow and a quick device, and the switches of /sys/power.
    fn new() -> Machine {
        let machine = Machine {
            folder: tempfile::tempdir().unwrap(),
        };
        machine.write("power/sync_on_suspend", "1\n");
        machine.write("power/pm_async", "1\n");
        machine.write("power/pm_print_times", "0\n");
        machine.write("power/mem_sleep", "deep\n");
        for (device, value) in [
            ("bus", "disabled"),
            ("bus/slow", "disabled"),
            ("quick", "enabled"),
        ] {
            machine.write(&format!("devices/{device}/uevent"), "");
            machine.write(
                &format!("devices/{device}/power/async"),
                &format!("{value}\n"),
            );
        }
        machine
    }

    fn sys(&self) -> PathBuf {
        self.folder.path().join("sys")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("var/apply.json")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.sys().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        value_of(&self.sys(), name).unwrap()
    }

    fn all(&self) -> Vec<String> {
        [
            "power/sync_on_suspend",
            "power/pm_async",
            "devices/bus/power/async",
            "devices/bus/slow/power/async",
            "devices/quick/power/async",
        ]
        .map(|name| self.read(name))
        .to_vec()
    }

    fn apply(&self, wanted: &Wanted) -> Vec<Change> {
        let recording = recording();
        let (changes, _) = plan(&self.sys(), wanted, Some(&recording)).unwrap();
        apply(&self.sys(), &self.state(), "boot", &changes).unwrap();
        changes
    }

    fn undo(&self) -> Vec<Undone> {
        undo(&self.sys(), &self.state(), "boot", false)
            .unwrap()
            .unwrap()
    }
}

/// The slow device took 10 ms once.
fn recording() -> Recording {
    let device = |path: &str, parent| Device {
        name: path.rsplit('/').next().unwrap().to_owned(),
        path: Some(path.to_owned()),
        parent,
        ..Device::default()
    };
    let callback = Callback {
        device: 1,
        phase: DevicePhase::Resume,
        begin_ns: 0,
        end_ns: 10_000_000,
        level: String::new(),
        thread: 1,
        busy_ns: None,
        delayed_ns: 0,
        error: 0,
    };
    Recording {
        graph: Graph {
            devices: vec![
                device("bus", None),
                device("bus/slow", Some(0)),
                device("quick", None),
                device("gone", None),
            ],
            links: vec![],
        },
        cycles: vec![Cycle {
            callbacks: vec![callback],
            ..Cycle::default()
        }],
        ..Recording::default()
    }
}

fn wanted() -> Wanted {
    Wanted {
        threshold_ns: Some(1_000_000),
        sync_on_suspend: Some(false),
        ..Wanted::default()
    }
}

#[test]
fn the_threshold_rule_changes_slow_devices_what_is_tied_to_them_and_needless_ones() {
    let machine = Machine::new();
    let changes = machine.apply(&wanted());
    assert_eq!(machine.all(), ["0", "1", "enabled", "enabled", "disabled"]);
    let why: Vec<_> = changes.iter().map(|change| change.why.as_str()).collect();
    assert_eq!(
        why[1..],
        [
            "tied to a slow one",
            "slow",
            "quick, and tied to no slow one"
        ]
    );
    // Once more changes nothing.
    assert!(machine.apply(&wanted()).is_empty());
}

#[test]
fn the_kernel_series_switches_are_set_in_their_order_and_named_where_they_are_missing() {
    let machine = Machine::new();
    let wanted = Wanted {
        order: Some("graph".to_owned()),
        order_scope: Some("declared".to_owned()),
        order_threshold_us: Some(250),
        ..Wanted::default()
    };
    let error = plan(&machine.sys(), &wanted, None).unwrap_err().to_string();
    assert!(error.contains("module dormouse_dpm"), "{error}");
    for (name, value) in [
        ("pm_graph", "off\n"),
        ("pm_graph_scope", "async\n"),
        ("pm_graph_threshold_us", "500\n"),
    ] {
        machine.write(&format!("power/{name}"), value);
    }
    let changes = machine.apply(&wanted);
    let set: Vec<_> = changes
        .iter()
        .map(|change| (change.path.as_str(), change.to.as_str()))
        .collect();
    let expected = [
        ("power/pm_graph_threshold_us", "250"),
        ("power/pm_graph_scope", "declared"),
        ("power/pm_graph", "graph"),
    ];
    assert_eq!(set, expected);
    machine.undo();
    assert_eq!(machine.read("power/pm_graph"), "off");
}

#[test]
fn undo_puts_everything_back_and_forgets_it() {
    let machine = Machine::new();
    let before = machine.all();
    machine.apply(&wanted());
    machine.apply(&Wanted {
        all_async: Some(true),
        pm_async: Some(false),
        ..Wanted::default()
    });
    let done = machine.undo();
    assert_eq!(machine.all(), before);
    assert!(
        done.iter()
            .filter(|one| matches!(one, Undone::Restored(_)))
            .count()
            >= 4
    );
    assert_eq!(
        undo(&machine.sys(), &machine.state(), "boot", false).unwrap(),
        None
    );
}

#[test]
fn an_undo_that_only_says_what_it_would_do_changes_nothing() {
    let (machine, said) = Machine::new().undo_is_described("boot");
    assert!(said.iter().any(|one| matches!(one, Undone::Restored(_))));
    assert!(machine.state().exists());
}

#[test]
fn a_crash_after_any_number_of_writes_can_be_undone() {
    for written in 0..4 {
        let machine = Machine::new();
        let before = machine.all();
        let (changes, _) = plan(&machine.sys(), &wanted(), Some(&recording())).unwrap();
        assert_eq!(changes.len(), 4);
        // As `apply` does it, and then it is gone.
        let mut state = State::new("boot");
        for change in &changes {
            state.remember(&change.path, &change.from, &change.to);
        }
        state.save(&machine.state()).unwrap();
        for change in &changes[..written] {
            machine.write(&change.path, &change.to);
        }
        machine.undo();
        assert_eq!(machine.all(), before, "after {written} writes");
    }
}

#[test]
fn what_somebody_else_has_set_since_is_left_alone() {
    let machine = Machine::new();
    machine.write("power/mem_sleep", "s2idle [deep]\n");
    let wanted = Wanted {
        mem_sleep: Some("s2idle".to_owned()),
        ..wanted()
    };
    let (changes, _) = plan(&machine.sys(), &wanted, Some(&recording())).unwrap();
    assert!(
        changes
            .iter()
            .any(|change| change.from == "deep" && change.to == "s2idle")
    );
    machine.apply(&wanted);
    machine.write("power/mem_sleep", "shallow\n");
    let done = machine.undo();
    let left = done
        .iter()
        .find(|one| matches!(one, Undone::LeftAlone { .. }));
    assert!(left.is_some(), "{done:?}");
    assert_eq!(machine.read("power/mem_sleep"), "shallow");
    assert_eq!(machine.read("power/sync_on_suspend"), "1");
}

#[test]
fn after_a_reboot_nothing_is_put_back_and_a_new_apply_starts_anew() {
    let (_, said) = Machine::new().undo_is_described("next boot");
    assert!(said.iter().all(|one| matches!(one, Undone::WasBack(_))));
}

#[test]
fn a_switch_that_is_not_there_or_refuses_the_value_is_named() {
    let machine = Machine::new();
    fs::remove_file(machine.sys().join("power/sync_on_suspend")).unwrap();
    let error = plan(&machine.sys(), &wanted(), Some(&recording())).unwrap_err();
    assert!(error.to_string().contains("no such switch"), "{error}");
    machine.write("power/mem_sleep", "[s2idle]\n");
    let deep = Wanted {
        mem_sleep: Some("deep".to_owned()),
        ..Wanted::default()
    };
    let error = plan(&machine.sys(), &deep, None).unwrap_err();
    assert!(error.to_string().contains("offers [s2idle]"), "{error}");
}

#[test]
fn a_damaged_state_file_or_one_that_leads_out_of_sys_is_refused() {
    let machine = Machine::new();
    machine.apply(&wanted());
    let text = fs::read_to_string(machine.state()).unwrap();
    for bad in [
        text[..text.len() / 2].to_owned(),
        text.replace("power/sync_on_suspend", "../etc/passwd"),
        text.replace("power/sync_on_suspend", "/etc/passwd"),
        text.replace("\"version\":1", "\"version\":2"),
    ] {
        fs::write(machine.state(), &bad).unwrap();
        assert!(
            undo(&machine.sys(), &machine.state(), "boot", false).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn snippets_set_the_same_at_each_boot() {
    let machine = Machine::new();
    let (changes, notes) = plan(&machine.sys(), &wanted(), Some(&recording())).unwrap();
    assert!(
        notes.is_empty(),
        "the device that is gone need not be async: {notes:?}"
    );
    let bus = machine.sys().join("bus/x");
    fs::create_dir_all(&bus).unwrap();
    std::os::unix::fs::symlink(&bus, machine.sys().join("devices/bus/slow/subsystem")).unwrap();
    let rules = udev_rules(&machine.sys(), &changes);
    assert!(rules.contains(
        "ACTION==\"add\", DEVPATH==\"/devices/bus/slow\", ATTR{power/async}=\"enabled\""
    ));
    assert!(rules.contains("# No subsystem"));
    assert_eq!(
        tmpfiles(&changes),
        "# /etc/tmpfiles.d/dormouse-devices.conf\nw /sys/power/sync_on_suspend - - - - 0\n"
    );
    assert_eq!(tmpfiles(&[]), "");
}
