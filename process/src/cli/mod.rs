//! The verbs of `dormouse process`: arguments, output, exit codes.
