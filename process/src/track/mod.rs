//! Which pages changed: asynchronous write-protection, driven from outside the program.
