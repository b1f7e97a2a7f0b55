//! The C sources of the format, and the Rust view of its header; for build scripts.

use std::env;
use std::path::PathBuf;

/// Below `src`, without their extension.
pub const SOURCES: &[&str] = &[
    "xxh64",
    "strings",
    "header",
    "geometry",
    "check",
    "snapshot",
    "plan",
    "user_pages",
    "copy",
];

/// Writes `bindings.rs` into the build's output folder.
pub fn write(header: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindgen::Builder::default()
        .header(header)
        .clang_arg("-std=c11")
        .allowlist_item("(dormouse|DORMOUSE)_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .use_core()
        .generate()
        .unwrap_or_else(|error| {
            panic!("bindgen reads {header} (it needs libclang and its headers): {error}")
        })
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR is writable");
}
