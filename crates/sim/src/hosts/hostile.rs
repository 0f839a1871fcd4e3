//! Hosts that take what they can and keep to nothing. They bring their queues up as others do, and then say what they like; or they
//! never come so far. Nothing they send is a whole, right write, so what they see of a volume stays as it was.

use super::*;
use crate::administration::{OPEN_NSID, open_subsystem_name};
use crate::plan::Attack;
use diecut_nvme::io::LbaRange;
use diecut_nvme::opcode::io as opcode;
use diecut_nvme::tcp::{CapsuleCommand, DataToController, InitializeRequest, pdu_type};
use diecut_nvme::{SglDescriptor, SubmissionEntry};
use zerocopy::IntoBytes;

/// No path of an honest host.
const NO_PATH: usize = usize::MAX;
const ENTRIES: u16 = 32;
const LATENCY: Span = Span::from_micros(10);
/// Until a host that was refused or hung up on comes again, and how often it does.
const AGAIN: Span = Span::from_millis(5);
const TRIES: u32 = 6;
/// IUs of a read or write of those that want much, and of a write whose data are wrong: one R2T asks for all of them.
const MUCH_IUS: u32 = 64;
const WRONG_IUS: u32 = 4;
/// Silent connections come so many at a time, and so many in all.
const SILENT_STEP: usize = 64;
const SILENT_MAX: usize = 4096;
/// Flushes that a queue which is never empty sends in all.
const FLUSHES: u32 = 600;
/// A visitor comes when the others have taken what they can, and again and again; so many reads are what it wants.
const VISIT_AFTER: Span = Span::from_millis(25);
const VISITOR_TRIES: u32 = 10_000;
const VISITOR_READS: u64 = 6;
/// Bytes of a PDU without data, and of the common header.
const PDU_BYTES: usize = 24;
const HEAD_BYTES: usize = 8;

/// Queues that nobody keeps in order any more.
struct Raw {
    stream: Stream,
    received: Vec<u8>,
    /// Answers to which it sends the same again.
    left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It comes then.
    Away(Time),
    /// Queues come up.
    Rises,
    /// It does what it came for.
    Acts,
    /// It has done enough.
    Over,
}

/// One hostile host; or a visitor of their subsystem who keeps to the rules, and must be served.
pub(super) struct Raid {
    is_visitor: bool,
    is_served: bool,
    /// Reads of a visitor, and what they brought.
    under_way: BTreeMap<Token, Vec<u8>>,
    attack: Attack,
    subsystem: String,
    number: usize,
    mode: ContentMode,
    stage: Stage,
    tries: u32,
    admin: Option<(Stream, Admin)>,
    queues: Vec<(Stream, QueuePair)>,
    raw: Vec<Raw>,
    /// Of silent connections, when it last looked.
    closed_before: usize,
}

/// The hosts of a siege.
pub(super) fn raids(siege: &Siege, mode: ContentMode, now: Time) -> Vec<Raid> {
    let of = |attack: Attack| match attack {
        Attack::Squatters => crate::stack::CONTROLLERS_BESIEGED,
        Attack::ReadNothing => 4,
        Attack::Crowd => 9,
        Attack::SendNothing => 4,
        Attack::WrongPdus => WRONG_KINDS,
        _ => 1,
    };
    let attacks = siege.attacks.iter().flat_map(|attack| std::iter::repeat_n(*attack, of(*attack)));
    let raid = |(number, attack): (usize, Option<Attack>)| Raid {
        is_visitor: attack.is_none(),
        is_served: false,
        under_way: BTreeMap::new(),
        attack: attack.unwrap_or(Attack::ReadNothing),
        subsystem: open_subsystem_name(siege.lane),
        number,
        mode,
        stage: Stage::Away(if attack.is_none() { now + VISIT_AFTER } else { now }),
        tries: if attack.is_none() { VISITOR_TRIES } else { TRIES },
        admin: None,
        queues: Vec::new(),
        raw: Vec::new(),
        closed_before: 0,
    };
    let hostile: Vec<Option<Attack>> = attacks.map(Some).collect();
    // Places and memory of the subsystem are for those who come first; a few of them leave enough for the next one. A capsule of which
    // half has come holds its queue's memory, too, as does a controller that connects and is left.
    let of_memory = [Attack::ReadNothing, Attack::SendNothing, Attack::HalfCapsules, Attack::Connects];
    let takers = siege.attacks.iter().filter(|attack| of_memory.contains(attack)).count();
    let takes_all = siege.attacks.iter().any(|attack| matches!(attack, Attack::Crowd | Attack::Squatters));
    let visitor = (takers <= 1 && !takes_all).then_some(None);
    hostile.into_iter().chain(visitor).enumerate().map(raid).collect()
}

/// Ways to be wrong.
const WRONG_KINDS: usize = 8;

impl Raid {
    fn streams(&self) -> impl Iterator<Item = &Stream> {
        let admin = self.admin.iter().map(|(stream, _)| stream);
        let queues = self.queues.iter().map(|(stream, _)| stream);
        admin.chain(queues).chain(self.raw.iter().map(|raw| &raw.stream))
    }
    pub(super) fn streams_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        let admin = self.admin.iter_mut().map(|(stream, _)| stream);
        let queues = self.queues.iter_mut().map(|(stream, _)| stream);
        admin.chain(queues).chain(self.raw.iter_mut().map(|raw| &mut raw.stream))
    }

    pub(super) fn describe(&self) -> String {
        let who = if self.is_visitor { "visitor".to_string() } else { format!("{:?}", self.attack) };
        format!(
            "hostile {}: {who}, {:?}, served {}, comes {} times more\n",
            self.number, self.stage, self.is_served, self.tries
        )
    }

    /// I/O queues of its controller.
    fn io_queues(&self) -> u16 {
        match self.attack {
            Attack::ReadNothing | Attack::Crowd | Attack::SendNothing | Attack::HalfCapsules => 3,
            Attack::FlushWithoutEnd | Attack::Resets => 2,
            Attack::WrongPdus => 1,
            Attack::HalfOpen | Attack::Silent | Attack::Connects | Attack::Squatters => 0,
        }
    }

    /// Whether it is hostile, or has what it came for.
    pub(super) fn is_content(&self) -> bool {
        !self.is_visitor || self.is_served
    }

    /// Whether its queues take what comes, once they are up.
    fn takes_answers(&self) -> bool {
        self.is_visitor || matches!(self.attack, Attack::FlushWithoutEnd | Attack::WrongPdus)
    }

    fn parameters(&self) -> QueueParameters {
        let mut host_id = [0xba; 16];
        host_id[0] = self.number as u8;
        let name = format!("nqn.2026-11.example:hostile-{}", self.number);
        // A host that sends wrong digests agreed on them.
        let data = self.attack == Attack::WrongPdus && self.number.is_multiple_of(2);
        QueueParameters {
            digests: Digests { header: false, data },
            ..QueueParameters::admin(qualified(&name), host_id, qualified(&self.subsystem))
        }
    }

    pub(super) fn next_event(&self, core_free_at: impl Fn(&Stream) -> Time) -> Time {
        let mut next = if let Stage::Away(at) = self.stage { at } else { Time::NEVER };
        let takes = self.stage != Stage::Acts || self.takes_answers();
        for stream in self.streams() {
            if !stream.paused {
                next = next.min(stream.to_target.next_arrival().max(core_free_at(stream)));
            }
            if takes || self.admin.as_ref().is_some_and(|(admin, _)| admin.id == stream.id) {
                next = next.min(stream.to_host.next_arrival());
            }
        }
        next
    }

    /// All its streams, which the target hears the end of.
    pub(super) fn hang_up(&mut self, now: Time) -> Vec<Stream> {
        let admin = self.admin.take().map(|(stream, _)| stream);
        let queues = self.queues.drain(..).map(|(stream, _)| stream);
        let all = admin.into_iter().chain(queues).chain(self.raw.drain(..).map(|raw| raw.stream));
        let mut streams: Vec<Stream> = all.filter(|stream| !stream.closing).collect();
        streams.iter_mut().for_each(|stream| stream.told_at = now);
        streams
    }

    /// It goes, and comes again if it has not come often enough.
    fn leave(&mut self, now: Time) -> Vec<Stream> {
        self.tries = self.tries.saturating_sub(1);
        self.stage = if self.tries > 0 { Stage::Away(now + AGAIN) } else { Stage::Over };
        self.hang_up(now)
    }

    fn command(
        &self,
        id: u16,
        code: u8,
        ius: u32,
        sgl: SglDescriptor,
        data: &[u8],
        digests: Digests,
    ) -> Vec<u8> {
        let mut entry =
            SubmissionEntry { opcode: code, nsid: OPEN_NSID.into(), sgl, ..SubmissionEntry::default() };
        if ius > 0 {
            LbaRange::plain(0, ius).encode(&mut entry);
        }
        entry.command_id = id.into();
        entry.flags |= 0x40;
        let mut bytes = CapsuleCommand::new(entry, data.len() as u32, digests).as_bytes().to_vec();
        bytes.extend_from_slice(data);
        bytes
    }

    fn bytes_of(&self, ius: u32) -> u32 {
        ius * self.mode.bytes_per_iu() as u32
    }

    fn read(&self, id: u16) -> Vec<u8> {
        let sgl = SglDescriptor::transport(self.bytes_of(MUCH_IUS));
        self.command(id, opcode::READ, MUCH_IUS, sgl, &[], Digests::NONE)
    }

    /// A write that waits to be asked for its data.
    fn write(&self, id: u16, ius: u32) -> Vec<u8> {
        let sgl = SglDescriptor::transport(self.bytes_of(ius));
        self.command(id, opcode::WRITE, ius, sgl, &[], Digests::NONE)
    }

    /// What each queue says first.
    fn opening(&self) -> Vec<u8> {
        let many = |what: &dyn Fn(u16) -> Vec<u8>| (1..ENTRIES - 1).flat_map(what).collect::<Vec<u8>>();
        match self.attack {
            Attack::ReadNothing | Attack::Crowd | Attack::Resets => many(&|id| self.read(id)),
            Attack::SendNothing => many(&|id| self.write(id, MUCH_IUS)),
            Attack::FlushWithoutEnd => many(&|id| self.flush(id)),
            Attack::HalfCapsules => {
                let data = vec![0x5a; self.bytes_of(1) as usize];
                let sgl = SglDescriptor::in_capsule(data.len() as u32);
                let mut bytes = self.command(1, opcode::WRITE, 1, sgl, &data, Digests::NONE);
                bytes.pop();
                bytes
            }
            Attack::WrongPdus => self.wrong(),
            Attack::HalfOpen | Attack::Silent | Attack::Connects | Attack::Squatters => Vec::new(),
        }
    }

    fn flush(&self, id: u16) -> Vec<u8> {
        self.command(id, opcode::FLUSH, 0, SglDescriptor::default(), &[], Digests::NONE)
    }

    /// Wrong at once, or a write whose data are wrong later.
    fn wrong(&self) -> Vec<u8> {
        match self.number % WRONG_KINDS {
            // The digest of the data.
            2 => {
                let data = vec![0x5a; self.bytes_of(1) as usize];
                let sgl = SglDescriptor::in_capsule(data.len() as u32);
                let digests = Digests { header: false, data: true };
                let mut bytes = self.command(1, opcode::WRITE, 1, sgl, &data, digests);
                bytes.extend([1, 2, 3, 4]);
                bytes
            }
            // A header length, a length of 4 GiB, a type that there is not.
            4 => vec![4, 0, 71, 0, 72, 0, 0, 0],
            5 => vec![4, 0, 72, 72, 255, 255, 255, 255],
            6 => (0..200u8).map(|byte| byte.wrapping_mul(37) ^ self.tries as u8).collect(),
            // More commands than the queue has entries.
            7 => (1..3 * ENTRIES).flat_map(|id| self.read(id)).collect(),
            _ => self.write(1, WRONG_IUS),
        }
    }

    /// What it says to a PDU of the target.
    fn answer(&self, pdu: &[u8]) -> Vec<u8> {
        let word = |at: usize| u32::from_le_bytes(pdu[at..at + 4].try_into().expect("four bytes"));
        let half = |at: usize| u16::from_le_bytes(pdu[at..at + 2].try_into().expect("two bytes"));
        match (self.attack, pdu[0]) {
            (Attack::FlushWithoutEnd, pdu_type::CAPSULE_RESPONSE) => self.flush(half(20)),
            (Attack::WrongPdus, pdu_type::READY_TO_TRANSFER) => {
                let (id, tag, length) = (half(8), half(10), word(16));
                let data = |start: u32, length: u32, last: bool, digests: Digests| {
                    let header = DataToController::new(id, tag, start, length, last, digests);
                    [header.as_bytes(), &vec![0x5a; length as usize], &[1, 2, 3, 4][..digests.data_bytes()]]
                        .concat()
                };
                let none = Digests::NONE;
                match self.number % WRONG_KINDS {
                    0 => data(0, length, true, Digests { header: false, data: true }),
                    // The second half first.
                    1 => {
                        let half = length / 2;
                        [data(half, half, true, none), data(0, half, false, none)].concat()
                    }
                    _ => data(0, length + 4, true, none),
                }
            }
            _ => Vec::new(),
        }
    }
}

impl Raw {
    fn say(&mut self, bytes: &[u8], now: Time, random: &mut Xoshiro256PlusPlus) {
        self.stream.to_target.send(bytes, now, true, random);
    }

    /// Takes a whole PDU of what has arrived.
    fn take_pdu(&mut self) -> Option<Vec<u8>> {
        let head = self.received.get(..HEAD_BYTES)?;
        let length = u32::from_le_bytes(head[4..8].try_into().expect("four bytes")) as usize;
        (self.received.len() >= length.max(PDU_BYTES)).then(|| self.received.drain(..length).collect())
    }
}

impl Hosts {
    /// Hostile hosts go on. Whether anything happened.
    pub(super) fn raid(&mut self, shards: &mut Shards, now: Time) -> bool {
        let mut moved = false;
        for at in 0..self.raids.len() {
            let mut arrived = Vec::new();
            for stream in self.raids[at].streams_mut().filter(|stream| stream.is_read(shards, now)) {
                if let Some(bytes) = stream.to_target.receive(now) {
                    arrived.push((stream.id, bytes));
                }
            }
            for (id, bytes) in &arrived {
                self.bring(*id, bytes, shards, now);
            }
            moved |= !arrived.is_empty();
            moved |= self.raid_takes(at, shards, now);
            moved |= self.raid_goes_on(at, shards, now);
        }
        moved
    }

    /// What has arrived at a hostile host, as far as it takes it.
    fn raid_takes(&mut self, at: usize, shards: &mut Shards, now: Time) -> bool {
        let mut random = self.random.clone();
        let raid = &mut self.raids[at];
        let (mut moved, mut failed, mut unblocked) = (false, false, Vec::new());
        let mut taken = |stream: &mut Stream| {
            let bytes = stream.to_host.receive(now)?;
            moved = true;
            if stream.blocked {
                unblocked.push(stream.id);
            }
            Some(bytes)
        };
        let mut brought = Brought { under_way: &mut raid.under_way, completions: Vec::new() };
        if let Some((stream, admin)) = &mut raid.admin
            && let Some(bytes) = taken(stream)
        {
            failed |= admin.receive(&bytes, now, &mut brought).is_err();
        }
        for (stream, queue) in &mut raid.queues {
            if let Some(bytes) = taken(stream) {
                failed |= queue.receive(&bytes, &mut brought).is_err();
            }
        }
        for completion in brought.completions {
            let data = raid.under_way.remove(&completion.token).expect("an answer to a read");
            assert!(completion.status.is_success(), "a visitor is told {}", completion.status);
            assert!(data.iter().all(|byte| *byte == 0), "nobody has written this volume");
            if raid.under_way.is_empty() {
                mark!("hosts: a visitor is served beside hostile hosts");
                (raid.is_served, raid.tries) = (true, 0);
            }
        }
        if raid.takes_answers() {
            let mut raws = std::mem::take(&mut raid.raw);
            for raw in &mut raws {
                raw.received.extend(taken(&mut raw.stream).unwrap_or_default());
                while let Some(pdu) = raw.take_pdu() {
                    if raw.left > 0 {
                        raw.left -= 1;
                        raw.say(&raid.answer(&pdu), now, &mut random);
                    }
                }
            }
            raid.raw = raws;
        }
        if failed {
            mark!("hosts: hostile host refused");
        }
        if failed || raid.is_served && raid.stage != Stage::Over {
            raid.under_way.clear();
            let left = raid.leave(now);
            self.orphans.extend(left);
        }
        for id in unblocked {
            self.transmit(id, shards, now);
        }
        moved
    }

    /// The next thing that a hostile host does. Whether it did any.
    fn raid_goes_on(&mut self, at: usize, shards: &mut Shards, now: Time) -> bool {
        match self.raids[at].stage {
            Stage::Away(due) if due <= now => self.raid_comes(at, shards, now),
            Stage::Away(_) | Stage::Over => false,
            _ if self.raids[at].attack == Attack::Silent => self.silence_goes_on(at, shards, now),
            Stage::Rises | Stage::Acts => {
                let ended = self.raids[at].streams().any(|stream| stream.closing);
                if ended && !self.raid_resets(at) {
                    mark!("hosts: hostile host hung up on");
                    self.raids[at].under_way.clear();
                    let left = self.raids[at].leave(now);
                    self.orphans.extend(left);
                    return true;
                }
                self.raid_rises(at, shards, now)
            }
        }
    }

    /// Whether a hostile host waits for the end of a reset; its queues end meanwhile.
    fn raid_resets(&self, at: usize) -> bool {
        let raid = &self.raids[at];
        let is_there = raid.admin.as_ref().is_some_and(|(stream, _)| !stream.closing);
        raid.attack == Attack::Resets && is_there && raid.stage == Stage::Acts
    }

    fn open_hostile(&mut self, shards: &mut Shards, now: Time) -> Stream {
        self.open_stream(NO_PATH, LATENCY, shards, now)
    }

    fn open_silent(&mut self, at: usize, count: usize, shards: &mut Shards, now: Time) {
        for _ in 0..count {
            let raw = Raw { stream: self.open_hostile(shards, now), received: Vec::new(), left: 0 };
            self.raids[at].raw.push(raw);
        }
    }

    /// Silent connections become more until about as many are closed as come: all shards are full. Then those that are closed come again,
    /// a few times. Whether any did.
    fn silence_goes_on(&mut self, at: usize, shards: &mut Shards, now: Time) -> bool {
        let raid = &mut self.raids[at];
        let before = raid.raw.len();
        let closed = raid.raw.iter().filter(|raw| raw.stream.closing).count();
        let more = match raid.stage {
            Stage::Rises => {
                let are_full = closed >= raid.closed_before + SILENT_STEP / 8 * 7;
                if are_full || before >= SILENT_MAX {
                    raid.stage = Stage::Acts;
                }
                raid.closed_before = closed;
                SILENT_STEP
            }
            _ if closed > 0 && raid.tries > 0 => {
                mark!("hosts: silent connections are closed for others");
                raid.tries -= 1;
                raid.raw.retain(|raw| !raw.stream.closing);
                closed
            }
            _ => return false,
        };
        self.open_silent(at, more, shards, now);
        true
    }

    fn raid_comes(&mut self, at: usize, shards: &mut Shards, now: Time) -> bool {
        let (attack, parameters) = (self.raids[at].attack, self.raids[at].parameters());
        self.raids[at].stage = Stage::Rises;
        match attack {
            Attack::HalfOpen => {
                for kind in 0..6 {
                    let mut raw =
                        Raw { stream: self.open_hostile(shards, now), received: Vec::new(), left: 0 };
                    let request = InitializeRequest::new(Digests::NONE);
                    let bytes = &request.as_bytes()[..[0, 5, 128][kind % 3]];
                    raw.say(bytes, now, &mut self.random);
                    self.raids[at].raw.push(raw);
                }
                self.raids[at].stage = Stage::Acts;
            }
            Attack::Silent => {}
            Attack::Connects => {
                for _ in 0..10 {
                    let stream = self.open_hostile(shards, now);
                    self.raids[at].queues.push((stream, QueuePair::new(parameters.clone())));
                }
            }
            _ => {
                let stream = self.open_hostile(shards, now);
                let admin = Admin::new(parameters, self.raids[at].io_queues().max(1));
                self.raids[at].admin = Some((stream, admin));
            }
        }
        self.raid_sends(at, now);
        true
    }

    /// What the queues that it keeps in order have to say.
    fn raid_sends(&mut self, at: usize, now: Time) {
        let raid = &mut self.raids[at];
        if let Some((stream, admin)) = &mut raid.admin {
            let len_bytes = admin.output().len();
            stream.to_target.send(admin.output(), now, true, &mut self.random);
            admin.sent(len_bytes);
        }
        for (stream, queue) in &mut raid.queues {
            let len_bytes = queue.output().len();
            stream.to_target.send(queue.output(), now, true, &mut self.random);
            queue.sent(len_bytes);
        }
    }

    fn raid_rises(&mut self, at: usize, shards: &mut Shards, now: Time) -> bool {
        self.raid_sends(at, now);
        let raid = &self.raids[at];
        let is_up = raid.admin.as_ref().is_some_and(|(_, admin)| admin.facts().is_some());
        if raid.stage == Stage::Acts {
            if raid.attack != Attack::Resets || !is_up {
                return false;
            }
            // Again and again; what it had asked for is under way.
            let is_first = !raid.raw.is_empty();
            if raid.tries == 0 {
                self.raids[at].stage = Stage::Over;
                let left = self.raids[at].hang_up(now);
                self.orphans.extend(left);
                return true;
            }
            if is_first {
                mark!("hosts: hostile host resets under load");
                let raid = &mut self.raids[at];
                raid.tries -= 1;
                let (_, admin) = raid.admin.as_mut().expect("it is up");
                admin.reset();
                let mut queues: Vec<Stream> = raid.raw.drain(..).map(|raw| raw.stream).collect();
                queues.retain(|stream| !stream.closing);
                // It hangs up on every second one itself.
                for (number, stream) in queues.iter_mut().enumerate() {
                    stream.told_at = if number.is_multiple_of(2) { now } else { now + VANISHED_UNTIL };
                }
                self.orphans.extend(queues);
            } else {
                self.raids[at].stage = Stage::Rises;
            }
            self.raid_sends(at, now);
            return true;
        }
        if raid.attack == Attack::Connects || raid.io_queues() == 0 {
            if raid.attack == Attack::Squatters && is_up {
                self.raids[at].stage = Stage::Acts;
                return true;
            }
            return false;
        }
        if !is_up {
            return false;
        }
        if raid.queues.is_empty() {
            let (_, admin) = raid.admin.as_ref().expect("it is up");
            let count = raid.io_queues().min(admin.facts().expect("it is up").io_queues);
            let all: Vec<QueueParameters> =
                (1..=count).map(|number| admin.io_queue(number, ENTRIES - 1)).collect();
            for parameters in all {
                let stream = self.open_hostile(shards, now);
                self.raids[at].queues.push((stream, QueuePair::new(parameters)));
            }
            self.raid_sends(at, now);
            return true;
        }
        let is_ready = raid.queues.iter().all(|(_, queue)| queue.is_ready());
        if is_ready && raid.is_visitor {
            let length_bytes = raid.bytes_of(MUCH_IUS);
            let raid = &mut self.raids[at];
            for number in 0..VISITOR_READS {
                let span = LbaSpan { nsid: OPEN_NSID, first: number, count: MUCH_IUS };
                raid.under_way.insert(Token(number), Vec::new());
                raid.queues[0].1.submit(Token(number), Command::Read { span, length_bytes });
            }
            raid.stage = Stage::Acts;
            self.raid_sends(at, now);
            return true;
        }
        if is_ready {
            mark!("hosts: hostile host strikes");
            let opening = raid.opening();
            for (stream, _) in std::mem::take(&mut self.raids[at].queues) {
                let mut raw = Raw { stream, received: Vec::new(), left: FLUSHES };
                raw.say(&opening, now, &mut self.random);
                self.raids[at].raw.push(raw);
            }
            self.raids[at].stage = Stage::Acts;
            return true;
        }
        false
    }
}
