//! What an administrator asks for, and is told, in the words that every surface shares.
//!
//! Purpose: one definition of each word, used by the control interface, the set-up file, the catalog on flash, the shard, the
//! simulator and the command line. A new word is written here once.
//!
//! Place in the flow: beside `units`, below everything that speaks of vSSDs.
//!
//! Invariants
//! - The spellings are formats: set-up files, catalogs on flash, recordings and scripts hold them. A test pins each; none is ever
//!   changed. What was spelled in another way before is read by [`older`].
//! - A specification is checked here, by two functions: `check` refuses what nothing new can be; `check_slips` refuses numbers that
//!   nobody means, and says what may be meant. A file that declares what exists is checked by the second alone: names were freer once.
//!
//! Not known here: what the words do, how they travel, where they are kept, what exists.

#![deny(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod amount;
mod identity;
pub mod latency;
mod name;
pub mod older;
mod one_or_more;
mod path;
mod qos;
mod qos_status;
mod sanitize;
mod size;
mod subsystem;
mod tenant;
#[cfg(feature = "clap")]
mod user;
mod volume;
mod vssd;
mod wear;
mod wear_status;
mod words;
mod zones;

pub use amount::Amount;
pub use identity::Nguid;
pub use name::check_name;
pub use path::{PathSpec, PathState};
pub use qos::{QosSetChange, QosSetSpec};
pub use qos_status::QosSetStatus;
pub use sanitize::{SanitizeState, SanitizeStatus};
pub use size::Size;
pub use subsystem::{HostSpec, NamespaceSpec, SubsystemSpec};
pub use tenant::TenantSpec;
pub use volume::{VOLUME_SIZE_MAX, VolumeSpec};
pub use vssd::VssdSpec;
pub use wear::WearSettings;
pub use wear_status::{ChannelWear, WearExchange, WearInForce, WearStatus};
pub use words::{Isolation, PlacementIsolation, ReclaimGroups, Serves, Sharing};
pub use zones::ZoneSpec;

#[cfg(test)]
mod test {
    pub fn says(outcome: Result<(), String>, words: &[&str]) {
        let error = outcome.expect_err("it is refused");
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}
