//! Doors: where commands come into a shard. When a group of tenants changes its shard ([`crate::relocation`]), each door takes along
//! what of the group is its own.

use crate::seat::ShardIndex;
use crate::session::MovedSession;
use diecut_nvme::QualifiedName;
use diecut_nvmf::{SubsystemConfig, SubsystemFigures};
use diecut_units::Time;

/// A group that is about to leave, as doors know it.
pub(crate) struct Party {
    /// Its vSSDs, by number.
    pub vssds: Vec<u32>,
    /// Subsystems of its tenants.
    pub subsystems: Vec<QualifiedName>,
}

/// What a door gives along with a group.
pub(crate) enum Luggage {
    /// Of the NVMe target: what was counted for each subsystem.
    Hosts(Vec<(QualifiedName, SubsystemFigures)>),
    /// Of applications at erase blocks.
    Applications(Vec<MovedSession>),
}

/// See the module. The order of calls is that of the move: at the old home [`Door::freeze`], [`Door::is_drained`] until it is so,
/// [`Door::take_out`]; at the new one [`Door::put_in`]; at the old one [`Door::release`]; at the new one [`Door::all_arrived`].
pub(crate) trait Door {
    /// Begins nothing more for a group: what comes of it waits.
    fn freeze(&mut self, party: &Party);

    /// Whether nothing is under way for a group that is frozen.
    fn is_drained(&self, party: &Party) -> bool;

    /// Takes out what of a drained group has no connection.
    fn take_out(&mut self, party: &Party) -> Luggage;

    /// Puts in what was taken out elsewhere, with the group's subsystems as they are here. Nothing of the group begins before
    /// [`Door::all_arrived`].
    ///
    /// # Panics
    /// If the luggage is another door's.
    fn put_in(&mut self, luggage: Luggage, subsystems: &[SubsystemConfig], now: Time);

    /// What was on its way from the old home is here.
    fn all_arrived(&mut self, now: Time);

    /// Gives connections of a group that was taken out, and all that waits, to its new home. `subsystems` are as they are here from now
    /// on.
    fn release(&mut self, subsystems: Vec<SubsystemConfig>, to: ShardIndex, now: Time);
}
