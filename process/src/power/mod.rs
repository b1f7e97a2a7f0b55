//! Who tells that power is about to fail.
