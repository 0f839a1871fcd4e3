//! Commands through a door below the target: no network, no host. What a bug needs the network for is not found here;
//! what it does not need it for is found faster and seen more clearly.
//!
//! A lane's connection that breaks loses the answers of what is under way; the lane connects again when all of it came
//! back, as the target does with an old association.

use crate::administration::volume_name;
use crate::door::Door;
use crate::plan::{Lane, Range};
use crate::shards::Shards;
use crate::system::{HostAnswer, HostCommand, HostError, HostToken, ranges_of, sources_of};
use crate::tag::VolumeNumber;
use diecut_namespace::contract::*;
use diecut_shard::DOOR_SOURCE_BIT;
use diecut_shard::drive::{Action, ConnectionId};
use diecut_units::{Buffer, BufferMut, ContentMode, Time, mark};
use std::collections::{BTreeMap, BTreeSet};

struct Waiting {
    lane: Lane,
    lost: bool,
}

/// See the module.
#[derive(Default)]
pub struct DirectDoor {
    waiting: BTreeMap<u64, Waiting>,
    /// Answers held back until a stalled host reads again.
    stalled: BTreeMap<Lane, (Time, Vec<HostAnswer>)>,
    reconnecting: Vec<Lane>,
    answers: Vec<HostAnswer>,
    ready: bool,
}

fn lba_range(range: Range) -> LbaRange {
    LbaRange { first_lba: range.first, lba_count: range.count }
}

fn operation(command: HostCommand, mode: ContentMode) -> (VolumeNumber, NamespaceOperation) {
    let size = mode.bytes_per_iu();
    match command {
        HostCommand::Read(range) => {
            let destination = BufferMut::copy_from(&vec![0xee; range.count as usize * size]);
            (range.volume, NamespaceOperation::Read { range: lba_range(range), destination })
        }
        HostCommand::Write(range, data, force_unit_access) => {
            let data = Buffer::copy_from(&data);
            (
                range.volume,
                NamespaceOperation::Write {
                    range: lba_range(range),
                    data,
                    force_unit_access,
                    placement: PlacementTarget::default(),
                },
            )
        }
        HostCommand::Flush(volume) => (volume, NamespaceOperation::Flush),
        HostCommand::Deallocate(range) => {
            let ranges = ranges_of(range).into_iter().map(lba_range).collect();
            (range.volume, NamespaceOperation::Deallocate { ranges })
        }
        HostCommand::WriteZeroes(range, force_unit_access) => {
            let range_of = lba_range(range);
            let operation =
                NamespaceOperation::WriteZeroes { range: range_of, may_deallocate: true, force_unit_access };
            (range.volume, operation)
        }
        HostCommand::Compare(range, data) => {
            let data = Buffer::copy_from(&data);
            (range.volume, NamespaceOperation::Compare { range: lba_range(range), data })
        }
        HostCommand::WriteUncorrectable(range) => {
            (range.volume, NamespaceOperation::WriteUncorrectable { range: lba_range(range) })
        }
        HostCommand::Copy(range, to, force_unit_access) => {
            let sources = sources_of(range).into_iter().map(lba_range).collect();
            let copy = NamespaceCopy {
                sources,
                first_lba: to.first,
                force_unit_access,
                placement: PlacementTarget::default(),
            };
            (range.volume, NamespaceOperation::Copy(Box::new(copy)))
        }
        HostCommand::Placed(command) => panic!("{command:?}: no door below the target has placement handles"),
        HostCommand::Verify(range) => (range.volume, NamespaceOperation::Verify { range: lba_range(range) }),
    }
}

impl DirectDoor {
    fn deliver(&mut self, answer: HostAnswer) {
        match self.stalled.get_mut(&answer.lane) {
            Some((_, held)) => held.push(answer),
            None => self.answers.push(answer),
        }
    }
}

impl Door for DirectDoor {
    fn is_connected(&self, lane: Lane) -> bool {
        self.ready && !self.reconnecting.contains(&lane) && !self.stalled.contains_key(&lane)
    }
    fn submit(
        &mut self,
        lane: Lane,
        token: HostToken,
        command: HostCommand,
        mode: ContentMode,
        shards: &mut Shards,
        now: Time,
    ) {
        let shard = shards.lead_mut();
        let (volume, operation) = operation(command, mode);
        let namespace = NamespaceId(shard.state().volumes[&volume_name(volume)].namespace);
        self.waiting.insert(token.0, Waiting { lane, lost: false });
        let source = SourceId(DOOR_SOURCE_BIT | u32::from(lane.0));
        shard.submit(NamespaceCommand {
            token: CommandToken(token.0),
            namespace,
            source,
            arrived: now,
            operation,
        });
    }
    fn exchange(&mut self, shards: &mut Shards, now: Time) -> bool {
        let shard = shards.lead_mut();
        self.ready = shard.is_ready();
        let mut completions = Vec::new();
        shard.take_completions(&mut completions);
        for completion in completions {
            let token = completion.token.0;
            let Some(waiting) = self.waiting.remove(&token) else { continue };
            let result = match completion.result {
                _ if waiting.lost => continue,
                Ok(()) => Ok(completion.data.map_or(Vec::new(), |data| data.to_vec())),
                Err(NamespaceError::CompareFailure) => Err(HostError::CompareFailure),
                Err(NamespaceError::Unrecovered { .. }) => Err(HostError::Unrecovered),
                Err(NamespaceError::CapacityExceeded | NamespaceError::NoRoom { .. }) => Err(HostError::Full),
                Err(NamespaceError::ReadOnly { .. }) => Err(HostError::ReadOnly),
                Err(NamespaceError::NoSuchNamespace) => Err(HostError::NoNamespace),
                Err(NamespaceError::NotReady) => Err(HostError::NotReady),
                Err(other) => Err(HostError::Other(other.to_string())),
            };
            self.deliver(HostAnswer { lane: waiting.lane, token: HostToken(token), result });
        }
        let waiting = &self.waiting;
        self.reconnecting.retain(|lane| waiting.values().any(|one| one.lane == *lane));
        let over: Vec<Lane> =
            self.stalled.iter().filter(|(_, (until, _))| *until <= now).map(|(lane, _)| *lane).collect();
        for lane in over {
            let (_, held) = self.stalled.remove(&lane).expect("listed");
            self.answers.extend(held);
        }
        false
    }
    fn act(&mut self, _shard: u16, _actions: &mut Vec<Action>, _shards: &mut Shards, _now: Time) {}
    fn adopted(&mut self, _connection: ConnectionId, _shard: u16) {}
    fn take_answers(&mut self, answers: &mut Vec<HostAnswer>) {
        answers.append(&mut self.answers);
    }
    fn next_event(&self, _shards: &Shards) -> Time {
        self.stalled.values().map(|(until, _)| *until).min().unwrap_or(Time::NEVER)
    }
    fn disconnect(&mut self, lane: Lane, _now: Time) {
        for (token, waiting) in &mut self.waiting {
            if waiting.lane == lane && !waiting.lost {
                mark!("door: connection lost with commands under way");
                waiting.lost = true;
                let token = HostToken(*token);
                self.answers.push(HostAnswer { lane, token, result: Err(HostError::ConnectionLost) });
            }
        }
        // Answers on their way to a host that hung up are lost with the connection.
        if let Some((_, held)) = self.stalled.remove(&lane) {
            for answer in held {
                self.answers.push(HostAnswer { result: Err(HostError::ConnectionLost), ..answer });
            }
        }
        if self.waiting.values().any(|waiting| waiting.lane == lane) {
            self.reconnecting.push(lane);
        }
    }
    fn reset(&mut self, lane: Lane) {
        panic!("lane {} has no controller behind a door", lane.0);
    }
    fn shut_down(&mut self, lane: Lane, _token: HostToken) {
        panic!("lane {} has no controller behind a door", lane.0);
    }
    fn abort(&mut self, _lane: Lane) {}
    fn known_namespaces(&self, _lane: Lane) -> Vec<BTreeSet<u32>> {
        Vec::new()
    }
    fn vanish(&mut self, lane: Lane, now: Time) {
        self.disconnect(lane, now);
    }
    fn stall(&mut self, lane: Lane, until: Time) {
        let entry = self.stalled.entry(lane).or_insert((until, Vec::new()));
        entry.0 = entry.0.max(until);
    }
    fn silence(&mut self, lane: Lane, until: Time) {
        self.stall(lane, until);
    }
    fn hang_up(&mut self, _shard: u16) {
        unreachable!("several shards have hosts on a network")
    }
    fn crash(&mut self) {
        *self = DirectDoor::default();
    }
    fn restarted(&mut self, _now: Time) {}
    fn nudge(&mut self, _now: Time) {}
    fn is_at_rest(&self) -> bool {
        self.waiting.is_empty()
    }
    fn describe(&self) -> String {
        String::new()
    }
}
