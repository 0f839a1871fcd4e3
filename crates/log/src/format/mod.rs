//! What stands on the medium: chunk heads, page marks, anchors, and how they are read at recovery.

pub mod anchor;
pub mod anchor2;
pub mod any_anchor;
pub mod chunk;
mod description;
mod flush_note;
mod form;
pub mod head;
pub mod mark;
mod recovered;
pub mod walk;

pub use description::Description;
pub use flush_note::FlushNote;
pub use form::{Format, TagForm};
pub(crate) use form::{HeadShape, is_known};
pub use recovered::RecoveredChunk;
