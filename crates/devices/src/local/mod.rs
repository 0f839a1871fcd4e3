//! Files and block devices of this machine.

mod contents;

pub use contents::{Class, Contents, Found, Source, Unreadable, Wipefs};
