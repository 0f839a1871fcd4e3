//! Applications at erase blocks and the shards that serve them: what the reactor's sockets and rings do, without either. An
//! application comes to the first shard, which sends it on if another has its vSSD.

use crate::shards::{Carried, Shards};
use diecut_shard::drive::{Action, BlockAction, BlockEvent, BlockSession};
use diecut_units::{Time, mark};
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub struct Attachments {
    /// The shard that each came to last; none while it moves.
    shards: BTreeMap<BlockSession, Option<u16>>,
    /// What was asked, in case it is sent on.
    asked: BTreeMap<BlockSession, (String, u32)>,
    /// What shards have not been told yet.
    due: Vec<BlockEvent>,
    /// What applications have not been told yet.
    told: Vec<BlockAction>,
}

impl Attachments {
    /// Something of an application, for the shards' next turn.
    pub fn tell(&mut self, event: BlockEvent) {
        self.due.push(event);
    }

    /// Whether there is something for the shards.
    pub fn has_due(&self) -> bool {
        self.due.iter().any(|event| !self.moves(event))
    }

    /// Whether what it is told waits until it is at its new home.
    fn moves(&self, event: &BlockEvent) -> bool {
        let (BlockEvent::Submitted { session, .. } | BlockEvent::Closed { session }) = event else {
            return false;
        };
        self.shards[session].is_none()
    }

    /// What shards are told now, and which.
    pub fn take_due(&mut self) -> Vec<(u16, BlockEvent)> {
        let mut due = Vec::new();
        for event in std::mem::take(&mut self.due) {
            if self.moves(&event) {
                self.due.push(event);
                continue;
            }
            let at = match &event {
                BlockEvent::Attach { session, vssd, uid, .. } => {
                    self.asked.insert(*session, (vssd.clone(), *uid));
                    self.shards.insert(*session, Some(0));
                    Some(0)
                }
                BlockEvent::Submitted { session, .. } => self.shards[session],
                BlockEvent::Closed { session } => {
                    self.asked.remove(session);
                    self.shards.remove(session).expect("applications leave once")
                }
                BlockEvent::Adopted { .. } => unreachable!("between shards"),
            };
            due.push((at.expect("it does not move"), event));
        }
        due
    }

    /// Takes what a shard wants for applications out of its actions.
    pub fn act(&mut self, at: u16, actions: &mut Vec<Action>, shards: &mut Shards, now: Time) {
        for action in actions.extract_if(.., |action| matches!(action, Action::Blocks(_))) {
            let Action::Blocks(action) = action else { unreachable!("asked for") };
            let (event, to) = match action {
                BlockAction::Elsewhere { session, to } => {
                    mark!("stack: application attaches at another shard");
                    let (vssd, uid) = self.asked[&session].clone();
                    (BlockEvent::Attach { session, vssd, uid, is_privileged: false }, to)
                }
                BlockAction::HandOver { session, to, state } => {
                    // It may have left meanwhile.
                    let Some(shard) = self.shards.get_mut(&session) else { continue };
                    *shard = None;
                    (BlockEvent::Adopted { session, state }, to)
                }
                other => {
                    self.told.push(other);
                    continue;
                }
            };
            shards.carry(at, to.0, Carried::Attaching(event), now);
        }
    }

    /// An application that was sent on, or that moved, has arrived.
    pub fn arrived(&mut self, event: &BlockEvent, to: u16) {
        if let BlockEvent::Attach { session, .. } | BlockEvent::Adopted { session, .. } = event {
            self.shards.insert(*session, Some(to));
        }
    }

    /// What applications are told, in order.
    pub fn take_told(&mut self) -> Vec<BlockAction> {
        std::mem::take(&mut self.told)
    }
}
