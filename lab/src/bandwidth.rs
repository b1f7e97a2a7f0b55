//! Bandwidth control in an emulated machine of its own: a kernel with sched_ext and cgroup version 2,
//! a heavy user and a light one, and programs that only compute.
//!
//! ```text
//!  free ─▶ what a scheduler's calls cost ─▶ daemon: limited ─▶ the kernel ends the scheduler
//!                                                            ─▶ the daemon is killed
//! ```
//!
//! No device counts here: a CPU second of either user is taken for so many bytes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use dormouse_guest::bandwidth_job::{Answer, JOB, Step};
use serde::Serialize;
use serde_json::Value;

use crate::build::{BuildOptions, build_bandwidth};
use crate::cli::{machine_folder, print_json};
use crate::error::LabError;
use crate::job_machine::{Boot, JobMachine};
use crate::terminal::Terminal;

const HEAVY: &str = "users/heavy";
const LIGHT: &str = "users/light";
const COMPUTE: &str = "compute";
const CONFIG: &str = "/run/bandwidth.toml";
const GIB_PER_CPU_SECOND: f64 = 4.0;
const THRESHOLD_GIB_S: f64 = 2.0;
/// Each measurement.
const MS: u64 = 3000;
const SIGKILL: i32 = 9;

/// What holds limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Enforce {
    /// Quotas of cgroups
    Quota,
    /// Our scheduler
    SchedExt,
}

impl Enforce {
    fn name(self) -> &'static str {
        match self {
            Enforce::Quota => "quota",
            Enforce::SchedExt => "sched-ext",
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dormouse lab bandwidth --enforce quota\n\n\
    Two processors; a heavy user with two programs, a light one that wants a tenth of a CPU, and\n\
    two programs that compute. CPUs that each gets, free and limited; what happens when the kernel\n\
    ends the scheduler, and when the daemon is killed.")]
pub struct BandwidthArgs {
    /// The machine's name or folder; a name means out/lab/NAME
    #[arg(long, value_name = "DIR", default_value = "bandwidth")]
    pub machine: PathBuf,
    /// What holds the limits
    #[arg(long, value_enum, default_value = "sched-ext")]
    pub enforce: Enforce,
    /// Also what calls of our scheduler cost, and those of the least one that there can be
    #[arg(long)]
    pub costs: bool,
}

/// CPUs of each group.
type Cpus = BTreeMap<String, f64>;

/// What was seen.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub enforce: &'static str,
    pub kernel: String,
    pub free: Cpus,
    pub limited: Cpus,
    pub threshold_gib_s: f64,
    /// Of both users, while limited.
    pub total_gib_s: f64,
    /// The scheduler that was in force meanwhile; empty: the kernel's own.
    pub scheduler: String,
    /// What the daemon said after the kernel had ended the scheduler, and what was used then.
    pub ejected: String,
    pub after_ejection: Cpus,
    /// After the daemon was killed: sched_ext's state, and the heavy user's limit.
    pub state_after_kill: String,
    pub limit_after_kill: String,
    pub after_kill: Cpus,
    /// What calls cost: ours, and of the least scheduler.
    pub costs: Vec<Value>,
}

/// What an answer is for.
type Use = fn(&mut Report, Answer);

/// Steps, and what becomes of their answers.
fn plan(args: &BandwidthArgs) -> Vec<(Step, Use)> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let nothing: Use = |_, _| ();
    let mut plan: Vec<(Step, Use)> = Vec::new();
    let read = |path: &str| Step::Read { path: path.into() };
    let measure = || Step::Measure {
        ms: MS,
        groups: [HEAVY, LIGHT, COMPUTE].map(String::from).to_vec(),
    };
    let daemon = |name: &str| Step::Start {
        name: name.into(),
        group: None,
        words: words(&format!("/dormouse bandwidth run --config {CONFIG}")),
    };
    let kill = |name: &str| Step::Signal {
        name: name.into(),
        signal: SIGKILL,
    };
    plan.push((read("/proc/sys/kernel/osrelease"), |report, answer| {
        report.kernel = answer.text.trim().to_owned();
    }));
    for group in [HEAVY, LIGHT, COMPUTE] {
        plan.push((Step::Group { path: group.into() }, nothing));
    }
    let programs = [
        ("heavy-1", HEAVY, "1000 0"),
        ("heavy-2", HEAVY, "1000 0"),
        ("light", LIGHT, "2 18"),
        ("compute-1", COMPUTE, "1000 0"),
        ("compute-2", COMPUTE, "1000 0"),
    ];
    for (name, group, part) in programs {
        let start = Step::Start {
            name: name.into(),
            group: Some(group.into()),
            words: words(&format!("/init compute {part}")),
        };
        plan.push((start, nothing));
    }
    plan.push((measure(), |report, answer| report.free = answer.cpus));
    if args.costs {
        for empty in [" --empty", ""] {
            let line = format!("/dormouse bandwidth scheduler --json --seconds 4{empty}");
            plan.push((
                Step::Run {
                    words: words(&line),
                },
                |report, answer| {
                    report
                        .costs
                        .push(serde_json::from_str(&answer.text).unwrap_or_default());
                },
            ));
        }
    }
    let text = format!(
        "nodes = [0]\ncgroups = [\"users\"]\nthreshold_gib_s = {THRESHOLD_GIB_S:?}\n\
         enforce = \"{}\"\nstate = \"/run/bandwidth\"\n\
         [counter]\nkind = \"assumed\"\ngib_per_cpu_second = {GIB_PER_CPU_SECOND:?}\n",
        args.enforce.name()
    );
    let path = CONFIG.into();
    plan.push((Step::Write { path, text }, nothing));
    const IN_FORCE: &str = "/sys/kernel/sched_ext/root/ops";
    // Loading a scheduler takes long where every processor is emulated and busy.
    let start = |plan: &mut Vec<(Step, Use)>, name: &str| {
        plan.push((daemon(name), nothing));
        if args.enforce == Enforce::SchedExt {
            let (path, text) = (IN_FORCE.into(), "dormouse".into());
            let program = name.into();
            let seconds = 120;
            let wait = Step::Await {
                path,
                text,
                seconds,
                program,
            };
            plan.push((wait, nothing));
        }
        plan.push((measure(), nothing));
    };
    start(&mut plan, "daemon");
    plan.push((measure(), |report, answer| report.limited = answer.cpus));
    if args.enforce == Enforce::SchedExt {
        plan.push((read(IN_FORCE), |report, answer| {
            report.scheduler = answer.text.trim().to_owned();
        }));
        // What the kernel offers against a scheduler that hangs the machine.
        let sysrq = Step::Write {
            path: "/proc/sysrq-trigger".into(),
            text: "S".into(),
        };
        plan.push((sysrq, nothing));
        plan.push((measure(), nothing));
        plan.push((measure(), |report, answer| {
            report.after_ejection = answer.cpus;
        }));
        let said = Step::Said {
            name: "daemon".into(),
        };
        plan.push((said, |report, answer| {
            let line = answer.text.lines().find(|line| line.contains("ended"));
            report.ejected = line.unwrap_or_default().to_owned();
        }));
        // With the scheduler once more, this one is killed.
        plan.push((kill("daemon"), nothing));
        plan.push((measure(), nothing));
        start(&mut plan, "second");
    }
    let last = match args.enforce {
        Enforce::Quota => "daemon",
        Enforce::SchedExt => "second",
    };
    plan.push((kill(last), nothing));
    plan.push((measure(), |report, answer| report.after_kill = answer.cpus));
    plan.push((read("/sys/kernel/sched_ext/state"), |report, answer| {
        report.state_after_kill = answer.text.trim().to_owned();
    }));
    let limit = format!("/sys/fs/cgroup/{HEAVY}/cpu.max");
    plan.push((read(&limit), |report, answer| {
        report.limit_after_kill = answer.text.trim().to_owned();
    }));
    plan
}

/// Runs the verb.
///
/// # Errors
/// The machine cannot be built or started, or a step failed in it.
pub fn run(args: &BandwidthArgs, json: bool) -> Result<ExitCode, LabError> {
    let terminal = Terminal::new();
    let artefacts = build_bandwidth(&BuildOptions::default(), &terminal)?;
    let folder = machine_folder(&args.machine);
    let plan = plan(args);
    let steps: Vec<&Step> = plan.iter().map(|(step, _)| step).collect();
    let boot = Boot {
        kernel: &artefacts.kernel,
        initrd: &artefacts.initrd,
        job: JOB,
        cpus: 2,
        threads: true,
        board: "q35",
        memory: "1G",
        more: Vec::new(),
        cmdline: "console=ttyS0 loglevel=5 panic=-1".into(),
    };
    terminal.now("booting");
    let mut machine = JobMachine::<Answer>::start(&boot, &folder, &steps)?;
    let mut report = Report {
        enforce: args.enforce.name(),
        threshold_gib_s: THRESHOLD_GIB_S,
        ..Report::default()
    };
    loop {
        let answer = machine.next()?;
        if let Some(error) = answer.error {
            return Err(LabError::Guest(error));
        }
        let Some((_, becomes)) = plan.get(answer.step) else {
            break;
        };
        terminal.now(&format!("step {} of {}", answer.step + 1, plan.len()));
        becomes(&mut report, answer);
    }
    terminal.finish();
    let of = |group: &str| report.limited.get(group).copied().unwrap_or(0.0);
    report.total_gib_s = (of(HEAVY) + of(LIGHT)) * GIB_PER_CPU_SECOND;
    if json {
        print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report) {
    println!(
        "{} on Linux {}; CPUs of each",
        report.enforce, report.kernel
    );
    let mut lines = vec![("free", &report.free), ("limited", &report.limited)];
    if !report.ejected.is_empty() {
        lines.push(("after ejection", &report.after_ejection));
    }
    lines.push(("daemon killed", &report.after_kill));
    for (name, cpus) in lines {
        let cpus: Vec<String> = cpus
            .iter()
            .map(|(group, cpus)| format!("{group} {cpus:.2}"))
            .collect();
        println!("{name:16} {}", cpus.join("  "));
    }
    println!(
        "limited to {:.2} GiB/s: {:.2}",
        report.threshold_gib_s, report.total_gib_s
    );
    if !report.ejected.is_empty() {
        println!("{}", report.ejected);
    }
    for cost in &report.costs {
        println!("{cost}");
    }
}
