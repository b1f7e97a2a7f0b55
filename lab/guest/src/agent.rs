//! Serves the lab's requests on the second serial line.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use dormouse_guest::protocol::frame::{Decoder, encode};
use dormouse_guest::protocol::stress::StressCall;
use dormouse_guest::protocol::{
    Call, FilePart, FromGuest, Hello, Request, Verdict, WorkloadPlan, WorkloadStatus, from_hex,
};
use serde::Serialize;
use serde_json::Value;

use crate::error::{Doing, GuestError};
use crate::hard_to_move::{self, HardToMove};
use crate::jobs::devices::Devices;
use crate::sleep::cxl::{monotonic_ns, sleep, watch_for_wake};
use crate::sleep::{hibernate, placement};
use crate::stress;
use crate::stress::load::Load;
use crate::system::cgroups;
use crate::system::{console, power, run, serial};
use crate::workload::Workload;
use crate::workload::redis::Redis;

const CONSOLE: &str = "/dev/ttyS0";

/// The sending half: any thread may speak, one line at a time.
#[derive(Clone)]
struct Voice(Arc<Mutex<File>>);

impl Voice {
    fn say(&self, message: &FromGuest) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&encode(message)) {
            console::say(&format!(
                "the control channel does not take messages: {error}"
            ));
        }
    }
}

#[derive(Default)]
struct Services {
    workload: Option<Workload>,
    redis: Option<Redis>,
    hard_to_move: Vec<HardToMove>,
    load: Option<Load>,
    devices: Option<Devices>,
}

/// Serves requests until the channel fails.
pub fn run() -> Result<(), GuestError> {
    cgroups::enter(cgroups::AGENT, std::process::id())?;
    let mut input = serial::open_raw(serial::CONTROL)?;
    let voice = Voice(Arc::new(Mutex::new(
        input.try_clone().doing("share the control channel")?,
    )));
    let waking = voice.clone();
    thread::spawn(move || {
        let watched = watch_for_wake(|| {
            waking.say(&FromGuest::Awake {
                boot_id: boot_id(),
                monotonic_ns: monotonic_ns(),
            });
        });
        if let Err(error) = watched {
            console::say(&error.to_string());
        }
    });
    voice.say(&FromGuest::Ready(hello()));

    let services = Arc::new(Mutex::new(Services::default()));
    let mut decoder = Decoder::default();
    let mut bytes = [0u8; 4096];
    loop {
        let count = match input.read(&mut bytes) {
            Ok(0) => return Err(GuestError::Other("the control channel was hung up".into())),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).doing("read the control channel"),
        };
        for request in decoder.push::<Request>(&bytes[..count]) {
            let (voice, services) = (voice.clone(), Arc::clone(&services));
            // One thread a request: a long one (sleep) does not make the others wait.
            thread::spawn(move || {
                let result = answer(request.call, &services, &voice);
                let result = result.map_err(|error| error.to_string());
                voice.say(&FromGuest::Reply {
                    id: request.id,
                    result,
                });
            });
        }
    }
}

fn boot_id() -> String {
    read_trimmed("/proc/sys/kernel/random/boot_id")
}

fn read_trimmed(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn hello() -> Hello {
    Hello {
        boot_id: boot_id(),
        pid: std::process::id(),
        uptime_ns: monotonic_ns(),
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        cpus: thread::available_parallelism().map_or(1, usize::from),
    }
}

fn answer(call: Call, services: &Mutex<Services>, voice: &Voice) -> Result<Value, GuestError> {
    let services = || services.lock().unwrap_or_else(PoisonError::into_inner);
    match call {
        Call::Hello => to_value(hello()),
        Call::StartWorkload(plan) => to_value(start_workload(&plan, &mut services())?),
        Call::Verify => to_value(verify(&mut services())?),
        Call::Refill { seed } => {
            let mut services = services();
            workload(&mut services)?.refill(seed)?;
            if let Some(redis) = services.redis.as_mut() {
                redis.refill(seed)?;
            }
            to_value(status(&mut services)?)
        }
        Call::StartHardToMove { plans, seed } => {
            let mut services = services();
            services.hard_to_move.clear(); // earlier ones end first
            services.hard_to_move = hard_to_move::start(&plans, seed)?;
            to_value(
                services
                    .hard_to_move
                    .iter()
                    .map(HardToMove::status)
                    .collect::<Vec<_>>(),
            )
        }
        Call::VerifyHardToMove => to_value(
            services()
                .hard_to_move
                .iter_mut()
                .map(HardToMove::verify)
                .collect::<Vec<_>>(),
        ),
        Call::Stress(call) => stress(call, &mut services().load),
        Call::Run(plan) => to_value(run::run(&plan)?),
        Call::Sleep { arguments } => {
            let voice = voice.clone();
            to_value(sleep(&arguments, move |event| {
                voice.say(&FromGuest::Event { event })
            })?)
        }
        Call::PrepareHibernation(plan) => to_value(hibernate::prepare(&plan)?),
        Call::Hibernate => to_value(hibernate::hibernate()?),
        Call::Device { step } => {
            let mut services = services();
            let devices = match services.devices.as_mut() {
                Some(devices) => devices,
                None => services.devices.insert(Devices::new()?),
            };
            to_value(devices.act(&step)?)
        }
        Call::Placement => to_value(placement::read()),
        Call::PutFile(part) => put_file(&part).map(|()| Value::Null),
        Call::Shell => start_shell().map(|()| Value::Null),
        Call::PowerOff => power::off(),
    }
}

fn to_value(answer: impl Serialize) -> Result<Value, GuestError> {
    serde_json::to_value(answer).map_err(|error| GuestError::Other(error.to_string()))
}

fn workload(services: &mut Services) -> Result<&mut Workload, GuestError> {
    services
        .workload
        .as_mut()
        .ok_or_else(|| GuestError::Other("no workload was started".into()))
}

fn start_workload(
    plan: &WorkloadPlan,
    services: &mut Services,
) -> Result<WorkloadStatus, GuestError> {
    // An earlier workload ends first.
    (services.workload, services.redis) = (None, None);
    services.workload = Some(Workload::start(
        plan.fill_bytes,
        plan.threads,
        plan.counters,
        plan.seed,
    )?);
    if plan.redis_keys > 0 {
        services.redis = Some(Redis::start(plan.redis_keys, plan.seed)?);
    }
    status(services)
}

fn status(services: &mut Services) -> Result<WorkloadStatus, GuestError> {
    let workload = workload(services)?;
    let (pid, filled_bytes, counts) = (workload.pid(), workload.filled_bytes, workload.counts()?);
    let redis = services.redis.as_ref();
    Ok(WorkloadStatus {
        pid,
        filled_bytes,
        counts,
        redis_pid: redis.map(Redis::pid),
        redis_keys: redis.map_or(0, |redis| redis.keys),
        redis_version: redis.map(|redis| redis.version.clone()).unwrap_or_default(),
    })
}

fn verify(services: &mut Services) -> Result<Verdict, GuestError> {
    let (memory, counters) = workload(services)?.verify()?;
    Ok(Verdict {
        memory,
        counters,
        redis: services.redis.as_mut().map(Redis::verify),
    })
}

fn stress(call: StressCall, load: &mut Option<Load>) -> Result<Value, GuestError> {
    let no_load = || GuestError::Other("no stress load was started".into());
    match call {
        StressCall::Mount => to_value(stress::disks::mount_scratch()?),
        StressCall::CheckFileSystems => to_value(stress::disks::check()?),
        StressCall::Start(plan) => {
            *load = None; // an earlier load ends first
            *load = Some(Load::start(plan)?);
            Ok(Value::Null)
        }
        StressCall::Durable => to_value(load.as_ref().ok_or_else(no_load)?.durable()),
        StressCall::Verify => to_value(load.as_mut().ok_or_else(no_load)?.verify()),
        StressCall::Stop => to_value(load.take().ok_or_else(no_load)?.stop()),
        StressCall::VerifyDurable { plan, durable } => {
            to_value(stress::load::verify_durable(&plan, &durable))
        }
    }
}

fn put_file(part: &FilePart) -> Result<(), GuestError> {
    let bytes = from_hex(&part.data_hex)
        .ok_or_else(|| GuestError::Other(format!("the data for {} is damaged", part.path)))?;
    let doing = format!("write {}", part.path);
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .append(part.append)
        .truncate(!part.append)
        .open(&part.path)
        .doing(&doing)?;
    file.write_all(&bytes).doing(&doing)?;
    file.set_permissions(std::fs::Permissions::from_mode(part.mode))
        .doing(&doing)
}

/// A shell that owns the first serial console, so that Ctrl-C and job control work there.
fn start_shell() -> Result<(), GuestError> {
    let console = serial::open(CONSOLE)?;
    let again = || console.try_clone().doing("share the console");
    let mut command = Command::new("/bin/sh");
    command
        .arg("-i")
        .env("PS1", "dormouse# ")
        .env("TERM", "vt100")
        .current_dir("/")
        .stdin(Stdio::from(again()?))
        .stdout(Stdio::from(again()?))
        .stderr(Stdio::from(again()?));
    // SAFETY: setsid and one ioctl on standard input, both allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(std::io::stdin())?;
            Ok(())
        });
    }
    let mut child = command.spawn().doing("start a shell")?;
    thread::spawn(move || child.wait());
    Ok(())
}
