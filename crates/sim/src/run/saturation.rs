//! Fairness: in the calm, hosts ask for more than dies or core can give, some with more commands under way than others,
//! and everyone must get the same, or what its weight says.
//!
//! Where dies are the narrow place, each tenant gets half of each die, so a tenant whose pages lie on few dies, or in
//! staging, is served less or more than its neighbour by a fair system. So the runner first learns where each block lies, by
//! reading it alone and looking at which die of the medium worked; then both tenants read from the same dies, in turn.

use super::{Pending, Purpose, Runner};
use crate::oracle::Finding;
use crate::plan::{Action, Lane, Range, SaturatedFlow};
use crate::run::administrator::Sight;
use crate::stack::SLOW_WRITE_COST_NS;
use crate::system::{HostCommand, HostToken};
use crate::tag::{Tag, VolumeNumber};
use diecut_units::{Span, Time, mark};
use std::collections::BTreeMap;

/// What the least served gets of what the best served gets, at least, in parts per thousand: turns are not endlessly
/// fine; of 1,000 seeds the worst came to 937. Whoever asks for less asks for less than half: without fair turns this is missed.
pub const SHARE_MIN_PERMILLE: u64 = 850;
/// What commands must have taken of a slow core, at least, if turns at it are to be compared.
const CORE_BUSY_MIN_PERMILLE: u64 = 900;
/// Turns of the loop: more is a system that goes round in circles.
const TURNS_MAX: u32 = 1_000_000;
/// Blocks with known content that a flow needs.
const PLACES_MIN: usize = 256;
/// Blocks that a flow needs on a die to read there.
const PLACES_OF_DIE_MIN: usize = 16;

type Place = (VolumeNumber, u64);

struct Flow {
    lane: Lane,
    connections: u16,
    depth: u32,
    /// Where it reads: from each of these in turn.
    places: Vec<Vec<Place>>,
    next: usize,
    in_flight: u32,
    answered: u64,
    /// IUs of each write; 0: it reads.
    write_ius: u32,
    /// What a command costs at the core: one, each block that it reads one more, each that it writes two.
    cost: u64,
    /// What is due to it of what they compete for, beside the others.
    weight: u64,
    /// Only this connection of the lane, or all in turn.
    connection: Option<u16>,
}

impl Flow {
    fn new(runner: &Runner<'_>, flow: &SaturatedFlow) -> Flow {
        let tenant = runner.plan.tenants.get(usize::from(flow.lane.0));
        let places = match (tenant, flow.connection) {
            (None, _) => Vec::new(),
            (_, None) => runner.places(flow.lane),
            (_, Some(_)) => of_one_volume(runner.places(flow.lane)),
        };
        Flow {
            lane: flow.lane,
            connections: tenant.map_or(0, |tenant| tenant.io_queues),
            depth: flow.depth,
            places: vec![places],
            next: 0,
            in_flight: 0,
            answered: 0,
            write_ius: flow.write_ius,
            cost: match (tenant, flow.write_ius) {
                (None, _) => 1,
                (_, 0) => 2,
                (_, write_ius) => 1 + 2 * u64::from(write_ius),
            },
            // Turns at the core are the same for all; a die's time goes by weight.
            weight: match tenant {
                Some(tenant) if !runner.plan.system.slow_core => tenant.weight().into(),
                _ => 100,
            },
            connection: flow.connection,
        }
    }

    fn can_saturate(&self, runner: &Runner<'_>) -> bool {
        match self.lane.application() {
            Some(index) => runner.applications.can_ask(index),
            None => self.places[0].len() >= PLACES_MIN && runner.system.is_connected(self.lane),
        }
    }

    /// What it got, for comparison.
    fn got(&self) -> u64 {
        self.answered * self.cost * 100 / self.weight
    }
}

/// Whether each core that these writers used was busy with them nearly all the time. Else the store of one held it up: a cleaner that copies much
/// needs what hosts would write with, and no turns at a core can give that.
fn is_core_narrow(flows: &[Flow], span: Span) -> bool {
    let cost: u64 = flows.iter().map(|flow| flow.answered * flow.cost).sum();
    let busy_permille = cost * SLOW_WRITE_COST_NS * 1000 / span.0;
    // What was answered in this time may have begun before it.
    let cores = busy_permille.saturating_sub(50).div_ceil(1000);
    busy_permille >= cores * CORE_BUSY_MIN_PERMILLE
}

/// Those in the volume that has most of them: connections to a volume take turns with each other. Spread over several volumes, what one
/// connection has under way would be too little to wait in all of them, and its depth would be measured.
fn of_one_volume(places: Vec<Place>) -> Vec<Place> {
    let mut volumes: BTreeMap<VolumeNumber, Vec<Place>> = BTreeMap::new();
    for place in places {
        volumes.entry(place.0).or_default().push(place);
    }
    volumes.into_values().max_by_key(Vec::len).unwrap_or_default()
}

/// Has applications go on. Says whether they did.
fn saturate_applications(
    runner: &mut Runner<'_>,
    flows: &mut [Flow],
    is_measured: bool,
    goes_on: bool,
) -> bool {
    let mut moved = false;
    for flow in flows {
        let Some(index) = flow.lane.application() else { continue };
        if goes_on {
            runner.applications.ask_figures(index, flow.depth);
        }
        let before = runner.outcome.block_operations;
        moved |= runner.work_applications();
        let answered = runner.outcome.block_operations - before;
        flow.answered += if is_measured { answered } else { 0 };
    }
    moved
}

/// Who has too few blocks to read writes some, and whose connection broke connects again.
fn make_ready(runner: &mut Runner<'_>, lanes: impl Iterator<Item = Lane>) {
    for lane in lanes {
        let volume = runner.plan.tenants[usize::from(lane.0)].volumes[0];
        let has_places = runner.places(lane).len() >= PLACES_MIN;
        let steps = &mut runner.lanes[usize::from(lane.0)].steps;
        if !has_places {
            let firsts = (0..volume.iu_count.min(2 * PLACES_MIN as u64)).step_by(32);
            steps.extend(firsts.map(|first| {
                let count = 32.min(volume.iu_count - first) as u32;
                Action::Write { range: Range { volume: volume.number, first, count }, fua: false }
            }));
        } else if !runner.system.is_connected(lane) {
            steps.push_back(Action::Flush { volume: volume.number });
        }
    }
    runner.drive();
    runner.come_to_rest();
}

impl Runner<'_> {
    /// Blocks that surely hold data, so that reads of them reach the dies.
    fn places(&self, lane: Lane) -> Vec<Place> {
        let volumes = self.plan.tenants[usize::from(lane.0)].volumes.iter();
        let seen = volumes.filter(|volume| self.sight(lane, volume.number) == Sight::Yes);
        let all = seen.flat_map(|volume| (0..volume.iu_count).map(|iu| (volume.number, iu)));
        all.filter(|(volume, iu)| {
            self.oracle.certain(*volume, *iu).is_some_and(|certain| certain.tag.is_some())
        })
        .collect()
    }

    /// Places by the die that reads them, learnt by reading each alone. Nothing if that was disturbed.
    fn by_die(&mut self, lane: Lane, places: &[Place]) -> Option<Vec<Vec<Place>>> {
        let mut before = self.system.reads_of_dies()?;
        let mut dies = vec![Vec::new(); before.len()];
        let mut answers = Vec::new();
        for &place in places {
            if !self.system.is_connected(lane) {
                return None;
            }
            let token = self.read_place(lane, None, place);
            let mut is_answered = false;
            for _ in 0..TURNS_MAX {
                self.system.advance(self.now, &mut answers);
                if self.system.power_is_lost() {
                    return None;
                }
                let mut failed = false;
                for answer in answers.drain(..) {
                    is_answered |= answer.token == token;
                    failed |= answer.result.is_err();
                    self.take_answer(answer);
                }
                if failed {
                    // A read by appointment that finds nothing is an answer, too; what was lost is no place to read at.
                    mark!("run: read of a place failed");
                    return None;
                }
                let next = self.system.next_event();
                if self.stop || is_answered || !self.system.is_connected(lane) || next == Time::NEVER {
                    break;
                }
                self.now = next.max(self.now);
            }
            if self.stop || !is_answered {
                return None;
            }
            let after = self.system.reads_of_dies()?;
            let mut worked = (0..after.len()).filter(|&die| after[die] != before[die]);
            // Staged: none. What reads for itself meanwhile must not be taken for it.
            if let (Some(die), None) = (worked.next(), worked.next()) {
                dies[die].push(place);
            }
            before = after;
        }
        Some(dies)
    }

    /// Lets all flows read from the same dies, and from each equally often. Whether there are such dies.
    fn share_dies(&mut self, flows: &mut [Flow]) -> bool {
        let mut lies = Vec::new();
        for flow in flows.iter() {
            let Some(dies) = self.by_die(flow.lane, &flow.places[0]) else { return false };
            lies.push(dies);
        }
        let dies = 0..lies[0].len();
        let shared: Vec<usize> =
            dies.filter(|&die| lies.iter().all(|own| own[die].len() >= PLACES_OF_DIE_MIN)).collect();
        for (flow, mut own) in flows.iter_mut().zip(lies) {
            flow.places = shared.iter().map(|&die| std::mem::take(&mut own[die])).collect();
        }
        !shared.is_empty()
    }

    /// Saturates what the plan names and compares what everyone got.
    pub(super) fn saturate(&mut self) {
        let Some(saturation) = self.plan.saturation.clone() else { return };
        let lanes = saturation.flows.iter().map(|flow| flow.lane);
        make_ready(self, lanes.filter(|lane| lane.application().is_none()));
        if self.stop {
            return;
        }
        let mut flows: Vec<Flow> = saturation.flows.iter().map(|flow| Flow::new(self, flow)).collect();
        if !flows.iter().all(|flow| flow.can_saturate(self)) {
            mark!("run: saturation given up");
            return;
        }
        if !self.plan.system.slow_core && !self.share_dies(&mut flows) {
            mark!("run: saturation given up");
            return;
        }
        let start = self.now + Span(saturation.span_ns / 4);
        let end = self.now + Span(saturation.span_ns);
        let mut owners: BTreeMap<HostToken, usize> = BTreeMap::new();
        let mut answers = Vec::new();
        let mut turns = 0;
        loop {
            turns += 1;
            self.system.advance(self.now, &mut answers);
            let mut moved = !answers.is_empty();
            let mut whole = !self.system.power_is_lost();
            for answer in answers.drain(..) {
                let flow = &mut flows[owners.remove(&answer.token).expect("only these are under way")];
                flow.in_flight -= 1;
                flow.answered += u64::from(self.now >= start && self.now < end);
                whole &= answer.result.is_ok();
                self.take_answer(answer);
            }
            if self.stop || !whole {
                // A cut that was still to come, or a connection that died unseen: no measure of fairness.
                mark!("run: saturation given up");
                return;
            }
            if self.now >= end && owners.is_empty() && self.applications.are_done() {
                break;
            }
            let is_measured = self.now >= start && self.now < end;
            moved |= saturate_applications(self, &mut flows, is_measured, self.now < end);
            for (index, flow) in flows.iter_mut().enumerate() {
                if flow.lane.application().is_some() {
                    continue;
                }
                while self.now < end && flow.in_flight < flow.depth && self.system.is_connected(flow.lane) {
                    let token = if flow.write_ius > 0 { self.write_next(flow) } else { self.read_next(flow) };
                    owners.insert(token, index);
                    moved = true;
                }
            }
            if turns > TURNS_MAX {
                return self.found(Finding::Liveness, "saturated reads do not end".to_owned());
            }
            if !moved {
                let next = self.system.next_event();
                if self.now >= end && next == Time::NEVER {
                    let detail = format!("{} saturated commands unanswered", owners.len());
                    return self.found(Finding::Liveness, detail);
                }
                self.now = if self.now < end { next.min(end) } else { next }.max(self.now);
            }
        }
        // vSSDs of one tenant share what is due to it; two connections of one are compared with each other.
        let mut got: BTreeMap<(Lane, Option<u16>), u64> = BTreeMap::new();
        for flow in &flows {
            *got.entry((self.plan.tenant_of(flow.lane), flow.connection)).or_default() += flow.got();
        }
        if flows.iter().any(|flow| flow.lane.application().is_some()) {
            mark!("run: shares of a tenant with an application compared");
        } else if got.len() < flows.len() {
            mark!("run: shares of a tenant with two vSSDs compared");
        }
        let most = got.values().max().copied().expect("a saturation has flows");
        let least = got.values().min().copied().expect("a saturation has flows");
        if flows.iter().any(|flow| flow.weight != flows[0].weight) {
            mark!("run: shares compared by weight");
        }
        if flows.iter().any(|flow| flow.write_ius != flows[0].write_ius) {
            mark!("run: shares compared by size");
        }
        let share = least * 1000 / most.max(1);
        if self.plan.system.slow_writes && !is_core_narrow(&flows, end.since(start)) {
            mark!("run: core was not the narrow place");
            return;
        }
        mark!("run: shares compared");
        self.outcome.least_share_permille = Some(share);
        if share < SHARE_MIN_PERMILLE {
            let got: Vec<_> = flows
                .iter()
                .map(|flow| {
                    format!(
                        "lane {} {:?} at depth {}: {} (weight {}, writes of {} IUs)",
                        flow.lane.0, flow.connection, flow.depth, flow.answered, flow.weight, flow.write_ius
                    )
                })
                .collect();
            self.found(
                Finding::Fairness,
                format!("shares by weight are due, but commands came to {}", got.join(", ")),
            );
        }
    }

    fn read_next(&mut self, flow: &mut Flow) -> HostToken {
        let (round, turn) = (flow.next / flow.places.len(), flow.next % flow.places.len());
        let places = &flow.places[turn];
        flow.next += 1;
        // A walk in large odd steps: no pattern of the layout is followed.
        let place = places[(round + 1) * 7919 % places.len()];
        flow.in_flight += 1;
        self.read_place(flow.lane, flow.connection.map(|wanted| (wanted, flow.connections)), place)
    }

    /// Writes the next blocks of the lane's first volume, round and round.
    fn write_next(&mut self, flow: &mut Flow) -> HostToken {
        let volume = self.plan.tenants[usize::from(flow.lane.0)].volumes[0];
        let count = flow.write_ius;
        let places = (volume.iu_count / u64::from(count)).max(1);
        let first = flow.next as u64 % places * u64::from(count);
        flow.next += 1;
        flow.in_flight += 1;
        let range = Range { volume: volume.number, first, count };
        let id = self.oracle.begin_write(flow.lane, range, false);
        let data = self.content(range, |lba| Some(Tag { volume: range.volume, lba, version: id.version }));
        self.has_written = true;
        let purpose = Purpose::Write { id, fua: false };
        let token = self.pend(flow.lane, purpose, Some(volume.number), Sight::Yes);
        let command = self.write_command(range, data, false, id);
        self.system.submit(flow.lane, token, command, self.now);
        token
    }

    /// Reads a block, over one connection of so many or over any.
    fn read_place(
        &mut self,
        lane: Lane,
        connection: Option<(u16, u16)>,
        (volume, first): Place,
    ) -> HostToken {
        let range = Range { volume, first, count: 1 };
        // The number of a command chooses its connection.
        while connection.is_some_and(|(wanted, of)| self.token_next % u64::from(of) != u64::from(wanted)) {
            self.token_next += 1;
        }
        let token = HostToken(self.token_next);
        self.token_next += 1;
        let id = self.oracle.begin_read(volume);
        let purpose = Purpose::Read { range, id };
        let pending = Pending { lane, purpose, issued: self.now, volume: Some(volume), sight: Sight::Yes };
        self.pending.insert(token, pending);
        self.lanes[usize::from(lane.0)].in_flight += 1;
        self.system.submit(lane, token, HostCommand::Read(range), self.now);
        token
    }
}
