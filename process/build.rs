//! Compiles the BPF iterator in `bpf/`.

include!("../system/bpf/compile.rs");

fn main() {
    compile("vma_flags");
}
