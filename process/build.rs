//! Compiles the BPF programs in `bpf/`.

include!("../system/bpf/compile.rs");

fn main() {
    ["read_kernel", "vma_flags"].into_iter().for_each(compile);
}
