//! Derives the Rust view of the format from its C header; for build scripts.

use std::env;
use std::path::PathBuf;

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
