//! Applications of a run: each attaches to its vSSD, looks at what it holds, reads it back, names what it keeps, and then takes
//! its steps, as a process would at the rings. What it may find is in [`crate::holdings`].

use super::{ANSWER_TIME_MAX, Runner};
use crate::administration::{APPLICATION_UID, tenant_name};
use crate::holdings::{BlockSizes, HoldingId, Holdings};
use crate::oracle::{Crash, Finding, Violation};
use crate::plan::{Action, ApplicationPlan, BlockStep, FaultKind, Lane, Plan};
use crate::tag::VolumeNumber;
use diecut_blockspace::ring::Layout;
use diecut_blockspace::session::{Answer, Command};
use diecut_blockspace::wire::{
    Completion, HELD_SIZE_BYTES, HeldRecord, Opcode, Shape, Status, Submission, encode_name,
};
use diecut_blockspace::{LogicalBlock, UnitIndex};
use diecut_shard::drive::{BlockAction, BlockEvent, BlockSession};
use diecut_units::{BufferMut, IU_SIZE_BYTES, Span, Time, checksum, mark};
use std::collections::{BTreeMap, VecDeque};

/// An application that is refused because what its predecessor had under way is waited for tries again after this time.
const TRY_AGAIN: Span = Span::from_micros(300);
/// A block that was given back is free when what was under way of it has ended: after this time at the latest.
const FREES_WITHIN: Span = Span::from_secs(1);
/// Records of held blocks that are asked for at once: few, so that there are several pieces.
const RECORDS_AT_ONCE: u32 = 16;
/// Numbers of volumes, which tags carry, that are applications: from here on.
const FIRST_NUMBER: u8 = 200;

#[derive(Clone, Copy, Debug)]
enum Attachment {
    /// Not attached; tries at this time.
    Away(Time),
    Asked(BlockSession),
    Attached(BlockSession, Shape, Layout),
}

/// What an application does with its attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Looks,
    ReadsBack,
    Names,
    /// Tries to read what it gave up.
    Probes,
    Works,
}

/// What is asked of the system, and what its answer is compared with.
#[derive(Clone, Debug)]
enum Ask {
    Held {
        first: u32,
    },
    /// The blocks named; whether they are the last.
    Keep {
        names: Vec<LogicalBlock>,
        is_last: bool,
    },
    /// A block that was given up is read.
    Probe(LogicalBlock),
    Figures(UnitIndex),
    Allocate(HoldingId, UnitIndex),
    Append {
        id: HoldingId,
        block: LogicalBlock,
        first_unit: u32,
        units: u32,
    },
    Read {
        id: HoldingId,
        block: LogicalBlock,
        first_iu: u32,
        count: u32,
        must: bool,
    },
    Free(HoldingId, LogicalBlock),
    Sync(u64),
}

struct UnderWay {
    ask: Ask,
    issued: Time,
    slot: u32,
}

pub(super) struct Application {
    lane: Lane,
    depth: u32,
    steps: VecDeque<Action>,
    resume_at: Time,
    attachment: Attachment,
    /// Since when it tries to attach.
    tries_since: Time,
    stage: Stage,
    /// What comes before its steps.
    errands: VecDeque<Ask>,
    holdings: Holdings,
    sizes: Option<BlockSizes>,
    records: Vec<HeldRecord>,
    given_up: Vec<LogicalBlock>,
    /// Names all blocks but every so-many-th; 0: all.
    drops: u8,
    /// The power went since it named blocks.
    was_cut: bool,
    under_way: BTreeMap<u64, UnderWay>,
    /// Free blocks and all blocks of each unit, as last told.
    figures: BTreeMap<u16, (u32, u32)>,
    /// Where each block lay when it was last read.
    places: BTreeMap<HoldingId, u32>,
    /// When it last gave a block back.
    freed_at: Time,
    is_read_only: bool,
    wears_blocks: bool,
    lacks_room: bool,
    may_lose: bool,
}

pub(super) struct Applications {
    list: Vec<Application>,
    token_next: u64,
    session_next: u64,
}

impl Applications {
    pub(super) fn of(plan: &Plan) -> Applications {
        let one = |(index, application): (usize, &ApplicationPlan)| {
            let lane = Lane::of_application(index);
            let (may_lose, may_fail) = (plan.may_lose_data(), plan.wears_blocks());
            Application {
                lane,
                depth: application.depth,
                steps: plan.steps.iter().filter(|step| step.lane == lane).map(|step| step.action).collect(),
                resume_at: Time::ZERO,
                attachment: Attachment::Away(Time::ZERO),
                tries_since: Time::ZERO,
                stage: Stage::Looks,
                errands: VecDeque::new(),
                holdings: Holdings::new(VolumeNumber(FIRST_NUMBER + index as u8), may_lose, may_fail),
                sizes: None,
                records: Vec::new(),
                given_up: Vec::new(),
                drops: 0,
                was_cut: false,
                under_way: BTreeMap::new(),
                figures: BTreeMap::new(),
                places: BTreeMap::new(),
                freed_at: Time::ZERO,
                is_read_only: false,
                wears_blocks: may_fail,
                lacks_room: plan.faults.iter().any(|fault| matches!(fault.what, FaultKind::NoRoom { .. })),
                may_lose,
            }
        };
        Applications {
            list: plan.applications.iter().enumerate().map(one).collect(),
            token_next: 1,
            session_next: 1,
        }
    }

    pub(super) fn are_done(&self) -> bool {
        self.list.iter().all(Application::is_done)
    }

    /// When one of them goes on by itself.
    pub(super) fn next_event(&self, now: Time) -> Time {
        self.list.iter().map(|one| one.next_event(now)).min().unwrap_or(Time::NEVER)
    }

    /// Whether one of them is attached and has nothing to do.
    pub(super) fn can_ask(&self, index: usize) -> bool {
        self.list.get(index).is_some_and(Application::is_done)
    }

    /// Has one of them ask how many blocks of its first unit are free, so that it has so many questions at once.
    pub(super) fn ask_figures(&mut self, index: usize, depth: u32) {
        let one = &mut self.list[index];
        let asked = one.errands.len() + one.under_way.len();
        one.errands.extend((asked..depth as usize).map(|_| Ask::Figures(UnitIndex(0))));
    }

    /// Reads everything back, and asks how many blocks are free.
    pub(super) fn look_around(&mut self) {
        for one in &mut self.list {
            let Attachment::Attached(_, shape, _) = one.attachment else { continue };
            one.read_back();
            one.errands.extend((0..shape.units).map(|unit| Ask::Figures(UnitIndex(unit))));
        }
    }
}

impl Application {
    fn is_done(&self) -> bool {
        self.stage == Stage::Works
            && self.errands.is_empty()
            && self.under_way.is_empty()
            && self.steps.is_empty()
            && matches!(self.attachment, Attachment::Attached(..))
    }

    fn next_event(&self, now: Time) -> Time {
        match self.attachment {
            Attachment::Away(at) => at,
            Attachment::Attached(..) if self.resume_at > now && !self.steps.is_empty() => self.resume_at,
            // Else it waits for answers.
            Attachment::Asked(..) | Attachment::Attached(..) => Time::NEVER,
        }
    }

    /// Its process, or the system, is gone.
    fn leave(&mut self, back_at: Time) {
        self.attachment = Attachment::Away(back_at);
        self.tries_since = back_at;
        self.stage = Stage::Looks;
        self.errands.clear();
        self.under_way.clear();
    }

    /// Reads what each block holds, unit by unit.
    fn read_back(&mut self) {
        let Some(sizes) = self.sizes else { return };
        for (id, holding) in self.holdings.iter() {
            let Some(block) = holding.block().filter(|_| holding.is_wanted() || self.stage < Stage::Works)
            else {
                continue;
            };
            for unit in 0..holding.asked_units() {
                let (first_iu, count) = (unit * sizes.unit_ius, sizes.unit_ius);
                self.errands.push_back(Ask::Read { id, block, first_iu, count, must: false });
            }
        }
    }

    /// Names what is wanted, in two pieces, and gives the rest up.
    fn name(&mut self) {
        let mut names = Vec::new();
        let mut unwanted = Vec::new();
        for (at, (id, holding)) in self.holdings.iter().enumerate() {
            let block = holding.block().expect("what was looked at has its block");
            let dropped = self.drops > 0 && (at + 1).is_multiple_of(self.drops.into());
            if dropped || !holding.is_wanted() {
                unwanted.push((id, block));
            } else {
                names.push(block);
            }
        }
        if std::mem::take(&mut self.was_cut) && !names.is_empty() {
            mark!("run: an application names blocks after a cut");
        }
        self.drops = 0;
        self.given_up = unwanted.iter().map(|(_, block)| *block).collect();
        unwanted.into_iter().for_each(|(id, _)| self.holdings.begin_free(id));
        let rest = names.split_off(names.len() / 2);
        if !names.is_empty() {
            self.errands.push_back(Ask::Keep { names, is_last: false });
        }
        self.errands.push_back(Ask::Keep { names: rest, is_last: true });
    }

    /// Goes to the next stage when nothing of the last one is left. What is wrong with what was found.
    fn advance(&mut self) -> Vec<Violation> {
        let mut violations = Vec::new();
        while self.stage != Stage::Works && self.errands.is_empty() && self.under_way.is_empty() {
            let sizes = self.sizes.expect("it is attached");
            self.stage = match self.stage {
                Stage::Looks => {
                    violations.extend(self.holdings.look(&std::mem::take(&mut self.records), sizes));
                    self.read_back();
                    Stage::ReadsBack
                }
                Stage::ReadsBack => {
                    self.name();
                    Stage::Names
                }
                Stage::Names => {
                    self.errands.extend(self.given_up.drain(..).map(Ask::Probe));
                    Stage::Probes
                }
                Stage::Probes | Stage::Works => Stage::Works,
            };
        }
        violations
    }

    /// The operation of a step now, if there is a block for it.
    fn ask_of(&mut self, step: BlockStep, units: u16) -> Option<Ask> {
        let sizes = self.sizes.expect("it is attached");
        let appends_to = |under_way: &BTreeMap<u64, UnderWay>, wanted: HoldingId| {
            under_way.values().any(|one| matches!(one.ask, Ask::Append { id, .. } if id == wanted))
        };
        let fit = |is_fit: &dyn Fn(HoldingId, &crate::holdings::Holding) -> bool, nth: u16| {
            let all = self.holdings.iter().filter(|(_, one)| one.block().is_some() && one.is_wanted());
            let fit: Vec<_> = all.filter(|(id, one)| is_fit(*id, one)).collect();
            let (id, one) = *fit.get(usize::from(nth) % fit.len().max(1))?;
            Some((id, one.block().expect("chosen so"), one.asked_units()))
        };
        Some(match step {
            BlockStep::Allocate { unit } => {
                let unit = UnitIndex(unit % units);
                Ask::Allocate(self.holdings.begin_allocate(unit), unit)
            }
            BlockStep::Append { nth, units } => {
                let has_room = |_, one: &crate::holdings::Holding| {
                    one.takes_appends() && one.asked_units() < sizes.units
                };
                let (id, block, asked) = fit(&has_room, nth)?;
                let units = u32::from(units).clamp(1, sizes.units - asked);
                let first_unit = self.holdings.begin_append(id, units);
                Ask::Append { id, block, first_unit, units }
            }
            BlockStep::Read { nth, first, count } => {
                let (id, block, asked) = fit(&|_, _| true, nth)?;
                // Sometimes of what was never appended.
                let ius = ((asked + 1) * sizes.unit_ius).min(sizes.units * sizes.unit_ius);
                let first_iu = u32::from(first) % ius;
                let count = u32::from(count).clamp(1, ius - first_iu);
                Ask::Read { id, block, first_iu, count, must: false }
            }
            BlockStep::Free { nth } => {
                let under_way = &self.under_way;
                let (id, block, _) = fit(&|id, _| !appends_to(under_way, id), nth)?;
                self.holdings.begin_free(id);
                Ask::Free(id, block)
            }
            BlockStep::Sync => Ask::Sync(self.holdings.begin_sync()),
            BlockStep::Die { .. } => unreachable!("the runner's"),
        })
    }

    /// The entry of an operation and its data.
    fn command(&self, ask: &mut Ask, token: u64, data_offset: u32) -> Command {
        let of_unit = |unit: UnitIndex| LogicalBlock { unit, index: 0 };
        let mut entry = Submission::new(Opcode::Sync, LogicalBlock::default());
        let mut data = None;
        match ask {
            Ask::Held { first } => {
                (entry.opcode, entry.first, entry.count) = (Opcode::Held, *first, RECORDS_AT_ONCE);
            }
            Ask::Keep { names, is_last } => {
                (entry.opcode, entry.flag, entry.count) =
                    (Opcode::Keep, u8::from(*is_last), names.len() as u32);
                let bytes: Vec<u8> = names.iter().flat_map(|name| encode_name(*name)).collect();
                data = Some(BufferMut::copy_from(&bytes));
            }
            Ask::Probe(block) => (entry.opcode, entry.block, entry.count) = (Opcode::Read, *block, 1),
            Ask::Figures(unit) => (entry.opcode, entry.block) = (Opcode::Unit, of_unit(*unit)),
            Ask::Allocate(id, unit) => {
                (entry.opcode, entry.flag, entry.block) = (Opcode::Allocate, id.purpose(), of_unit(*unit));
            }
            Ask::Append { id, block, first_unit, units } => {
                let sizes = self.sizes.expect("it is attached");
                let ius = first_unit.wrapping_mul(sizes.unit_ius)..(*first_unit + *units) * sizes.unit_ius;
                let mut bytes = vec![0; ius.len() * IU_SIZE_BYTES];
                for (iu, bytes) in ius.clone().zip(bytes.chunks_exact_mut(IU_SIZE_BYTES)) {
                    self.holdings.fill(*id, iu, bytes);
                }
                (entry.opcode, entry.block, entry.count) = (Opcode::Append, *block, ius.len() as u32);
                data = Some(BufferMut::copy_from(&bytes));
            }
            Ask::Read { id, block, first_iu, count, must } => {
                let sizes = self.sizes.expect("it is attached");
                *must = self.holdings.get(*id).is_some()
                    && self.holdings.must_read(*id, *first_iu, *count, sizes);
                (entry.opcode, entry.block) = (Opcode::Read, *block);
                (entry.first, entry.count) = (*first_iu, *count);
            }
            Ask::Free(_, block) => (entry.opcode, entry.block) = (Opcode::Free, *block),
            Ask::Sync(_) => {}
        }
        (entry.token, entry.data_offset) = (token, data_offset);
        Command { entry: Ok(entry), data }
    }

    /// Compares an answer with what was asked.
    fn take(
        &mut self,
        under_way: UnderWay,
        completion: &Completion,
        data: Option<&[u8]>,
        now: Time,
    ) -> Option<Violation> {
        let sizes = self.sizes.expect("it is attached");
        let status = completion.status;
        let wrong = |finding, ask: &Ask| {
            Some(Violation::said(finding, format!("{ask:?} is answered with {completion:?}")))
        };
        let ask = under_way.ask;
        self.is_read_only |= status == Status::ReadOnly;
        if matches!(ask, Ask::Free(..) | Ask::Keep { .. }) {
            self.freed_at = now;
        }
        match (&ask, status) {
            (Ask::Held { first }, Status::Done) => {
                let records = data.unwrap_or_default().as_chunks::<HELD_SIZE_BYTES>().0.iter();
                self.records.extend(records.map(HeldRecord::decode));
                let next = first + completion.value;
                if next < completion.total {
                    if completion.value == 0 {
                        return wrong(Finding::WrongAnswer, &ask);
                    }
                    self.errands.push_back(Ask::Held { first: next });
                }
            }
            (Ask::Keep { is_last: false, .. }, Status::Done) => {}
            (Ask::Keep { .. }, Status::Done) => {
                self.holdings.kept();
                if completion.value as usize != self.given_up.len() {
                    return wrong(Finding::WrongAnswer, &ask);
                }
            }
            (Ask::Probe(_), Status::NotAllocated) => {}
            (Ask::Probe(_), Status::Done) => return wrong(Finding::Resurrected, &ask),
            (Ask::Figures(unit), Status::Done) => {
                self.figures.insert(unit.0, (completion.value, completion.total));
            }
            (Ask::Allocate(id, _), Status::Done) => return self.holdings.allocated(*id, completion.block),
            (Ask::Allocate(id, unit), Status::NoFreeBlock) => {
                self.holdings.not_allocated(*id);
                mark!("run: an application has no free erase block");
                let all = self.figures.get(&unit.0).map_or(0, |(_, all)| *all);
                let taken = self.holdings.taken(*unit);
                let must = now.since(self.freed_at) > FREES_WITHIN && !self.wears_blocks && !self.may_lose;
                if must && taken < all {
                    let detail = format!("{ask:?}: no free block, but {taken} of {all} are taken");
                    return Some(Violation::seen(Finding::UnexpectedError, detail));
                }
            }
            (Ask::Append { id, first_unit, units, .. }, Status::Done) => {
                return self.holdings.appended(*id, *first_unit, *units, completion.value, sizes);
            }
            (Ask::Append { id, .. }, Status::AppendFailed) => {
                self.holdings.append_failed(*id);
                if !self.wears_blocks {
                    return wrong(Finding::UnexpectedError, &ask);
                }
                mark!("run: an append of an application failed");
            }
            (Ask::Read { id, first_iu, count, .. }, Status::Done) => {
                let Some(bytes) = data.filter(|data| data.len() == *count as usize * IU_SIZE_BYTES) else {
                    return wrong(Finding::WrongAnswer, &ask);
                };
                return self.holdings.check_read(*id, *first_iu, bytes, sizes);
            }
            (Ask::Read { must: false, .. }, Status::Erased) => {}
            (Ask::Read { id, must: false, .. }, Status::Uncorrectable) if self.holdings.may_be_torn(*id) => {
                mark!("run: an application finds a torn erase block");
            }
            (Ask::Read { .. }, Status::Uncorrectable) if self.may_lose => {
                mark!("run: an erase block of an application is lost");
            }
            (Ask::Free(id, _), Status::Done) => self.holdings.freed(*id),
            (Ask::Sync(begun), Status::Done) => self.holdings.synced(*begun),
            (Ask::Allocate(id, _), Status::NoRoom) if self.lacks_room => self.holdings.not_allocated(*id),
            (Ask::Allocate(id, _), Status::ReadOnly) if self.wears_blocks => self.holdings.not_allocated(*id),
            (_, Status::ReadOnly) if self.wears_blocks => {}
            _ => return wrong(Finding::UnexpectedError, &ask),
        }
        None
    }
}

impl Runner<'_> {
    /// The system went away, and came back.
    pub(super) fn applications_crashed(&mut self, crash: Crash) {
        for one in &mut self.applications.list {
            if !one.under_way.is_empty() {
                mark!("run: crash with operations of an application under way");
            }
            one.was_cut |= crash == Crash::PowerCut;
            one.holdings.crash(crash, one.sizes);
            one.leave(self.now);
        }
    }

    /// Takes what the system tells applications, and lets them go on. Whether there was anything.
    pub(super) fn work_applications(&mut self) -> bool {
        let mut moved = false;
        for action in self.system.take_told() {
            moved = true;
            self.tell_application(action);
        }
        for at in 0..self.applications.list.len() {
            moved |= !self.system.power_is_lost() && self.go_on(at);
        }
        moved
    }

    /// What an application waits for longer than it may.
    pub(super) fn check_application_times(&mut self) {
        for one in &self.applications.list {
            let oldest = one.under_way.values().map(|under_way| under_way.issued).min();
            let trying = match one.attachment {
                Attachment::Attached(..) => None,
                Attachment::Away(_) | Attachment::Asked(..) => Some(one.tries_since),
            };
            let since = oldest.into_iter().chain(trying).min().unwrap_or(self.now);
            if self.now.since(since.min(self.now)) > ANSWER_TIME_MAX {
                let detail = format!(
                    "application of lane {} waits at {:?}, {:?}\n{}",
                    one.lane.0,
                    one.attachment,
                    one.under_way.values().next().map(|under_way| &under_way.ask),
                    self.system.describe()
                );
                return self.found(Finding::Liveness, detail);
            }
        }
    }

    /// Blocks that are free and blocks that are held are all there are.
    pub(super) fn check_conservation_of_blocks(&mut self) {
        let mut wrong = Vec::new();
        for one in self.applications.list.iter().filter(|one| !one.is_read_only && !one.may_lose) {
            for (unit, (free, all)) in &one.figures {
                let held = one.holdings.held(UnitIndex(*unit));
                if held + free != *all {
                    wrong.push(format!(
                        "unit {unit} of the application of lane {}: {held} blocks are held and {free} are free of {all}",
                        one.lane.0
                    ));
                }
            }
            if !one.figures.is_empty() {
                mark!("run: erase blocks of an application counted");
            }
        }
        wrong.into_iter().for_each(|detail| self.found(Finding::Conservation, detail));
    }

    fn tell_application(&mut self, action: BlockAction) {
        let (BlockAction::Attached { session, .. }
        | BlockAction::Refused { session, .. }
        | BlockAction::Elsewhere { session, .. }
        | BlockAction::HandOver { session, .. }
        | BlockAction::Answered { session, .. }
        | BlockAction::Evicted { session }) = action;
        let has_it = |one: &Application| match one.attachment {
            Attachment::Away(_) => false,
            Attachment::Asked(own) | Attachment::Attached(own, ..) => own == session,
        };
        // Whoever died meanwhile hears nothing.
        let Some(at) = self.applications.list.iter().position(has_it) else { return };
        let now = self.now;
        let one = &mut self.applications.list[at];
        match action {
            BlockAction::Attached { shape, layout, .. } => {
                one.attachment = Attachment::Attached(session, shape, layout);
                one.sizes = Some(BlockSizes::of(&shape));
                one.records.clear();
                one.errands.push_back(Ask::Held { first: 0 });
                one.errands.extend((0..shape.units).map(|unit| Ask::Figures(UnitIndex(unit))));
            }
            BlockAction::Refused { status: Status::Held, .. } => {
                mark!("run: an application waits for its predecessor");
                one.attachment = Attachment::Away(now + TRY_AGAIN);
            }
            // Its vSSD is on its way between two shards.
            BlockAction::Refused { status: Status::Refused, message, .. }
                if message.ends_with("try again") =>
            {
                one.attachment = Attachment::Away(now + TRY_AGAIN);
            }
            BlockAction::Answered { answer, .. } => self.take_block_answer(at, answer),
            other => {
                one.leave(now + TRY_AGAIN);
                self.found(Finding::WrongAnswer, format!("an application is told {other:?}"));
            }
        }
    }

    fn take_block_answer(&mut self, at: usize, answer: Answer) {
        let Answer { completion, data } = answer;
        // Power goes in the middle of it: that is no answer.
        if completion.status == Status::PowerLost && self.system.power_is_lost() {
            return;
        }
        let one = &mut self.applications.list[at];
        let Some(under_way) = one.under_way.remove(&completion.token) else {
            let detail = format!(
                "the application of lane {} hears {completion:?}, which it did not ask for",
                one.lane.0
            );
            return self.found(Finding::WrongAnswer, detail);
        };
        let lane = one.lane;
        let bytes = data.as_ref().map(|(_, bytes)| &bytes[..]);
        let Attachment::Attached(_, _, layout) = one.attachment else { unreachable!("it hears answers") };
        let place = under_way.slot * layout.slot_size_bytes;
        if let Some((offset, _)) = &data
            && *offset != place
        {
            let detail = format!("data for {place} of the data area of lane {} went to {offset}", lane.0);
            return self.found(Finding::WrongAnswer, detail);
        }
        if let Ask::Read { id, block, .. } = under_way.ask
            && completion.status == Status::Done
            && let Some(place) = self.system.place_of_block(&tenant_name(lane), block)
            && one.places.insert(id, place).is_some_and(|before| before != place)
        {
            mark!("run: an application reads a block that moved");
        }
        let violation = one.take(under_way, &completion, bytes, self.now);
        let words = [self.now.0, completion.token, completion.status as u64];
        let sum = bytes.map_or(0, checksum);
        words.into_iter().chain([u64::from(sum)]).for_each(|word| self.record(word));
        self.outcome.block_operations += 1;
        if let Some(violation) = violation {
            let detail = format!("application of lane {}: {}", lane.0, violation.detail);
            self.report(Violation { detail, ..violation });
        }
    }

    fn go_on(&mut self, at: usize) -> bool {
        let mut moved = false;
        let now = self.now;
        let applications = &mut self.applications;
        let one = &mut applications.list[at];
        if let Attachment::Away(at) = one.attachment
            && at <= now
        {
            let session = BlockSession(applications.session_next);
            applications.session_next += 1;
            one.attachment = Attachment::Asked(session);
            let vssd = tenant_name(one.lane);
            let event = BlockEvent::Attach { session, vssd, uid: APPLICATION_UID, is_privileged: false };
            self.system.tell_blocks(event);
            return true;
        }
        let Attachment::Attached(session, shape, layout) = one.attachment else { return false };
        let violations = one.advance();
        while (one.under_way.len() as u32) < one.depth.min(layout.entries) {
            let ask = if let Some(ask) = one.errands.pop_front() {
                Some(ask)
            } else if one.stage != Stage::Works || one.resume_at > now {
                break;
            } else {
                match one.steps.front() {
                    None => break,
                    Some(Action::Drain) if !one.under_way.is_empty() => break,
                    Some(_) => {}
                }
                let step = one.steps.pop_front().expect("there is one");
                self.steps_issued += 1;
                moved = true;
                match step {
                    Action::Drain => None,
                    Action::Wait { span_ns } => {
                        one.resume_at = now + Span(span_ns);
                        None
                    }
                    Action::Blocks(BlockStep::Die { pause_ns, drops }) => {
                        if !one.under_way.is_empty() {
                            mark!("run: an application dies with operations under way");
                        }
                        one.leave(now + Span(pause_ns));
                        one.drops = drops;
                        self.system.tell_blocks(BlockEvent::Closed { session });
                        break;
                    }
                    Action::Blocks(step) => one.ask_of(step, shape.units),
                    other => panic!("{other:?} is no step of an application"),
                }
            };
            let Some(mut ask) = ask else { continue };
            let taken = |slot: &u32| one.under_way.values().any(|under_way| under_way.slot == *slot);
            let slot = (0..layout.slots).find(|slot| !taken(slot)).expect("no more than there are entries");
            let token = applications.token_next;
            applications.token_next += 1;
            let command = one.command(&mut ask, token, slot * layout.slot_size_bytes);
            one.under_way.insert(token, UnderWay { ask, issued: now, slot });
            self.system.tell_blocks(BlockEvent::Submitted { session, command });
            moved = true;
        }
        violations.into_iter().for_each(|violation| self.report(violation));
        moved
    }
}
