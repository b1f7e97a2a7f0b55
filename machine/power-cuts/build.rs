//! Compiles the image library and the firmware's driver as they are, with the instructions of
//! `c/primitives.h` in place of the processor's and `c/coreboot` in place of coreboot.

#[path = "../image/bindings.rs"]
mod bindings;

/// What ramstage and SMM run; smi.c is in c/smm.c and wake.c in c/ramstage.c, which reset them.
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
        .files(
            bindings::SOURCES
                .iter()
                .map(|name| format!("../image/src/{name}.c")),
        )
        .files(
            DRIVER
                .iter()
                .map(|name| format!("../firmware/driver/{name}.c")),
        )
        .files([
            "c/hooks.c",
            "c/smm.c",
            "c/ramstage.c",
            "c/board.c",
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
    bindings::write("../image/include/dormouse_image.h");
}
