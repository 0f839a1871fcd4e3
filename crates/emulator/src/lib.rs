//! NAND as it behaves, behind the flash contract of `media`.
//!
//! Place in the flow: at the bottom, beside `drives`. What stands here today are its parts: device profiles as TOML
//! files a user can copy ([`Profile`]), the order in which cells hold pages, the calendar of events, the plan of faults
//! ([`FaultPlan`]), and stores of content, OOB areas and tags. The device that puts them behind `diecut_media::Media` is
//! not built yet.
//!
//! Not known here: LBAs, maps, tenants, hosts, the clock.
#![allow(dead_code, reason = "parts of a device that is not built yet")]

mod block;
mod calendar;
mod cells;
mod fault;
mod mapping;
mod options;
mod profile;
mod store;

pub use fault::*;
pub use options::*;
pub use profile::*;
