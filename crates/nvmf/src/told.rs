//! What was asked of whoever knows media is told: commands that waited for it go on.

use crate::admin;
use crate::connection::Phase;
use crate::controller::Association;
use crate::event::Action;
use crate::ocp::Tidings;
use crate::pages;
use crate::placement;
use crate::queue::SlotState;
use crate::relocation::tell_hosts_of;
use crate::target::Target;
use crate::token::{connection_of, slot_of};
use diecut_namespace::contract::CommandToken;
use diecut_nvme::opcode::admin::GET_LOG_PAGE;
use diecut_units::mark;

impl Target {
    /// What media did is told: a command that waited for it goes on.
    pub(crate) fn told(&mut self, tidings: &Tidings, actions: &mut Vec<Action>) {
        if pages::take(&mut self.shared, tidings) {
            tell_hosts_of(self, &tidings.subsystem, Association::telemetry_captured, actions);
        }
        let Some(token) = tidings.waits else { return };
        answer(self, token, tidings, actions);
        // Somebody may have preempted its host.
        crate::reserving::came_back(&mut self.shared, &mut self.connections, token, actions);
    }
}

fn answer(target: &mut Target, token: CommandToken, tidings: &Tidings, actions: &mut Vec<Action>) {
    let (index, slot_index) = (connection_of(token), slot_of(token));
    let connection = target.connections.there(index);
    let is_closing = connection.phase() == Phase::Closing;
    let queue = connection.queue.as_mut().expect("I-T8: who has a command put off has a queue");
    let slot = &queue.slots[usize::from(slot_index)];
    assert!(slot.state() == SlotState::Submitted, "I-T8: {token:?} is answered once");
    let entry = slot.entry;
    let is_page = queue.id == 0;
    let is_known = if is_page { entry.opcode == GET_LOG_PAGE } else { placement::is_ours(entry.opcode) };
    assert!(is_known, "I-T19: what is put off is a page, or a command of placement");
    queue.came_back();
    if is_closing {
        mark!("nvmf: page of media after its connection");
        queue.release(slot_index);
        target.shared.memory.balance(connection);
        target.quiet_if_done(index);
        target.forget_if_done(index);
        return;
    }
    let mut connection = target.connections.lend(index);
    let mut session = target.session(actions);
    if is_page {
        admin::go_on(&mut session, &mut connection, slot_index, &entry, tidings.debug_log.clone());
    } else {
        placement::go_on(&mut session, &mut connection, slot_index, &entry, &tidings.placement);
    }
    target.settle(index, connection, actions);
}
