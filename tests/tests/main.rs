//! Every test that starts from a command a user would type, in one binary: two at a time fill two processors to the
//! end of the run, and one link is quicker than eight.

mod bandwidth;
mod containers;
mod devices;
mod machine;
mod offload;
mod packages;
mod process;
mod tutorials;
