//! Lines on the control channel: framed so that garbage on the serial line is never taken for one.
//!
//! ```text
//! @dm 0123456789abcdef {"id":1,"call":{"do":"hello"}}\n
//!     XXH64 of the JSON text
//! ```
//!
//! A serial line shows garbage when either end is powered on, and loses bytes when one end stops.
//! A damaged line is dropped; the requester repeats its request.

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh64::xxh64;

const MARKER: &str = "@dm ";
const DIGEST_DIGITS: usize = 16;
/// A line longer than this is garbage: the decoder forgets it instead of growing for ever.
pub const MAX_LINE_BYTES: usize = 8 << 20;

/// One message as a line, with a line end before it as well: what stood there half-written
/// cannot spoil it.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Messages are plain data with string keys; they always serialise.
    let json = serde_json::to_string(message).expect("a message is plain data");
    format!("\n{MARKER}{:016x} {json}\n", xxh64(json.as_bytes(), 0)).into_bytes()
}

/// Collects bytes and gives back whole, undamaged messages.
#[derive(Debug, Default)]
pub struct Decoder {
    line: Vec<u8>,
    overlong: bool,
}

impl Decoder {
    /// Takes bytes as they arrive; returns the messages that they completed.
    pub fn push<M: DeserializeOwned>(&mut self, bytes: &[u8]) -> Vec<M> {
        let mut messages = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                if !self.overlong {
                    messages.extend(decode_line(&self.line));
                }
                self.line.clear();
                self.overlong = false;
            } else if self.line.len() < MAX_LINE_BYTES {
                self.line.push(byte);
            } else {
                self.overlong = true;
            }
        }
        messages
    }
}

/// The message in one line, or `None` if the line is damaged or no message.
fn decode_line<M: DeserializeOwned>(line: &[u8]) -> Option<M> {
    let text = std::str::from_utf8(line).ok()?.trim_end_matches('\r');
    // Garbage may hold the marker too: the digest says which one is real.
    text.match_indices(MARKER)
        .find_map(|(at, _)| decode_frame(&text[at + MARKER.len()..]))
}

fn decode_frame<M: DeserializeOwned>(frame: &str) -> Option<M> {
    let digest = u64::from_str_radix(frame.get(..DIGEST_DIGITS)?, 16).ok()?;
    let json = frame.get(DIGEST_DIGITS..)?.strip_prefix(' ')?;
    if xxh64(json.as_bytes(), 0) != digest {
        return None;
    }
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn a_message_survives_garbage_around_it() {
        let mut decoder = Decoder::default();
        let mut bytes = b"\xff\x00garb@dm 12".to_vec();
        bytes.extend(encode(&json!({"id": 1})));
        bytes.extend(b"@dm 0000000000000000 {\"id\":2}\n");
        bytes.extend(encode(&json!({"id": 3})));
        let messages: Vec<Value> = decoder.push(&bytes);
        assert_eq!(messages, [json!({"id": 1}), json!({"id": 3})]);
    }

    #[test]
    fn a_message_with_the_marker_in_it_arrives() {
        let message = json!({"text": "{ @dm 0 "});
        assert_eq!(
            Decoder::default().push::<Value>(&encode(&message)),
            [message]
        );
    }

    proptest! {
        #[test]
        fn a_message_cut_anywhere_arrives_whole(text in ".{0,80}", cut in 0usize..200) {
            let bytes = encode(&json!({"text": text}));
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            let mut decoder = Decoder::default();
            let mut messages: Vec<Value> = decoder.push(head);
            messages.extend(decoder.push::<Value>(tail));
            prop_assert_eq!(messages, vec![json!({"text": text})]);
        }

        #[test]
        fn a_damaged_message_is_dropped(text in "[a-z]{1,40}", at in 1usize..40, flip in 1u8..=255) {
            let mut bytes = encode(&json!({"text": text}));
            let at = at.min(bytes.len() - 2);
            bytes[at] ^= flip;
            let messages: Vec<Value> = Decoder::default().push(&bytes);
            // A flipped case of a hex digit of the digest is the same digest.
            let whole = [json!({"text": text})];
            prop_assert!(messages.is_empty() || messages == whole);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Decoder::default().push::<Value>(&bytes);
        }
    }
}
