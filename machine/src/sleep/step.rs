//! One step on the way down: its events, how long it took, and where Ctrl-C ends a sleep.

use dormouse_report::{Event, Kind};

use super::times::DOWN;
use crate::error::SleepError;
use crate::options::Cancel;
use crate::system::clock::{event, seconds};

/// Receives what happens, as it happens.
pub type Events<'a> = &'a mut dyn FnMut(&Event);

/// Ends the sleep here if Ctrl-C wants that.
pub fn check(cancel: &Cancel, step: &'static str) -> Result<(), SleepError> {
    if cancel.is_set() {
        Err(SleepError::Interrupted { step })
    } else {
        Ok(())
    }
}

/// Begin and end events around a step, and how long it took.
pub fn timed<T>(
    name: &str,
    events: Events<'_>,
    step: impl FnOnce(&mut dyn FnMut(&Event)) -> Result<(T, Event), SleepError>,
) -> Result<(T, f64), SleepError> {
    let begin = event(DOWN, name, Kind::Begin);
    events(&begin);
    let result = step(&mut *events);
    let end = event(DOWN, name, Kind::End);
    let took_s = seconds(begin.t_ns, end.t_ns);
    match result {
        Ok((value, detail)) => {
            events(&Event {
                detail: detail.detail,
                ..end
            });
            Ok((value, took_s))
        }
        Err(error) => {
            events(&end.with("failed", error.reason()));
            Err(error)
        }
    }
}

pub fn no_detail() -> Event {
    event(DOWN, "", Kind::Mark)
}
