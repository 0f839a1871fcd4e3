//! What shards of one server send each other: orders of the first shard, their answers, and commands of the catalog to
//! channels that another shard owns. Drivers carry these messages, in order between any two shards, and know nothing of
//! what is in them.

use crate::away::Away;
use crate::control::{ControlError, RepairReport};
use crate::devices::DeviceIndex;
use crate::door::Luggage;
use crate::flash::MovedStore;
use crate::inquiry::{Findings, Inquiry};
use crate::lanes::Lane;
use crate::ledger::{Group, HeldPart};
use crate::panics::PanicRecord;
use crate::step::Step;
use diecut_catalog::{State, VssdRecord};
use diecut_media::{Command, Completion, Divide};
use diecut_namespace::MovedNamespace;
use diecut_namespace::contract::NamespaceId;
use diecut_nvmf::{Keep, Kept};
use diecut_vssd::{PlaceView, Places, PoolPart, StateChanges, StatesDurable, VssdId, WearNews};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A message between shards.
pub struct ShardMessage(pub(crate) Message);

impl fmt::Debug for ShardMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Message::Order(number, order) => write!(f, "order {number}: {}", order.name()),
            Message::Answer(number, answer) => write!(f, "answer {number}: {}", answer.name()),
            Message::Media(device, command) => write!(f, "device {}: {command:?}", device.0),
            Message::MediaDone(device, completion) => write!(f, "device {}: {completion:?}", device.0),
            Message::MediaMissed(device, command) => write!(f, "missed, device {}: {command:?}", device.0),
            Message::States(device, _) => write!(f, "block states of device {}", device.0),
            Message::StatesAre(device, durable) => {
                write!(f, "block states of device {}: {durable:?}", device.0)
            }
            Message::Wear(device, news) => write!(f, "device {}: {news:?}", device.0),
            Message::Passed(number) => write!(f, "passed: order {number}"),
            Message::Keep(keep) => write!(f, "{keep:?}"),
            Message::Kept(kept) => write!(f, "{kept:?}"),
            Message::Fell(_) => write!(f, "failed, and began again"),
            Message::Panicked(panics) => write!(f, "failures: {}", panics.len()),
        }
    }
}

pub(crate) enum Message {
    /// Of the first shard.
    Order(u64, Order),
    /// To the first shard: an order was carried out, or not.
    Answer(u64, Box<Answer>),
    /// A command of the catalog to a channel of the receiver.
    Media(DeviceIndex, Command),
    /// Its answer.
    MediaDone(DeviceIndex, Completion),
    /// To the first shard: the channel of a command of the catalog has left the sender meanwhile.
    MediaMissed(DeviceIndex, Command),
    /// To the first shard: changes of block states for the log that it keeps.
    States(DeviceIndex, StateChanges),
    /// Of the first shard: what became of changes of the receiver.
    StatesAre(DeviceIndex, StatesDurable),
    /// To the first shard: what happened to even wear.
    Wear(DeviceIndex, WearNews),
    /// All connections of a group that moves were sent, before this: the receiver, their new home, answers the order.
    Passed(u64),
    /// To the first shard: make a reservation, a sanitize operation, or events of placement durable.
    Keep(Box<Keep>),
    /// Its answer.
    Kept(Kept),
    /// To the first shard: the sender failed, and this is its next life ([`crate::remains`]), which knows of these failures.
    Fell(Arc<[PanicRecord]>),
    /// Of the first shard: what failed so far.
    Panicked(Arc<[PanicRecord]>),
}

/// What exists, and where.
pub(crate) struct World {
    pub state: State,
    /// Homes of tenants.
    pub homes: BTreeMap<String, u16>,
    /// vSSDs that are not there.
    pub away: BTreeMap<u32, Away>,
}

pub(crate) enum Order {
    /// Take these channels.
    Channels(Moved),
    /// This is what exists now.
    World(Arc<World>),
    /// Open what lies on the channels.
    Open(Arc<World>),
    /// Everything is open everywhere: serve.
    Serve(Arc<World>),
    /// Make a vSSD.
    Alloc(Box<Alloc>),
    /// Take over a group of tenants.
    Arrive(Box<MovedGroup>, Group),
    /// A step of a request, towards this state.
    Step(Step, Arc<State>),
    /// Say your part of what somebody asks.
    Find(Inquiry),
    /// Say what you know of your dies.
    Wear,
    /// After a failure: read your block states, and say what you have. Orders before it were for the life before.
    Again,
}

impl Order {
    fn name(&self) -> &'static str {
        match self {
            Order::Channels(_) => "channels",
            Order::World(_) => "world",
            Order::Open(_) => "open",
            Order::Serve(_) => "serve",
            Order::Alloc(_) => "alloc",
            Order::Arrive(..) => "arrive",
            Order::Step(..) => "step",
            Order::Find(Inquiry::Status) => "status",
            Order::Find(Inquiry::Latency) => "latency",
            Order::Wear => "wear",
            Order::Again => "again",
        }
    }
}

/// A vSSD to be made; [`VssdRecord::exported_ius`] is still to be found out.
pub(crate) struct Alloc {
    pub name: String,
    pub id: VssdId,
    pub parts: Vec<HeldPart>,
    pub record: VssdRecord,
    pub moved: Moved,
}

/// What became of an order.
pub(crate) enum Answer {
    /// It was carried out.
    Done,
    /// Of [`Order::Step`], and of [`Order::Open`], whose leftovers are steps.
    Step(Box<StepAnswer>),
    /// Of [`Order::Alloc`].
    Made(Box<VssdRecord>),
    /// Of [`Order::Alloc`]: why not, and the channels that nothing lies on.
    NotMade { number: u32, error: ControlError, returned: Moved },
    /// Of [`Order::Find`].
    Found(Findings),
    /// Of [`Order::Wear`].
    Wear(WearReport),
    /// Of [`Order::Again`], or why the shard cannot open by itself.
    Back(Result<Box<Back>, String>),
}

/// What became of steps.
#[derive(Default)]
pub(crate) struct StepAnswer {
    pub refusal: Option<ControlError>,
    /// Channels that nothing lies on any more.
    pub returned: Option<Moved>,
    /// Of [`Step::Leave`].
    pub group: Option<Box<MovedGroup>>,
    /// Of [`Step::RepairVssd`].
    pub repair: Option<Box<RepairReport>>,
}

/// Lanes on their way from shard to shard, by device.
pub(crate) struct Moved(pub Vec<MovedPart>);

/// Channels of a device on their way from shard to shard.
pub(crate) struct MovedPart {
    pub device: DeviceIndex,
    channels: Vec<u16>,
    pool: PoolPart,
    /// A part of the medium that owns the channels; all shards have the same kind of medium.
    media: Box<dyn Any + Send>,
}

impl MovedPart {
    pub fn new<M: Divide>(
        device: DeviceIndex,
        channels: Vec<u16>,
        pool: PoolPart,
        media: &mut M,
    ) -> MovedPart {
        let mut part = media.empty_part();
        for &channel in &channels {
            assert!(media.owns(channel), "I-S20: channel {channel} is given away by who owns it");
            part.take_channel(media, channel);
        }
        MovedPart { device, channels, pool, media: Box::new(part) }
    }

    /// Puts the channels into a medium and gives what belongs into the pool.
    pub fn unpack<M: Divide>(self, media: &mut M) -> PoolPart {
        let mut part = self.media.downcast::<M>().expect("I-S20: all shards have the same kind of medium");
        for &channel in &self.channels {
            assert!(!media.owns(channel), "I-S20: channel {channel} has one owner");
            media.take_channel(&mut part, channel);
        }
        self.pool
    }
}

impl Moved {
    /// In their order.
    pub fn lanes(&self) -> Vec<Lane> {
        let of_part = |part: &MovedPart| {
            part.channels.iter().map(|one| Lane::of(part.device, *one)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_part).collect()
    }

    /// Puts the channels into media, by their devices: after the death of all shards.
    pub fn salvage<M: Divide>(self, media: &mut [M]) {
        for part in self.0 {
            let own = &mut media[usize::from(part.device.0)];
            part.unpack(own);
        }
    }
}

/// A group between two shards.
pub(crate) struct MovedGroup {
    pub moved: Moved,
    pub stores: Vec<MovedStore>,
    /// With the vSSD of each.
    pub namespaces: Vec<(VssdId, NamespaceId, MovedNamespace)>,
    /// Of each door, in their order.
    pub luggage: Vec<Luggage>,
}

/// What a shard has of the only device that was opened by itself.
pub(crate) struct Back {
    pub channels: Vec<u16>,
    /// With the erase blocks that each may hold.
    pub vssds: Vec<(VssdId, Places, u64)>,
    pub exchanges: Vec<[u32; 2]>,
}

impl Back {
    /// Its lanes.
    pub fn lanes(&self) -> Vec<Lane> {
        self.channels.iter().map(|channel| Lane::of(DeviceIndex::default(), *channel)).collect()
    }
}

/// What a shard knows of its dies.
pub(crate) struct WearReport {
    pub shard: u16,
    /// By die of the device; only those of the shard's channels say something.
    pub dies: Vec<PlaceView>,
    /// Exchanges wait there or go on.
    pub is_exchanging: bool,
}

impl Order {
    /// Channels that are given with it.
    pub fn into_moved(self) -> Option<Moved> {
        match self {
            Order::Channels(moved) => Some(moved),
            Order::Alloc(alloc) => Some(alloc.moved),
            Order::Arrive(group, _) => Some(group.moved),
            _ => None,
        }
    }

    /// See [`ShardMessage::salvage`].
    pub fn salvage<M: Divide>(self, media: &mut [M]) {
        if let Some(moved) = self.into_moved() {
            moved.salvage(media);
        }
    }
}

impl Answer {
    fn name(&self) -> &'static str {
        match self {
            Answer::Done => "done",
            Answer::Step(step) if step.refusal.is_some() => "step refused",
            Answer::Step(_) => "step done",
            Answer::Made(_) => "made",
            Answer::NotMade { .. } => "not made",
            Answer::Found(_) => "findings",
            Answer::Wear(_) => "wear",
            Answer::Back(_) => "back",
        }
    }

    /// Whether somebody has to look at what is in it.
    pub fn holds_something(&self) -> bool {
        match self {
            Answer::Done => false,
            Answer::Step(step) => step.returned.is_some() || step.group.is_some(),
            Answer::Made(_)
            | Answer::NotMade { .. }
            | Answer::Found(_)
            | Answer::Wear(_)
            | Answer::Back(_) => true,
        }
    }

    /// See [`ShardMessage::salvage`].
    pub fn salvage<M: Divide>(self, media: &mut [M]) {
        let (returned, group) = match self {
            Answer::Step(step) => (step.returned, step.group),
            Answer::NotMade { returned, .. } => (Some(returned), None),
            Answer::Done | Answer::Made(_) | Answer::Found(_) | Answer::Wear(_) | Answer::Back(_) => return,
        };
        for moved in returned.into_iter().chain(group.map(|group| group.moved)) {
            moved.salvage(media);
        }
    }
}

impl ShardMessage {
    /// Puts the lanes that were on their way into media, by their devices: after the death of all shards.
    pub(crate) fn salvage<M: Divide>(self, media: &mut [M]) {
        match self.0 {
            Message::Order(_, order) => order.salvage(media),
            Message::Answer(_, answer) => answer.salvage(media),
            Message::Wear(..)
            | Message::States(..)
            | Message::StatesAre(..)
            | Message::Media(..)
            | Message::MediaDone(..)
            | Message::MediaMissed(..)
            | Message::Passed(_)
            | Message::Keep(_)
            | Message::Kept(_)
            | Message::Fell(_)
            | Message::Panicked(_) => {}
        }
    }

    /// What it tells of block states and wear of a device, which may have left meanwhile.
    pub(crate) fn of_device(&self) -> Option<DeviceIndex> {
        match &self.0 {
            Message::States(device, _) | Message::StatesAre(device, _) | Message::Wear(device, _) => {
                Some(*device)
            }
            _ => None,
        }
    }

    /// If a shard says that it failed, what it knows of failures.
    pub(crate) fn of_fall(&self) -> Option<Arc<[PanicRecord]>> {
        match &self.0 {
            Message::Fell(panics) => Some(Arc::clone(panics)),
            _ => None,
        }
    }
}
