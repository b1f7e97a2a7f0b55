//! What the lab and the agent inside the emulated machine share: the control channel's messages.

pub mod awkward_kinds;
pub mod bandwidth_job;
pub mod device_job;
pub mod frame;
pub mod protocol;
pub mod stress;
