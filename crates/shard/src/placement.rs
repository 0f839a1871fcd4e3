//! What lives on which shard, and what shards tell each other about it. All of it is the first shard's but for its duties.

use crate::attendance::Attendance;
use crate::evenness::Evenness;
use crate::ledger::{Group, Ledger};
use crate::orders::Orders;
use crate::peer::{Answer, Message, MovedGroup, Order, ShardMessage};
use crate::reservation_queue::ReservationQueue;
use crate::ruins::Ruins;
use crate::seat::{Seat, ShardIndex};
use crate::step::Step;
use diecut_media::Divide;
use diecut_units::Geometry;
use std::collections::VecDeque;

/// What a shard owes the first one, and how far the move of a group is here.
#[derive(Default)]
pub(crate) struct Duties {
    /// Orders in the order they came.
    pub waiting: VecDeque<(u64, Order)>,
    /// The order that stores recover for.
    pub opening: Option<u64>,
    /// vSSDs that are about to move to another shard.
    pub leaving: Vec<u32>,
    /// Their hosts are not listened to any more.
    pub frozen: bool,
    /// What was taken out, for the answer.
    pub left: Option<Box<MovedGroup>>,
    /// After a failure: what is left, until it opens again.
    pub ruins: Option<Ruins>,
    /// The order to say what there is, while that is compared with flash.
    pub checks: Option<u64>,
}

/// See the module.
pub(crate) struct Placement {
    pub index: ShardIndex,
    pub shards: u16,
    /// Of the first shard; others know the homes of tenants by it.
    pub ledger: Ledger,
    pub orders: Orders,
    pub evenness: Evenness,
    pub reservations: ReservationQueue,
    /// Which shards are there, and what they have not answered.
    pub attendance: Attendance,
    pub duties: Duties,
    /// Messages to be sent, in order.
    pub outgoing: Vec<(ShardIndex, ShardMessage)>,
}

impl Placement {
    /// Of a shard that owns nothing yet.
    ///
    /// # Panics
    /// If the shard is not among those there are.
    pub fn new(seat: Seat, geometries: Vec<Geometry>) -> Placement {
        assert!(seat.index.0 < seat.shards, "{seat:?}");
        Placement {
            index: seat.index,
            shards: seat.shards,
            ledger: Ledger::new(seat.shards, geometries),
            orders: Orders::default(),
            evenness: Evenness::default(),
            reservations: ReservationQueue::default(),
            attendance: Attendance::default(),
            duties: Duties::default(),
            outgoing: Vec::new(),
        }
    }

    /// Whether this is not the first shard of its server.
    pub fn is_member(&self) -> bool {
        self.index.0 > 0
    }

    /// Whether the first shard has something to do that nobody asked it for as an administrator.
    pub fn has_work(&self) -> bool {
        self.evenness.has_work() || self.reservations.has_work() || self.attendance.lacks_any()
    }

    /// Sends an order; its answer is awaited by number.
    pub fn order(&mut self, to: u16, order: Order) -> u64 {
        assert!(!self.is_member() && to != self.index.0, "I-S5: the first shard orders the others");
        assert!(to < self.shards, "I-S5: an order goes to a shard that there is");
        let number = self.orders.number();
        if let Some(order) = self.attendance.note(number, to, order, &mut self.orders) {
            self.outgoing.push((ShardIndex(to), ShardMessage(Message::Order(number, order))));
        }
        number
    }

    /// Sends an order to all others.
    pub fn order_all(&mut self, order: impl Fn() -> Order) -> Vec<u64> {
        self.ledger.members().map(|member| self.order(member, order())).collect()
    }

    /// Answers an order.
    pub fn answer_order(&mut self, number: u64, answer: Answer) {
        assert!(self.is_member(), "I-S5: the others answer the first shard");
        self.outgoing.push((ShardIndex(0), ShardMessage(Message::Answer(number, Box::new(answer)))));
    }

    /// Takes the answer to an order, if it came.
    pub fn take_answer(&mut self, number: u64) -> Option<Answer> {
        assert!(self.orders.was_given(number), "I-S14: an answer is awaited to an order that was sent");
        self.orders.answers.remove(&number)
    }

    /// Whether these orders were answered; their answers are dropped then.
    pub fn all_answered(&mut self, awaited: &mut Vec<u64>) -> bool {
        awaited.retain(|number| match self.orders.answers.remove(number) {
            Some(answer) => {
                assert!(!answer.holds_something(), "I-S14: no answer is dropped that holds something");
                false
            }
            None => true,
        });
        awaited.is_empty()
    }

    /// What moves a group.
    pub fn moving_steps(&mut self, group: Group) -> Vec<Step> {
        assert_ne!(group.from, group.to, "I-S15: a group moves to another shard");
        let passed = self.orders.number();
        vec![Step::Leave(group.clone()), Step::Arrive(group.clone()), Step::Release(group, passed)]
    }

    /// Puts lanes that are on their way into media, by their devices: after the death of all shards.
    pub fn salvage<M: Divide>(self, media: &mut [M]) {
        for (_, message) in self.outgoing {
            message.salvage(media);
        }
        for (_, order) in self.duties.waiting {
            order.salvage(media);
        }
        self.orders.salvage(media);
    }
}
