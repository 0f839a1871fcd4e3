//! The queues of the dies: who is served next. Each vSSD has a flow on every die it lies on (un-isolated ones share one);
//! flows within their rate go before others, among them the one that used least of its weighted die time; within a
//! flow the classes in order, bounded by patience.
//!
//! A flow's queue at a die is bounded. What does not fit is parked behind it, in order, and its vSSD is reported as
//! congested until nothing is parked: whoever feeds it stops then. Nothing is dropped.
//!
//! Not known here: where blocks lie and what they hold, what an operation waits for before it is queued, what its answer means.

mod flow;
pub(crate) mod history;
pub(crate) mod ops;
mod settings;
pub(crate) mod share;

use crate::VssdId;
use crate::owners::by_id::ById;
use crate::space::IoClass;
use crate::token::POOL_TOKEN_BIT;
use diecut_media::{Command, Media, MediaToken, Operation};
use diecut_spec::Isolation;
use diecut_units::{Time, mark, mutant};
pub(crate) use flow::DieQueue;
use history::Delays;
use ops::Ops;
pub(crate) use ops::{Kind, Op};
pub(crate) use settings::QueueSettings;
use share::{Bucket, Share, Standing};
use std::collections::VecDeque;

/// How often others may be served before a waiting class is: host reads come first, nobody starves.
const PATIENCE: [u32; 5] = [u32::MAX, 8, 16, 16, 32];

/// What a vSSD may take of the dies, and what of it waits.
#[derive(Default)]
pub(crate) struct Sharer {
    bucket: Bucket,
    /// Flows on dies that wait for the bucket, in the order of their turns.
    blocked_flows: VecDeque<(u32, u16)>,
    /// Operations that found no place in the queues of their dies.
    parked: u32,
}

/// The token of an operation at the medium.
#[inline]
fn token_of(at: u32) -> MediaToken {
    MediaToken(POOL_TOKEN_BIT | u64::from(at))
}

/// See the module.
pub(crate) struct DieQueues {
    pub settings: QueueSettings,
    pub dies: Vec<DieQueue>,
    /// Operations that are not over, also those that wait elsewhere for something else first.
    pub ops: Ops,
    sharers: ById<Sharer>,
    /// vSSDs with flows that wait for tokens, each once.
    throttled: VecDeque<VssdId>,
    /// See [`DieQueues::take_limits_met`].
    limits_met: Vec<VssdId>,
    room_changes: Vec<VssdId>,
    pub delays: Delays,
}

/// A flow's turn at a die.
struct Turn {
    die: usize,
    flow: usize,
    /// Where the flow stands in the die's virtual time.
    start: u64,
}

impl DieQueues {
    /// Empty queues of so many dies.
    pub fn new(settings: QueueSettings, dies: u32) -> DieQueues {
        DieQueues {
            settings,
            dies: (0..dies).map(|_| DieQueue::default()).collect(),
            ops: Ops::default(),
            sharers: ById::default(),
            throttled: VecDeque::new(),
            limits_met: Vec::new(),
            room_changes: Vec::new(),
            delays: Delays::default(),
        }
    }

    /// A vSSD comes, with what it may take, or takes from here on.
    pub fn admit(&mut self, id: VssdId, sharer: Sharer) {
        if !sharer.blocked_flows.is_empty() {
            self.throttled.push_back(id);
        }
        self.sharers.insert(id, sharer);
    }
    /// A vSSD goes.
    ///
    /// # Panics
    /// If something of it is parked (I-V6).
    pub fn dismiss(&mut self, id: VssdId) -> Sharer {
        let sharer = self.sharers.remove(id);
        assert_eq!(sharer.parked, 0, "nothing of vSSD {} is parked when it goes (I-V6)", id.0);
        sharer
    }
    /// Gives a unit its flow at a die.
    pub fn join(&mut self, die: u32, id: VssdId, isolation: Isolation) -> u16 {
        self.dies[die as usize].join(id, isolation)
    }
    /// A unit does not use its flow any more.
    pub fn leave(&mut self, die: u32, flow: u16, id: VssdId) {
        self.dies[die as usize].leave(flow);
        if self.sharers.at(id).is_some() {
            self.sharers.of(id).blocked_flows.retain(|blocked| *blocked != (die, flow));
        }
    }

    /// Sets what a vSSD may take; its flows are to be weighed then.
    pub fn set_share(&mut self, id: VssdId, share: Share, now: Time) {
        self.sharers.of(id).bucket.set(share, now);
    }
    /// A vSSD passed over room that it will have erased: its rate counts that as if it had been written.
    pub fn charge_unused(&mut self, id: VssdId, bytes: u64, now: Time) {
        let burst_ns = self.settings.rate_burst_ns;
        self.sharers.of(id).bucket.charge_unused(bytes, now, burst_ns);
    }
    /// What a vSSD may take, if there is such a vSSD.
    pub fn share_of(&self, id: VssdId) -> Option<Share> {
        self.sharers.get(id).map(|sharer| sharer.bucket.share)
    }
    /// Gives a flow that a vSSD uses the vSSD's weight, if it does not share the flow.
    pub fn weigh(&mut self, die: u32, flow: u16, id: VssdId) {
        let bucket = &self.sharers.of(id).bucket;
        let (weight, is_limited) = (bucket.share.weight.into(), bucket.is_limited());
        let flow = &mut self.dies[die as usize].flows[usize::from(flow)];
        if flow.owner == Some(id) {
            (flow.weight, flow.is_limited) = (weight, is_limited);
        }
    }

    /// Whether nothing of a vSSD is parked; true if there is no such vSSD.
    pub fn has_room(&self, id: VssdId) -> bool {
        self.sharers.get(id).is_none_or(|sharer| sharer.parked == 0)
    }
    /// Operations that wait in a die's queue, and those parked because it is full.
    pub fn waiting_at(&self, die: u32) -> (u32, u32) {
        let flows = &self.dies[die as usize].flows;
        (flows.iter().map(|flow| flow.queued).sum(), flows.iter().map(|flow| flow.parked.len() as u32).sum())
    }
    /// Whether nothing waits at a die and nothing is under way on it.
    pub fn is_quiet(&self, die: u32) -> bool {
        self.dies[die as usize].is_quiet()
    }
    /// Takes the vSSDs whose [`DieQueues::has_room`] may have changed since the last call; some may be there twice.
    pub fn take_room_changes(&mut self, changes: &mut Vec<VssdId>) {
        changes.append(&mut self.room_changes);
    }
    /// Takes the vSSDs that their rates came to keep waiting since the last call.
    pub fn take_limits_met(&mut self) -> Vec<VssdId> {
        std::mem::take(&mut self.limits_met)
    }

    /// The queues of a die, for another pool; empty ones stay.
    ///
    /// # Panics
    /// If something waits there or is under way (I-V6).
    pub fn take_die(&mut self, die: u32) -> DieQueue {
        let queue = std::mem::take(&mut self.dies[die as usize]);
        assert!(queue.is_quiet(), "nothing waits at die {die} when it changes hands (I-V6)");
        queue
    }
    /// Takes the queues of a die over.
    pub fn put_die(&mut self, die: u32, queue: DieQueue) {
        assert!(self.dies[die as usize].is_quiet(), "nothing waits at die {die} of another pool (I-V6)");
        assert!(queue.is_quiet(), "nothing waits at die {die} when it changes hands (I-V6)");
        self.dies[die as usize] = queue;
    }

    /// When [`DieQueues::serve_throttled`] has something to do: a vSSD's bucket has tokens again.
    pub fn deadline(&self) -> Time {
        let waiting = self.throttled.iter().filter_map(|id| self.sharers.get(*id));
        waiting.map(|sharer| sharer.bucket.within_at()).fold(Time::NEVER, Time::min)
    }

    /// Serves what waited for tokens until `now`.
    pub fn serve_throttled<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        for _ in 0..self.throttled.len() {
            let id = self.throttled.pop_front().expect("I-V1: who waits is counted");
            let Some(at) = self.sharers.at(id) else { continue };
            // The dies of a vSSD take turns, or the first would take every token.
            while self.sharers[at].bucket.standing(now) != Standing::Blocked {
                let Some((die, flow)) = self.sharers[at].blocked_flows.pop_front() else { break };
                self.dies[die as usize].flows[usize::from(flow)].throttled = false;
                self.dispatch(die as usize, media, now);
            }
            if !self.sharers[at].blocked_flows.is_empty() && !self.throttled.contains(&id) {
                self.throttled.push_back(id);
            }
        }
    }

    #[inline]
    fn die_of(&self, block: u32) -> usize {
        (block / self.settings.blocks_per_die) as usize
    }

    /// A command came back. Its operation is over.
    #[inline(always)]
    pub fn completed(&mut self, at: u32, now: Time) -> Op {
        let op = self.ops.end(at);
        let number = self.die_of(op.block);
        let size = self.settings.size_of(&op);
        let die = &mut self.dies[number];
        self.delays.answered(&mut die.history, &op, number as u32, size, now);
        die.end(op.kind);
        op
    }

    /// Hands operations to a die on which a command has just ended; most of the time none waits.
    #[inline]
    pub fn go_on<M: Media + ?Sized>(&mut self, block: u32, media: &mut M, now: Time) {
        let number = self.die_of(block);
        let die = &self.dies[number];
        if die.queued > 0 || !die.background.is_empty() {
            self.dispatch(number, media, now);
        }
    }

    /// Queues an operation that waited for something else, with what it asks of the medium.
    pub fn enqueue_stored<M: Media + ?Sized>(&mut self, at: u32, flow: u16, media: &mut M, now: Time) {
        let operation = self.ops.take(at);
        self.enqueue(at, operation, flow, media, now);
    }

    /// Queues an operation of a copy for wear at its die.
    pub fn enqueue_copy<M: Media + ?Sized>(
        &mut self,
        at: u32,
        operation: Operation,
        media: &mut M,
        now: Time,
    ) {
        let die = self.die_of(self.ops.get(at).block);
        self.ops.store(at, operation);
        self.dies[die].background.push_back(at);
        self.dispatch(die, media, now);
    }

    /// Whether an operation that comes now would be the only one that waits at a die, and goes on at once.
    #[inline]
    fn passes(&self, die: usize, flow: usize, kind: Kind, class: IoClass) -> bool {
        let die = &self.dies[die];
        die.queued == 0
            && die.in_flight < self.settings.die_window
            && die.room(&self.settings).takes(kind, class)
            && !die.flows[flow].is_limited
    }

    /// The turn of the only operation that waits: what `choose` would find.
    #[inline]
    fn only_turn(&mut self, number: usize, flow: usize) -> Turn {
        let die = &mut self.dies[number];
        let own = &mut die.flows[flow];
        own.skipped = [0; 5];
        Turn { die: number, flow, start: own.used.max(die.virtual_time) }
    }

    /// Queues an operation that has not begun and waited for nothing; one that finds nobody waiting at its die, and room, goes on at once.
    #[inline]
    pub fn enqueue_new<M: Media + ?Sized>(
        &mut self,
        mut op: Op,
        operation: Operation,
        flow: u16,
        media: &mut M,
        now: Time,
    ) {
        op.queued = now;
        op.begun = now;
        let (die, place) = (self.die_of(op.block), usize::from(flow));
        if self.passes(die, place, op.kind, op.class) {
            let turn = self.only_turn(die, place);
            self.charge(&turn, op.kind, self.settings.pages_of(&op));
            let at = self.ops.add(op);
            return media.submit(Command { token: token_of(at), operation }, now);
        }
        let at = self.ops.add(op);
        self.enqueue_behind(at, operation, flow, media, now);
    }

    /// Queues an operation at its die in a flow; one that finds nobody waiting there, and room, goes on at once.
    pub fn enqueue<M: Media + ?Sized>(
        &mut self,
        at: u32,
        operation: Operation,
        flow: u16,
        media: &mut M,
        now: Time,
    ) {
        let op = self.ops.get(at);
        let (kind, class, die, place) = (op.kind, op.class, self.die_of(op.block), usize::from(flow));
        if self.passes(die, place, kind, class) {
            let turn = self.only_turn(die, place);
            return self.hand_over(turn, at, operation, media, now);
        }
        self.enqueue_behind(at, operation, flow, media, now);
    }

    /// Queues an operation behind others.
    #[inline(never)]
    fn enqueue_behind<M: Media + ?Sized>(
        &mut self,
        at: u32,
        operation: Operation,
        flow: u16,
        media: &mut M,
        now: Time,
    ) {
        let op = self.ops.get(at);
        let (id, class, number, place) =
            (op.owner, op.class as usize, self.die_of(op.block), usize::from(flow));
        self.ops.store(at, operation);
        let limit = self.queue_limit(number);
        let die = &mut self.dies[number];
        let flow = &mut die.flows[place];
        if flow.queued >= limit || !flow.parked.is_empty() {
            mark!("vssd: queue of a die full");
            flow.parked.push_back(at);
            let sharer = self.sharers.of(id);
            sharer.parked += 1;
            if sharer.parked == 1 {
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

    /// Gives an operation an earlier class, if it opens this block; says whether it did.
    pub fn hasten(&mut self, at: u32, block: u32, class: IoClass) -> bool {
        hasten(&mut self.ops, at, block, class)
    }

    /// A write waits for the erase of its block, which comes as early as the write itself would: programs of a later class that were
    /// queued before must not hold up a host.
    pub fn hasten_erase(&mut self, block: u32, class: IoClass) {
        let number = self.die_of(block);
        let DieQueues { dies, ops, .. } = self;
        for flow in dies[number].flows.iter_mut().filter(|flow| flow.owner.is_some()) {
            if flow.parked.iter().any(|at| hasten(ops, *at, block, class)) {
                return;
            }
            for later in class as usize + 1..flow.classes.len() {
                if let Some(place) = flow.classes[later].iter().position(|at| hasten(ops, *at, block, class))
                {
                    let at =
                        flow.classes[later].remove(place).expect("I-V1: an operation waits in one place");
                    flow.classes[class as usize].push_back(at);
                    return;
                }
            }
        }
    }

    /// Each flow has its part of a die's queue, so that no neighbour can fill it.
    fn queue_limit(&self, die: usize) -> u32 {
        (u32::from(self.settings.die_queue_depth) / self.dies[die].members.max(1)).max(1)
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
            let sharer = self.sharers.of(id);
            debug_assert!(sharer.parked > 0, "what is parked is counted (I-V1)");
            sharer.parked -= 1;
            if sharer.parked == 0 {
                self.room_changes.push(id);
            }
        }
    }

    /// Appends to a block that wait at its die. Cold.
    pub fn queued_appends(&self, block: u32) -> impl Iterator<Item = &Op> {
        let flows = self.dies[self.die_of(block)].flows.iter();
        let queued = flows.flat_map(|flow| flow.classes.iter().flatten().chain(&flow.parked));
        let ops = queued.map(|at| self.ops.get(*at));
        ops.filter(move |op| op.block == block && op.kind.appends())
    }

    /// Takes the appends to a block, from an IU on, out of the queues of its die, in their order. Cold.
    pub fn take_queued_appends(&mut self, block: u32, first_iu: u32, taken: &mut Vec<u32>) {
        let number = self.die_of(block);
        let DieQueues { dies, ops, sharers, room_changes, .. } = self;
        let die = &mut dies[number];
        for flow in &mut die.flows {
            let before = taken.len();
            let mut stays = |at: &u32| {
                let op = ops.get(*at);
                let goes = op.block == block && op.kind.appends() && op.first_iu >= first_iu;
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
            assert!(left <= flow.queued, "a flow counts what waits in it (I-V1)");
            let gone = flow.queued - left;
            flow.queued = left;
            die.queued -= gone;
            let parked_gone = (taken.len() - before) as u32 - gone;
            if parked_gone > 0 {
                let owner = ops.get(taken[before]).owner;
                let sharer = sharers.of(owner);
                assert!(sharer.parked >= parked_gone, "what is parked is counted (I-V1)");
                sharer.parked -= parked_gone;
                if sharer.parked == 0 {
                    room_changes.push(owner);
                }
            }
        }
        for flow in 0..self.dies[number].flows.len() {
            self.unpark(number, flow);
        }
    }

    /// Hands operations to a die until its window is full.
    pub fn dispatch<M: Media + ?Sized>(&mut self, number: usize, media: &mut M, now: Time) {
        loop {
            let die = &self.dies[number];
            if die.in_flight >= self.settings.die_window || (die.queued == 0 && die.background.is_empty()) {
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
            let at =
                own.classes[class].pop_front().expect("I-V1: a class whose head is ready has an operation");
            debug_assert!(own.queued > 0 && die.queued > 0, "what waits is counted (I-V1)");
            own.queued -= 1;
            die.queued -= 1;
            let operation = self.ops.take(at);
            let op = self.ops.get(at);
            if own.is_limited {
                let (id, bytes) = (op.owner, op.bytes);
                self.sharers.of(id).bucket.charge(bytes, now, self.settings.rate_burst_ns);
            }
            if !self.dies[number].flows[flow].parked.is_empty() {
                self.unpark(number, flow);
            }
            self.hand_over(Turn { die: number, flow, start }, at, operation, media, now);
        }
    }

    /// Charges a flow whose turn it is for the die's time, for a command on so many pages that the medium gets now.
    #[inline(always)]
    fn charge(&mut self, turn: &Turn, kind: Kind, pages: u64) {
        let &Turn { die: number, flow, start } = turn;
        let die = &mut self.dies[number];
        let own = &mut die.flows[flow];
        let QueueSettings { costs, program_unit_pages, .. } = &self.settings;
        let program_ns = || (pages / u64::from(*program_unit_pages)).max(1) * costs.program_unit_ns;
        let cost_ns = match kind {
            Kind::Read => pages * costs.read_page_ns,
            Kind::Append if mutant!("vssd: writes cost the same whatever their size") => {
                costs.program_unit_ns
            }
            Kind::Append => program_ns(),
            Kind::AppendCopy => pages * costs.read_page_ns + program_ns(),
            Kind::Header => costs.program_unit_ns,
            Kind::HeaderRead => costs.read_page_ns,
            _ => costs.erase_ns,
        };
        debug_assert!(start >= die.virtual_time, "the virtual time of a die does not go back (I-V20)");
        die.virtual_time = start;
        let cost_ns = if mutant!("vssd: time of a die costs nothing") { 0 } else { cost_ns };
        let weight = if mutant!("vssd: weights inverted") { 10_000 / own.weight } else { own.weight };
        own.used = start + cost_ns * 100 / weight;
        die.begin(kind);
        assert!(die.in_flight <= self.settings.die_window, "a die has no more than its window (I-V14)");
        debug_assert!(
            die.programs <= self.settings.program_window.max(1),
            "a die has no more programs than its window for them (I-V14)"
        );
        die.passed += u32::from(!die.background.is_empty());
    }

    /// Charges a flow whose turn it is, and gives the medium the operation.
    #[inline]
    fn hand_over<M: Media + ?Sized>(
        &mut self,
        turn: Turn,
        at: u32,
        operation: Operation,
        media: &mut M,
        now: Time,
    ) {
        let op = self.ops.get_mut(at);
        op.begun = now;
        let (kind, pages) = (op.kind, self.settings.pages_of(self.ops.get(at)));
        self.charge(&turn, kind, pages);
        media.submit(Command { token: token_of(at), operation }, now);
    }

    /// Whether a copy for wear waited for so many others that it is its turn.
    fn background_is_due(&self, number: usize) -> bool {
        let die = &self.dies[number];
        let Some(&at) = die.background.front() else { return false };
        let op = self.ops.get(at);
        die.passed >= PATIENCE[4] && die.room(&self.settings).takes(op.kind, op.class)
    }

    fn serve_background<M: Media + ?Sized>(&mut self, number: usize, media: &mut M, now: Time) {
        let die = &mut self.dies[number];
        let at = die.background.pop_front().expect("I-V1: an operation waits in one place");
        die.passed = 0;
        let op = self.ops.get_mut(at);
        op.begun = now;
        die.begin(op.kind);
        assert!(die.in_flight <= self.settings.die_window, "a die has no more than its window (I-V14)");
        let operation = self.ops.take(at);
        media.submit(Command { token: token_of(at), operation }, now);
    }

    /// The flow and class a die serves next, and where the flow stands in virtual time.
    fn choose(&mut self, number: usize, now: Time) -> Option<(u64, usize, usize)> {
        let DieQueues { dies, ops, sharers, throttled, settings, limits_met, .. } = self;
        let die = &mut dies[number];
        let room = die.room(settings);
        let op_of = |at: &u32| ops.get(*at);
        let mut best: Option<((Standing, u64), usize, usize)> = None;
        for (at, flow) in die.flows.iter_mut().enumerate() {
            if flow.queued == 0 {
                continue;
            }
            let mut standing = Standing::Within;
            if let (true, Some(id)) = (flow.is_limited, flow.owner) {
                let sharer = sharers.of(id);
                standing = sharer.bucket.standing(now);
                if standing != Standing::Within && sharer.bucket.is_news(now) {
                    limits_met.push(id);
                }
                if standing == Standing::Blocked && !flow.throttled {
                    flow.throttled = true;
                    sharer.blocked_flows.push_back((number as u32, at as u16));
                    if sharer.blocked_flows.len() == 1 {
                        throttled.push_back(id);
                    }
                }
                if flow.throttled {
                    standing = Standing::Blocked;
                }
            }
            let fits = |at: &u32| {
                let op = op_of(at);
                room.takes(op.kind, op.class) && (standing != Standing::Blocked || op.bytes == 0)
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

/// Gives an operation an earlier class, if it opens this block: its erase, or its header. Says whether it did.
fn hasten(ops: &mut Ops, at: u32, block: u32, class: IoClass) -> bool {
    let op = ops.get_mut(at);
    let hastens = matches!(op.kind, Kind::Erase | Kind::Header) && op.block == block && op.class > class;
    op.class = if hastens { class } else { op.class };
    hastens
}
