//! Compiles the programs in `bpf/` to BPF.

include!("../system/bpf/compile.rs");

fn main() {
    ["dormouse", "empty", "usage"].into_iter().for_each(compile);
}
