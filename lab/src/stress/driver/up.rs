//! The way up: until the machine runs, again after a power cut.

use std::time::Instant;

use dormouse_guest::protocol::stress::Durable;
use dormouse_guest::protocol::{FromGuest, Hello};
use dormouse_report::event::Kind;

use super::Driver;
use crate::cycle::cxl::cold_boot_reason;
use crate::cycle::line::Outcome;
use crate::emulator::lab::BOOT_TIMEOUT;
use crate::emulator::limit::Limit;
use crate::emulator::power::{PowerOn, What};
use crate::stress::class::Class;
use crate::stress::evidence::Traces;
use crate::stress::judge::{Cut, judge};
use crate::stress::line::StressLine;
use crate::stress::load::Running;
use crate::stress::phase::Phase;
use crate::stress::plan::CyclePlan;
use crate::stress::trouble::{Stage, Stop, Trouble};
use crate::stress::watch::{Watch, wait_or_cut};

/// What each kernel says first, and one that resumes does not.
const FIRST_KERNEL_LINE: &str = "Linux version ";

/// How a power-on ended.
enum Up {
    Resumed,
    ColdBoot(Hello),
    Cut,
}

impl Driver {
    /// Powers on until the machine runs, again after a cut, and compares what must be compared.
    #[allow(clippy::too_many_arguments)] // one cycle's whole state, used once
    pub(super) fn come_back(
        &mut self,
        before: &Hello,
        request: u64,
        plan: &CyclePlan,
        durable: &Durable,
        watch: &mut Watch,
        line: &mut StressLine,
        traces: &mut Traces,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Stop> {
        // Power is cut once, so the second round ends.
        loop {
            traces.note_image(&self.lab.machine);
            if watch.cut_phase.is_some() {
                line.cut.image = traces.image_state().to_owned();
            }
            self.lab.setting.mark("resume", "resume", Kind::Begin);
            let mut power = self
                .lab
                .power_on(None)
                .map_err(|error| Stop::at(Stage::Up, error, None))?;
            let on_since = Instant::now();
            if watch.cut_phase.is_none() {
                watch.tracker.enter(Phase::FirmwareUp);
            }
            let up = match self.go_up(&mut power, before, watch, line) {
                // The kernel that hangs may be a new one: then firmware had done its part.
                Err(Stop::Trouble(trouble)) if self.is_booting(&power) => {
                    return Err(trouble.while_booting().into());
                }
                up => up?,
            };
            match up {
                Up::Cut => continue,
                Up::ColdBoot(hello) => {
                    line.outcome = Outcome::ColdBoot;
                    line.reason = self.cold_boot_reason(&power);
                    let cut = cut_left_behind(watch, traces);
                    add(judge(line.outcome, &line.reason, cut), troubles);
                    let mut running = Running { power, hello };
                    self.check_after_boot(&mut running, plan, durable, troubles)?;
                    line.verified = troubles.is_empty();
                    self.running = Some(running);
                    return Ok(());
                }
                Up::Resumed => {
                    line.outcome = Outcome::Resumed;
                    add(
                        judge(line.outcome, "", cut_left_behind(watch, traces)),
                        troubles,
                    );
                    self.lab.setting.mark("resume", "resume", Kind::End);
                    if watch.cut_phase.is_none_or(|phase| phase == Phase::Off) {
                        line.span_s.up = Some(on_since.elapsed().as_secs_f64());
                    }
                    let home_since = Instant::now();
                    if !self.migrate_back(&mut power, request, plan, watch, line)? {
                        continue;
                    }
                    line.span_s.home = Some(home_since.elapsed().as_secs_f64());
                    watch.tracker.enter(Phase::Awake);
                    if watch.cut_at.is_some() {
                        self.wait_for_cut(&mut power, watch, line)?;
                        continue;
                    }
                    let mut running = Running {
                        power,
                        hello: before.clone(),
                    };
                    self.injected(&mut running, plan)?;
                    self.compare(&mut running, plan, troubles)?;
                    line.verified = troubles.is_empty();
                    self.running = Some(running);
                    return Ok(());
                }
            }
        }
    }

    fn go_up(
        &mut self,
        power: &mut PowerOn,
        before: &Hello,
        watch: &mut Watch,
        line: &mut StressLine,
    ) -> Result<Up, Stop> {
        let what = "waking or a boot";
        let seen = wait_or_cut(
            power,
            Stage::Up,
            what,
            Limit::of_silence(BOOT_TIMEOUT),
            watch,
            |signal| match &signal.what {
                What::Agent(FromGuest::Ready(hello)) => Some(Up::ColdBoot(hello.clone())),
                What::Agent(FromGuest::Awake { boot_id, .. }) if *boot_id == before.boot_id => {
                    Some(Up::Resumed)
                }
                What::Agent(FromGuest::Event { event }) if event["name"] == "thaw" => {
                    Some(Up::Resumed)
                }
                _ => None,
            },
        )?;
        Ok(seen.unwrap_or_else(|| {
            self.cut(power, watch, line);
            Up::Cut
        }))
    }

    /// Whether a kernel started anew in that power-on.
    fn is_booting(&self, power: &PowerOn) -> bool {
        self.said(power).contains(FIRST_KERNEL_LINE)
    }

    fn said(&self, power: &PowerOn) -> String {
        let log = self.lab.machine.console_log(power.number());
        let text = std::fs::read(log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Firmware's reason on the console of that power-on.
    fn cold_boot_reason(&self, power: &PowerOn) -> String {
        cold_boot_reason(&self.said(power)).unwrap_or_default()
    }
}

/// The power cut, if there was one: what the machine reported, and what firmware finds.
fn cut_left_behind(watch: &Watch, traces: &Traces) -> Option<Cut> {
    watch.cut_phase.map(|phase| Cut {
        phase,
        resumable: traces.is_resumable(),
    })
}

fn add(judged: Result<(), (Class, String)>, troubles: &mut Vec<Trouble>) {
    troubles.extend(
        judged
            .err()
            .map(|(class, reason)| Trouble::new(class, reason)),
    );
}
