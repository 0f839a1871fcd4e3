//! What comes out of the room.

use crate::contract::{NamespaceCompletion, NamespaceId, SourceId};
use crate::definition::StoreIndex;
use crate::pending::Stamps;
use diecut_volume::contract::VolumeCommand;

/// A command that was answered.
#[derive(Debug)]
pub struct Finished {
    /// Who asked: admission counts it as no longer under way.
    pub source: SourceId,
    /// Which namespace.
    pub namespace: NamespaceId,
    /// When it passed the points before its volume.
    pub stamps: Stamps,
    /// The answer for the door.
    pub completion: NamespaceCompletion,
}

/// What comes out of the room; the caller empties and reuses it.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Commands for volumes, in order.
    pub volume_commands: Vec<(StoreIndex, VolumeCommand)>,
    /// Answers for doors, in order.
    pub finished: Vec<Finished>,
}
