//! Detection on trees of files that look like real machines, and on this machine.

mod broken;
mod filling;
mod machines;
mod tree;
