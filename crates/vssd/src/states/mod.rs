//! Block states: what is written down of erase blocks, of vSSDs and of exchanges, so that it survives the process and the power.
//!
//! Either a table in protected memory (`table`, its bytes in `cells` and `entry`), where each change is durable at once; or, on media
//! without protected memory, the same table in plain memory and a log of its changes on flash (`log`, their bytes in `change`, read back by `replay`), where a change is
//! durable later. Whoever needs a change durable asks for its number ([`BlockStates::change`]) and waits for it: erases that wait for
//! their allocation and syncs of holders wait here, and are given back when their time has come.
//!
//! Not known here: who holds a block in memory, what is under way, what a die does.

pub(crate) mod cells;
mod change;
pub(crate) mod entry;
pub(crate) mod log;
mod pages;
pub(crate) mod replay;
pub(crate) mod table;

use crate::owners::resources::UnitPlace;
use crate::{SpaceToken, VssdId};
use cells::ChannelCells;
use change::Change;
use diecut_media::{Media, MediaError};
use diecut_units::{EraseBlockAddress, ProtectedRegion, Time};
pub(crate) use entry::{
    BlockEntry, BlockState, ExchangeEntry, ExchangePhase, MoveEntry, UnitEntry, VssdEntry,
};
use entry::{encode_block, encode_exchange, encode_vssd};
use log::StateLog;
pub(crate) use table::{Found, Sizes, StateTable};

/// See the module.
pub(crate) enum BlockStates {
    /// Nowhere: nothing survives.
    Nowhere,
    /// In protected memory.
    Protected(StateTable),
    /// On flash: the table is what its log amounts to.
    Logged { table: StateTable, log: Box<StateLog> },
}

/// Whether what a holder did so far is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    Done,
    /// The sync is given back by [`BlockStates::take_sync`].
    Waits,
    /// Nothing becomes durable any more.
    Never,
}

/// What a command of the log that came back amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEvent {
    /// The power went: nothing goes on.
    Stopped,
    /// Nothing more is durable than before.
    GoesOn,
    /// More is durable: erases and syncs may be due.
    MoreDurable,
    /// No place is left that takes writes: what waits never becomes durable.
    Lost,
}

impl BlockStates {
    /// The table, to change it alone.
    fn table_mut(&mut self) -> Option<&mut StateTable> {
        match self {
            BlockStates::Nowhere => None,
            BlockStates::Protected(table) | BlockStates::Logged { table, .. } => Some(table),
        }
    }
    fn table(&self) -> Option<&StateTable> {
        match self {
            BlockStates::Nowhere => None,
            BlockStates::Protected(table) | BlockStates::Logged { table, .. } => Some(table),
        }
    }
    fn log(&self) -> Option<&StateLog> {
        match self {
            BlockStates::Logged { log, .. } => Some(log),
            _ => None,
        }
    }
    fn log_mut(&mut self) -> Option<&mut StateLog> {
        match self {
            BlockStates::Logged { log, .. } => Some(log),
            _ => None,
        }
    }

    /// Writes a block's state down.
    pub fn set_block(&mut self, number: u32, entry: &BlockEntry) {
        let Some(table) = self.table_mut() else { return };
        table.set_block(number, entry);
        if let Some(log) = self.log_mut() {
            log.push(Change::Block { number, body: &encode_block(entry) });
        }
    }

    /// Writes down how many pages of a block's present allocation are programmed. The log keeps them only where they are `settled`: those of
    /// an open block are found by looking.
    #[inline]
    pub fn set_pages(&mut self, number: u32, pages: u32, sequence: u64, settled: bool) {
        let Some(table) = self.table_mut() else { return };
        table.set_pages(number, pages, sequence);
        if let BlockStates::Logged { log, .. } = self
            && settled
        {
            log.push(Change::Pages { number, pages, sequence });
        }
    }

    /// Writes a vSSD down.
    pub fn set_vssd(&mut self, entry: &VssdEntry) {
        let Some(table) = self.table_mut() else { return };
        table.set_vssd(entry);
        if let Some(log) = self.log_mut() {
            log.push(Change::Vssd { body: &encode_vssd(entry) });
        }
    }

    /// Writes an exchange down with its first die, or that there is none any more.
    pub fn set_exchange(&mut self, dies: [u32; 2], phase: Option<ExchangePhase>) {
        let Some(table) = self.table_mut() else { return };
        let entry = phase.map(|phase| ExchangeEntry { dies, phase });
        table.set_exchange(dies[0], entry.as_ref());
        // A pair is one program unit there, whatever the exchange says.
        if let BlockStates::Logged { log, .. } = self
            && !matches!(phase, Some(ExchangePhase::Pair(_)))
        {
            log.push(Change::Exchange { die: dies[0], body: &encode_exchange(entry.as_ref()) });
        }
    }

    /// Writes down what is known of the content of a place; the log has it once for each generation.
    pub fn set_heat(&mut self, place: UnitPlace, words: [u64; 2]) {
        if let Some(table) = self.table_mut() {
            table.set_heat(place, words);
        }
    }

    /// Writes the erases of a die down, by cause; the log has them once for each generation.
    pub fn set_die_wear(&mut self, die: u32, words: [u64; 3]) {
        if let Some(table) = self.table_mut() {
            words.into_iter().enumerate().for_each(|(which, count)| table.set_die_wear(die, which, count));
        }
    }

    /// Number of the last change; 0 where each is durable at once.
    pub fn change(&self) -> u64 {
        self.log().map_or(0, StateLog::pushed)
    }
    /// Whether this change and those before it are durable.
    pub fn is_durable_at(&self, change: u64) -> bool {
        self.log().is_none_or(|log| log.is_durable_at(change))
    }
    /// Whether every change so far is durable.
    pub fn is_durable(&self) -> bool {
        self.log().is_none_or(StateLog::is_durable)
    }
    /// Whether changes become durable later than they are made.
    pub fn is_late(&self) -> bool {
        self.log().is_some()
    }
    /// Whether nothing becomes durable any more.
    pub fn is_lost(&self) -> bool {
        self.log().is_some_and(|log| log.failed)
    }
    /// IUs that the log programmed, and erases it asked for.
    pub fn log_work(&self) -> (u64, u64) {
        self.log().map_or((0, 0), |log| (log.work.programmed_ius, log.work.erases))
    }
    /// Blocks that the log erased since the last call.
    pub fn take_log_erases(&mut self) -> Vec<EraseBlockAddress> {
        self.log_mut().map_or_else(Vec::new, |log| std::mem::take(&mut log.work.erased))
    }

    /// Everything so far shall become durable though nobody waits for it here.
    pub fn want(&mut self) {
        if let Some(log) = self.log_mut() {
            log.want();
        }
    }

    /// Lets the log write if somebody waits for it. Says whether there is a log.
    #[inline]
    pub fn kick<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) -> bool {
        let BlockStates::Logged { table, log } = self else { return false };
        log.kick(table.bytes(), media, now);
        true
    }

    /// A command of the log came back.
    pub fn completed<M: Media + ?Sized>(
        &mut self,
        result: Result<(), MediaError>,
        media: &mut M,
        now: Time,
    ) -> LogEvent {
        let BlockStates::Logged { table, log } = self else { return LogEvent::Stopped };
        if result == Err(MediaError::PowerLost) {
            return LogEvent::Stopped;
        }
        let more = log.completed(result, table.bytes(), media, now);
        match more {
            _ if log.failed => LogEvent::Lost,
            true => LogEvent::MoreDurable,
            false => LogEvent::GoesOn,
        }
    }

    /// Keeps an erase, which is an operation, until its allocation is durable. Says whether it has to wait.
    pub fn hold_erase(&mut self, at: u32) -> bool {
        let Some(log) = self.log_mut() else { return false };
        let change = log.pushed();
        let last = log.waiting.erases.back();
        assert!(last.is_none_or(|(last, _)| *last <= change), "erases wait in the order of changes (I-V17)");
        log.waiting.erases.push_back((change, at));
        true
    }
    /// Erases that wait.
    pub fn held_erases(&self) -> impl Iterator<Item = u32> + '_ {
        self.log().into_iter().flat_map(|log| log.waiting.erases.iter().map(|(_, at)| *at))
    }
    /// An erase that waited long enough; each one when nothing becomes durable any more.
    pub fn take_erase(&mut self) -> Option<u32> {
        let log = self.log_mut()?;
        log.waiting.erases.pop_front_if(|(change, _)| log.failed || log.durable >= *change).map(|(_, at)| at)
    }

    /// A holder asks for everything so far to be durable.
    pub fn sync(&mut self, id: VssdId, token: SpaceToken) -> Synced {
        match self.log_mut() {
            Some(log) if log.failed => Synced::Never,
            Some(log) if !log.is_durable() => {
                log.waiting.syncs.push_back((log.pushed(), id, token));
                Synced::Waits
            }
            _ => Synced::Done,
        }
    }
    /// A sync that waited long enough; each one when nothing becomes durable any more.
    pub fn take_sync(&mut self) -> Option<(VssdId, SpaceToken)> {
        let log = self.log_mut()?;
        let due = log.waiting.syncs.pop_front_if(|(change, ..)| log.failed || log.durable >= *change);
        due.map(|(_, id, token)| (id, token))
    }

    /// What the table says of the erases of a die, by cause; nothing if there is no table.
    pub fn die_wear(&self, die: u32) -> Option<[u64; 4]> {
        self.table().map(|table| table.die_wear(die))
    }
    /// What the table says of the content of a place.
    pub fn heat(&self, place: UnitPlace) -> Option<[u64; 2]> {
        self.table().map(|table| table.heat(place))
    }

    /// Whether what lies on a channel is written down here: of a divided device, by one pool.
    pub fn holds_channel(&self, channel: u16) -> bool {
        self.table().is_none_or(|table| table.holds_channel(channel))
    }
    /// What is written down of a channel, for another pool.
    pub fn take_channel(&mut self, channel: u16) -> Option<ChannelCells> {
        self.table_mut().map(|table| table.divide().take_channel(channel))
    }
    /// Takes over what is written down of a channel.
    pub fn put_channel(&mut self, channel: u16, cells: ChannelCells) {
        self.table_mut()
            .expect("I-V3: channels go between pools with tables")
            .divide()
            .put_channel(channel, cells);
    }
    /// The entry of a vSSD, for another pool: its place, and its bytes.
    pub fn take_slot_of(&mut self, id: VssdId) -> Option<(usize, ProtectedRegion)> {
        let table = self.table_mut()?;
        let slot = table.slot_of(id).expect("I-V3: a vSSD has an entry");
        Some((slot, table.divide().take_slot(slot)))
    }
    /// An entry that a vSSD of another pool can take.
    pub fn take_unused_slot(&mut self) -> Option<(usize, ProtectedRegion)> {
        let table = self.table_mut()?;
        let slot = table.unused_slot();
        Some((slot, table.divide().take_slot(slot)))
    }
    /// Entries that no vSSD of this pool needs.
    pub fn take_idle_slots(&mut self) -> Vec<(usize, ProtectedRegion)> {
        let Some(table) = self.table_mut() else { return Vec::new() };
        let idle = table.idle_slots();
        idle.into_iter().map(|slot| (slot, table.divide().take_slot(slot))).collect()
    }
    /// Takes an entry over.
    pub fn put_slot(&mut self, slot: usize, region: ProtectedRegion) {
        if let Some(table) = self.table_mut() {
            table.divide().put_slot(slot, region);
        }
    }

    /// The table, for tests that damage it or count its stores.
    #[cfg(test)]
    pub fn table_of_test(&mut self) -> &mut StateTable {
        self.table_mut().expect("there is a table")
    }
}
