//! Compiles the C sources that firmware and the kernel use, and derives the Rust view of
//! the format from their header, so that the format is written down once.

mod bindings;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=include");

    cc::Build::new()
        .files(bindings::SOURCES.iter().map(|name| format!("src/{name}.c")))
        .include("include")
        .std("c11")
        .flags(["-Wall", "-Wextra", "-Werror", "-ffreestanding"])
        .opt_level(2)
        .compile("dormouse_image");

    bindings::write("include/dormouse_image.h");
}
