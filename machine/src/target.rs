//! What the policy acts on: files and pages of this machine or of one that a test made up.

use dormouse_system::Root;

use crate::hotness::sampler::Sampler;
use crate::system::pages::Pages;

/// A machine's files, the pages of its processes, and what finds the hot ones.
pub struct Machine<'a> {
    pub root: &'a Root,
    pub pages: &'a dyn Pages,
    pub sampler: &'a dyn Sampler,
}
