//! The verbs for programs: run, attach, restore, persist.

use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::arguments::{
    AttachArguments, PersistArguments, RestoreArguments, Restoring, RunArguments, Tracking,
};
use super::output::{json, line, report};
use super::{DONE, FAILED, Failure};
use crate::lease::{Keeper, Lease};
use crate::persist::Report;
use crate::restore;
use crate::roots::Roots;
use crate::store::file::path_of;
use crate::store::{Access, Store};
use crate::sync::{Budget, Mirror, Share};
use crate::track::self_test;
use crate::tracker::control::{Answer, Request, send};
use crate::tracker::{End, Options, Tracker, TrackerError, isolate, launch, number, resume};

fn options(tracking: &Tracking) -> Options {
    let budget = match (tracking.budget, tracking.deadline) {
        (Some(budget), _) => Budget::Bytes(budget.as_u64()),
        (None, Some(deadline)) => Budget::Deadline(deadline),
        (None, None) => Budget::Unbounded,
    };
    Options {
        budget,
        epoch_interval: tracking.epoch_interval,
        pause: tracking.pause,
        throttle: tracking.throttle.unwrap_or(Share::NONE),
        power: tracking.on_power_loss.clone(),
        then: tracking.then,
        data: tracking.data.clone(),
    }
}

/// Whether writes can be tracked; logged where they cannot.
fn can_track(tracking: &Tracking) -> bool {
    if tracking.no_tracking {
        return false;
    }
    match self_test::run() {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(
                "this kernel's tracking of writes is not used ({error}): all memory is compared \
                 each time"
            );
            false
        }
    }
}

fn open(place: &Path, name: &str, access: Access, tracking: &Tracking) -> Result<Store, Failure> {
    let limit = tracking.store_size.map(|size| size.as_u64());
    Ok(Store::open(&path_of(place, name)?, name, access, limit)?)
}

/// Namespace and lease, where they are wanted; before the store is opened, because another node may
/// write it until then.
fn alone(place: &Path, name: &str, tracking: &Tracking) -> Result<Option<Keeper>, Failure> {
    if tracking.lease.is_some() || tracking.isolate && !isolate::in_container() {
        isolate::enter().map_err(|error| {
            Failure::lacking(format!(
                "no PID namespace for the program ({error}): it needs CAP_SYS_ADMIN"
            ))
        })?;
    }
    let Some(term) = tracking.lease else {
        return Ok(None);
    };
    let stop = Arc::new(AtomicBool::new(false));
    let caught: Vec<_> = [libc::SIGINT, libc::SIGTERM]
        .into_iter()
        .filter_map(|signal| signal_hook::flag::register(signal, Arc::clone(&stop)).ok())
        .collect();
    let lease = Lease::acquire(place, name, term, &stop);
    for registration in caught {
        signal_hook::low_level::unregister(registration);
    }
    let keeper = lease?.keep()?;
    tracing::info!(generation = keeper.generation(), "holds the lease");
    Ok(Some(keeper))
}

/// Goes on under the number that the program's tracker had. Under a lease there is a thread already, and
/// the number is the same in each namespace.
fn under_former_number(place: &Path, name: &str, keeper: Option<&Keeper>) {
    if keeper.is_none()
        && let Ok(path) = path_of(place, name)
    {
        number::take_former(&path, name);
    }
}

pub fn run(arguments: &RunArguments) -> Result<u8, Failure> {
    let name = arguments.name();
    let tracking = &arguments.tracking;
    // Dropped last: when nothing of the program is left.
    let keeper = alone(&arguments.place.store, &name, tracking)?;
    if !arguments.fresh {
        under_former_number(&arguments.place.store, &name, keeper.as_ref());
    }
    let mut store = open(&arguments.place.store, &name, Access::Create, tracking)?;
    if let Some(user) = &arguments.user {
        launch::hand_over_output(user);
    }
    if !arguments.fresh {
        if store.root().is_some() {
            match resumed(store, tracking, &arguments.restoring) {
                Err(Refused::Changed(why)) if arguments.fresh_if_changed => {
                    tracing::warn!("{why}; it is started anew, as --fresh-if-changed says");
                    store = open(&arguments.place.store, &name, Access::Create, tracking)?;
                }
                result => return Ok(result?),
            }
        }
        if !store.passed_over().is_empty() {
            return Err(Failure::failed(format!(
                "{}: it held a state, and no complete epoch is left of it ({}); `run --fresh` \
                 starts the program anew, `remove` removes what is left",
                store.path().display(),
                store.passed_over().join("; "),
            )));
        }
    }
    let track = can_track(tracking);
    let child = started(&mut store, arguments)?;
    let roots = Roots::Children(child.id() as i32);
    let tracker = Tracker::new(Mirror::new(store, track), track, roots, options(tracking))?;
    Ok(code_of(&tracker.run()?))
}

/// Starts the program. What the store holds is given up when the new program runs, and not before: a
/// misspelt command costs nothing. A store that holds nothing does not stay behind without a program.
fn started(store: &mut Store, arguments: &RunArguments) -> Result<Child, Failure> {
    let holds_nothing = store.root().is_none() && store.passed_over().is_empty();
    match launch::start(&arguments.command, &arguments.identity()) {
        Ok(mut child) => {
            if let Err(error) = if holds_nothing { Ok(()) } else { store.clear() } {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.into());
            }
            Ok(child)
        }
        Err(error) => {
            if holds_nothing {
                store.remove()?;
            }
            let program = arguments.command[0].to_string_lossy();
            Err(Failure::failed(format!("cannot run {program}: {error}")))
        }
    }
}

pub fn attach(arguments: &AttachArguments) -> Result<u8, Failure> {
    let tracking = &arguments.tracking;
    let (name, pid) = arguments.target().map_err(Failure::usage)?;
    if tracking.isolate || tracking.lease.is_some() {
        let why = "--isolate and --lease are for programs that the tracker starts: a running one \
                   has its PID namespace, and would outlive the tracker";
        return Err(Failure::usage(why.to_owned()));
    }
    let store = open(&arguments.place.store, name, Access::Create, tracking)?;
    if store.root().is_some() {
        return Err(Failure::failed(format!(
            "{}: holds a state already; restore it, or remove it first",
            store.path().display()
        )));
    }
    let track = can_track(tracking);
    let roots = Roots::Attached(pid);
    let mirror = Mirror::new(store, track).with_relatives();
    let tracker = Tracker::new(mirror, track, roots, options(tracking))?;
    Ok(code_of(&tracker.run()?))
}

pub fn restore(arguments: &RestoreArguments) -> Result<u8, Failure> {
    let tracking = &arguments.tracking;
    let name = arguments.name.as_str();
    let keeper = alone(&arguments.place.store, name, tracking)?;
    under_former_number(&arguments.place.store, name, keeper.as_ref());
    let store = open(&arguments.place.store, name, Access::Write, tracking)?;
    if store.root().is_none() {
        return Err(Failure::failed(format!(
            "{}: there is nothing to restore",
            store.path().display()
        )));
    }
    Ok(resumed(store, tracking, &arguments.restoring)?)
}

/// Why a program is not restored.
enum Refused {
    /// Files are not as they were; nothing has happened yet.
    Changed(TrackerError),
    Other(Failure),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Changed(error) => error.into(),
            Refused::Other(failure) => failure,
        }
    }
}

fn resumed(store: Store, tracking: &Tracking, restoring: &Restoring) -> Result<u8, Refused> {
    let how = resume::Restoring {
        verify_first: restoring.verify_first,
        accept_changed_files: restoring.accept_changed_files,
        eager: restoring.eager,
    };
    let tracker = resume::resume(store, || can_track(tracking), options(tracking), &how).map_err(
        |error| match error {
            TrackerError::Restore(restore::Error::Changed { .. }) => Refused::Changed(error),
            error => Refused::Other(error.into()),
        },
    )?;
    let end = tracker.run();
    Ok(code_of(&end.map_err(|error| Refused::Other(error.into()))?))
}

/// The exit code that stands for the program's end.
fn code_of(end: &End) -> u8 {
    match end {
        End::Exited(code) => {
            tracing::info!("the program ended with exit code {code}; its state is removed");
            u8::try_from(*code).unwrap_or(FAILED)
        }
        End::Killed(signal) => {
            tracing::warn!("the program was killed by signal {signal}; its last epoch is kept");
            u8::try_from(128 + signal).unwrap_or(FAILED)
        }
        End::Vanished => {
            tracing::warn!(
                "the program ended, and its exit status is not known to the tracker; its last \
                 epoch is kept"
            );
            DONE
        }
        End::Persisted(report) => {
            tracing::warn!(
                "the program was persisted in epoch {} and then killed, as was asked for; \
                 the command that started it restores it",
                report.epoch
            );
            DONE
        }
    }
}

pub fn persist(arguments: &PersistArguments) -> Result<u8, Failure> {
    let name = arguments.name.as_str();
    let path = path_of(&arguments.place.store, name)?;
    let then = arguments.then;
    let request = match arguments.rehearse {
        false => Request::Persist { then },
        true => Request::Rehearse { then },
    };
    let answer = send(&path, request)
        .map_err(|error| Failure::failed(format!("the tracker does not answer: {error}")))?;
    match answer {
        None => Err(Failure::failed(format!(
            "{}: no tracker; start the program with `dormouse process run {name} -- COMMAND`, or \
             attach to it",
            path.display(),
        ))),
        Some(Answer::Error(error)) => Err(Failure::failed(format!("not persisted: {error}"))),
        Some(Answer::Ok(value)) => {
            if arguments.json {
                json(&value)?;
            } else {
                let done: Report = serde_json::from_value(value).map_err(|error| {
                    Failure::failed(format!("the tracker is of another version: {error}"))
                })?;
                line(&report(&done))?;
            }
            Ok(DONE)
        }
    }
}
