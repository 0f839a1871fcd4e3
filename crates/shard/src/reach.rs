//! Media as the catalogs see them: all channels, also those that other shards own.

use crate::devices::{DeviceIndex, Devices};
use crate::lanes::{Lane, LaneOwners};
use crate::peer::{Message, ShardMessage};
use crate::seat::ShardIndex;
use diecut_media::{
    Capabilities, Command, Completion, Divide, Intent, IntentDone, Media, MediaToken, StreamId,
};
use diecut_units::{EraseBlockAddress, Geometry, ProtectedMemory, Time};
use std::collections::BTreeMap;

/// Commands of catalogs under way at other shards: their lanes. Catalogs of two devices may call theirs alike.
pub(crate) type Elsewhere = BTreeMap<(DeviceIndex, u64), Lane>;

/// The media of all devices.
pub(crate) struct Reaches<'a, M: Divide> {
    pub devices: &'a mut Devices<M>,
    pub owners: &'a LaneOwners,
    pub outgoing: &'a mut Vec<(ShardIndex, ShardMessage)>,
    pub elsewhere: &'a mut Elsewhere,
}

impl<M: Divide> Reaches<'_, M> {
    /// That of one.
    pub fn at(&mut self, device: DeviceIndex) -> Reach<'_, M> {
        Reach {
            device,
            own: &mut self.devices.get_mut(device).media,
            owners: self.owners,
            outgoing: self.outgoing,
            elsewhere: self.elsewhere,
        }
    }
}

/// Commands to own channels go to the medium, others to the shards that own theirs.
pub(crate) struct Reach<'a, M: Divide> {
    device: DeviceIndex,
    own: &'a mut M,
    owners: &'a LaneOwners,
    outgoing: &'a mut Vec<(ShardIndex, ShardMessage)>,
    elsewhere: &'a mut Elsewhere,
}

impl<M: Divide> Media for Reach<'_, M> {
    fn geometry(&self) -> &Geometry {
        self.own.geometry()
    }
    fn capabilities(&self) -> &Capabilities {
        self.own.capabilities()
    }
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        self.own.is_factory_bad(block)
    }
    fn protected_memory(&self) -> Option<ProtectedMemory> {
        self.own.protected_memory()
    }
    fn submit(&mut self, command: Command, now: Time) {
        let channel = command.operation.block().channel.0;
        if self.own.owns(channel) {
            return self.own.submit(command, now);
        }
        let lane = Lane::of(self.device, channel);
        self.elsewhere.insert((self.device, command.token.0), lane);
        let owner = ShardIndex(self.owners.of(lane));
        self.outgoing.push((owner, ShardMessage(Message::Media(self.device, command))));
    }
    // A drive has one cache, whichever channel it is about.
    fn flush(&mut self, token: MediaToken, now: Time) {
        self.own.flush(token, now);
    }
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        self.own.advance(now, completions);
    }
    // What others own is not asked for, which would take a message: a program without room fails by itself.
    fn make_room(&mut self, block: EraseBlockAddress, now: Time) -> bool {
        !self.own.owns(block.channel.0) || self.own.make_room(block, now)
    }
    fn discard(&mut self, block: EraseBlockAddress, now: Time) {
        if self.own.owns(block.channel.0) {
            self.own.discard(block, now);
        }
    }
    fn place(&mut self, block: EraseBlockAddress, stream: StreamId) {
        if self.own.owns(block.channel.0) {
            self.own.place(block, stream);
        }
    }
    fn take_intents(&mut self, intents: &mut Vec<Intent>) {
        self.own.take_intents(intents);
    }
    fn intent_done(&mut self, done: IntentDone, now: Time) {
        self.own.intent_done(done, now);
    }
    fn next_event(&self) -> Time {
        self.own.next_event()
    }
}
