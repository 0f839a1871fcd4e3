//! What tests of several rooms need: random numbers, how far to go, waits, planted bugs that must be noticed, a look at what the machine has, which files are
//! modules of a program, small file systems, and worlds to test in: a pool on an emulated device, a space in memory, a target with a namespace in memory.
//!
//! Place in the flow: none. Rooms name it under `[dev-dependencies]` only, which `cargo xtask arrows` checks.
//!
//! Invariants: nothing here decides whether a test passes but what the test says. The same seed gives the same numbers everywhere.
//!
//! What it does not know: any room from `shard` on; who tests these has worlds of their own (`sim`, and the folders below the tests of
//! `shard`, `daemon` and `cli`).

#![forbid(unsafe_code)]

pub mod depth;
#[cfg(feature = "driven")]
pub mod driven;
#[cfg(feature = "flash")]
pub mod fake_space;
pub mod modules;
pub mod mounted;
pub mod needs;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(feature = "flash")]
pub mod pool;
mod random;
#[cfg(feature = "flash")]
pub mod tapped;
#[cfg(feature = "target")]
pub mod target;
pub mod versions;
pub mod wait;

pub use random::Random;
