//! What comes out of the room.

use crate::backend::VolumePlace;
use crate::contract::{NamespaceCompletion, NamespaceId, SourceId};
use crate::definition::StoreIndex;
use crate::pending::Stamps;
use diecut_openchannel::contract::{ChunkCommand, ChunkOperation, ChunkToken};
use diecut_volume::contract::{VolumeCommand, VolumeOperation, VolumeToken};
use diecut_zoned::contract::{ZoneCommand, ZoneOperation, ZoneSetIndex, ZoneToken};

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
    /// Commands for zones, in order.
    pub zone_commands: Vec<(StoreIndex, ZoneCommand)>,
    /// Commands for chunks, in order.
    pub chunk_commands: Vec<(StoreIndex, ChunkCommand)>,
    /// Answers for doors, in order.
    pub finished: Vec<Finished>,
}

/// Who is asked for a command.
pub(crate) enum Asked {
    Volume(VolumePlace, VolumeOperation),
    Zones((StoreIndex, ZoneSetIndex), ZoneOperation),
    Chunks(StoreIndex, ChunkOperation),
}

impl Outputs {
    /// Somebody is asked for a command.
    #[inline]
    pub(crate) fn ask(&mut self, token: VolumeToken, asked: Asked) {
        match asked {
            Asked::Volume((store, volume), operation) => {
                self.volume_commands.push((store, VolumeCommand { token, volume, operation }));
            }
            Asked::Zones((store, set), operation) => {
                let token = ZoneToken(token.0);
                self.zone_commands.push((store, ZoneCommand { token, set, operation }));
            }
            Asked::Chunks(store, operation) => {
                let token = ChunkToken(token.0);
                self.chunk_commands.push((store, ChunkCommand { token, operation }));
            }
        }
    }
}
