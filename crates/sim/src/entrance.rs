//! Where hosts' commands enter a shard: over the network ([`crate::hosts`]), or through a door below the target
//! ([`crate::door`]).

use crate::plan::Lane;
use crate::system::{HostAnswer, HostCommand, HostToken};
use diecut_emulator::Device;
use diecut_shard::Shard;
use diecut_units::{ContentMode, Time};

/// See the module. The shard is lent to each call that needs it.
pub trait Entrance {
    /// Whether the lane's host can send a command now.
    fn is_connected(&self, lane: Lane) -> bool;
    /// Sends a command.
    fn submit(
        &mut self,
        lane: Lane,
        token: HostToken,
        command: HostCommand,
        mode: ContentMode,
        shard: &mut Shard<Device>,
        now: Time,
    );
    /// Carries what is due between hosts and shard, in both directions; whether there was anything.
    fn exchange(&mut self, shard: &mut Shard<Device>, now: Time) -> bool;
    /// Takes what the shard wants of its driver.
    fn act(&mut self, actions: &mut Vec<diecut_shard::drive::Action>, shard: &mut Shard<Device>, now: Time);
    /// Answers that hosts got, in order.
    fn take_answers(&mut self, answers: &mut Vec<HostAnswer>);
    /// When [`Entrance::exchange`] has something to do.
    fn next_event(&self, shard: &Shard<Device>) -> Time;
    /// The host hangs up; it connects again by itself.
    fn disconnect(&mut self, lane: Lane, now: Time);
    /// Nothing of the lane's present connections gets through any more, and neither end is told.
    fn vanish(&mut self, lane: Lane, now: Time);
    /// The host neither reads nor sends until then.
    fn stall(&mut self, lane: Lane, until: Time);
    /// Nothing arrives in either direction until then.
    fn silence(&mut self, lane: Lane, until: Time);
    /// The shard is gone, and every connection with it.
    fn crash(&mut self);
    /// A new shard stands.
    fn restarted(&mut self, now: Time);
    /// Something was changed: hosts that are not connected try again at once.
    fn nudge(&mut self, now: Time);
    /// Whether no command is under way.
    fn is_at_rest(&self) -> bool;
    /// State in lines.
    fn describe(&self) -> String;
}
