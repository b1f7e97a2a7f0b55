//! What the lab and the agent inside the emulated machine share: the control channel's messages.

pub mod protocol;
