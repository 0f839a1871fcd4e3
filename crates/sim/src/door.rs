//! Where hosts' commands enter the shards: over the network ([`crate::hosts`]), or through a door below the target
//! ([`crate::direct_door`]).

use crate::erasure::{Erase, Erasure};
use crate::plan::{Lane, Siege};
use crate::shards::Shards;
use crate::system::{HostAnswer, HostCommand, HostToken, PlacementStatistics};
use diecut_shard::drive::{Action, ConnectionId};
use diecut_units::{ContentMode, Time};
use std::collections::BTreeSet;

/// See the module. The shards are lent to each call that needs it.
pub trait Door {
    /// Whether the lane's host can send a command now.
    fn is_connected(&self, lane: Lane) -> bool;
    /// Sends a command.
    fn submit(
        &mut self,
        lane: Lane,
        token: HostToken,
        command: HostCommand,
        mode: ContentMode,
        shards: &mut Shards,
        now: Time,
    );
    /// Carries what is due between hosts and shards, in both directions; whether there was anything.
    fn exchange(&mut self, shards: &mut Shards, now: Time) -> bool;
    /// Takes what a shard wants of its driver.
    fn act(&mut self, shard: u16, actions: &mut Vec<Action>, shards: &mut Shards, now: Time);
    /// A connection that was handed over reaches its home.
    fn adopted(&mut self, connection: ConnectionId, shard: u16);
    /// Answers that hosts got, in order.
    fn take_answers(&mut self, answers: &mut Vec<HostAnswer>);
    /// When [`Door::exchange`] has something to do.
    fn next_event(&self, shards: &Shards) -> Time;
    /// The host hangs up; it connects again by itself.
    fn disconnect(&mut self, lane: Lane, now: Time);
    /// The host resets its controller as soon as it can.
    fn reset(&mut self, lane: Lane);
    /// The host shuts its controller down and answers then.
    fn shut_down(&mut self, lane: Lane, token: HostToken);
    /// The host asks for some of what is under way to be aborted.
    fn abort(&mut self, lane: Lane);
    /// Namespaces that the host knows of, of each of its controllers.
    fn known_namespaces(&self, lane: Lane) -> Vec<BTreeSet<u32>>;
    /// The host reads what its subsystem says of its endurance group.
    fn ask_placement_statistics(&mut self, _lane: Lane) {}
    /// What it was told, if it could ask and was answered.
    fn placement_statistics(&self, _lane: Lane) -> Option<PlacementStatistics> {
        None
    }
    /// The host has something erased. Whether it can ask.
    fn ask_erase(&mut self, _lane: Lane, _what: Erase) -> bool {
        false
    }
    /// The erasure that it asked for last.
    fn erasure(&self, _lane: Lane) -> Option<&Erasure> {
        None
    }
    /// Nothing of the lane's present connections gets through any more, and neither end is told.
    fn vanish(&mut self, lane: Lane, now: Time);
    /// The host neither reads nor sends until then.
    fn stall(&mut self, lane: Lane, until: Time);
    /// Nothing arrives in either direction until then.
    fn silence(&mut self, lane: Lane, until: Time);
    /// A shard failed: connections that it had end, and nobody is told at this end.
    fn hang_up(&mut self, shard: u16);
    /// The server is gone, and every connection with it.
    fn crash(&mut self);
    /// A new server stands.
    fn restarted(&mut self, now: Time);
    /// Something was changed: hosts that are not connected try again at once.
    fn nudge(&mut self, now: Time);
    /// Hostile hosts come.
    fn begin_siege(&mut self, siege: &Siege, mode: ContentMode, _now: Time) {
        panic!("there is no network for {siege:?} with {mode:?}");
    }
    /// Whether a visitor beside them has got what it came for, if there is one.
    fn siege_is_fair(&self) -> bool {
        true
    }
    /// Those that are left hang up.
    fn lift_siege(&mut self, _now: Time) {}
    /// Whether no command is under way.
    fn is_at_rest(&self) -> bool;
    /// State in lines.
    fn describe(&self) -> String;
}
