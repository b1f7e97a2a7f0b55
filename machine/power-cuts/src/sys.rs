//! The C side: the library's types and functions as bindgen reads them, and those of `c/`.
#![allow(non_camel_case_types, non_upper_case_globals, missing_docs, dead_code)]
#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

unsafe extern "C" {
    pub static mut sim_cpuid_7_ebx: u32;
    pub static mut sim_cpuid_7_ecx: u32;
    pub static mut sim_cpuid_1_edx: u32;
    pub fn sim_run(part: unsafe extern "C" fn()) -> i32;
    pub fn sim_power_on();
    pub fn sim_sleep();
    pub fn sim_board(geometry: *const dormouse_geometry, wake_vector: u32);
    pub fn sim_snapshot_power_on();
    pub fn sim_snapshot_sleep();
    pub fn sim_snapshot_board(geometry: *const dormouse_geometry);
    pub fn sim_snapshot_request(dram: *const u64, node: *const u64, user_check: u32);
    pub fn sim_request(cxl_base: u64, dram: *const u64, cxl: *const u64, user_check: u32);
}
