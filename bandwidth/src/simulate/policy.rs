//! The policies: six methods of Kämmerer 2025, and the daemon's code.

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// No control.
    None,
    /// Kämmerer 2025: cgroups, reduction by the total.
    ByTotal,
    /// Kämmerer 2025: cgroups, reduction by balance points.
    BalancePoints,
    /// Kämmerer 2025: a sched_ext round-robin scheduler with shorter slices.
    RoundRobin,
    /// Kämmerer 2025: the same, in the order of virtual time.
    VirtualTime,
    /// Kämmerer 2025: sched_ext with a throttling dispatch queue.
    ThrottleQueue,
    /// Ours: fair shares with feedback, enforced by quotas.
    Fair,
    /// The same, enforced by the sched_ext scheduler.
    FairExt,
    /// The same; limited tasks may use processors that would be idle.
    FairExtUse,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::ByTotal,
        Self::BalancePoints,
        Self::RoundRobin,
        Self::VirtualTime,
        Self::ThrottleQueue,
        Self::Fair,
        Self::FairExt,
        Self::FairExtUse,
    ];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ByTotal => "by-total",
            Self::BalancePoints => "balance-points",
            Self::RoundRobin => "round-robin",
            Self::VirtualTime => "virtual-time",
            Self::ThrottleQueue => "throttle-queue",
            Self::Fair => "fair",
            Self::FairExt => "fair-sched-ext",
            Self::FairExtUse => "fair-sched-ext-use",
        }
    }

    /// Whether each memory task is in a cgroup of its own.
    pub fn uses_cgroups(self) -> bool {
        matches!(self, Self::ByTotal | Self::BalancePoints | Self::Fair)
    }

    /// Whether the sched_ext scheduler enforces it.
    pub fn uses_budgets(self) -> bool {
        matches!(self, Self::FairExt | Self::FairExtUse)
    }

    /// Time between two passes, and from the readings of a pass to its writes.
    pub(super) fn times_ns(self, interval_ns: i64) -> (i64, i64) {
        match self {
            // The loop of Kämmerer 2025 takes 30.8 ms and sleeps for 150 ms.
            Self::ByTotal | Self::BalancePoints => (180_800_000, 30_800_000),
            _ => (interval_ns, 1_000_000),
        }
    }
}
