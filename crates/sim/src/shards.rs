//! The shards of one server in virtual time, and the queues between them: messages and connections that are handed over
//! arrive late and, from different shards, in any order, as the seed says; what one shard sends to another stays in order.
//!
//! Not known here: hosts. Whoever drives the shards takes their actions, but those between shards.

use crate::carrier::Carrier;
use crate::drives::Drives;
use diecut_devices::Device;
use diecut_media::Media;
use diecut_shard::drive::{
    Action, BlockAction, BlockEvent, ConnectionId, Drive, Event, MovedConnection, Outbox, ShardIndex,
    ShardMessage,
};
use diecut_shard::{DeviceConfig, Seat, Shard, ShardConfig, divide_all, gather};
use diecut_units::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, VecDeque};

/// What one shard sends to another.
pub enum Carried {
    /// A message.
    Told(ShardMessage),
    /// A connection on its way home.
    Adopted(ConnectionId, Box<MovedConnection>),
    /// An application that wants to attach, or that is attached, on its way to the shard of its vSSD.
    Attaching(BlockEvent),
}

/// See the module.
pub struct Shards {
    shards: Vec<Shard<Device>>,
    /// What is under way, by sender and receiver.
    queues: BTreeMap<(u16, u16), VecDeque<(Time, Carried)>>,
    random: Xoshiro256PlusPlus,
    /// A shard whose messages are mostly late, as from a thread that does not get its core.
    laggard: Option<u16>,
    /// What everything takes from one shard to another, if it is the same.
    steady: Option<Span>,
    /// Who carries out what devices ask for.
    carrier: Carrier,
}

impl Shards {
    /// So many shards over a device.
    pub fn new(device: Device, config: &ShardConfig, count: u16, seed: u64, now: Time) -> Shards {
        Shards::with(vec![(device, config.device())], Carrier::file(seed), config, count, seed, now)
    }

    /// So many shards over devices, and who carries out what these ask for.
    pub fn with(
        devices: Vec<(Device, DeviceConfig)>,
        carrier: Carrier,
        config: &ShardConfig,
        count: u16,
        seed: u64,
        now: Time,
    ) -> Shards {
        let (devices, configs): (Vec<Device>, Vec<DeviceConfig>) = devices.into_iter().unzip();
        let open = |(seat, parts): (Seat, Vec<Device>)| {
            let all = parts.into_iter().zip(configs.clone()).collect();
            Shard::over(all, config.clone(), seat, now)
        };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0073_6861_7264);
        let laggard = (count > 1 && random.random_ratio(1, 3)).then(|| random.random_range(0..count));
        Shards {
            shards: divide_all(devices, count).into_iter().map(open).collect(),
            queues: BTreeMap::new(),
            random,
            laggard,
            steady: None,
            carrier,
        }
    }

    /// From now on everything takes so long from one shard to another.
    pub fn make_steady(&mut self, delay: Span) {
        self.steady = Some(delay);
    }

    /// The device, with all that was on its way; everything else is gone.
    pub fn into_device(self) -> Device {
        self.into_parts().0
    }

    /// The same, and who carries out what they ask for. Of drives, whose media are made anew at each start, what the first shard had of the first one.
    pub fn into_parts(mut self) -> (Device, Carrier) {
        if self.carrier.drives().is_some() {
            return (self.shards.remove(0).into_all_media().remove(0), self.carrier);
        }
        let told = self.queues.into_values().flatten().filter_map(|(_, carried)| match carried {
            Carried::Told(message) => Some(message),
            Carried::Adopted(..) | Carried::Attaching(_) => None,
        });
        (gather(self.shards, told), self.carrier)
    }

    /// The drives under them, if these are some.
    pub fn drives(&self) -> Option<&Drives> {
        self.carrier.drives()
    }
    /// See [`Shards::drives`].
    pub fn drives_mut(&mut self) -> Option<&mut Drives> {
        self.carrier.drives_mut()
    }

    /// A shard that is not the first one failed: it begins again by itself, after what it had `told` the others.
    pub fn begin_again(
        &mut self,
        shard: u16,
        told: Vec<(ShardIndex, ShardMessage)>,
        config: &ShardConfig,
        now: Time,
    ) {
        let failed = self.shards.remove(shard.into());
        let next = Shard::again(failed.into_remains(told), config.clone(), now);
        self.shards.insert(shard.into(), next);
    }

    /// Whether something is on its way from one shard to another.
    pub fn tells(&self, from: u16, to: u16) -> bool {
        self.queues.get(&(from, to)).is_some_and(|queue| !queue.is_empty())
    }

    /// The first shard, which administrators ask.
    pub fn lead(&self) -> &Shard<Device> {
        &self.shards[0]
    }
    /// See [`Shards::lead`].
    pub fn lead_mut(&mut self) -> &mut Shard<Device> {
        &mut self.shards[0]
    }
    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = &Shard<Device>> {
        self.shards.iter()
    }
    /// See [`Shards::all`].
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Shard<Device>> {
        self.shards.iter_mut()
    }
    /// How many there are.
    pub fn count(&self) -> u16 {
        self.shards.len() as u16
    }
    fn at(&mut self, shard: u16) -> &mut Shard<Device> {
        &mut self.shards[usize::from(shard)]
    }

    /// When the core of a shard takes the next thing from hosts.
    pub fn core_free_at(&self, shard: u16) -> Time {
        self.shards[usize::from(shard)].core_free_at()
    }
    /// Output of a connection that a shard has.
    pub fn outbox(&self, shard: u16, connection: ConnectionId) -> Option<&Outbox> {
        self.shards[usize::from(shard)].outbox(connection)
    }
    /// Where a shard receives bytes of a connection.
    pub fn receive_window(&mut self, shard: u16, connection: ConnectionId) -> Option<&mut [u8]> {
        self.at(shard).receive_window(connection)
    }

    /// Tells a shard something; what it sends to others is on its way then, the rest is in `actions`.
    pub fn handle(&mut self, shard: u16, event: Event, now: Time, actions: &mut Vec<Action>) {
        self.at(shard).handle(event, now, actions);
        self.send(shard, now, actions);
    }
    /// Lets a shard work.
    pub fn work(&mut self, shard: u16, now: Time, actions: &mut Vec<Action>) {
        for (device, done) in self.carrier.take_done(shard, now) {
            self.shards[usize::from(shard)].handle(Event::IoDone(device, done), now, actions);
        }
        self.at(shard).work(now, actions);
        self.send(shard, now, actions);
    }
    /// Output of a connection went away.
    pub fn sent(
        &mut self,
        shard: u16,
        connection: ConnectionId,
        len_bytes: usize,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        self.at(shard).sent(connection, len_bytes, actions);
        self.send(shard, now, actions);
    }

    fn send(&mut self, from: u16, now: Time, actions: &mut Vec<Action>) {
        let wanted: Vec<Action> = actions.extract_if(.., |action| matches!(action, Action::Io(..))).collect();
        for action in wanted {
            let Action::Io(device, intent) = action else { unreachable!("asked for") };
            self.carrier.begin(from, device, intent, now);
        }
        // What is said after a connection or an application was given away arrives after it.
        let is_given = |action: &Action| {
            matches!(action, Action::HandOver { .. } | Action::Blocks(BlockAction::HandOver { .. }))
        };
        let given = actions.iter().position(is_given);
        let until = given.unwrap_or(actions.len());
        for action in actions.extract_if(..until, |action| matches!(action, Action::Tell { .. })) {
            let Action::Tell { to, message } = action else { unreachable!("asked for") };
            self.carry(from, to.0, Carried::Told(message), now);
        }
    }

    /// Puts something on its way between two shards.
    pub fn carry(&mut self, from: u16, to: u16, what: Carried, now: Time) {
        let delay = match self.random.random_range(0..64) {
            _ if self.steady.is_some() => self.steady.expect("just seen"),
            0..40 if self.laggard == Some(from) => Span::from_micros(self.random.random_range(100..5_000)),
            0 => Span::from_micros(self.random.random_range(100..5_000)),
            1..16 => Span::from_micros(self.random.random_range(1..100)),
            _ => Span(self.random.random_range(100..1_000)),
        };
        let queue = self.queues.entry((from, to)).or_default();
        let due = queue.back().map_or(now + delay, |(due, _)| (now + delay).max(*due));
        queue.push_back((due, what));
    }

    /// Takes what has arrived next, if anything has: for which shard.
    pub fn take_arrived(&mut self, now: Time) -> Option<(u16, u16, Carried)> {
        let first = |queue: &VecDeque<(Time, Carried)>| queue.front().map(|(due, _)| *due);
        let arrived = self.queues.iter().filter_map(|(way, queue)| first(queue).map(|due| (due, *way)));
        let (due, way) = arrived.min()?;
        if due > now {
            return None;
        }
        let (_, carried) = self.queues.get_mut(&way)?.pop_front()?;
        Some((way.0, way.1, carried))
    }

    /// The shards in the order in which they work now.
    pub fn order(&mut self) -> Vec<u16> {
        let count = self.count();
        let first = if count > 1 { self.random.random_range(0..count) } else { 0 };
        (0..count).map(|turn| (first + turn) % count).collect()
    }

    /// Any shard: where a new connection comes to.
    pub fn any(&mut self) -> u16 {
        let count = self.count();
        if count > 1 { self.random.random_range(0..count) } else { 0 }
    }

    /// When one of them has something to do.
    pub fn deadline(&self) -> Time {
        let shards = self.shards.iter().map(Drive::deadline).min().expect("there is a shard");
        shards.min(self.carrier.next_event())
    }
    /// When something arrives next.
    pub fn next_arrival(&self) -> Time {
        let fronts = self.queues.values().filter_map(|queue| queue.front().map(|(due, _)| *due));
        fronts.min().unwrap_or(Time::NEVER)
    }

    /// Whether all are open, nothing is under way between them, or on the medium, and exchanges came to their end.
    pub fn is_at_rest(&self) -> bool {
        let exchanges = |shard: &Shard<Device>| {
            let status = shard.pool().migration_status();
            !shard.pool().is_moving()
                && status.waiting == 0
                && status.exchanges.iter().all(|(.., trouble)| trouble.is_some())
        };
        let rests = |shard: &Shard<Device>| {
            shard.is_ready()
                && !shard.is_administering()
                && shard.media().as_emulated().is_none_or(diecut_emulator::Device::is_idle)
                && exchanges(shard)
        };
        let is_idle = self.drives().is_none_or(Drives::is_idle);
        is_idle && self.shards.iter().all(rests) && self.queues.values().all(VecDeque::is_empty)
    }

    /// Whether the first shard's account of what lies where, and who has it, is true; at rest.
    pub fn check_account(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let account = self.lead().account();
        for (at, shard) in self.shards.iter().enumerate() {
            for device in shard.devices() {
                let pool = shard.pool_of(device);
                for id in pool.vssd_ids() {
                    let (is, kept) = (pool.places_of(id), account.get(&id.0));
                    let kept = kept.filter(|(on, _)| usize::from(*on) == at).map(|(_, parts)| parts);
                    if !kept.is_some_and(|parts| parts.contains(&(device, is.clone()))) {
                        let place = format!("{is:?} of device {} on shard {at}", device.0);
                        wrong
                            .push(format!("vSSD {} is at {place}, but the first shard knows {kept:?}", id.0));
                    }
                }
            }
        }
        wrong
    }

    /// Whether the medium has power.
    pub fn is_powered(&self) -> bool {
        match self.drives() {
            Some(drives) => drives.is_powered(),
            None => self.shards.iter().all(|shard| shard.media().emulated().is_powered()),
        }
    }
    /// The power goes.
    pub fn power_cut(&mut self, now: Time) {
        match self.carrier.drives_mut() {
            Some(drives) => drives.power_cut(),
            None => self.all_mut().for_each(|shard| shard.media_mut().emulated_mut().power_cut(now)),
        }
    }
    /// The process goes.
    pub fn process_death(&mut self, now: Time) {
        match self.carrier.drives_mut() {
            Some(drives) => drives.process_death(),
            None => self.all_mut().for_each(|shard| shard.media_mut().emulated_mut().process_death(now)),
        }
    }
    /// Operations of the medium since the shards were opened, and before on the first one's part of it, or on drives.
    pub fn media_operations(&self) -> u64 {
        match self.drives() {
            Some(drives) => drives.operations(),
            None => self.shards.iter().map(|shard| shard.media().emulated().operations()).sum(),
        }
    }
    /// IUs that chips programmed, and erases; of drives what they were given to write, and no erases.
    pub fn chips(&self) -> (u64, u64) {
        if let Some(drives) = self.drives() {
            return (drives.written_ius(), 0);
        }
        let each = self.shards.iter().map(|shard| shard.media().emulated().statistics());
        each.fold((0, 0), |sum, one| (sum.0 + one.programmed_bytes / 4096, sum.1 + one.erases))
    }
    /// Reads that each die of the device did, in order.
    pub fn reads_of_dies(&self) -> Vec<u64> {
        let dies = 0..self.lead().media().geometry().dies();
        let reads =
            |die| self.shards.iter().map(|shard| shard.media().emulated().die_statistics(die).reads).sum();
        dies.map(reads).collect()
    }
    /// Erases of each block of the device, in order.
    pub fn erase_counts(&self) -> Vec<u32> {
        use diecut_media::Divide;
        let geometry = *self.lead().media().geometry();
        let mut counts = Vec::new();
        for die in geometry.all_dies() {
            let owner = self.shards.iter().find(|shard| shard.media().owns(die.channel.0));
            let blocks = (0..geometry.erase_blocks_per_die()).map(diecut_units::BlockIndex);
            counts.extend(blocks.map(|index| {
                owner.map_or(0, |shard| shard.media().emulated().erase_count(die.erase_block(index)))
            }));
        }
        counts
    }
    /// State in lines.
    pub fn describe(&self) -> String {
        let under_way = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let queues: String =
            under_way.map(|((from, to), queue)| format!("shard {from} to {to}: {}\n", queue.len())).collect();
        let shards = self.shards.iter().enumerate();
        shards.map(|(at, shard)| format!("shard {at}\n{}", shard.describe())).collect::<String>() + &queues
    }
}

/// The event of something that arrived.
pub fn arrival(from: u16, carried: Carried) -> Event {
    match carried {
        Carried::Told(message) => Event::Told { from: ShardIndex(from), message },
        Carried::Adopted(connection, state) => Event::Adopted { connection, state },
        Carried::Attaching(event) => Event::Blocks(event),
    }
}
