//! The steps that the machine executes, and the use of its answers.

use dormouse_guest::protocol::bandwidth_job::{Answer, DEVICE, Step};

use super::report::{COMPUTE, HEAVY, LIGHT, MILD, OTHER, PROGRAMS, Phase, READERS, Report, USERS};
use super::{Attribution, BandwidthArgs, Enforce, Idle, device};

const CONFIG: &str = "/run/bandwidth.toml";
const STATE: &str = "/run/bandwidth";
const IN_FORCE: &str = "/sys/kernel/sched_ext/root/ops";
/// So high that no user is limited.
const NO_THRESHOLD_GIB_S: f64 = 100.0;
/// Before a measurement: limits settle, and what CPU seconds move is learnt.
const SETTLE_MS: u64 = 5000;
/// The same of readers that are held back all the time.
const SETTLE_READERS_MS: u64 = 8000;
/// Of what the daemon learns, where it does.
const LEARN_HALF_LIFE_MS: u32 = 4000;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// What an answer is for.
pub type Use = Box<dyn Fn(&mut Report, Answer)>;

#[derive(Default)]
struct Plan {
    /// Cgroups that are measured, and programs that move traffic.
    groups: Vec<&'static str>,
    programs: &'static [(&'static str, &'static str)],
    settle_ms: u64,
    /// Whether what the daemon charges is compared with what programs count.
    charges: bool,
    attribution: Attribution,
    /// Daemons so far; the last one is at work, until it is stopped.
    daemons: Vec<String>,
    steps: Vec<(Step, Use)>,
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Where in the machine a daemon writes its trace.
fn trace_of(daemon: &str) -> String {
    format!("/run/trace-{daemon}.tsv")
}

impl Plan {
    fn add(&mut self, step: Step) {
        self.then(step, |_, _| ());
    }

    fn then(&mut self, step: Step, becomes: impl Fn(&mut Report, Answer) + 'static) {
        self.steps.push((step, Box::new(becomes)));
    }

    fn read(&mut self, path: &str, becomes: impl Fn(&mut Report, String) + 'static) {
        let step = Step::Read { path: path.into() };
        self.then(step, move |report, answer| {
            becomes(report, answer.text.trim().to_owned());
        });
    }

    fn write(&mut self, path: &str, text: String) {
        let path = path.into();
        self.add(Step::Write { path, text });
    }

    fn program(&mut self, name: &str, group: &str, line: &str) {
        self.add(Step::Start {
            name: name.into(),
            group: Some(group.into()),
            words: words(line),
        });
    }

    fn signal(&mut self, name: &str, signal: i32) {
        let name = name.into();
        self.add(Step::Signal { name, signal });
    }

    /// Measures, and again at last if it is to settle first.
    fn measure(&mut self, name: &'static str, ms: u64, daemon: bool) {
        let groups: Vec<String> = self.groups.iter().map(|&group| group.into()).collect();
        let (programs, charges) = (self.programs, self.charges);
        let step = |ms| Step::Measure {
            ms,
            groups: groups.clone(),
            programs: programs
                .iter()
                .map(|(_, program)| (*program).into())
                .collect(),
            nodes: device::NODES,
            status: (daemon && charges).then(|| format!("{STATE}/status.json")),
        };
        self.then(step(self.settle_ms), |report, answer| {
            report.settling = Some(answer);
        });
        let daemon = self.daemons.last().filter(|_| daemon).cloned();
        self.then(step(ms), move |report, answer| {
            let settling = report.settling.take();
            let phase = Phase::of(name, programs, daemon.clone(), settling, answer);
            report.phases.push(phase);
        });
    }

    /// A daemon, until it is in force.
    fn daemon(&mut self, name: &str, threshold_gib_s: f64, enforce: Enforce, idle: Idle) {
        let learn = match self.attribution {
            Attribution::Learnt => LEARN_HALF_LIFE_MS,
            Attribution::Device | Attribution::CpuTime => 0,
        };
        let samples = match self.attribution {
            Attribution::Device => format!("[samples]\nkind = \"device\"\npath = \"{DEVICE}\"\n"),
            Attribution::CpuTime | Attribution::Learnt => String::new(),
        };
        let nodes: Vec<usize> = (1..=device::NODES).collect();
        let text = format!(
            "nodes = {nodes:?}\ncgroups = [\"users\"]\nthreshold_gib_s = {threshold_gib_s:?}\n\
             learn_half_life_ms = {learn}.0\nenforce = \"{}\"\nidle = \"{}\"\nstate = \"{STATE}\"\n\
             [counter]\nkind = \"bar\"\npath = \"{DEVICE}\"\n{samples}",
            enforce.name(),
            idle.name()
        );
        self.write(CONFIG, text);
        let trace = trace_of(name);
        self.daemons.push(name.into());
        self.add(Step::Start {
            name: name.into(),
            group: None,
            words: words(&format!(
                "/dormouse bandwidth run --config {CONFIG} --trace {trace}"
            )),
        });
        if enforce == Enforce::SchedExt {
            // Loading a scheduler takes long where every processor is emulated and busy.
            self.add(Step::Await {
                path: IN_FORCE.into(),
                text: "dormouse".into(),
                seconds: 120,
                program: name.into(),
            });
        }
    }
}

/// All steps.
pub fn plan(args: &BandwidthArgs, threshold_gib_s: f64) -> Vec<(Step, Use)> {
    if args.latency {
        return latency(args, threshold_gib_s);
    }
    let mut plan = Plan {
        attribution: args.attribution,
        groups: USERS.into_iter().chain([COMPUTE]).collect(),
        programs: &PROGRAMS,
        settle_ms: SETTLE_MS,
        charges: true,
        ..Plan::default()
    };
    let ms = args.seconds * 1000;
    plan.read("/proc/sys/kernel/osrelease", |report, text| {
        report.kernel = text
    });
    for group in USERS.iter().chain([&COMPUTE]) {
        plan.add(Step::Group {
            path: (*group).into(),
        });
    }
    // NAME NODE MIB read|write SPINS BUSY_MS SLEEP_MS
    for (group, line) in [
        (HEAVY, "heavy-1 1 8 read 0 1000 0"),
        (HEAVY, "heavy-2 1 8 read 0 1000 0"),
        (LIGHT, "light 1 8 read 4 2 38"),
        (MILD, "mild 1 8 write 60 30 120"),
        (OTHER, "other 2 8 read 60 20 130"),
    ] {
        let name = line.split(' ').next().unwrap_or_default();
        plan.program(name, group, &format!("/init touch {line}"));
    }
    let computing = ["compute-1", "compute-2"];
    for name in computing {
        plan.program(name, COMPUTE, "/init compute 1000 0");
    }

    // A daemon that only watches.
    plan.daemon("watch", NO_THRESHOLD_GIB_S, Enforce::Quota, Idle::Hold);
    plan.measure("free", ms, true);
    plan.signal("watch", SIGTERM);
    if args.compare {
        plan.attribution = Attribution::CpuTime;
        plan.daemon("compare", NO_THRESHOLD_GIB_S, Enforce::Quota, Idle::Hold);
        plan.measure("free, attributed by CPU time", ms, true);
        plan.signal("compare", SIGTERM);
        plan.attribution = args.attribution;
    }
    if args.costs {
        for empty in [" --empty", ""] {
            let line = format!("/dormouse bandwidth scheduler --json --seconds 4{empty}");
            let words = words(&line);
            plan.then(Step::Run { words }, |report, answer| {
                let cost = serde_json::from_str(&answer.text).unwrap_or_default();
                report.costs.push(cost);
            });
        }
    }

    plan.daemon("daemon", threshold_gib_s, args.enforce, Idle::Hold);
    plan.measure("limited", ms, true);
    if args.briefest {
        return plan.steps;
    }
    if args.brief {
        plan.signal("daemon", SIGKILL);
        return plan.killed(ms);
    }
    for name in computing {
        plan.signal(name, SIGKILL);
    }
    plan.measure("limited, idle machine", ms, true);
    let mut last = "daemon";
    if args.enforce == Enforce::SchedExt {
        plan.read(IN_FORCE, |report, text| report.scheduler = text);
        // What the kernel offers against a scheduler that hangs the machine.
        plan.write("/proc/sysrq-trigger", "S".into());
        plan.measure("the kernel has ended the scheduler", ms, true);
        let name = "daemon".into();
        plan.then(Step::Said { name }, |report, answer| {
            let line = answer.text.lines().find(|line| line.contains("ended"));
            report.ejected = line.unwrap_or_default().to_owned();
        });
        // With the scheduler once more, which lets idle processors be used; this one is killed.
        plan.signal("daemon", SIGKILL);
        plan.daemon("second", threshold_gib_s, args.enforce, Idle::Use);
        plan.measure("limited, idle machine, idle = \"use\"", ms, true);
        last = "second";
    }
    plan.signal(last, SIGKILL);
    plan.killed(ms)
}

/// One reader, four of them, and the same limited.
fn latency(args: &BandwidthArgs, threshold_gib_s: f64) -> Vec<(Step, Use)> {
    let mut plan = Plan {
        // The readers are alike.
        attribution: Attribution::CpuTime,
        settle_ms: SETTLE_READERS_MS,
        ..Plan::default()
    };
    let ms = args.seconds * 1000;
    plan.read("/proc/sys/kernel/osrelease", |report, text| {
        report.kernel = text
    });
    // A limit from the beginning to the end: with the first one, the kernel patches its code, which a
    // processor of the emulator may execute meanwhile.
    plan.add(Step::Group {
        path: "held".into(),
    });
    plan.write("/sys/fs/cgroup/held/cpu.max", "50000 100000".into());
    for (at, &(group, name)) in READERS.iter().enumerate() {
        plan.add(Step::Group { path: group.into() });
        plan.program(
            name,
            group,
            &format!("/init touch {name} 1 1 read 0 1000 0"),
        );
        plan.groups.push(group);
        plan.programs = &READERS[..=at];
        if at == 0 {
            plan.daemon("watch", NO_THRESHOLD_GIB_S, Enforce::Quota, Idle::Hold);
            plan.measure("one reader", ms, true);
        }
    }
    plan.measure("free", ms, true);
    plan.signal("watch", SIGTERM);
    plan.daemon("daemon", threshold_gib_s, args.enforce, Idle::Hold);
    plan.measure("limited", ms, true);
    plan.signal("daemon", SIGTERM);
    plan.traces();
    plan.steps
}

impl Plan {
    /// The daemon is dead: what is left of it?
    fn killed(mut self, ms: u64) -> Vec<(Step, Use)> {
        self.measure("daemon killed", ms, false);
        self.read(
            &format!("/sys/fs/cgroup/{HEAVY}/cpu.max"),
            |report, text| {
                report.limit_after_kill = text;
            },
        );
        if self.schedules() {
            self.read("/sys/kernel/sched_ext/state", |report, text| {
                report.state_after_kill = text;
            });
        }
        self.traces();
        self.steps
    }

    fn traces(&mut self) {
        for name in std::mem::take(&mut self.daemons) {
            let path = trace_of(&name);
            self.read(&path, move |report, text| {
                report.traces.push((name.clone(), text));
            });
        }
    }

    fn schedules(&self) -> bool {
        let awaits = |step: &Step| matches!(step, Step::Await { .. });
        self.steps.iter().any(|(step, _)| awaits(step))
    }
}
