//! Decides which readings count as a power loss. Pure.

/// One answer to "where does power come from?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// From the mains.
    Mains,
    /// From a battery that still has charge.
    Battery,
    /// From a battery that is nearly empty, or the UPS says that it will shut down.
    BatteryLow,
    /// No answer, or one without information; and why.
    Silence(String),
}

/// An event for the tracker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Power is about to fail: why.
    Lost(String),
    /// It is back.
    Back,
    /// The source does not answer; power was not known to be failing.
    Unknown(String),
}

impl Event {
    /// Whether the program must be persisted now.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Unknown,
    Mains,
    Battery,
    /// On battery, and reported.
    Lost,
    Silent,
}

/// Turns readings into events: reports each change once.
#[derive(Debug, Default)]
pub struct Judge {
    state: State,
    silent: u32,
}

/// Questions without an answer until silence counts: one lost packet is no silence.
const SILENT_READINGS: u32 = 2;

impl Judge {
    /// Takes a reading; returns the new event.
    pub fn receive(&mut self, reading: &Reading) -> Option<Event> {
        if !matches!(reading, Reading::Silence(_)) {
            self.silent = 0;
        }
        match (reading, self.state) {
            (Reading::Mains, State::Mains) => None,
            (Reading::Mains, State::Unknown) => {
                self.state = State::Mains;
                None
            }
            (Reading::Mains, _) => {
                self.state = State::Mains;
                Some(Event::Back)
            }
            (Reading::Battery | Reading::BatteryLow, State::Lost) => None,
            (Reading::Battery, _) => {
                self.state = State::Lost;
                Some(Event::Lost("on battery".to_owned()))
            }
            (Reading::BatteryLow, _) => {
                self.state = State::Lost;
                Some(Event::Lost("on battery, and it is nearly empty".to_owned()))
            }
            (Reading::Silence(why), state) => {
                self.silent += 1;
                match state {
                    State::Silent => None,
                    // Reported already, and nothing is worse; but power may have returned and
                    // failed meanwhile, so the next reading is reported again.
                    State::Lost | State::Battery if self.silent >= SILENT_READINGS => {
                        self.state = State::Battery;
                        (self.silent == SILENT_READINGS)
                            .then(|| Event::Lost(format!("no answer while on battery: {why}")))
                    }
                    State::Mains | State::Unknown if self.silent >= SILENT_READINGS => {
                        self.state = State::Silent;
                        Some(Event::Unknown(why.clone()))
                    }
                    _ => None,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(readings: &[Reading]) -> Vec<Option<&'static str>> {
        let mut judge = Judge::default();
        readings
            .iter()
            .map(|reading| {
                judge.receive(reading).map(|event| match event {
                    Event::Lost(why) if why.contains("no answer") => "lost in silence",
                    Event::Lost(_) => "lost",
                    Event::Back => "back",
                    Event::Unknown(_) => "unknown",
                })
            })
            .collect()
    }

    fn silence() -> Reading {
        Reading::Silence("timeout".to_owned())
    }

    #[test]
    fn on_battery_is_a_loss_and_is_told_once() {
        use Reading::{Battery, BatteryLow, Mains};
        assert_eq!(
            events(&[
                Mains, Battery, Battery, BatteryLow, Mains, Mains, BatteryLow
            ]),
            [
                None,
                Some("lost"),
                None,
                None,
                Some("back"),
                None,
                Some("lost")
            ]
        );
        assert_eq!(events(&[Battery]), [Some("lost")], "also at the start");
    }

    #[test]
    fn silence_on_battery_is_a_loss() {
        use Reading::{Battery, Mains};
        assert_eq!(
            events(&[
                Mains,
                Battery,
                silence(),
                silence(),
                silence(),
                Battery,
                Mains
            ]),
            [
                None,
                Some("lost"),
                None,
                Some("lost in silence"),
                None,
                Some("lost"),
                Some("back")
            ]
        );
    }

    #[test]
    fn silence_on_mains_is_said_but_is_no_loss() {
        use Reading::{Battery, Mains};
        assert_eq!(
            events(&[
                Mains,
                silence(),
                Mains,
                silence(),
                silence(),
                silence(),
                Battery
            ]),
            [None, None, None, None, Some("unknown"), None, Some("lost")]
        );
    }
}
