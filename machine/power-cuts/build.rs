//! Compiles the image library and the firmware's driver as they are, with the instructions of
//! `c/primitives.h` in place of the processor's and `c/coreboot` in place of coreboot.

use std::env;
use std::path::PathBuf;

const IMAGE: &[&str] = &[
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
/// What ramstage and SMM run; smi.c and wake.c are in c/firmware.c, which resets them.
const DRIVER: &[&str] = &["save", "restore", "copy_pages", "user_check"];

fn main() {
    for path in [
        "c",
        "../image/src",
        "../image/include",
        "../firmware/driver",
    ] {
        println!("cargo::rerun-if-changed={path}");
    }
    cc::Build::new()
        .files(IMAGE.iter().map(|name| format!("../image/src/{name}.c")))
        .files(
            DRIVER
                .iter()
                .map(|name| format!("../firmware/driver/{name}.c")),
        )
        .files([
            "c/hooks.c",
            "c/firmware.c",
            "c/kernel.c",
            "c/snapshot_way.c",
        ])
        .include("c")
        .include("c/coreboot")
        .include("../image/include")
        .include("../firmware/driver")
        .define("DM_PRIMITIVES", "\"simulated_primitives.h\"")
        .std("gnu11")
        .flags(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
        .opt_level(2)
        .compile("dormouse_power_cuts");

    // Of its own: the crate dormouse-image brings the library with the processor's instructions.
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindgen::Builder::default()
        .header("../image/include/dormouse_image.h")
        .clang_arg("-std=c11")
        .allowlist_item("(dormouse|DORMOUSE)_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .use_core()
        .generate()
        .expect("bindgen reads dormouse_image.h (it needs libclang and its headers)")
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR is writable");
}
