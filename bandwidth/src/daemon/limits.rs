//! Writing and restoring the limits of users.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Daemon, Notice, Pass};
use crate::allocate::Decision;
use crate::enforce::ledger::Undone;
use crate::enforce::quota::{OPENING, Overrun, Quota, should_write};

impl Daemon {
    /// Restores a user's limit; returns whether that is complete.
    pub(super) fn release(&mut self, path: &Path, notices: &mut Vec<Notice>) -> bool {
        let forgotten = self.ext.as_mut().map_or(Ok(()), |ext| ext.forget(path));
        let mut failures: Vec<String> = forgotten.err().iter().map(ToString::to_string).collect();
        match self.ledger.restore(path) {
            Ok(Some(Undone::Failed(_, why))) => failures.push(why),
            Ok(Some(Undone::Gone(path))) => notices.push(Notice::Gone(path)),
            Ok(Some(Undone::LeftAlone(path, _))) => notices.push(Notice::Foreign(path)),
            Ok(_) => (),
            Err(error) => failures.push(error.to_string()),
        }
        let all = failures.is_empty();
        notices.extend(
            failures
                .into_iter()
                .map(|why| Notice::Failed(path.to_owned(), why)),
        );
        all
    }

    /// The scheduler keeps debts itself.
    pub(super) fn note_overruns(&mut self, interval_ms: f64, indices: &[usize]) {
        for &at in indices.iter().filter(|_| self.ext.is_none()) {
            let user = &mut self.users[at];
            if let Some(limit) = user.limit {
                user.overrun.add(interval_ms, user.cpu, limit);
            }
        }
    }

    pub(super) fn enforce(
        &mut self,
        now_ns: u64,
        indices: &[usize],
        decision: &Decision,
        pass: &mut Pass,
    ) {
        let (mut first, mut longer) = (Vec::new(), Vec::new());
        for (&at, limit) in indices.iter().zip(&decision.limits) {
            let user = &self.users[at];
            if !should_write(user.limit, limit.cpu, user.overrun) {
                continue;
            }
            pass.writes += 1;
            if let Some(ext) = &mut self.ext {
                let path = &user.cgroup.path;
                let result = match limit.cpu {
                    Some(cpu) => ext.set(path, cpu),
                    None => ext.lift(path),
                };
                match result {
                    Ok(()) => self.users[at].limit = limit.cpu,
                    Err(error) => pass
                        .notices
                        .push(Notice::Failed(path.clone(), error.to_string())),
                }
                continue;
            }
            let quota = |cpu| self.turns.quota(cpu);
            match limit.cpu.map(|cpu| (quota(cpu), user.limit.map(quota))) {
                Some((quota, None)) => first.push((at, quota)),
                Some((quota, Some(old))) if quota.period_us > old.period_us => {
                    longer.push((at, old, quota));
                }
                Some((quota, Some(_))) => self.set(at, quota, &mut pass.notices),
                None => {
                    let path = user.cgroup.path.clone();
                    if self.release(&path, &mut pass.notices) {
                        self.users[at].limit = None;
                    }
                }
            }
        }
        if let Some(limit) = decision.limits.get(indices.len()) {
            self.limit_tiering(now_ns, limit.cpu, pass);
        }
        self.limit_in_turn(now_ns, &first, &longer, &mut pass.notices);
    }

    /// Writes first limits at their user's turn, and limits with longer periods at the end of a
    /// suitable period. Takes at most 20 ms or ten ticks.
    fn limit_in_turn(
        &mut self,
        now_ns: u64,
        first: &[(usize, Quota)],
        longer: &[(usize, Quota, Quota)],
        notices: &mut Vec<Notice>,
    ) {
        if first.is_empty() && longer.is_empty() {
            return;
        }
        let began = Instant::now();
        let id = |at: usize| self.users[at].id;
        let take = self.turns;
        let turn = |&(at, quota): &(usize, Quota)| {
            let wait_ns = take.until_turn_ns(now_ns, id(at), quota.period_us);
            (wait_ns, at, quota)
        };
        let later = |&(at, old, quota): &(usize, Quota, Quota)| {
            let wait_ns = take.until_longer_ns(now_ns, id(at), old, quota);
            (wait_ns, at, quota)
        };
        let turns = first.iter().map(turn);
        let mut turns: Vec<_> = turns.chain(longer.iter().map(later)).collect();
        turns.sort_by_key(|&(wait_ns, ..)| wait_ns);
        for (wait_ns, at, quota) in turns {
            let due = Duration::from_nanos(wait_ns);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            if self.users[at].limit.is_none() {
                // If the kernel refuses it, as below a limited parent of version 1, the limit is
                // written anyway.
                let _ = self.ledger.set(&self.users[at].cgroup, OPENING.into());
            }
            self.set(at, quota, notices);
        }
    }

    fn set(&mut self, at: usize, quota: Quota, notices: &mut Vec<Notice>) {
        let user = &mut self.users[at];
        match self.ledger.set(&user.cgroup, quota.into()) {
            Ok(set) => {
                if set.foreign.is_some() {
                    notices.push(Notice::Foreign(user.cgroup.path.clone()));
                }
                user.limit = set.max.cpu();
                user.overrun = Overrun::written(quota);
            }
            // A cgroup that is gone is noticed in the next pass.
            Err(error) if error.is_gone() => (),
            Err(error) => notices.push(Notice::Failed(user.cgroup.path.clone(), error.to_string())),
        }
    }
}
