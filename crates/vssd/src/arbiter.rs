//! The arbiter of the dies: who is served next. Each vSSD has a flow on every die it lies on (un-isolated ones share one);
//! flows within their rate go before others, among them the one that used least of its weighted die time; within a
//! flow the classes in order, bounded by patience.
//!
//! A flow's queue at a die is bounded. What does not fit is parked behind it, in order, and its vSSD is reported as
//! congested until nothing is parked: whoever feeds it stops then. Nothing is dropped.

use crate::VssdId;
use crate::ops::{Kind, Op};
use crate::pool::Pool;
use crate::share::{Share, Standing};
use crate::space::IoClass;
use crate::token::POOL_TOKEN_BIT;
use crate::wear::DieWear;
use diecut_media::{Command, Media, MediaToken, Operation};
use diecut_spec::Isolation;
use diecut_units::{Time, mark, mutant};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How often others may be served before a waiting class is: host reads come first, nobody starves.
const PATIENCE: [u32; 5] = [u32::MAX, 8, 16, 16, 32];

/// What waits at one die for one vSSD, or for all un-isolated ones.
#[derive(Default)]
pub(crate) struct Flow {
    pub owner: Option<VssdId>,
    /// Units of vSSDs that use it; 0: the place is free.
    users: u32,
    classes: [VecDeque<u32>; 5],
    skipped: [u32; 5],
    queued: u32,
    parked: VecDeque<u32>,
    weight: u64,
    /// Whether its vSSD's bucket says more than "within".
    is_limited: bool,
    /// It waits for its vSSD's bucket, in a line with that vSSD's flows on other dies.
    throttled: bool,
    /// Die time used, divided by the weight: the flow that is furthest behind is served next.
    used: u64,
}

pub(crate) struct Die {
    pub flows: Vec<Flow>,
    /// Flows that somebody uses.
    members: u32,
    /// Where the flow served last stood; a flow that was idle starts here and not earlier.
    virtual_time: u64,
    /// What waits in the queues of its flows.
    queued: u32,
    pub in_flight: u16,
    pub programs: u16,
    pub free: BinaryHeap<Reverse<(u32, u32)>>,
    pub erases: u64,
    pub retired: u32,
    /// Old places of blocks that moved away which reads still use.
    pub departing: u32,
    /// It went while a copy was made on it; it does not come back before the pool is opened again.
    pub is_offline: bool,
    /// By cause; counted when they are intended.
    pub wear: DieWear,
    /// Operations of copies for wear: served when nobody else is, or was long enough.
    background: VecDeque<u32>,
    /// How often others were served while one waited.
    passed: u32,
}

impl Die {
    pub fn new(free: BinaryHeap<Reverse<(u32, u32)>>) -> Die {
        Die {
            flows: Vec::new(),
            members: 0,
            virtual_time: 0,
            queued: 0,
            in_flight: 0,
            programs: 0,
            free,
            erases: 0,
            retired: 0,
            departing: 0,
            is_offline: false,
            wear: DieWear::default(),
            background: VecDeque::new(),
            passed: 0,
        }
    }

    /// Whether nothing waits at the die and nothing is under way on it.
    pub fn is_quiet(&self) -> bool {
        let empty = |flow: &Flow| flow.queued == 0 && flow.parked.is_empty();
        self.in_flight == 0
            && self.departing == 0
            && self.background.is_empty()
            && self.flows.iter().all(empty)
    }

    /// Gives a unit its flow.
    pub fn join(&mut self, id: VssdId, isolation: Isolation) -> u16 {
        let owner = (isolation != Isolation::None).then_some(id);
        let same = self.flows.iter().position(|flow| flow.users > 0 && flow.owner == owner);
        let at = match same.or_else(|| self.flows.iter().position(|flow| flow.users == 0)) {
            Some(at) => at,
            None => {
                self.flows.push(Flow::default());
                self.flows.len() - 1
            }
        };
        let flow = &mut self.flows[at];
        if flow.users == 0 {
            self.members += 1;
            *flow = Flow { owner, weight: Share::default().weight.into(), ..Flow::default() };
        }
        flow.users += 1;
        at as u16
    }

    /// A unit's vSSD is removed; nothing of it waits.
    pub fn leave(&mut self, flow: u16) {
        let flow = &mut self.flows[usize::from(flow)];
        flow.users -= 1;
        self.members -= u32::from(flow.users == 0);
        assert!(flow.users > 0 || flow.queued == 0, "a removed vSSD has nothing under way");
    }
}

/// A flow's turn at a die.
struct Turn {
    die: usize,
    flow: usize,
    /// Where the flow stands in the die's virtual time.
    start: u64,
}

impl Pool {
    /// Sets a vSSD's share of the dies it lies on. Un-isolated vSSDs are served first come first served; theirs means
    /// nothing.
    ///
    /// # Panics
    /// If there is no such vSSD, or the weight is 0.
    pub fn set_share(&mut self, id: VssdId, share: Share, now: Time) {
        assert!(share.weight > 0, "a weight of 0 would starve vSSD {}", id.0);
        let at = self.at_of(id).expect("the vSSD exists");
        let vssd = &mut self.vssds[at];
        vssd.bucket.set(share, now);
        self.weigh(id, share);
    }

    /// The share that a vSSD has now, if there is such a vSSD.
    pub fn share_of(&self, id: VssdId) -> Option<Share> {
        self.at_of(id).map(|at| self.vssds[at].bucket.share)
    }

    /// Gives the flows of a vSSD its weight, also those on dies that its units move to.
    pub(crate) fn weigh(&mut self, id: VssdId, share: Share) {
        let at = self.at_of(id).expect("the vSSD exists");
        let vssd = &self.vssds[at];
        for unit in &vssd.units {
            let target = unit.target.as_ref().map(|target| (target.die, target.flow));
            for (die, flow) in std::iter::once((unit.place.die, unit.flow)).chain(target) {
                let flow = &mut self.dies[die as usize].flows[usize::from(flow)];
                if flow.owner == Some(id) {
                    flow.weight = share.weight.into();
                    flow.is_limited = vssd.bucket.is_limited();
                }
            }
        }
    }

    /// Whether the vSSD's queues have room; if not, what comes for it is parked, and whoever feeds it should wait.
    /// True if there is no such vSSD.
    pub fn has_room(&self, id: VssdId) -> bool {
        self.at_of(id).is_none_or(|at| self.vssds[at].parked == 0)
    }

    /// Operations that wait in a die's queue, and those parked because it is full.
    pub fn die_queue(&self, die_number: u32) -> (u32, u32) {
        let flows = &self.dies[die_number as usize].flows;
        (flows.iter().map(|flow| flow.queued).sum(), flows.iter().map(|flow| flow.parked.len() as u32).sum())
    }

    /// Takes the vSSDs whose [`Pool::has_room`] may have changed since the last call; some may be there twice.
    pub fn take_room_changes(&mut self, changes: &mut Vec<VssdId>) {
        changes.append(&mut self.room_changes);
    }

    /// Takes the vSSDs that their rates came to keep waiting since the last call; each is told of once a minute.
    pub fn take_limits_met(&mut self) -> Vec<VssdId> {
        std::mem::take(&mut self.limits_met)
    }

    /// When [`Pool::work`] has something to do: a vSSD's bucket has tokens again.
    pub fn deadline(&self) -> Time {
        let waiting = self.throttled.iter().filter_map(|id| self.at_of(*id));
        let tokens = waiting.map(|at| self.vssds[at].bucket.within_at()).fold(Time::NEVER, Time::min);
        tokens.min(self.wear_deadline())
    }

    /// Serves what waited for tokens until `now`, and lets exchanges for wear go on.
    pub fn work<M: Media + ?Sized>(&mut self, now: Time, media: &mut M) {
        self.level_wear(now, media);
        if self.throttled.is_empty() {
            return;
        }
        for _ in 0..self.throttled.len() {
            let id = self.throttled.pop_front().expect("counted");
            let Some(at) = self.at_of(id) else { continue };
            // The dies of a vSSD take turns, or the first would take every token.
            while self.vssds[at].bucket.standing(now) != Standing::Blocked {
                let Some((die, flow)) = self.vssds[at].blocked_flows.pop_front() else { break };
                self.dies[die as usize].flows[usize::from(flow)].throttled = false;
                self.dispatch(die as usize, media, now);
            }
            if !self.vssds[at].blocked_flows.is_empty() && !self.throttled.contains(&id) {
                self.throttled.push_back(id);
            }
        }
    }

    /// Queues an operation that waited for something else, with what it asks of the medium.
    pub(crate) fn enqueue_stored<M: Media + ?Sized>(&mut self, at: u32, media: &mut M, now: Time) {
        let operation = self.ops.take(at);
        self.enqueue(at, operation, media, now);
    }

    /// Queues an operation at its die; one that finds nobody waiting there, and room, goes on at once.
    pub(crate) fn enqueue<M: Media + ?Sized>(
        &mut self,
        at: u32,
        operation: Operation,
        media: &mut M,
        now: Time,
    ) {
        let op = self.ops.get(at);
        let (id, class, kind) = (op.owner, op.class as usize, op.kind);
        let number = (op.block / self.geometry.erase_blocks_per_die()) as usize;
        if kind.is_of_copy() {
            self.ops.store(at, operation);
            self.dies[number].background.push_back(at);
            return self.dispatch(number, media, now);
        }
        let unit = self.blocks[op.block as usize].logical.unit;
        let vssd = usize::from(self.vssd_numbers[id.0 as usize]);
        let place = usize::from(self.vssds[vssd].units[usize::from(unit.0)].flow_at(number as u32));
        let die = &mut self.dies[number];
        let flow = &mut die.flows[place];
        if die.queued == 0
            && die.in_flight < self.config.die_window
            && (kind == Kind::Read || die.programs < self.config.program_window)
            && !flow.is_limited
        {
            // What `choose` would find: the only one that waits.
            flow.skipped = [0; 5];
            let start = flow.used.max(die.virtual_time);
            return self.hand_over(Turn { die: number, flow: place, start }, at, operation, media, now);
        }
        self.ops.store(at, operation);
        let limit = self.queue_limit(number);
        let die = &mut self.dies[number];
        let flow = &mut die.flows[place];
        if flow.queued >= limit || !flow.parked.is_empty() {
            mark!("vssd: queue of a die full");
            flow.parked.push_back(at);
            self.vssds[vssd].parked += 1;
            if self.vssds[vssd].parked == 1 {
                self.room_changes.push(id);
            }
            return;
        }
        // Un-isolated: one line for all, first come first served.
        let class = if flow.owner.is_some() { class } else { 0 };
        flow.classes[class].push_back(at);
        flow.queued += 1;
        die.queued += 1;
        self.dispatch(number, media, now);
    }

    /// A write waits for the erase of its block, which comes as early as the write itself would: programs of a later class that were
    /// queued before must not hold up a host.
    pub(crate) fn hasten_erase(&mut self, block: u32, class: IoClass) {
        if mutant!("vssd: erases keep the cleaner's turn") {
            return;
        }
        let number = self.die_of(block);
        let Pool { dies, ops, states, .. } = self;
        let mut hasten = |at: u32| {
            let op = ops.get_mut(at);
            let hastens = op.kind == Kind::Erase && op.block == block && op.class > class;
            op.class = if hastens { class } else { op.class };
            hastens
        };
        if states.held_erases().any(&mut hasten) {
            return;
        }
        for flow in dies[number].flows.iter_mut().filter(|flow| flow.owner.is_some()) {
            if flow.parked.iter().any(|at| hasten(*at)) {
                return;
            }
            for later in class as usize + 1..flow.classes.len() {
                if let Some(place) = flow.classes[later].iter().position(|at| hasten(*at)) {
                    let at = flow.classes[later].remove(place).expect("just found");
                    flow.classes[class as usize].push_back(at);
                    return;
                }
            }
        }
    }

    /// Each flow has its part of a die's queue, so that no neighbour can fill it.
    fn queue_limit(&self, die: usize) -> u32 {
        (u32::from(self.config.die_queue_depth) / self.dies[die].members.max(1)).max(1)
    }

    /// Lets a parked operation into the place that became free.
    fn unpark(&mut self, die: usize, flow: usize) {
        let limit = self.queue_limit(die);
        let die = &mut self.dies[die];
        let flow = &mut die.flows[flow];
        while flow.queued < limit {
            let Some(at) = flow.parked.pop_front() else { return };
            let op = self.ops.get(at);
            let class = if flow.owner.is_some() { op.class as usize } else { 0 };
            flow.classes[class].push_back(at);
            flow.queued += 1;
            die.queued += 1;
            let id = op.owner;
            let vssd = self.vssd_numbers[id.0 as usize];
            let vssd = &mut self.vssds[usize::from(vssd)];
            vssd.parked -= 1;
            if vssd.parked == 0 {
                self.room_changes.push(id);
            }
        }
    }

    /// Appends to a block that wait at its die. Cold.
    pub(crate) fn queued_appends(&self, block: u32) -> impl Iterator<Item = &Op> {
        let flows = self.dies[self.die_of(block)].flows.iter();
        let queued = flows.flat_map(|flow| flow.classes.iter().flatten().chain(&flow.parked));
        let ops = queued.map(|at| self.ops.get(*at));
        ops.filter(move |op| op.block == block && op.kind == Kind::Append)
    }

    /// Takes the appends to a block, from an IU on, out of the queues of its die, in their order. Cold.
    pub(crate) fn take_queued_appends(&mut self, block: u32, first_iu: u32, taken: &mut Vec<u32>) {
        let number = self.die_of(block);
        let Pool { dies, ops, vssds, vssd_numbers, room_changes, .. } = self;
        let die = &mut dies[number];
        for flow in &mut die.flows {
            let before = taken.len();
            let mut stays = |at: &u32| {
                let op = ops.get(*at);
                let goes = op.block == block && op.kind == Kind::Append && op.first_iu >= first_iu;
                if goes {
                    taken.push(*at);
                }
                !goes
            };
            flow.classes.iter_mut().for_each(|class| class.retain(&mut stays));
            flow.parked.retain(&mut stays);
            if taken.len() == before {
                continue;
            }
            let left = flow.classes.iter().map(|class| class.len() as u32).sum();
            let gone = flow.queued - left;
            flow.queued = left;
            die.queued -= gone;
            let parked_gone = (taken.len() - before) as u32 - gone;
            if parked_gone > 0 {
                let owner = ops.get(taken[before]).owner;
                let vssd = &mut vssds[usize::from(vssd_numbers[owner.0 as usize])];
                vssd.parked -= parked_gone;
                if vssd.parked == 0 {
                    room_changes.push(owner);
                }
            }
        }
        for flow in 0..self.dies[number].flows.len() {
            self.unpark(number, flow);
        }
    }

    /// Hands operations to a die until its window is full.
    pub(crate) fn dispatch<M: Media + ?Sized>(&mut self, number: usize, media: &mut M, now: Time) {
        loop {
            let die = &self.dies[number];
            if die.in_flight >= self.config.die_window || (die.queued == 0 && die.background.is_empty()) {
                return;
            }
            if self.background_is_due(number) {
                self.serve_background(number, media, now);
                continue;
            }
            let chosen = if self.dies[number].queued > 0 { self.choose(number, now) } else { None };
            let Some((start, flow, class)) = chosen else {
                if self.dies[number].in_flight == 0 && !self.dies[number].background.is_empty() {
                    self.serve_background(number, media, now);
                }
                return;
            };
            let die = &mut self.dies[number];
            let own = &mut die.flows[flow];
            for other in 0..5 {
                let waits = other != class && !own.classes[other].is_empty();
                own.skipped[other] = if waits { own.skipped[other] + 1 } else { 0 };
            }
            let at = own.classes[class].pop_front().expect("its head was ready");
            own.queued -= 1;
            die.queued -= 1;
            let operation = self.ops.take(at);
            let op = self.ops.get(at);
            if own.is_limited {
                let (id, bytes) = (op.owner, op.bytes);
                let at = self.vssd_numbers[id.0 as usize];
                self.vssds[usize::from(at)].bucket.charge(bytes, now, self.config.rate_burst_ns);
            }
            if !self.dies[number].flows[flow].parked.is_empty() {
                self.unpark(number, flow);
            }
            self.hand_over(Turn { die: number, flow, start }, at, operation, media, now);
        }
    }

    /// Charges a flow, which stands at `start` in virtual time, for the die's time, and gives the medium the operation.
    #[inline]
    fn hand_over<M: Media + ?Sized>(
        &mut self,
        turn: Turn,
        at: u32,
        operation: Operation,
        media: &mut M,
        now: Time,
    ) {
        let Turn { die: number, flow, start } = turn;
        let op = self.ops.get(at);
        let die = &mut self.dies[number];
        let own = &mut die.flows[flow];
        let costs = &self.costs;
        let pages = || u64::from(op.end_page.saturating_sub(op.first_iu / self.shape.ius_per_page()));
        let cost_ns = match op.kind {
            Kind::Read => pages() * costs.read_page_ns,
            Kind::Append if mutant!("vssd: writes cost the same whatever their size") => {
                costs.program_unit_ns
            }
            Kind::Append => {
                (pages() / u64::from(self.shape.program_unit_pages)).max(1) * costs.program_unit_ns
            }
            _ => costs.erase_ns,
        };
        die.virtual_time = start;
        own.used = if mutant!("vssd: time of a die costs nothing") {
            start
        } else {
            let weight = if mutant!("vssd: weights inverted") { 10_000 / own.weight } else { own.weight };
            start + cost_ns * 100 / weight
        };
        die.in_flight += 1;
        die.programs += u16::from(op.kind != Kind::Read);
        die.passed += u32::from(!die.background.is_empty());
        media.submit(Command { token: MediaToken(POOL_TOKEN_BIT | u64::from(at)), operation }, now);
    }

    /// Whether a copy for wear waited for so many others that it is its turn.
    fn background_is_due(&self, number: usize) -> bool {
        let die = &self.dies[number];
        let Some(&at) = die.background.front() else { return false };
        let reads = self.ops.get(at).kind.only_reads();
        die.passed >= PATIENCE[4] && (reads || die.programs < self.config.program_window)
    }

    fn serve_background<M: Media + ?Sized>(&mut self, number: usize, media: &mut M, now: Time) {
        let die = &mut self.dies[number];
        let at = die.background.pop_front().expect("looked at");
        die.passed = 0;
        die.in_flight += 1;
        die.programs += u16::from(!self.ops.get(at).kind.only_reads());
        let operation = self.ops.take(at);
        media.submit(Command { token: MediaToken(POOL_TOKEN_BIT | u64::from(at)), operation }, now);
    }

    /// The flow and class a die serves next, and where the flow stands in virtual time.
    fn choose(&mut self, number: usize, now: Time) -> Option<(u64, usize, usize)> {
        let Pool { dies, ops, vssds, vssd_numbers, throttled, config, limits_met, .. } = self;
        let die = &mut dies[number];
        let full = die.programs >= config.program_window;
        let op_of = |at: &u32| ops.get(*at);
        let mut best: Option<((Standing, u64), usize, usize)> = None;
        for (at, flow) in die.flows.iter_mut().enumerate() {
            if flow.queued == 0 {
                continue;
            }
            let mut standing = Standing::Within;
            if let (true, Some(id)) = (flow.is_limited, flow.owner) {
                let vssd = &mut vssds[usize::from(vssd_numbers[id.0 as usize])];
                standing = vssd.bucket.standing(now);
                if standing != Standing::Within && vssd.bucket.is_news(now) {
                    limits_met.push(id);
                }
                if standing == Standing::Blocked && !flow.throttled {
                    flow.throttled = true;
                    vssd.blocked_flows.push_back((number as u32, at as u16));
                    if vssd.blocked_flows.len() == 1 {
                        throttled.push_back(id);
                    }
                }
                if flow.throttled {
                    standing = Standing::Blocked;
                }
            }
            let fits = |at: &u32| {
                let op = op_of(at);
                (!full || op.kind == Kind::Read) && (standing != Standing::Blocked || op.bytes == 0)
            };
            let ready = |class: usize| flow.classes[class].front().is_some_and(fits);
            let impatient = (0..5).find(|&class| flow.skipped[class] >= PATIENCE[class] && ready(class));
            if let Some(class) = impatient.or_else(|| (0..5).find(|&class| ready(class))) {
                let start = flow.used.max(die.virtual_time);
                if best.is_none_or(|(least, ..)| (standing, start) < least) {
                    best = Some(((standing, start), at, class));
                }
            }
        }
        best.map(|((_, start), flow, class)| (start, flow, class))
    }
}
