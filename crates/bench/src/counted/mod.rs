//! Instructions per operation, counted one by one under valgrind: a machine without an instruction counter has them too,
//! and they are the same in every run.
//!
//! What is counted: instructions in user space of the server's side. For rows with a server, the shipped shard without the
//! reactor and without the kernel: bytes of commands go in, bytes of answers come out, in rounds as the reactor makes them
//! (`wire.rs`); the host's side and the copies that the kernel makes are not counted. For the engines alone, the whole
//! program, with the loop that asks. Each figure is the difference of a run with twice as many operations and one with
//! once as many, so that everything before cancels out.
//!
//! Valgrind's processor has AVX2 and no AVX-512, so code that chooses by what there is takes its second best; copies are made
//! with vectors, because a copy by one repeated instruction would count as one for each byte.

pub(crate) mod carrier;
pub(crate) mod rooms;
pub(crate) mod rows;
pub(crate) mod valgrind;
pub(crate) mod wire;

pub use rows::{COUNTED_ROWS, Instructions, of_row, run};
pub use valgrind::Error;
