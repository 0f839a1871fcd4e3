//! What stands below a namespace, behind one trait: how a command is carried out that was checked. A namespace of another kind is one more
//! backend; what hosts see of commands, statistics and limits stays in [`crate::Namespaces`].

mod chunks;
mod null;
mod volume;
mod zones;

use crate::contract::{LbaRange, NamespaceError, NamespaceOperation};
use crate::definition::{Backing, StoreIndex};
use crate::pending::{Extra, Rest};
use crate::piece::{Cutting, MapRange};
use chunks::Chunks;
use diecut_openchannel::contract::ChunkOperation;
use diecut_units::{Buffer, BufferPool, ContentMode};
use diecut_volume::contract::{VolumeIndex, VolumeOperation};
use diecut_zoned::contract::{ZoneOperation, ZoneSetIndex};
use null::Null;
use volume::Volume;
use zones::Zones;

/// What backends share: buffers that are used again.
pub(crate) struct Scratch {
    pub(crate) pool: BufferPool,
    /// Zeros that reads of null namespaces are answered with.
    pub(crate) zeros: Option<Buffer>,
}

/// Where a volume is.
pub(crate) type VolumePlace = (StoreIndex, VolumeIndex);

/// What became of a command that a backend took up.
pub(crate) enum Begun {
    /// It is answered.
    Answered(Result<(), NamespaceError>, Option<Buffer>),
    /// A volume is asked first, and this belongs to the command besides.
    Asks(VolumePlace, VolumeOperation, Option<Extra>),
    /// Zones are asked, once, and this belongs to the command besides.
    AsksZones((StoreIndex, ZoneSetIndex), ZoneOperation, Option<Extra>),
    /// Chunks are asked, once.
    AsksChunks(StoreIndex, ChunkOperation),
}

/// How many blocks the first piece of a range has that is cut: see [`crate::Namespaces::submit`].
pub(crate) type MapPiece<'a> = dyn FnMut(MapRange) -> u64 + 'a;

/// See the module.
pub(crate) trait Backend {
    /// Takes up a command that is allowed.
    fn begin(
        &self,
        operation: NamespaceOperation,
        scratch: &mut Scratch,
        map_piece: &mut MapPiece<'_>,
    ) -> Begun;

    /// The next piece of what it left of a command, whom it is for, and what comes after it.
    ///
    /// # Panics
    /// If it leaves nothing of commands.
    fn go_on(
        &self,
        _rest: Rest,
        _map_piece: &mut MapPiece<'_>,
    ) -> (VolumePlace, VolumeOperation, Option<Rest>) {
        unreachable!("I-N1: what is answered at once has no piece left")
    }

    /// Where a read of the range will begin below, if whoever is there can make ready what it needs.
    #[inline]
    fn place_of_read(&self, _range: LbaRange) -> Option<(StoreIndex, VolumeIndex, u64)> {
        None
    }

    /// What lies below has come to another shard, where its store has this number.
    fn moved(&mut self, _store: StoreIndex) {}

    /// Whether writes go down in one piece.
    fn set_whole_writes(&mut self, _whole_writes: bool) {}

    /// Whether it can carry out [`NamespaceOperation::Purge`].
    fn purges(&self) -> bool {
        false
    }
}

/// The backend of a namespace. Which one it is is looked up once for a command, without an allocation.
pub(crate) enum AnyBackend {
    Volume(Volume),
    Zones(Zones),
    Chunks(Chunks),
    Null(Null),
}

impl AnyBackend {
    pub(crate) fn new(backing: Backing, content_mode: ContentMode) -> AnyBackend {
        match backing {
            Backing::Volume { store, volume } => {
                let cutting = Cutting { content_mode, whole_writes: false };
                AnyBackend::Volume(Volume { place: (store, volume), cutting })
            }
            Backing::Zones { store, set } => AnyBackend::Zones(Zones { place: (store, set), content_mode }),
            Backing::Chunks { store } => AnyBackend::Chunks(Chunks { store, content_mode }),
            Backing::Null { reads } => AnyBackend::Null(Null { reads }),
        }
    }
}

impl Backend for AnyBackend {
    #[inline]
    fn begin(
        &self,
        operation: NamespaceOperation,
        scratch: &mut Scratch,
        map_piece: &mut MapPiece<'_>,
    ) -> Begun {
        match self {
            AnyBackend::Volume(volume) => volume.begin(operation, scratch, map_piece),
            AnyBackend::Zones(zones) => zones.begin(operation, scratch, map_piece),
            AnyBackend::Chunks(chunks) => chunks.begin(operation, scratch, map_piece),
            AnyBackend::Null(null) => null.begin(operation, scratch, map_piece),
        }
    }

    fn go_on(
        &self,
        rest: Rest,
        map_piece: &mut MapPiece<'_>,
    ) -> (VolumePlace, VolumeOperation, Option<Rest>) {
        match self {
            AnyBackend::Volume(volume) => volume.go_on(rest, map_piece),
            AnyBackend::Zones(zones) => zones.go_on(rest, map_piece),
            AnyBackend::Chunks(chunks) => chunks.go_on(rest, map_piece),
            AnyBackend::Null(null) => null.go_on(rest, map_piece),
        }
    }

    #[inline]
    fn place_of_read(&self, range: LbaRange) -> Option<(StoreIndex, VolumeIndex, u64)> {
        match self {
            AnyBackend::Volume(volume) => volume.place_of_read(range),
            AnyBackend::Zones(zones) => zones.place_of_read(range),
            AnyBackend::Chunks(chunks) => chunks.place_of_read(range),
            AnyBackend::Null(null) => null.place_of_read(range),
        }
    }

    fn moved(&mut self, store: StoreIndex) {
        match self {
            AnyBackend::Volume(volume) => volume.moved(store),
            AnyBackend::Zones(zones) => zones.moved(store),
            AnyBackend::Chunks(chunks) => chunks.moved(store),
            AnyBackend::Null(null) => null.moved(store),
        }
    }

    fn set_whole_writes(&mut self, whole_writes: bool) {
        match self {
            AnyBackend::Volume(volume) => volume.set_whole_writes(whole_writes),
            AnyBackend::Zones(zones) => zones.set_whole_writes(whole_writes),
            AnyBackend::Chunks(chunks) => chunks.set_whole_writes(whole_writes),
            AnyBackend::Null(null) => null.set_whole_writes(whole_writes),
        }
    }

    fn purges(&self) -> bool {
        match self {
            AnyBackend::Volume(volume) => volume.purges(),
            AnyBackend::Zones(zones) => zones.purges(),
            AnyBackend::Chunks(chunks) => chunks.purges(),
            AnyBackend::Null(null) => null.purges(),
        }
    }
}
