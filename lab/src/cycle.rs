//! The life cycle: fill memory, sleep, lose all power, wake, compare everything, come home.
//!
//! ```text
//!  boot → fill → sleep ─→ power is gone ─→ power on ─→ resumed → home → compare ─┐
//!           ↑     │ │                        └──────→ cold boot (with a reason)  │
//!           │     │ └→ refused: goes on running → compare                        │
//!           │     └ power cut at a fault point → power on ↗                      │
//!           └────────────────── next cycle, same running system ←────────────────┘
//! ```

mod cxl;
mod hibernation;
mod method;

use std::time::Duration;

use dormouse_guest::protocol::{FromGuest, Hello, WorkloadPlan};
use dormouse_report::event::Kind;
use serde_json::Value;

use crate::cycle_options::CycleOptions;
use crate::error::{Doing, LabError};
use crate::fault::Fault;
use crate::lab::{BOOT_TIMEOUT, Lab, POWER_OFF_TIMEOUT};
use crate::line::{CycleLine, Outcome};
use crate::power::{PowerOn, What, reply_to};
use crate::qmp::StopCause;
use method::Moment;

pub(crate) use cxl::CxlSleep;
pub(crate) use hibernation::HibernationSleep;
pub(crate) use method::SleepMethod;

/// Going to sleep: migration of everything, twice the time that was ever seen.
const SLEEP_TIMEOUT: Duration = Duration::from_secs(600);
/// From power-on to a running user space, or to the agent after a cold boot.
const WAKE_TIMEOUT: Duration = BOOT_TIMEOUT;
/// Bringing pages home.
const HOME_TIMEOUT: Duration = Duration::from_secs(600);
/// After the first sign of life the processes run within this time.
const THAW_TIMEOUT: Duration = Duration::from_secs(30);
const COUNTERS: usize = 4;
/// A line of shell before or after the sleep.
const SHELL_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs cycles on one machine.
pub struct Cycles<'a> {
    lab: &'a mut Lab,
    options: &'a CycleOptions,
    /// Tells people what happens.
    say: &'a dyn Fn(&str),
    running: Option<Running>,
    usual_dram_bytes: u64,
    usual_cxl_bytes: u64,
}

/// The machine while it is switched on.
struct Running {
    power: PowerOn,
    hello: Hello,
    armed: Option<&'static str>,
    has_workload: bool,
}

/// How the request to sleep ended.
enum Asleep {
    /// The machine switched itself off.
    Off,
    /// Power was cut at the fault point.
    Cut,
    /// The request was answered without the power having gone.
    Answered(Value),
}

/// How a power-on ended.
enum Woken {
    Resumed,
    ColdBoot { hello: Hello },
}

impl<'a> Cycles<'a> {
    pub fn new(lab: &'a mut Lab, options: &'a CycleOptions, say: &'a dyn Fn(&str)) -> Self {
        let (usual_dram_bytes, usual_cxl_bytes) =
            (lab.machine.config.dram_bytes, lab.machine.config.cxl_bytes);
        Cycles {
            lab,
            options,
            say,
            running: None,
            usual_dram_bytes,
            usual_cxl_bytes,
        }
    }

    /// Runs all cycles; each line is given out as soon as it is known.
    ///
    /// # Errors
    /// Only what makes further cycles senseless (interruption, no emulator); anything else is
    /// the outcome `failed` of its cycle, and the next one starts from a boot.
    pub fn run(&mut self, on_line: &mut dyn FnMut(&CycleLine)) -> Result<(), LabError> {
        for cycle in 1..=self.options.cycles {
            self.lab
                .setting
                .mark("cycle", &format!("cycle {cycle}"), Kind::Begin);
            let mut line = self.new_line(cycle);
            match self.one(&mut line) {
                Ok(()) => {}
                Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                Err(error) if error.exit_code() != 1 => return Err(error),
                Err(error) => {
                    self.running = None;
                    line.outcome = Outcome::Failed;
                    line.reason = error.to_string();
                }
            }
            line.ok = self.options.is_ok(&line);
            let event = self
                .lab
                .setting
                .event("cycle", &format!("cycle {cycle}"), Kind::End)
                .with("outcome", line.outcome.name())
                .with("verified", line.verified);
            self.lab.setting.record(&event);
            on_line(&line);
        }
        Ok(())
    }

    /// Switches the machine off in order, if it runs.
    pub fn finish(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.power.power_off(POWER_OFF_TIMEOUT);
        }
    }

    fn new_line(&self, cycle: u64) -> CycleLine {
        let mut line = CycleLine::new(cycle, self.usual_dram_bytes, self.usual_cxl_bytes);
        if let Some(hibernation) = &self.options.hibernation {
            line.mode = hibernation.mode().name().into();
            line.compressor = Some(hibernation.compressor.to_string());
        }
        line
    }

    fn say(&self, cycle: u64, text: &str) {
        (self.say)(&format!("cycle {cycle}: {text}"));
    }

    fn one(&mut self, line: &mut CycleLine) -> Result<(), LabError> {
        let cycle = line.cycle;
        let arming = self
            .options
            .fault
            .and_then(|fault| fault.for_power_on(false));
        let mut running = self.booted(cycle, arming)?;
        self.fill(cycle, &mut running, line)?;
        if let Some(before) = &self.options.before {
            self.say(cycle, "run the line before");
            self.shell(&mut running.power, before)?;
        }

        let mut method = self.options.method(self.usual_dram_bytes);
        let method = method.as_mut();
        method.prepare(&mut running.power)?;
        self.say(cycle, "going to sleep");
        method.reached(Moment::Asked, self.lab.setting.clock.now_ns());
        self.lab.setting.mark("suspend", "suspend", Kind::Begin);
        let request = running.power.send(method.ask())?;
        let asleep = self.wait_asleep(cycle, &mut running.power, request, method)?;
        if let Asleep::Answered(answer) = asleep {
            return self.refused(running, method, answer, line);
        }
        for event in method.events_down() {
            self.lab.setting.record(&event);
        }
        self.lab.setting.mark("suspend", "suspend", Kind::End);
        if matches!(asleep, Asleep::Off) {
            line.suspend_s = method.suspend_times();
        }
        let hello = running.hello;
        drop(running.power);

        self.spoil(cycle)?;
        self.say(cycle, "power on");
        let (power, woken) = self.wake(cycle, method, &hello, request)?;
        match woken {
            Woken::Resumed => self.resumed(power, hello, request, method, line),
            Woken::ColdBoot { hello } => {
                line.outcome = Outcome::ColdBoot;
                line.reason = method
                    .cold_boot_reason(&self.console(&power))
                    .unwrap_or_default();
                self.say(cycle, &format!("cold boot: {}", line.reason));
                self.running = Some(Running {
                    power,
                    hello,
                    armed: None,
                    has_workload: false,
                });
                Ok(())
            }
        }
    }

    /// The running machine, or a new boot where it does not run or must be another one.
    fn booted(&mut self, cycle: u64, armed: Option<&'static str>) -> Result<Running, LabError> {
        let config = &self.lab.machine.config;
        let usual =
            config.dram_bytes == self.usual_dram_bytes && config.cxl_bytes == self.usual_cxl_bytes;
        if let Some(mut running) = self.running.take() {
            if usual && running.armed == armed {
                return Ok(running);
            }
            self.say(cycle, "power off, to boot anew");
            running.power.power_off(POWER_OFF_TIMEOUT)?;
        }
        self.lab.machine.config.dram_bytes = self.usual_dram_bytes;
        if self.lab.machine.config.cxl_bytes != self.usual_cxl_bytes {
            self.lab.machine.resize_cxl(self.usual_cxl_bytes)?;
        }
        self.lab.machine.save()?;
        self.say(cycle, "boot");
        self.lab.setting.mark("boot", "boot", Kind::Begin);
        let mut power = self.lab.power_on(armed)?;
        let hello = power.wait_ready(BOOT_TIMEOUT)?;
        self.lab.setting.mark("boot", "boot", Kind::End);
        Ok(Running {
            power,
            hello,
            armed,
            has_workload: false,
        })
    }

    fn fill(
        &mut self,
        cycle: u64,
        running: &mut Running,
        line: &mut CycleLine,
    ) -> Result<(), LabError> {
        self.say(cycle, &format!("fill {} of memory", self.options.fill));
        self.lab.setting.mark("workload", "fill", Kind::Begin);
        // Other contents in each cycle: what an earlier one left behind is never mistaken.
        let seed = self.options.seed.wrapping_add(cycle);
        let fill_bytes = self.options.fill.0;
        let status = if running.has_workload {
            running.power.refill(seed, fill_bytes)?
        } else {
            running.power.start_workload(WorkloadPlan {
                fill_bytes,
                threads: running.hello.cpus,
                counters: COUNTERS,
                seed,
                redis_keys: self.options.redis_keys,
            })?
        };
        if !running.has_workload && !self.options.awkward.is_empty() {
            self.say(cycle, "set up awkward memory");
            running.power.start_awkward(&self.options.awkward, seed)?;
        }
        running.has_workload = true;
        line.user_bytes = status.filled_bytes;
        self.lab.setting.mark("workload", "fill", Kind::End);
        self.record_placement(&mut running.power, "before")
    }

    /// What a line of shell prints in the machine; it must succeed.
    fn shell(&self, power: &mut PowerOn, line: &str) -> Result<String, LabError> {
        let result = power.shell(line, SHELL_TIMEOUT)?;
        if result.status != 0 {
            return Err(LabError::Guest(format!(
                "`{line}` ended with {}: {}",
                result.status,
                result.stderr.trim()
            )));
        }
        Ok(result.stdout)
    }

    /// Where user pages lie goes into the timeline: awake, the CXL node must hold none.
    fn record_placement(&self, power: &mut PowerOn, when: &str) -> Result<(), LabError> {
        let placement = power.placement()?;
        let node_used = placement
            .nodes
            .get(&1)
            .and_then(|node| node.get("MemUsed"))
            .copied()
            .unwrap_or_default();
        let event = self
            .lab
            .setting
            .event("workload", "placement", Kind::Mark)
            .with("when", when)
            .with("dram_user_bytes", placement.user_bytes(0, None))
            .with("cxl_user_bytes", placement.user_bytes(1, None))
            .with("cxl_node_used_bytes", node_used);
        self.lab.setting.record(&event);
        Ok(())
    }

    fn wait_asleep(
        &self,
        cycle: u64,
        power: &mut PowerOn,
        request: u64,
        method: &mut dyn SleepMethod,
    ) -> Result<Asleep, LabError> {
        enum Seen {
            Stopped(u64),
            Point,
            Reply(Result<Value, String>),
        }
        let fault = self.options.fault.filter(|fault| !fault.is_on_the_way_up());
        let seen = power.wait(
            "the machine to switch itself off",
            SLEEP_TIMEOUT,
            |signal| {
                method.hear_down(signal);
                match &signal.what {
                    What::Stopped => Some(Seen::Stopped(signal.at_ns)),
                    What::Console(line) if fault.is_some_and(|fault| fault.is_reached(line)) => {
                        Some(Seen::Point)
                    }
                    _ => reply_to(signal, request).map(Seen::Reply),
                }
            },
        )?;
        match seen {
            Seen::Stopped(at_ns) => {
                method.reached(Moment::Off, at_ns);
                match (power.stop_cause(), fault) {
                    (Some(StopCause::PoweredOff), None) => Ok(Asleep::Off),
                    (Some(StopCause::PoweredOff), Some(fault)) => Err(fault.passed()),
                    (cause, _) => Err(LabError::Unexpected(format!(
                        "the machine did not switch itself off but stopped otherwise: {cause:?}"
                    ))),
                }
            }
            Seen::Reply(Ok(answer)) => Ok(Asleep::Answered(answer)),
            Seen::Reply(Err(error)) => Err(LabError::Guest(error)),
            Seen::Point => {
                self.cut(cycle, power);
                Ok(Asleep::Cut)
            }
        }
    }

    fn cut(&self, cycle: u64, power: &mut PowerOn) {
        let name = self.options.fault.map_or("", |fault| fault.name);
        let event = self
            .lab
            .setting
            .event("machine", "power-cut", Kind::Mark)
            .with("at", name);
        self.lab.setting.record(&event);
        self.say(cycle, &format!("power cut: {name}"));
        power.cut_power();
    }

    /// What was asked to happen to the machine while it sleeps.
    fn spoil(&mut self, cycle: u64) -> Result<(), LabError> {
        if let Some(tamper) = self.options.tamper {
            tamper.apply(&mut self.lab.machine, self.options.seed.wrapping_add(cycle))?;
        }
        if let Some(dram) = self.options.dram_after {
            self.lab.machine.config.dram_bytes = dram.0;
            self.lab.machine.save()?;
        }
        Ok(())
    }

    /// Powers on, through a fault on the way up if one is asked for, until user space runs.
    fn wake(
        &mut self,
        cycle: u64,
        method: &mut dyn SleepMethod,
        before: &Hello,
        request: u64,
    ) -> Result<(PowerOn, Woken), LabError> {
        if let Some(fault) = self.options.fault
            && fault.is_on_the_way_up()
        {
            self.cut_on_the_way_up(cycle, fault, request)?;
        }
        let mut power = self.lab.power_on(None)?;
        method.reached(Moment::PowerOn, power.started_ns);
        let mut woken = power.wait("waking or a boot", WAKE_TIMEOUT, |signal| {
            method.hear_up(signal);
            match &signal.what {
                What::Agent(FromGuest::Ready(hello)) => Some(Woken::ColdBoot {
                    hello: hello.clone(),
                }),
                What::Agent(FromGuest::Awake { boot_id, .. }) if *boot_id == before.boot_id => {
                    Some(Woken::Resumed)
                }
                _ if method.is_running() => Some(Woken::Resumed),
                _ => None,
            }
        })?;
        if matches!(woken, Woken::Resumed) && !method.is_running() {
            // Whoever froze user space says when it runs again; the wake alone is the fallback.
            let thawed = power.wait("user space to run again", THAW_TIMEOUT, |signal| {
                method.hear_up(signal);
                match signal.what {
                    What::Agent(FromGuest::Ready(_)) => Some(false),
                    _ => method.is_running().then_some(true),
                }
            });
            match thawed {
                Ok(true) | Err(LabError::Timeout { .. }) => {}
                Ok(false) => {
                    woken = Woken::ColdBoot {
                        hello: before.clone(),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        Ok((power, woken))
    }

    /// Powers on, and cuts the power where the machine stops on its way up.
    fn cut_on_the_way_up(
        &mut self,
        cycle: u64,
        fault: Fault,
        request: u64,
    ) -> Result<(), LabError> {
        let mut power = self.lab.power_on(fault.for_power_on(true))?;
        let what = format!("fault point {}", fault.name);
        let reached = power.wait(&what, WAKE_TIMEOUT, |signal| match &signal.what {
            What::Console(line) if fault.is_reached(line) => Some(true),
            What::Agent(FromGuest::Ready(_)) => Some(false),
            _ => reply_to(signal, request).map(|_| false),
        })?;
        if !reached {
            return Err(fault.passed());
        }
        self.cut(cycle, &mut power);
        Ok(())
    }

    fn resumed(
        &mut self,
        mut power: PowerOn,
        hello: Hello,
        request: u64,
        method: &mut dyn SleepMethod,
        line: &mut CycleLine,
    ) -> Result<(), LabError> {
        line.resume_s = method.resume_times();
        for event in method.events_up() {
            self.lab.setting.record(&event);
        }
        self.say(line.cycle, "awake; pages come home");
        let answer = power.wait("pages to come home", HOME_TIMEOUT, |signal| {
            method.hear_up(signal);
            reply_to(signal, request)
        })?;
        method.woken(answer.map_err(LabError::Guest)?, line)?;
        self.record_placement(&mut power, "after")?;
        if let Some(after) = &self.options.after {
            let said = self.shell(&mut power, after)?;
            let name = format!("after-{}.txt", line.cycle);
            let path = self.lab.machine.folder().join(name);
            std::fs::write(&path, said).doing(format!("write {}", path.display()))?;
        }
        line.outcome = Outcome::Resumed;
        self.check_data(&mut power, line)?;
        method
            .proof(&self.console(&power))
            .map_err(LabError::Unexpected)?;
        self.running = Some(Running {
            power,
            hello,
            armed: None,
            has_workload: true,
        });
        Ok(())
    }

    /// Sleep did not happen and the system goes on: does it really?
    fn refused(
        &mut self,
        mut running: Running,
        method: &dyn SleepMethod,
        answer: Value,
        line: &mut CycleLine,
    ) -> Result<(), LabError> {
        line.reason = method.refusal(answer)?;
        line.outcome = Outcome::Refused;
        self.say(line.cycle, &format!("refused: {}", line.reason));
        self.check_data(&mut running.power, line)?;
        self.running = Some(running);
        Ok(())
    }

    fn check_data(&self, power: &mut PowerOn, line: &mut CycleLine) -> Result<(), LabError> {
        self.say(line.cycle, "compare every page");
        self.lab.setting.mark("workload", "verify", Kind::Begin);
        let verdict = power.verify(self.options.fill.0)?;
        let mut complaints = verdict.complaints();
        if !self.options.awkward.is_empty() {
            for verdict in power.verify_awkward()? {
                complaints.extend(
                    verdict
                        .complaint
                        .map(|why| format!("{}: {why}", verdict.kind)),
                );
                line.awkward.push(verdict.kind);
            }
        }
        self.lab.setting.mark("workload", "verify", Kind::End);
        line.verified = complaints.is_empty();
        if !line.verified {
            line.reason = complaints.join("; ");
        }
        Ok(())
    }

    /// What was said on the console of that power-on.
    fn console(&self, power: &PowerOn) -> String {
        let log = self.lab.machine.console_log(power.number());
        let text = std::fs::read(log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }
}
