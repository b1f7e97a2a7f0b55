//! What is authenticated beside the chunks: the encryption record, the table of tags, and the
//! parts that the caller names, each with its length, so that no boundary can be moved.

use dormouse_image::{check::Header, sys};
use ring::hmac;

use crate::wire::Encryption;

/// The header as it is authenticated: without what changes after the image was sealed.
///
/// State, generation, attempts, history, times and the header's own digest belong to the state
/// machine, which goes on after sealing: a forged state never makes more of the image than a
/// restore of the sealed pages, and a second restore is what the counter is for.
pub fn authenticated_header(header: &Header) -> Box<Header> {
    let mut part = Box::new(*header);
    part.generation = 0;
    part.state = 0;
    part.restored_pages = 0;
    part.restore_attempts = 0;
    part.sleep_count = 0;
    part.resume_count = 0;
    part.last_outcome = 0;
    part.last_reason = 0;
    part.last_detail = 0;
    part.phase = Default::default();
    part.encryption = sys::dormouse_encryption::default();
    part.header_digest = 0;
    part
}

/// The context of the tag, in the order of the record; `parts` are the caller's.
pub(crate) fn tag(
    key: &hmac::Key,
    record: &Encryption,
    bytes: u64,
    table: &[u8],
    parts: &[&[u8]],
) -> hmac::Tag {
    feed(key, record, bytes, table, parts).sign()
}

/// Whether the record's tag is right, in constant time.
pub(crate) fn verify(
    key: &hmac::Key,
    record: &Encryption,
    bytes: u64,
    table: &[u8],
    parts: &[&[u8]],
) -> bool {
    let ours = tag(key, record, bytes, table, parts);
    let mut difference = 0;
    for (a, b) in ours.as_ref().iter().zip(&record.tag) {
        difference |= a ^ b;
    }
    std::hint::black_box(difference) == 0
}

fn feed(
    key: &hmac::Key,
    record: &Encryption,
    bytes: u64,
    table: &[u8],
    parts: &[&[u8]],
) -> hmac::Context {
    let mut context = hmac::Context::with_key(key);
    context.update(b"dormouse 1 image");
    context.update(&record.algorithm.to_le_bytes());
    context.update(&record.key_source.to_le_bytes());
    context.update(&record.key_id.0);
    context.update(&record.salt);
    context.update(&record.counter.to_le_bytes());
    context.update(&record.tag_table_offset.to_le_bytes());
    context.update(&record.tag_table_bytes.to_le_bytes());
    context.update(&bytes.to_le_bytes());
    context.update(&(parts.len() as u64).to_le_bytes());
    for part in std::iter::once(&table).chain(parts) {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    context
}
