//! Block states: what is written down of erase blocks, of vSSDs and of exchanges, so that it survives the process and the power.
//!
//! Either a table in protected memory (`table`, its bytes in `cells` and `entry`), where each change is durable at once; or, on media
//! without protected memory, the same table in plain memory and a log of its changes on flash (`log`, their bytes in `change`, read back by `replay`), where a change is
//! durable later. Whoever needs a change durable asks for its number ([`BlockStates::change`]) and waits for it: erases that wait for
//! their allocation and syncs of holders wait here (`queue`), and are given back when their time has come. Where several pools divide a device, one
//! of them keeps the log for all (`division`).
//!
//! Not known here: who holds a block in memory, what is under way, what a die does.

pub(crate) mod cells;
mod change;
pub(crate) mod division;
pub(crate) mod entry;
pub(crate) mod log;
mod pages;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod table;

use crate::owners::resources::UnitPlace;
use crate::{OpenError, SpaceToken, VssdId};
use cells::ChannelCells;
use change::Change;
use diecut_media::{Media, MediaError};
use diecut_units::{EraseBlockAddress, ProtectedRegion, Time, mutant};
use division::{Division, Sending, StateChanges, StatesDurable, Unlogged};
pub(crate) use entry::{
    BlockEntry, BlockState, ExchangeEntry, ExchangePhase, MoveEntry, UnitEntry, VssdEntry,
};
use entry::{encode_block, encode_exchange, encode_vssd};
use log::StateLog;
use queue::ChangeQueue;
pub(crate) use table::{Found, Sizes, StateTable};

/// See the module.
pub(crate) enum BlockStates {
    /// Nowhere: nothing survives.
    Nowhere,
    /// In protected memory.
    Protected(StateTable),
    /// On flash: the table is what its log amounts to. Of a divided device it is that of all pools.
    Logged { table: StateTable, log: Box<StateLog>, division: Box<Division> },
    /// On flash, in the log of another pool of the device: the table is what is this pool's.
    Sent { table: StateTable, sending: Box<Sending> },
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
            BlockStates::Protected(table)
            | BlockStates::Logged { table, .. }
            | BlockStates::Sent { table, .. } => Some(table),
        }
    }
    fn table(&self) -> Option<&StateTable> {
        match self {
            BlockStates::Nowhere => None,
            BlockStates::Protected(table)
            | BlockStates::Logged { table, .. }
            | BlockStates::Sent { table, .. } => Some(table),
        }
    }
    fn log(&self) -> Option<&StateLog> {
        match self {
            BlockStates::Logged { log, .. } => Some(log),
            _ => None,
        }
    }
    /// Changes that become durable later than they are made.
    fn queue(&self) -> Option<&ChangeQueue> {
        match self {
            BlockStates::Logged { log, .. } => Some(&log.queue),
            BlockStates::Sent { sending, .. } => Some(&sending.queue),
            BlockStates::Nowhere | BlockStates::Protected(_) => None,
        }
    }
    fn queue_mut(&mut self) -> Option<&mut ChangeQueue> {
        match self {
            BlockStates::Logged { log, .. } => Some(&mut log.queue),
            BlockStates::Sent { sending, .. } => Some(&mut sending.queue),
            BlockStates::Nowhere | BlockStates::Protected(_) => None,
        }
    }
    /// The log's table has it with its next generation; that of another pool is told.
    fn push_unlogged(&mut self, what: impl FnOnce() -> Unlogged) {
        if let BlockStates::Sent { sending, .. } = self {
            sending.unlogged.push(what());
        }
    }

    /// Writes a block's state down.
    pub fn set_block(&mut self, number: u32, entry: &BlockEntry) {
        let Some(table) = self.table_mut() else { return };
        table.set_block(number, entry);
        if let Some(queue) = self.queue_mut() {
            queue.push(Change::Block { number, body: &encode_block(entry) });
        }
    }

    /// Writes down how many pages of a block's present allocation are programmed. The log keeps them only where they are `settled`: those of
    /// an open block are found by looking.
    #[inline]
    pub fn set_pages(&mut self, number: u32, pages: u32, sequence: u64, settled: bool) {
        let Some(table) = self.table_mut() else { return };
        table.set_pages(number, pages, sequence);
        if settled && let Some(queue) = self.queue_mut() {
            queue.push(Change::Pages { number, pages, sequence });
        }
    }

    /// Writes a vSSD down.
    pub fn set_vssd(&mut self, entry: &VssdEntry) {
        let Some(table) = self.table_mut() else { return };
        table.set_vssd(entry);
        if let Some(queue) = self.queue_mut() {
            queue.push(Change::Vssd { body: &encode_vssd(entry) });
        }
    }

    /// Writes an exchange down with its first die, or that there is none any more.
    pub fn set_exchange(&mut self, dies: [u32; 2], phase: Option<ExchangePhase>) {
        let Some(table) = self.table_mut() else { return };
        let entry = phase.map(|phase| ExchangeEntry { dies, phase });
        table.set_exchange(dies[0], entry.as_ref());
        // A pair is one program unit there, whatever the exchange says.
        if let Some(queue) = self.queue_mut()
            && !matches!(phase, Some(ExchangePhase::Pair(_)))
        {
            queue.push(Change::Exchange { die: dies[0], body: &encode_exchange(entry.as_ref()) });
        }
    }

    /// Writes down what is known of the content of a place; the log has it once for each generation.
    pub fn set_heat(&mut self, place: UnitPlace, words: [u64; 2]) {
        if let Some(table) = self.table_mut() {
            table.set_heat(place, words);
        }
        self.push_unlogged(|| Unlogged::Heat(place, words));
    }

    /// Writes the erases of a die down, by cause; the log has them once for each generation.
    pub fn set_die_wear(&mut self, die: u32, words: [u64; 3]) {
        if let Some(table) = self.table_mut() {
            table.set_die_wears(die, words);
        }
        self.push_unlogged(|| Unlogged::DieWear(die, words));
    }

    /// Number of the last change; 0 where each is durable at once.
    pub fn change(&self) -> u64 {
        self.queue().map_or(0, ChangeQueue::pushed)
    }
    /// Whether this change and those before it are durable.
    pub fn is_durable_at(&self, change: u64) -> bool {
        self.queue().is_none_or(|queue| queue.is_durable_at(change))
    }
    /// Whether every change so far is durable.
    pub fn is_durable(&self) -> bool {
        self.queue().is_none_or(ChangeQueue::is_durable)
    }
    /// Whether changes become durable later than they are made.
    pub fn is_late(&self) -> bool {
        self.queue().is_some()
    }
    /// Whether nothing becomes durable any more.
    pub fn is_lost(&self) -> bool {
        self.queue().is_some_and(ChangeQueue::is_lost)
    }
    /// IUs that the log programmed, and erases it asked for.
    pub fn log_work(&self) -> (u64, u64) {
        self.log().map_or((0, 0), |log| (log.work.programmed_ius, log.work.erases))
    }
    /// Blocks that the log erased since the last call.
    pub fn take_log_erases(&mut self) -> Vec<EraseBlockAddress> {
        match self {
            BlockStates::Logged { log, .. } => std::mem::take(&mut log.work.erased),
            _ => Vec::new(),
        }
    }

    /// Everything so far shall become durable though nobody waits for it here.
    pub fn want(&mut self) {
        if let Some(queue) = self.queue_mut() {
            queue.want();
        }
    }

    /// Lets the log write if somebody waits for it. Says whether there is a log.
    #[inline]
    pub fn kick<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) -> bool {
        let BlockStates::Logged { table, log, .. } = self else { return false };
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
        let BlockStates::Logged { table, log, .. } = self else { return LogEvent::Stopped };
        if result == Err(MediaError::PowerLost) {
            return LogEvent::Stopped;
        }
        let more = log.completed(result, table.bytes(), media, now);
        match more {
            _ if log.queue.is_lost() => LogEvent::Lost,
            true => LogEvent::MoreDurable,
            false => LogEvent::GoesOn,
        }
    }

    /// Keeps an erase, which is an operation, until its allocation is durable. Says whether it has to wait.
    pub fn hold_erase(&mut self, at: u32) -> bool {
        let Some(queue) = self.queue_mut() else { return false };
        queue.hold_erase(at);
        true
    }
    /// Erases that wait.
    pub fn held_erases(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue().into_iter().flat_map(ChangeQueue::held_erases)
    }
    /// An erase that waited long enough; each one when nothing becomes durable any more.
    pub fn take_erase(&mut self) -> Option<u32> {
        self.queue_mut()?.take_erase()
    }

    /// A holder asks for everything so far to be durable.
    pub fn sync(&mut self, id: VssdId, token: SpaceToken) -> Synced {
        match self.queue_mut() {
            Some(queue) if queue.is_lost() => Synced::Never,
            Some(queue) if !queue.is_durable() => {
                queue.hold_sync(id, token);
                Synced::Waits
            }
            _ => Synced::Done,
        }
    }
    /// A sync that waited long enough; each one when nothing becomes durable any more.
    pub fn take_sync(&mut self) -> Option<(VssdId, SpaceToken)> {
        self.queue_mut()?.take_sync()
    }

    /// Changes for the pool that keeps the log: those that are to go now, or all.
    pub fn take_changes(&mut self, all: bool) -> Option<StateChanges> {
        match self {
            BlockStates::Sent { sending, .. } if all => sending.take_all(false),
            BlockStates::Sent { sending, .. } => sending.take(),
            _ => None,
        }
    }
    /// Whether the pool that keeps the log was sent all changes.
    pub fn is_all_sent(&self) -> bool {
        match self {
            BlockStates::Sent { sending, .. } => sending.is_all_sent(),
            _ => true,
        }
    }
    /// Takes changes of another pool into the log.
    ///
    /// # Errors
    /// They make no sense: the other pool is not one of this device.
    pub fn take_in(&mut self, from: u16, changes: StateChanges) -> Result<(), OpenError> {
        let BlockStates::Logged { table, log, division } = self else {
            panic!("I-V27: changes go to the pool that keeps the log")
        };
        table.replay(&changes.logged)?;
        for unlogged in changes.unlogged {
            match unlogged {
                Unlogged::Heat(place, words) => table.set_heat(place, words),
                Unlogged::DieWear(die, words) => table.set_die_wears(die, words),
            }
        }
        match mutant!("vssd: changes of other pools are in the table only") {
            true => log.queue.push_nothing(),
            false => log.queue.push_encoded(&changes.logged),
        }
        division.received(log.queue.pushed(), from, changes.last);
        if changes.is_awaited {
            log.queue.want();
        }
        Ok(())
    }
    /// What became of changes of other pools since the last call.
    pub fn take_durable(&mut self) -> Vec<(u16, StatesDurable)> {
        match self {
            BlockStates::Logged { log, division, .. } => division.take_durable(&log.queue),
            _ => Vec::new(),
        }
    }
    /// The pool that keeps the log said what became of changes.
    pub fn told(&mut self, durable: StatesDurable) -> LogEvent {
        let BlockStates::Sent { sending, .. } = self else {
            panic!("I-V27: who keeps the log hears of it by itself")
        };
        match durable {
            StatesDurable::UpTo(change) => {
                sending.queue.became_durable(change);
                LogEvent::MoreDurable
            }
            StatesDurable::Lost => {
                sending.queue.lose();
                LogEvent::Lost
            }
        }
    }

    /// What the table says of the erases of a die, by cause; nothing if there is no table.
    pub fn die_wear(&self, die: u32) -> Option<[u64; 4]> {
        self.table().map(|table| table.die_wear(die))
    }
    /// What the table says of the content of a place.
    pub fn heat(&self, place: UnitPlace) -> Option<[u64; 2]> {
        self.table().map(|table| table.heat(place))
    }

    /// The log, if there is one, is written to few channels from now on.
    pub fn keep_log_to_few_channels(&mut self) {
        if let BlockStates::Logged { log, .. } = self {
            log.keep_to_few_channels();
        }
    }
    /// Channels that the log is written to; none where there is none.
    pub fn log_channels(&self) -> Vec<u16> {
        self.log().map_or_else(Vec::new, StateLog::channels)
    }
    /// Whether what lies on a channel is written down here: of a divided device, by one pool.
    pub fn holds_channel(&self, channel: u16) -> bool {
        match self {
            BlockStates::Logged { division, .. } => !division.channels.contains(&channel),
            _ => self.table().is_none_or(|table| table.holds_channel(channel)),
        }
    }
    /// What is written down of a channel, for another pool.
    pub fn take_channel(&mut self, channel: u16) -> Option<ChannelCells> {
        if let BlockStates::Logged { table, division, .. } = self {
            assert!(division.channels.insert(channel), "the pool holds the channel (I-V3)");
            return Some(table.copy_channel(channel));
        }
        self.table_mut().map(|table| table.divide().take_channel(channel))
    }
    /// Takes over what is written down of a channel.
    pub fn put_channel(&mut self, channel: u16, cells: ChannelCells) {
        if let BlockStates::Logged { division, .. } = self {
            // What the other pool wrote down was sent before.
            assert!(division.channels.remove(&channel), "channel {channel} is held once (I-V3)");
            return;
        }
        self.table_mut()
            .expect("I-V3: channels go between pools with tables")
            .divide()
            .put_channel(channel, cells);
    }
    /// The entry of a vSSD, for another pool: its place, and its bytes.
    pub fn take_slot_of(&mut self, id: VssdId) -> Option<(usize, ProtectedRegion)> {
        let table = self.table_mut()?;
        let slot = table.slot_of(id).expect("I-V3: a vSSD has an entry");
        match self {
            BlockStates::Logged { table, division, .. } => {
                let number = division.unused_slot(table.slots_len());
                division.slots.insert(number);
                Some((number, table.copy_slot(slot)))
            }
            _ => self.table_mut().map(|table| (slot, table.divide().take_slot(slot))),
        }
    }
    /// An entry that a vSSD of another pool can take.
    pub fn take_unused_slot(&mut self) -> Option<(usize, ProtectedRegion)> {
        if let BlockStates::Logged { table, division, .. } = self {
            let number = division.unused_slot(table.slots_len());
            division.slots.insert(number);
            return Some((number, table.blank_slot()));
        }
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
        if let BlockStates::Logged { division, .. } = self {
            assert!(division.slots.remove(&slot), "entry {slot} is held once (I-V3)");
            return;
        }
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
