//! Tests of this room once more, with chunk heads of version 3: all but those of pace and wear, which take most of the time and do not look at heads.
#![allow(clippy::duplicate_mod, reason = "each test brings what it shares with others, as it does by itself")]

mod common;
#[path = "common/placed.rs"]
mod placed;

#[path = "astray.rs"]
mod astray;
#[path = "copies.rs"]
mod copies;
#[path = "deallocations.rs"]
mod deallocations;
#[path = "groups.rs"]
mod groups;
#[path = "handles.rs"]
mod handles;
#[path = "model.rs"]
mod model;
#[path = "notes.rs"]
mod notes;
#[path = "promise.rs"]
mod promise;
#[path = "repair.rs"]
mod repair;
#[path = "restarts.rs"]
mod restarts;
