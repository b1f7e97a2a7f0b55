//! What the controller remembers of a user, and when a limit binds.

use super::Load;
use super::demand::DemandPredictor;
use crate::estimate::ewma::Ewma;

/// A limit that is used to this fraction binds, even if the kernel counted no throttling.
const BINDING_THRESHOLD: f64 = 0.98;
/// A limit of which less is used on average does not bind: a burst longer than the quota of one
/// period waited for the next one, but there was enough.
const IDLE_THRESHOLD: f64 = 0.5;

/// What the controller remembers of one user.
#[derive(Clone, Debug)]
pub(super) struct UserState {
    /// Bytes per CPU second.
    pub(super) rate: Ewma,
    /// Average CPU time, in CPUs.
    pub(super) used: Ewma,
    pub(super) demand: DemandPredictor,
    /// Whether its limit held it back in the last interval.
    pub(super) held: bool,
    /// Time since its limit last bound.
    pub(super) idle_ms: f64,
    /// What the last step expected it to move until this one, in bytes a second.
    pub(super) expected: f64,
    /// Whether that was less than its demand.
    pub(super) slowed: bool,
    /// Bytes of its share that it has saved up.
    pub(super) credit: f64,
    /// How much less than expected it usually moves while no limit binds, in bytes a second.
    pub(super) baseline_shortfall: f64,
    /// Whether it has existed for one interval only.
    pub(super) new: bool,
}

/// Whether the limit holds back a user with this average CPU time.
pub(super) fn binding(load: &Load, used: f64) -> bool {
    load.limit.is_some_and(|limit| {
        load.cpu >= BINDING_THRESHOLD * limit || load.held_back && used >= IDLE_THRESHOLD * limit
    })
}
