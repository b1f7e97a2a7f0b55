//! Compiles the C sources that firmware and the kernel use, and derives the Rust view of
//! the format from their header, so that the format is written down once.

use std::env;
use std::path::PathBuf;

const SOURCES: &[&str] = &[
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

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=include");

    cc::Build::new()
        .files(SOURCES.iter().map(|name| format!("src/{name}.c")))
        .include("include")
        .std("c11")
        .flags(["-Wall", "-Wextra", "-Werror", "-ffreestanding"])
        .opt_level(2)
        .compile("dormouse_image");

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindgen::Builder::default()
        .header("include/dormouse_image.h")
        .clang_arg("-std=c11")
        .allowlist_item("(dormouse|DORMOUSE)_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .use_core()
        .generate()
        .expect("bindgen reads include/dormouse_image.h (it needs libclang and its headers)")
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR is writable");
}
