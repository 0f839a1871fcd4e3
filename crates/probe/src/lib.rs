//! Measures a drive, or a file, by itself: latency by depth, and which of its regions disturb each other.
//!
//! Purpose: who puts diecut on a drive learns before what the drive can do, and whether a tenant that owns a region of it would be alone there.
//!
//! Place in the flow: outside of the server, beside `load`. Start with [`run`]; [`ProbeSpec`] is what is asked, [`Report`] what came of it, and [`Map`] what it says for who cuts the drive.
//!
//! Invariants
//! - Nothing is written unless [`ProbeSpec::overwrites`], and then only if nothing was recognized on the drive, or with [`ProbeSpec::force`].
//! - Commands go past the page cache (`O_DIRECT`), so that the drive is measured and not the memory in front of it.
//! - A buffer is the kernel's until its command ends: a ring waits for all of its commands before it goes.
//!
//! It does not know servers, tenants or formats: what lies on a drive is told by `devices`.

#![deny(clippy::unwrap_used)]

mod buffers;
mod drive;
mod error;
mod independence;
mod map;
mod measure;
mod report;
mod ring;
mod spec;

pub use diecut_devices::local::DriveKind;
pub use drive::DriveFacts;
pub use error::ProbeError;
pub use independence::Verdict;
pub use map::Map;
pub use measure::run;
pub use report::{Curve, Disturbance, Point, Report};
pub use spec::ProbeSpec;
