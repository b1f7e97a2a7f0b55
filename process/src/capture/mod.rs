//! Reading the kernel objects of a stopped process tree into a description.
