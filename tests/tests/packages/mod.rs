//! The Debian packages and the tarball, installed as a user installs them.
//!
//! They need root, packages that only they need, and minutes: `make test-packages` runs them.

mod built;
mod chroot;
mod debian_machine;
mod machine;
mod stock_firmware;
mod tarball;
