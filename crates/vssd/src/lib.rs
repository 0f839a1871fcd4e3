//! Virtual SSDs: tenants own whole channels, dies or soft-planes, and hold logical erase blocks on numbered
//! independent units. This room says which physical erase block that is, keeps tenants apart and arbitrates
//! the dies.
//!
//! Place in the flow: under `log` and zoned namespaces, above `media`. Waist 2 is [`space`].
//!
//! Invariants
//! - Every erase block is erased between its allocation and its first program, and cannot be read before: no
//!   byte crosses tenants.
//! - A unit never holds more blocks than its share; the reserve and the spares of a die stay apart.
//! - The least worn free block of a die is taken first.
//!
//! Not kept yet: block states live in memory only. There is no journal, so nothing survives a restart.
//! Software isolation is weighted and work-conserving; there are no token buckets and no strict mode.
//!
//! Not known here: LBAs, maps, hosts, tenants' names, the clock.

mod config;
mod oob;
mod pool;
mod resources;
pub mod space;
mod system;
mod view;

pub use config::{DieCosts, PoolConfig};
pub use oob::{OOB_RECORD_SIZE_BYTES, OobKind, OobRecord};
pub use pool::{POOL_TOKEN_BIT, Pool, VssdId};
pub use resources::{AllocError, DeallocError, DiePlacement, Isolation, LevelTable};
pub use space::*;
pub use system::SystemArea;
pub use view::Space;
