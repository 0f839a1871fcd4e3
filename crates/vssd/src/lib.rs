//! Virtual SSDs: tenants own whole channels, dies or soft-planes, and hold logical erase blocks on numbered
//! independent units. This room says which physical erase block that is, keeps tenants apart and arbitrates
//! the dies.
//!
//! Place in the flow: under `log` and `blockspace`, above `media`. Waist 2 is [`space`].
//!
//! Invariants
//! - Every erase block is erased between its allocation and its first program, and cannot be read before: no
//!   byte crosses tenants.
//! - A unit never holds more blocks than its share; the reserve and the spares of a die stay apart.
//! - The least worn free block of a die is taken first.
//! - A block that moves to another die changes places by one durable step; before it, the old place counts, after it, the new
//!   one. Its copy is complete then.
//! - Block states survive the process and the power: in protected memory (`states::table`), or in a log on flash where the
//!   medium has none (`states::log`). A block that was open then is not programmed any further.
//! - What cannot be told apart from damage is set aside, neither read nor handed out (`recovery`); so are blocks whose
//!   OOB records contradict their states (`check`).
//!
//! Software isolation: a die's time is split by weight among vSSDs within their rates (`dies`); beyond its rate
//! a vSSD waits (strict) or takes what nobody else wants (work-conserving).
//!
//! A device can be divided among pools by channels (`part`): one of them, which knows of all channels whose they are, chooses
//! places; each pool holds what happens on its own channels. Block states have the same form on the medium either way.
//!
//! Even wear: what two dies hold can be exchanged while it is in use (`wear`); holders notice a short delay of
//! appends to a block that moves while it is open. Erases are counted by cause, and for the content of a unit (`erases`).
//!
//! Sub-rooms, each of which knows only those before it: who owns what (`owners`), what is written down (`states`), who is served
//! next (`dies`), who has which erase block (`blocks`), what holders use of all these (`core`), even wear, which works on that (`wear`). [`Pool`]
//! is their wiring, [`Space`] what a holder sees. The invariants that asserts name are in `docs/invariants/vssd.md`.
//!
//! Not known here: LBAs, maps, hosts, tenants' names, the clock.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod blocks;
mod check;
mod condition;
mod config;
mod core;
mod dies;
mod erases;
mod figures;
mod header;
mod joined;
mod oob;
mod owners;
pub mod page_mark;
mod part;
mod pool;
mod recovery;
mod reopen;
pub mod space;
mod states;
mod stripe;
mod system;
mod times;
mod token;
mod u24;
mod view;
mod wear;

pub use blocks::{QuarantineReason, Quarantined};
pub use condition::Condition;
pub use config::{PoolConfig, WearConfig};
pub use dies::history::{
    BusyShare, DieDelay, DieStretch, DieTimesView, DieWork, SlowOperation, Where, WorkKind, WorkSize,
};
pub use dies::share::Share;
pub use erases::{DieWear, EraseCause, Heat};
pub use figures::{MediaUse, held_blocks};
pub use header::{BlockHeader, HEADER_HOLDER_AT_BYTES, HEADER_HOLDER_SIZE_BYTES, Nonces};
pub use joined::{EraseBlockPart, JoinedSpace, VssdParts};
pub use oob::{OOB_RECORD_SIZE_BYTES, OobKind, OobRecord};
pub use owners::UnitLocation;
pub use owners::resources::{AllocError, DeallocError, DiePlacement, LevelTable};
pub use part::{Places, PoolPart};
pub use pool::Pool;
pub use reopen::{PoolRemains, account_for_exchanges};
pub use space::*;
pub use states::division::{StateChanges, StatesDurable};
pub use states::table::OpenError;
pub use stripe::{Extent, StripedBlock};
pub use system::SystemArea;
pub use token::POOL_TOKEN_BIT;
pub use view::Space;
pub use wear::MigrationStatus;
pub use wear::exchange::ExchangeError;
pub use wear::in_die::{choose_inside, inside_gap_erases};
pub use wear::migration::{CopyWork, WearNews};
pub use wear::policy::{
    Chosen, DeviceAge, DieLayout, Holding, PlaceView, SwapRule, are_apart, choose_exchanges, choose_swap,
    is_broken, look_after_erases, pair_dies, threshold_by_age, threshold_erases,
};
