//! Files and block devices of this machine: what they are, who uses them, what lies on them, and how one process has them alone.
//!
//! [`LocalDevice::open`] is the way in. It names who uses a device, and writes nothing; [`LocalDevice::contents`] says what writes would destroy.

mod contents;
mod error;
mod health;
mod labels;
mod nvme;
mod open;
mod placement;
mod properties;
mod sysfs;
mod users;
mod zone_labels;
mod zones;

pub use contents::{Class, Contents, Found, Source, Unreadable, Wipefs};
pub use error::LocalError;
pub use health::{damage, size_bytes, smart_log};
pub use labels::{
    FoundLabel, LabelPlace, LabelingError, OtherCopy, change_label, check_format, clear, format, give_label,
    read_label,
};
pub use open::{Access, LocalDevice};
pub use placement::{Placement, WriteFrom};
pub use properties::{DriveKind, Handles, Identity, Properties, memory_alignment_bytes};
pub use zone_labels::{InZones, ZoneDrive};
pub use zones::{finish_zone, reset_zones};
