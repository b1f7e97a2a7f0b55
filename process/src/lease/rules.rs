//! The rules of a lease: pure functions of what was seen and when.

/// How long a challenger waits for a renewal: a quarter more than the holder has, because their
/// clocks may differ in speed.
pub fn wait_ns(term_ns: u64) -> u64 {
    term_ns.saturating_add(term_ns / 4)
}

/// From one renewal to the next.
pub fn renewal_interval_ns(term_ns: u64) -> u64 {
    term_ns / 3
}

/// Until when a holder may run the program, whose last successful renewal began at `began_ns`.
pub fn valid_until_ns(began_ns: u64, term_ns: u64) -> u64 {
    began_ns.saturating_add(term_ns)
}

/// What a challenger sees of the newest generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// Which; 0: there is none.
    pub generation: u64,
    /// Stands for its contents: a renewal changes them.
    pub contents: u64,
    /// Its holder has given it back.
    pub released: bool,
    /// Its holder was a process under this kernel, and has ended.
    pub holder_is_dead: bool,
    /// The term that its holder counts by; 0 where it cannot be read.
    pub term_ns: u64,
}

impl Sighting {
    /// There has never been a holder.
    pub fn nothing() -> Self {
        Self {
            generation: 0,
            contents: 0,
            released: true,
            holder_is_dead: true,
            term_ns: 0,
        }
    }
}

/// What a challenger does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may claim the next generation.
    Free,
    /// It looks again.
    Wait {
        /// After so long without a renewal the lease is free.
        left_ns: u64,
        /// The holder has renewed it since the last time.
        changed: bool,
    },
}

/// A challenger's memory.
#[derive(Debug, Default)]
pub struct Watch {
    last: Option<(Sighting, u64)>,
}

impl Watch {
    /// What to do after a sighting that began and was complete at these times on the own clock: a
    /// challenger may stand still in between. `own_term_ns` is the challenger's, which counts where
    /// it is longer than the holder's.
    pub fn see(
        &mut self,
        sighting: &Sighting,
        (began_ns, complete_ns): (u64, u64),
        own_term_ns: u64,
    ) -> Verdict {
        if sighting.released || sighting.holder_is_dead {
            return Verdict::Free;
        }
        let wait_ns = wait_ns(own_term_ns.max(sighting.term_ns));
        let since = match &self.last {
            Some((last, since)) if last == sighting => *since,
            _ => {
                let changed = self
                    .last
                    .is_some_and(|(last, _)| last.generation == sighting.generation);
                self.last = Some((*sighting, complete_ns));
                return Verdict::Wait {
                    left_ns: wait_ns,
                    changed,
                };
            }
        };
        // A renewal that came after the reading has begun may not be in it.
        let waited_ns = began_ns.saturating_sub(since);
        if waited_ns >= wait_ns {
            return Verdict::Free;
        }
        Verdict::Wait {
            left_ns: wait_ns - waited_ns,
            changed: false,
        }
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
