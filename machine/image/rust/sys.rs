//! The C interface as bindgen reads it from `include/dormouse_image.h`. For tools and tests
//! that make images; everything else uses the safe types of this crate.
#![allow(non_camel_case_types, non_upper_case_globals, missing_docs)]
#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
