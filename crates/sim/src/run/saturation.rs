//! Fairness: in the calm, hosts ask for more than dies or core can give, some with more commands under way than others,
//! and everyone must get the same.

use super::{Pending, Purpose, Runner};
use crate::oracle::Finding;
use crate::plan::{Lane, Range};
use crate::run::administrator::Sight;
use crate::system::{HostCommand, HostToken};
use crate::tag::VolumeNumber;
use diecut_units::{Span, mark};
use std::collections::BTreeMap;

/// What the least served gets of what the best served gets, at least, in parts per thousand: turns are not endlessly
/// fine, and pages do not lie evenly on the dies. Whoever asks for less asks for less than half: without fair turns this is missed.
pub const SHARE_MIN_PERMILLE: u64 = 550;
/// Turns of the loop: more is a system that goes round in circles.
const TURNS_MAX: u32 = 1_000_000;
/// Blocks with known content that a flow needs, so that it reaches all dies.
const PLACES_MIN: usize = 256;

struct Flow {
    lane: Lane,
    connections: u16,
    depth: u32,
    places: Vec<(VolumeNumber, u64)>,
    next: usize,
    in_flight: u32,
    answered: u64,
    /// Only this connection of the lane, or all in turn.
    connection: Option<u16>,
}

impl Runner<'_> {
    /// Blocks that surely hold data, so that reads of them reach the dies.
    fn places(&self, lane: Lane) -> Vec<(VolumeNumber, u64)> {
        let volumes = self.plan.tenants[usize::from(lane.0)].volumes.iter();
        let seen = volumes.filter(|volume| self.sight(lane, volume.number) == Sight::Yes);
        let all = seen.flat_map(|volume| (0..volume.iu_count).map(|iu| (volume.number, iu)));
        all.filter(|(volume, iu)| matches!(self.oracle.certain(*volume, *iu), Some(Some(_)))).collect()
    }

    /// Saturates what the plan names and compares what everyone got.
    pub(super) fn saturate(&mut self) {
        let Some(saturation) = self.plan.saturation.clone() else { return };
        let mut flows: Vec<Flow> = saturation
            .flows
            .iter()
            .map(|flow| Flow {
                lane: flow.lane,
                connections: self.plan.tenants[usize::from(flow.lane.0)].io_queues,
                depth: flow.depth,
                places: self.places(flow.lane),
                next: 0,
                in_flight: 0,
                answered: 0,
                connection: flow.connection,
            })
            .collect();
        if flows.iter().any(|flow| flow.places.len() < PLACES_MIN || !self.system.is_connected(flow.lane)) {
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
            if self.now >= end && owners.is_empty() {
                break;
            }
            for (index, flow) in flows.iter_mut().enumerate() {
                while self.now < end && flow.in_flight < flow.depth && self.system.is_connected(flow.lane) {
                    let token = self.read_next(flow);
                    owners.insert(token, index);
                    moved = true;
                }
            }
            if turns > TURNS_MAX {
                return self.found(Finding::Liveness, "saturated reads do not end".to_owned());
            }
            if !moved {
                let next = self.system.next_event();
                self.now = if self.now < end { next.min(end) } else { next }.max(self.now);
            }
        }
        let most = flows.iter().map(|flow| flow.answered).max().expect("a saturation has flows");
        let least = flows.iter().map(|flow| flow.answered).min().expect("a saturation has flows");
        let share = least * 1000 / most.max(1);
        mark!("run: shares compared");
        self.outcome.least_share_permille = Some(share);
        if share < SHARE_MIN_PERMILLE {
            let got: Vec<_> = flows
                .iter()
                .map(|flow| {
                    format!(
                        "lane {} {:?} at depth {}: {}",
                        flow.lane.0, flow.connection, flow.depth, flow.answered
                    )
                })
                .collect();
            self.found(
                Finding::Fairness,
                format!("equal shares are due, but reads came to {}", got.join(", ")),
            );
        }
    }

    fn read_next(&mut self, flow: &mut Flow) -> HostToken {
        // A walk in large odd steps: no pattern of the layout is followed.
        flow.next = (flow.next + 7919) % flow.places.len();
        let (volume, first) = flow.places[flow.next];
        let range = Range { volume, first, count: 1 };
        // The number of a command chooses its connection.
        let connections = u64::from(flow.connections);
        while flow.connection.is_some_and(|wanted| self.token_next % connections != u64::from(wanted)) {
            self.token_next += 1;
        }
        let token = HostToken(self.token_next);
        self.token_next += 1;
        let id = self.oracle.begin_read(volume);
        let purpose = Purpose::Read { range, id };
        let pending =
            Pending { lane: flow.lane, purpose, issued: self.now, volume: Some(volume), sight: Sight::Yes };
        self.pending.insert(token, pending);
        self.lanes[usize::from(flow.lane.0)].in_flight += 1;
        flow.in_flight += 1;
        self.system.submit(flow.lane, token, HostCommand::Read(range), self.now);
        token
    }
}
