//! Finds pages that changed: asynchronous write protection, driven from outside the program.
//!
//! | file | does |
//! |---|---|
//! | `areas` | which mappings have contents that only the program has (pure) |
//! | `pages` | sets of pages (pure) |
//! | `pagemap`, `uffd` | the two kernel interfaces |
//! | `space` | one address space: a scan finds what is dirty and protects it again |
//! | `self_test` | does this kernel's scan report what it should? |

pub mod areas;
pub mod pagemap;
pub mod pages;
pub mod self_test;
pub mod space;
pub mod uffd;

pub use pages::{PageRange, PageSet};
pub use space::{Program, Scan, Space};
