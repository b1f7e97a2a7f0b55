//! Loads the BPF programs of `bpf/`.

use std::io;

use dormouse_bpf::libbpf_rs::{self, Object, ObjectBuilder};

/// An error of libbpf's, after what failed.
pub fn failed(what: &str) -> impl Fn(libbpf_rs::Error) -> io::Error {
    move |error| io::Error::other(format!("{what}: {error}"))
}

/// Loads an object of the build.
///
/// # Errors
/// The kernel lacks what it needs or has no BTF, or we may not load BPF programs.
pub fn load(bytes: &[u8]) -> io::Result<Object> {
    // The loader's messages are of no use to a user: without BPF, there is another way or a refusal.
    libbpf_rs::set_print(None);
    let mut builder = ObjectBuilder::default();
    let object = builder.open_memory(bytes).map_err(failed("open BPF"))?;
    object.load().map_err(failed("load BPF"))
}
