//! Orders of the first shard that are under way, and what was answered.

use crate::control::ControlToken;
use crate::inquiry::Findings;
use crate::peer::{Answer, MovedGroup};
use diecut_media::Divide;
use std::collections::BTreeMap;

/// Orders under way.
#[derive(Default)]
pub(crate) struct Orders {
    next: u64,
    pub answers: BTreeMap<u64, Answer>,
    pub inquiries: Vec<PendingInquiry>,
    /// A group between its old home and its new one.
    pub moving: Option<Box<MovedGroup>>,
}

impl Orders {
    /// A number for an order; its answer is awaited by it.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Whether an order, or what is awaited like one, has this number.
    pub fn was_given(&self, number: u64) -> bool {
        (1..=self.next).contains(&number)
    }

    /// Puts lanes that are on their way into media, by their devices: after the death of all shards.
    pub fn salvage<M: Divide>(self, media: &mut [M]) {
        for (_, answer) in self.answers {
            answer.salvage(media);
        }
        if let Some(group) = self.moving {
            group.moved.salvage(media);
        }
    }
}

/// A question that waits for the other shards' part.
pub(crate) struct PendingInquiry {
    pub token: ControlToken,
    pub findings: Findings,
    pub awaited: Vec<u64>,
}
