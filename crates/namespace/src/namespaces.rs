mod answer_of_chunks;
mod answer_of_zones;
mod check;
mod kinds;

pub use answer_of_chunks::complete_chunks;
pub use answer_of_zones::complete_zones;
use kinds::kind_of;

use crate::backend::{AnyBackend, Backend, Begun, Scratch};
use crate::contract::{
    CommandToken, LbaRange, NamespaceCommand, NamespaceCompletion, NamespaceError, NamespaceId,
    NamespaceOperation, NamespaceProperties, SourceId,
};
use crate::definition::{Backing, NamespaceDefinition, StoreIndex};
use crate::outputs::{Asked, Finished, Outputs};
use crate::pending::{Extra, Pending, Stamps};
use crate::piece::MapRange;
use crate::statistics::{Kind, NamespaceStatistics};
use diecut_units::{BufferMut, BufferPool, Slab, StampedSlab, Time, mark};
use diecut_volume::contract::{VolumeCommand, VolumeCompletion, VolumeError, VolumeIndex, VolumeToken};

/// All namespaces of a shard.
pub struct Namespaces {
    /// By identifier. Identifiers are given once and count up, so there is a place for every volume that ever was.
    namespaces: Vec<Option<Namespace>>,
    pending: StampedSlab<Pending>,
    /// What pending commands have besides that are cut in pieces, compare, or failed.
    extras: Slab<Extra>,
    scratch: Scratch,
}

/// A namespace on its way to another shard, with what it did so far.
pub struct MovedNamespace(Namespace);

struct Namespace {
    definition: NamespaceDefinition,
    backend: AnyBackend,
    used_lbas: u64,
    under_way: u32,
    closing: bool,
    /// What its volume lies on cannot be reached: see [`Namespaces::set_away`].
    is_away: bool,
    read_only_reason: Option<&'static str>,
    statistics: NamespaceStatistics,
}

impl Namespaces {
    /// No namespaces yet.
    pub fn new() -> Namespaces {
        Namespaces {
            namespaces: Vec::new(),
            pending: StampedSlab::new(),
            extras: Slab::new(),
            scratch: Scratch { pool: BufferPool::new(), zeros: None },
        }
    }

    /// Opens a namespace on what stands below it.
    ///
    /// # Panics
    /// If the id is in use: ids are given by the caller.
    pub fn open(&mut self, id: NamespaceId, definition: NamespaceDefinition, backing: Backing) {
        let namespace = Namespace {
            definition,
            backend: AnyBackend::new(backing, definition.content_mode),
            used_lbas: 0,
            under_way: 0,
            closing: false,
            is_away: false,
            read_only_reason: definition.read_only.then_some("set read-only by the administrator"),
            statistics: NamespaceStatistics::new(),
        };
        self.seat(id, namespace);
    }

    fn seat(&mut self, id: NamespaceId, namespace: Namespace) {
        let index = id.0 as usize;
        if index >= self.namespaces.len() {
            self.namespaces.resize_with(index + 1, || None);
        }
        assert!(self.namespaces[index].is_none(), "{id:?} is open already");
        self.namespaces[index] = Some(namespace);
    }

    /// Refuses new commands from now on; those under way still complete. See [`Namespaces::is_idle`].
    ///
    /// # Panics
    /// If it is not open.
    pub fn begin_close(&mut self, id: NamespaceId) {
        self.get_mut(id).expect("an open namespace is closed").closing = true;
    }

    /// Whether no command is under way (also when it is not open).
    pub fn is_idle(&self, id: NamespaceId) -> bool {
        self.get(id).is_none_or(|namespace| namespace.under_way == 0)
    }

    /// Whether a purge of it is under way, which can take long.
    pub fn is_purging(&self, id: NamespaceId) -> bool {
        self.pending.iter().any(|pending| pending.namespace == id && pending.kind == Kind::Purge)
    }

    /// Forgets a namespace.
    ///
    /// # Panics
    /// If it is not open, or commands are under way.
    pub fn close(&mut self, id: NamespaceId) {
        let MovedNamespace(_closed) = self.take_out(id);
    }

    /// Takes a namespace out, to be put in elsewhere.
    ///
    /// # Panics
    /// If it is not open, or commands are under way.
    pub fn take_out(&mut self, id: NamespaceId) -> MovedNamespace {
        let namespace = self.namespaces[id.0 as usize].take().expect("an open namespace is closed");
        assert_eq!(namespace.under_way, 0, "I-N2: {id:?} is closed or moved with commands under way");
        MovedNamespace(namespace)
    }

    /// Puts a namespace in that was taken out elsewhere; its volume is in `store` here.
    ///
    /// # Panics
    /// If the id is in use.
    pub fn put_in(&mut self, id: NamespaceId, moved: MovedNamespace, store: StoreIndex) {
        let MovedNamespace(mut namespace) = moved;
        namespace.backend.moved(store);
        self.seat(id, namespace);
    }

    /// The volume of a namespace is in another store from now on, with all that it holds, and under the same index. Commands that have more pieces go on
    /// there. Does nothing if it is not open.
    pub fn rehome(&mut self, id: NamespaceId, store: StoreIndex) {
        if let Some(namespace) = self.get_mut(id) {
            namespace.backend.moved(store);
        }
    }

    /// Whether the namespace is open and takes commands.
    pub fn is_open(&self, id: NamespaceId) -> bool {
        self.get(id).is_some_and(|namespace| !namespace.closing)
    }

    /// What the namespace says of itself; `None` if it is not open.
    pub fn properties(&self, id: NamespaceId) -> Option<NamespaceProperties> {
        let namespace = self.get(id)?;
        let properties = namespace.definition.properties(namespace.used_lbas);
        let purges = namespace.definition.erases && namespace.backend.purges();
        Some(NamespaceProperties { read_only: namespace.read_only_reason.is_some(), purges, ..properties })
    }

    /// What it did since it was opened; `None` if it is not open.
    pub fn statistics(&self, id: NamespaceId) -> Option<&NamespaceStatistics> {
        Some(&self.get(id)?.statistics)
    }

    /// Tells how many logical blocks hold data now (thin volumes). Does nothing if it is not open.
    pub fn set_used_lbas(&mut self, id: NamespaceId, used_lbas: u64) {
        if let Some(namespace) = self.get_mut(id) {
            namespace.used_lbas = used_lbas;
        }
    }

    /// Makes it read-only for a reason, or writable again. Does nothing if it is not open.
    pub fn set_read_only(&mut self, id: NamespaceId, reason: Option<&'static str>) {
        if let Some(namespace) = self.get_mut(id) {
            namespace.read_only_reason = reason;
        }
    }

    /// Whether writes go to the volume in one piece, so that a volume without room for one refuses all of it. Others are
    /// cut. Does nothing if it is not open.
    pub fn set_whole_writes(&mut self, id: NamespaceId, whole_writes: bool) {
        if let Some(namespace) = self.get_mut(id) {
            namespace.backend.set_whole_writes(whole_writes);
        }
    }

    /// Commands under way over all namespaces.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    fn get(&self, id: NamespaceId) -> Option<&Namespace> {
        self.namespaces.get(id.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: NamespaceId) -> Option<&mut Namespace> {
        self.namespaces.get_mut(id.0 as usize)?.as_mut()
    }

    /// Where a command will read, if it is a read of a volume: for whoever can make ready what it needs.
    #[inline]
    pub fn read_of(&self, command: &NamespaceCommand) -> Option<(StoreIndex, VolumeIndex, u64)> {
        let NamespaceOperation::Read { range, .. } = &command.operation else { return None };
        self.get(command.namespace)?.backend.place_of_read(*range)
    }

    /// Takes a command: it is answered at once (errors, null namespaces, nothing to do) or after its volume. Of a large
    /// one only the first piece goes to the volume; the token then stands for the rest, and [`Namespaces::go_on`] must
    /// be called with it until nothing is left.
    ///
    /// `map_piece` says how many blocks the first piece of a range has that is larger than [`crate::MAP_PIECE_LBAS`]: at least so
    /// many, and more where nothing is mapped.
    pub fn submit(
        &mut self,
        command: NamespaceCommand,
        now: Time,
        outputs: &mut Outputs,
        map_piece: &mut dyn FnMut(MapRange) -> u64,
    ) -> Option<VolumeToken> {
        let NamespaceCommand { token, namespace: id, source, arrived, operation } = command;
        let (kind, lbas) = kind_of(&operation);
        let mut answer = |result, data| {
            let completion = NamespaceCompletion { token, result, data, zones: None };
            let stamps = Stamps { arrived, admitted: now };
            outputs.finished.push(Finished { source, namespace: id, stamps, completion });
            None
        };
        let Some(namespace) = self.namespaces.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return answer(Err(NamespaceError::NoSuchNamespace), None);
        };
        if namespace.is_away {
            namespace.statistics.record(kind, 0, now.since(arrived), false);
            return answer(Err(NamespaceError::NotReady), None);
        }
        if let Err(error) = namespace.check(&operation) {
            namespace.statistics.record(kind, 0, now.since(arrived), false);
            return answer(Err(error), None);
        }
        let (asked, extra) = match namespace.backend.begin(operation, &mut self.scratch, map_piece) {
            Begun::Asks(place, piece, extra) => (Asked::Volume(place, piece), extra),
            Begun::AsksZones(place, operation, extra) => (Asked::Zones(place, operation), extra),
            Begun::AsksChunks(store, operation) => (Asked::Chunks(store, operation), None),
            Begun::Answered(result, data) => {
                namespace.statistics.record(kind, lbas, now.since(arrived), result.is_ok());
                return answer(result, data);
            }
        };
        namespace.under_way += 1;
        let more = extra.as_ref().is_some_and(|extra| extra.rest.is_some());
        let pending = Pending {
            token,
            stamps: Stamps { arrived, admitted: now },
            lbas,
            namespace: id,
            source,
            remaining: 1,
            kind,
            is_answered: false,
            extra: extra.map(|extra| self.extras.insert(extra)),
        };
        let token = VolumeToken(self.pending.insert(pending));
        outputs.ask(token, asked);
        more.then_some(token)
    }

    /// Gives up commands of a source, all or the one of a token: nothing more of them goes to their volumes than is there. They are
    /// answered as ever.
    pub fn give_up(&mut self, source: SourceId, token: Option<CommandToken>) {
        for pending in self.pending.iter_mut() {
            let is_wanted = pending.source == source && token.is_none_or(|one| pending.token == one);
            let Some(extra) = pending.extra.filter(|_| is_wanted).map(|index| &mut self.extras[index]) else {
                continue;
            };
            if extra.rest.is_some() {
                mark!("namespace: command given up between its pieces");
                extra.error.get_or_insert(NamespaceError::Aborted);
            }
        }
    }

    /// Gives the next piece of a command to its volume. Returns whether there are more. A command that failed or was given up
    /// meanwhile does not go on. `map_piece` as for [`Namespaces::submit`].
    ///
    /// # Panics
    /// If nothing of the command was left.
    pub fn go_on(
        &mut self,
        token: VolumeToken,
        now: Time,
        outputs: &mut Outputs,
        map_piece: &mut dyn FnMut(MapRange) -> u64,
    ) -> bool {
        let pending = self.pending.get_mut(token.0);
        let extra = pending.extra.map(|index| &mut self.extras[index]);
        let extra = extra.unwrap_or_else(|| panic!("nothing of {token:?} is left"));
        let rest = extra.rest.take().unwrap_or_else(|| panic!("nothing of {token:?} is left"));
        assert!(
            rest.ranges.is_empty() || pending.kind == Kind::Deallocate,
            "I-N1: only a deallocation has ranges left"
        );
        if extra.error.is_some() {
            if pending.remaining == 0 {
                let pending = self.pending.remove(token.0);
                outputs.finished.extend(self.end(pending, None, now));
            }
            return false;
        }
        let namespace = self.namespaces[pending.namespace.0 as usize]
            .as_ref()
            .expect("a namespace with commands under way stays open");
        let ((store, volume), piece, rest) = namespace.backend.go_on(rest, map_piece);
        let more = rest.is_some();
        pending.remaining += 1;
        pending.stamps.admitted = now;
        extra.rest = rest;
        outputs.volume_commands.push((store, VolumeCommand { token, volume, operation: piece }));
        more
    }

    /// Takes the answer of a volume. Gives that of the command, if it was the last one.
    ///
    /// # Panics
    /// If the token is not under way.
    #[inline]
    pub fn complete(&mut self, completion: VolumeCompletion, now: Time) -> Option<Finished> {
        let VolumeCompletion { token, result, destination } = completion;
        let extras = &mut self.extras;
        let ended = self.pending.remove_if(token.0, |pending| {
            assert!(pending.remaining > 0, "I-N1: a volume answers each piece once");
            pending.remaining -= 1;
            if let Err(error) = result {
                let index = *pending.extra.get_or_insert_with(|| extras.insert(Extra::default()));
                extras[index].error.get_or_insert(translate(error));
            }
            pending.remaining == 0 && pending.extra.is_none_or(|index| extras[index].rest.is_none())
        });
        self.end(ended?, destination, now)
    }

    /// What volumes of these stores lie on cannot be reached for now, or can be again. Meanwhile commands are not ready, those under way, too: what they
    /// asked for is carried out later, or not, and nobody hears of it.
    pub fn set_away(&mut self, stores: &[StoreIndex], is_away: bool, now: Time, outputs: &mut Outputs) {
        let anywhere = LbaRange { first_lba: 0, lba_count: 1 };
        for namespace in self.namespaces.iter_mut().flatten() {
            let place = namespace.backend.place_of_read(anywhere);
            if place.is_some_and(|(store, ..)| stores.contains(&store)) {
                namespace.is_away = is_away;
            }
        }
        for pending in self.pending.iter_mut().filter(|pending| !pending.is_answered) {
            let namespace = self.namespaces[pending.namespace.0 as usize].as_mut();
            let namespace = namespace.expect("I-N2: it has commands under way");
            if !namespace.is_away {
                continue;
            }
            mark!("namespace: command answered before its volume did");
            pending.is_answered = true;
            let index = *pending.extra.get_or_insert_with(|| self.extras.insert(Extra::default()));
            self.extras[index].error.get_or_insert(NamespaceError::NotReady);
            namespace.statistics.record(pending.kind, 0, now.since(pending.stamps.arrived), false);
            let result = Err(NamespaceError::NotReady);
            outputs.finished.push(Finished {
                source: pending.source,
                namespace: pending.namespace,
                stamps: pending.stamps,
                completion: NamespaceCompletion { token: pending.token, result, data: None, zones: None },
            });
        }
    }

    /// A command of which no piece is left is over. Gives the answer, unless it was given.
    #[inline]
    fn end(&mut self, pending: Pending, destination: Option<BufferMut>, now: Time) -> Option<Finished> {
        if !pending.is_answered {
            return Some(self.finish(pending, destination, now));
        }
        drop(pending.extra.map(|index| self.extras.remove(index)));
        let namespace = self.get_mut(pending.namespace).expect("I-N2: it has commands under way");
        assert!(namespace.under_way > 0, "I-N2: a namespace counts its commands");
        namespace.under_way -= 1;
        None
    }

    /// Answers a command of which no piece is left. `destination` is what its last piece was read into.
    #[inline]
    fn finish(&mut self, pending: Pending, destination: Option<BufferMut>, now: Time) -> Finished {
        let is_read = pending.kind == Kind::Read;
        let (result, data) = match pending.extra {
            None if is_read => {
                (Ok(()), Some(destination.expect("a read that succeeded carries its buffer").freeze()))
            }
            None => (Ok(()), None),
            Some(index) => self.extras.remove(index).result(is_read, destination),
        };
        let namespace = self.get_mut(pending.namespace).expect("I-N2: it has commands under way");
        assert!(namespace.under_way > 0, "I-N2: a namespace counts its commands");
        namespace.under_way -= 1;
        namespace.statistics.record(
            pending.kind,
            pending.lbas,
            now.since(pending.stamps.arrived),
            result.is_ok(),
        );
        if matches!(result, Err(NamespaceError::Unrecovered { .. })) {
            namespace.statistics.media_errors += 1;
        }
        Finished {
            source: pending.source,
            namespace: pending.namespace,
            stamps: pending.stamps,
            completion: NamespaceCompletion { token: pending.token, result, data, zones: None },
        }
    }
}

impl Default for Namespaces {
    fn default() -> Namespaces {
        Namespaces::new()
    }
}

fn translate(error: VolumeError) -> NamespaceError {
    match error {
        VolumeError::Unrecovered { iu } => NamespaceError::Unrecovered { lba: iu },
        VolumeError::Full | VolumeError::GroupFull => NamespaceError::CapacityExceeded,
        VolumeError::ReadOnly { reason } => NamespaceError::ReadOnly { reason },
        VolumeError::NoRoom { reason } => NamespaceError::NoRoom { reason },
        VolumeError::NotErased { reason } => NamespaceError::NotErased { reason },
        VolumeError::Gone => NamespaceError::NotReady,
    }
}
