//! Placeholder until the first commit of this room.
