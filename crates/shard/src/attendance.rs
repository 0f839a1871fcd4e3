//! Which of the other shards are there, and what they have not answered: kept by the first shard ([`crate::rejoin`]).

use crate::control::{ControlError, ControlErrorKind};
use crate::devices::DeviceIndex;
use crate::inquiry::Inquiry;
use crate::orders::Orders;
use crate::peer::{Answer, Order, StepAnswer, WearReport};
use crate::reach::Elsewhere;
use crate::step::Step;
use diecut_units::{mark, mutant};
use std::collections::{BTreeMap, BTreeSet};

/// An order that a shard has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// A step; whether it can be refused: nothing of what it belongs to is written down yet.
    Step {
        can_be_refused: bool,
    },
    /// A vSSD of this number.
    Alloc(u32),
    Find(Inquiry),
    Wear,
    /// What a shard is told while it opens, or while a group moves to it.
    Other,
}

impl Sent {
    /// What an order is; nothing of those that are not answered.
    fn of(order: &Order) -> Option<Sent> {
        match order {
            Order::Channels(_) | Order::World(_) => None,
            Order::Step(step, _) => Some(Sent::Step { can_be_refused: can_be_refused(step) }),
            Order::Alloc(alloc) => Some(Sent::Alloc(alloc.id.0)),
            Order::Find(inquiry) => Some(Sent::Find(*inquiry)),
            Order::Wear => Some(Sent::Wear),
            Order::Open(_) | Order::Serve(_) | Order::Arrive(..) | Order::Again => Some(Sent::Other),
        }
    }
}

/// Whether nothing of what a step belongs to is written down before it is done. The next life of a shard finds the rest in the catalog.
fn can_be_refused(step: &Step) -> bool {
    matches!(
        step,
        Step::CreateVolume { .. }
            | Step::CanDelete { .. }
            | Step::RepairVssd { .. }
            | Step::Unfence { .. }
            | Step::Leave(_)
    )
}

/// A shard that failed and has not been taken back.
#[derive(Default)]
pub(crate) struct Absence {
    /// The order to say what it has.
    pub again: u64,
    /// It said so, and takes orders.
    pub is_back: bool,
    /// Questions that wait for it.
    pub questions: Vec<(u64, Inquiry)>,
    /// Commands of catalogs that the shard had when it failed.
    pub media: BTreeSet<(DeviceIndex, u64)>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Attendance {
    pub absent: BTreeMap<u16, Absence>,
    pub sent: BTreeMap<u64, (u16, Sent)>,
    /// Commands of catalogs under way at other shards.
    pub media: Elsewhere,
    /// All shards begin anew: the driver is to be told.
    pub is_over: bool,
}

impl Attendance {
    /// Whether a shard is missing.
    pub fn lacks_any(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Whether this one is.
    pub fn lacks(&self, shard: u16) -> bool {
        self.absent.contains_key(&shard)
    }

    /// An order was answered.
    pub fn answered(&mut self, number: u64) {
        self.sent.remove(&number);
        // Whoever says what it has, has answered the catalog before.
        let back = self.absent.values().find(|absence| absence.again == number);
        self.is_over |= back.is_some_and(|absence| !absence.media.is_empty());
    }

    /// A command of a device's catalog came back.
    pub fn media_done(&mut self, device: DeviceIndex, token: u64) {
        self.media.remove(&(device, token));
        for absence in self.absent.values_mut() {
            absence.media.remove(&(device, token));
        }
    }
}

/// What is told of a request whose shard failed.
pub(crate) fn is_lost(shard: u16) -> ControlError {
    let message = format!(
        "shard {shard} failed an inner check meanwhile, and recovers: what was asked was not done, or was taken back. `diecut status` \
         shows what exists, `diecut panics` what failed; ask again"
    );
    ControlError { kind: ControlErrorKind::Busy, message }
}

impl Attendance {
    /// Notes an order that is sent to a shard; one that nobody is there for is answered here. Gives it back if it is to be sent.
    pub fn note(&mut self, number: u64, to: u16, order: Order, orders: &mut Orders) -> Option<Order> {
        let sent = Sent::of(&order);
        let Some(absence) = self.absent.get_mut(&to).filter(|absence| !absence.is_back) else {
            self.sent.extend(sent.map(|sent| (number, (to, sent))));
            return Some(order);
        };
        match sent {
            _ if matches!(order, Order::Again) => return Some(order),
            Some(Sent::Find(inquiry)) => absence.questions.push((number, inquiry)),
            Some(sent @ (Sent::Step { .. } | Sent::Wear)) => answer_for(number, to, sent, orders),
            // The world is told again when it opens.
            None if matches!(order, Order::World(_)) => {}
            None | Some(Sent::Alloc(_) | Sent::Other) => {
                unreachable!("I-S35: no channel is given to a shard that is absent")
            }
        }
        None
    }
}

/// Answers a step, or a question for wear, in place of a shard.
pub(crate) fn answer_for(number: u64, shard: u16, sent: Sent, orders: &mut Orders) {
    let answer = match sent {
        Sent::Step { can_be_refused } => {
            mark!("shard: step of a shard that failed");
            let is_refused = can_be_refused && !mutant!("shard: steps that a shard lost are taken for done");
            let refusal = is_refused.then(|| is_lost(shard));
            Answer::Step(Box::new(StepAnswer { refusal, ..StepAnswer::default() }))
        }
        // Nothing is exchanged before it is known.
        Sent::Wear => Answer::Wear(WearReport { shard, dies: Vec::new(), is_exchanging: true }),
        Sent::Alloc(_) | Sent::Find(_) | Sent::Other => unreachable!("I-S35: answered otherwise"),
    };
    orders.answers.insert(number, answer);
}
