// Compiles `bpf/NAME.bpf.c` of a crate to `NAME.o` in its output directory. Included by the build scripts
// of crates that depend on `libbpf-sys`, which tells only these where its headers are.

use std::path::{Path, PathBuf};
use std::process::Command;

fn compile(name: &str) {
    println!("cargo:rerun-if-changed=bpf");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let headers =
        std::env::var("DEP_BPF_INCLUDE").expect("libbpf-sys reports where its headers are");
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
    let status = clang
        .arg("-c")
        .arg(format!("bpf/{name}.bpf.c"))
        .arg("-o")
        .arg(out.join(format!("{name}.o")))
        .status()
        .expect("clang is needed: scripts/setup.sh");
    assert!(status.success(), "bpf/{name}.bpf.c does not compile");
}
