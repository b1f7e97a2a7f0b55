//! What a static libelf needs and some distributions leave out.

use std::process::Command;

fn main() {
    compression_of_libelf();
    search_trees_of_libelf();
}

/// Debian 13's static libelf lacks functions that it calls. All of the archive, because the linker
/// has passed it by when it comes to libelf.
fn search_trees_of_libelf() {
    println!("cargo:rerun-if-changed=compat");
    cc::Build::new()
        .file("compat/eu_search.c")
        .warnings_into_errors(true)
        .link_lib_modifier("+whole-archive")
        .compile("dormouse_eu_search");
}

/// libelf of newer distributions needs zstd. The static linker must see all of it, and before
/// libelf on its command line.
fn compression_of_libelf() {
    let ask = |arguments: &[&str]| {
        let output = Command::new("pkg-config").args(arguments).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let needs = ask(&["--static", "--libs", "libelf"]).unwrap_or_default();
    if needs.split_whitespace().any(|word| word == "-lzstd") {
        if let Some(folder) = ask(&["--variable=libdir", "libzstd"]) {
            println!("cargo:rustc-link-search=native={}", folder.trim());
        }
        println!("cargo:rustc-link-lib=static:+whole-archive=zstd");
    }
}
