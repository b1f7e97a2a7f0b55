//! libbpf, linked statically on every distribution (`build.rs`), for the crates that load BPF programs.

pub mod iterator;

pub use {libbpf_rs, libbpf_sys};
