//! Compiles the schedulers in `bpf/` to BPF.

use std::path::{Path, PathBuf};
use std::process::Command;

const SCHEDULERS: [&str; 2] = ["dormouse", "empty"];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let headers =
        std::env::var("DEP_BPF_INCLUDE").expect("libbpf-sys reports where its headers are");
    for name in SCHEDULERS {
        let mut clang = Command::new("clang");
        clang
            .args([
                "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3",
            ])
            .arg(format!("-I{headers}"));
        // The architecture's headers on multi-arch distributions.
        let asm = Path::new("/usr/include/x86_64-linux-gnu");
        if asm.exists() {
            clang.arg("-I").arg(asm);
        }
        let object = out.join(format!("{name}.o"));
        let status = clang
            .arg("-c")
            .arg(format!("bpf/{name}.bpf.c"))
            .arg("-o")
            .arg(&object)
            .status()
            .expect("clang is needed: scripts/setup.sh");
        assert!(status.success(), "bpf/{name}.bpf.c does not compile");
    }
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
