//! Suspend-to-CXL: sleep, lose power and wake in the emulated machine.

mod boot;
mod damaged_images;
mod firmware_build;
mod hard_to_move_memory;
mod hibernation;
mod hot_first;
mod kernel_module;
mod kernels;
mod persistence;
mod power_cuts;
mod refusals;
mod sealed_images;
mod sleep_and_wake;
mod stock_firmware;
mod stress;
