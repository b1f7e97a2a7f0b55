//! Compiles the schedulers in `bpf/` to BPF.

include!("../system/bpf/compile.rs");

fn main() {
    ["dormouse", "empty"].into_iter().for_each(compile);
}
