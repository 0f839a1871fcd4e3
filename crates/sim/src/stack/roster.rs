//! Who adds drives to the pool of a server that runs, empties them and takes them out of it, as `diecut device add`, `evacuate` and `remove` do, beside
//! administrators and hosts: asks the first shard, and writes labels, one after the other (R13 in `docs/design/one-format.md`).

use super::adapt_pool;
use crate::plan::{DriveTurn, Plan, Turn};
use crate::shards::Shards;
use diecut_devices::{LabelDevice, Membership, list_with, list_without};
use diecut_shard::control::{ControlErrorKind, ControlRequest, ControlResponse, ControlToken, DeviceTurn};
use diecut_shard::drive::{Event, Newcomer};
use diecut_shard::{DeviceIndex, divide_all};
use diecut_units::{Span, Time, mark};
use std::collections::VecDeque;
use uuid::Uuid;

/// Its requests.
pub(super) const DEVICES: ControlToken = ControlToken(4);
/// A label is written in this time.
const LABEL_TIME: Span = Span::from_micros(700);
/// How long it waits for a server that is not ready.
const PATIENCE: Span = Span::from_millis(1);

/// See the module.
pub(super) struct Roster {
    /// Drives that the server, or the next one, is given, in this order.
    pub given: Vec<u16>,
    turns: VecDeque<DriveTurn>,
    /// When it goes on, if it waits for no answer.
    resume_at: Time,
    doing: Option<Doing>,
    answer: Option<ControlResponse>,
}

/// A turn of a drive.
struct Doing {
    turn: DriveTurn,
    /// What the server knows the drive by.
    index: DeviceIndex,
    device: Uuid,
    stage: Stage,
}

enum Stage {
    /// It is taken by the server.
    Comes,
    /// Labels are written, one after the other. What is asked for then.
    Writes(VecDeque<(u16, Vec<LabelDevice>)>, DeviceTurn),
    /// It is one of the pool, or what lies on it stays there.
    Ends,
    /// It is to be empty.
    Drains,
    /// A vSSD moves to others.
    Moves,
    /// The others take over what they do not have.
    Leaves,
    /// It is forgotten.
    Went,
}

impl Roster {
    /// Of a plan.
    pub fn of(plan: &Plan) -> Roster {
        let turns: VecDeque<DriveTurn> = plan.turns().iter().copied().collect();
        let resume_at = turns.front().map_or(Time::NEVER, |turn| Time(turn.after_ns));
        Roster { given: all_of(plan, plan.drives_at(0)), turns, resume_at, doing: None, answer: None }
    }

    /// The next server is given these drives of the pool as it was at first, and all that may have come to it.
    pub fn give(&mut self, plan: &Plan, order: Vec<u16>) {
        self.given = all_of(plan, order);
    }

    /// Whether nothing is being done.
    pub fn is_idle(&self) -> bool {
        self.doing.is_none()
    }

    /// When it goes on by itself.
    pub fn next_event(&self) -> Time {
        match &self.doing {
            Some(Doing { stage: Stage::Writes(..), .. }) => self.resume_at,
            Some(_) if self.answer.is_none() => Time::NEVER,
            Some(_) => Time::ZERO,
            None if self.turns.is_empty() => Time::NEVER,
            None => self.resume_at,
        }
    }

    /// What it asked for is answered.
    pub fn hear(&mut self, response: ControlResponse) {
        self.answer = Some(response);
    }

    /// The server went: what was not done is done in its next life.
    pub fn crashed(&mut self, now: Time) {
        if let Some(doing) = self.doing.take() {
            mark!("roster: crash while a drive comes or leaves");
            self.turns.push_front(doing.turn);
        }
        self.answer = None;
        self.rest(now);
    }

    /// Until the next turn.
    fn rest(&mut self, now: Time) {
        self.resume_at = self.turns.front().map_or(Time::NEVER, |turn| now + Span(turn.after_ns));
    }

    /// Goes on as far as it can. What the shards are told.
    pub fn go_on(&mut self, plan: &Plan, shards: &mut Shards, now: Time) -> Vec<(u16, Event)> {
        let mut told = Vec::new();
        if self.next_event() > now {
            return told;
        }
        let Some(mut doing) = self.doing.take() else {
            self.begin(plan, shards, now, &mut told);
            return told;
        };
        let goes_on = match self.answer.take() {
            Some(answer) => doing.answered(answer, shards, &mut told),
            None => {
                doing.write(shards, &mut told);
                true
            }
        };
        match goes_on {
            // A label is written then, if any is.
            true => (self.doing, self.resume_at) = (Some(doing), now + LABEL_TIME),
            false => self.rest(now),
        }
        told
    }

    /// Begins with the next turn, if it can be.
    fn begin(&mut self, plan: &Plan, shards: &mut Shards, now: Time, told: &mut Vec<(u16, Event)>) {
        if !shards.all().all(|shard| shard.is_ready()) {
            self.resume_at = now + PATIENCE;
            return;
        }
        let Some(turn) = self.turns.pop_front() else { return };
        let drives = shards.drives().expect("drives come and leave where there are some");
        let is_member = drives.members().contains(&turn.drive);
        if is_member == (turn.what == Turn::Comes) {
            return self.rest(now);
        }
        let (index, stage, asks) = match turn.what {
            Turn::Comes => (bring(turn.drive, plan, shards, told), Stage::Comes, DeviceTurn::Comes),
            Turn::Drains => (drives.index_of(turn.drive), Stage::Drains, DeviceTurn::Drains),
            Turn::Goes => (drives.index_of(turn.drive), Stage::Leaves, DeviceTurn::Leaves),
        };
        let drives = shards.drives().expect("seen");
        let device = Uuid::from_bytes(drives.listed(turn.drive, Membership::There).device);
        let doing = Doing { turn, index, device, stage };
        told.push(doing.request(asks));
        self.doing = Some(doing);
    }
}

/// Drives that may be of the pool: those, and the ones that were spare at first.
fn all_of(plan: &Plan, mut order: Vec<u16>) -> Vec<u16> {
    let first = plan.system.drives.len() as u16;
    order.extend(first..plan.all_drives().count() as u16);
    order
}

/// Gives each shard its part of a drive, the first one last.
fn bring(number: u16, plan: &Plan, shards: &mut Shards, told: &mut Vec<(u16, Event)>) -> DeviceIndex {
    let (index, device, mut config) = shards.drives_mut().expect("seen").bring(number);
    adapt_pool(&mut config.pool, plan, diecut_media::Media::geometry(&device));
    let mut parts = divide_all(vec![device], shards.count());
    while let Some((seat, mut part)) = parts.pop() {
        let newcomer = Newcomer::new(index, part.remove(0), config.clone());
        told.push((seat.index.0, Event::DeviceCame(Box::new(newcomer))));
    }
    index
}

impl Doing {
    fn request(&self, turn: DeviceTurn) -> (u16, Event) {
        ask(ControlRequest::Device { device: self.device, turn })
    }

    /// Writes the next label; behind the last one something is asked for.
    fn write(&mut self, shards: &mut Shards, told: &mut Vec<(u16, Event)>) {
        let Stage::Writes(labels, then) = &mut self.stage else {
            panic!("nothing else goes on without an answer")
        };
        let (number, list) = labels.pop_front().expect("it goes on until there is none");
        shards.drives_mut().expect("seen").write_label(number, list);
        if labels.is_empty() {
            let then = *then;
            self.stage = if then == DeviceTurn::Went { Stage::Went } else { Stage::Ends };
            told.push(self.request(then));
        }
    }

    /// What was asked for is answered. Whether there is more to do.
    fn answered(
        &mut self,
        answer: ControlResponse,
        shards: &mut Shards,
        told: &mut Vec<(u16, Event)>,
    ) -> bool {
        let drives = shards.drives_mut().expect("seen");
        let refusal = match answer {
            ControlResponse::Done | ControlResponse::Unchanged => None,
            ControlResponse::Refused(error) => Some(error),
            other => panic!("a turn of a drive is answered with {other:?}"),
        };
        let number = self.turn.drive;
        let others: Vec<u16> = drives.members().into_iter().filter(|other| *other != number).collect();
        match (&self.stage, refusal) {
            (Stage::Comes, None) => {
                let list = |membership| list_with(&drives.list(), drives.listed(number, membership));
                let (joins, there) = (list(Membership::Joining), list(Membership::There));
                // Its own first, and then its own last.
                let first =
                    std::iter::once(number).chain(others.iter().copied()).map(|at| (at, joins.clone()));
                let then = others.iter().copied().chain([number]).map(|at| (at, there.clone()));
                self.stage = Stage::Writes(first.chain(then).collect(), DeviceTurn::Joined);
            }
            (Stage::Leaves, None) => {
                let list = list_without(&drives.list(), *self.device.as_bytes());
                let labels = others.iter().map(|at| (*at, list.clone())).collect();
                self.stage = Stage::Writes(labels, DeviceTurn::Went);
            }
            (Stage::Leaves, Some(error)) => {
                // Busy while another one is emptied, or is empty.
                let is_right = matches!(error.kind, ControlErrorKind::InUse | ControlErrorKind::Busy);
                assert!(is_right, "a drive may not leave: {error:?}");
                mark!("roster: a drive in use does not leave");
                return false;
            }
            (Stage::Drains, Some(error)) => {
                use ControlErrorKind::{Busy, Exhausted, InUse, Invalid};
                let is_right = matches!(error.kind, Busy | Exhausted | InUse | Invalid);
                assert!(is_right, "a drive may not be emptied: {error:?}");
                mark!("roster: a drive cannot be emptied");
                return false;
            }
            (Stage::Moves, Some(error)) => {
                use ControlErrorKind::{Busy, Exhausted, NotFound};
                let is_right = matches!(error.kind, Busy | Exhausted | NotFound);
                assert!(is_right, "a vSSD does not move: {error:?}");
                mark!("roster: what lies on a drive stays there");
                self.stage = Stage::Ends;
                told.push(self.request(DeviceTurn::Stays));
            }
            (Stage::Drains | Stage::Moves, None) => match lying(shards, self.device) {
                Some(vssd) => {
                    self.stage = Stage::Moves;
                    told.push(ask(ControlRequest::MoveVssd(vssd)));
                }
                _ => {
                    mark!("roster: a drive was emptied");
                    return false;
                }
            },
            (Stage::Went, None) => {
                mark!("roster: a drive left");
                drives.take_away(self.index);
                told.extend((0..shards.count()).map(|at| (at, Event::DeviceWent(self.index))));
                return false;
            }
            (Stage::Ends, None) => {
                mark!("roster: a drive came");
                return false;
            }
            // The same of one that comes: no shard has it.
            (Stage::Comes, Some(error)) if error.kind == ControlErrorKind::Busy => {
                self.stage = Stage::Went;
                told.push(self.request(DeviceTurn::Went));
            }
            (_, Some(error)) => panic!("drive {number} has no turn: {error:?}"),
            (Stage::Writes(..), _) => unreachable!("labels are written by it"),
        }
        true
    }
}

fn ask(request: ControlRequest) -> (u16, Event) {
    let within = ControlRequest::Within { patience_ms: 0, request: Box::new(request) };
    (0, Event::Control { token: DEVICES, request: Box::new(within) })
}

/// A vSSD that lies on a device.
fn lying(shards: &Shards, device: Uuid) -> Option<String> {
    let vssds = shards.lead().state().vssds.values();
    let mut on = vssds.filter(|record| record.parts.iter().any(|part| part.device == device));
    on.next().map(|record| record.name.clone())
}
