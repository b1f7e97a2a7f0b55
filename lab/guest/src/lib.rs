//! The control channel between the lab and the agent inside the emulated machine: its messages and
//! their framing on a serial line.
//!
//! # Example
//!
//! A request that arrives in two pieces, with garbage before it:
//!
//! ```
//! use dormouse_guest::protocol::frame::{Decoder, encode};
//! use dormouse_guest::protocol::{Call, Request};
//!
//! let line = encode(&Request { id: 1, call: Call::Hello });
//! let (first, second) = line.split_at(9);
//!
//! let mut decoder = Decoder::default();
//! assert!(decoder.push::<Request>(b"\x00garbage\n").is_empty());
//! assert!(decoder.push::<Request>(first).is_empty());
//! let requests = decoder.push::<Request>(second);
//! assert_eq!(requests[0].id, 1);
//! ```

pub mod protocol;
