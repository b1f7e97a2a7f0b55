//! The last step: freeze the tree, copy what is dirty, commit.
