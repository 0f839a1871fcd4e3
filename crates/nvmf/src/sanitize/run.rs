//! Sanitize operations go on: namespaces are given their commands, and hosts are told of the end.

use super::record::{KeptSanitize, SanitizeRecord, SanitizeState};
use super::state::Turn;
use crate::config::Home;
use crate::event::Action;
use crate::keeping::{Keep, Whose};
use crate::reserving;
use crate::shared::Shared;
use crate::subsystems::Passage;
use crate::target::Target;
use crate::token::{sanitize_token, subsystem_of};
use diecut_namespace::contract::{NamespaceCommand, NamespaceCompletion, SourceId};
use diecut_nvme::QualifiedName;
use diecut_units::{Time, mark, mutant, token};

/// Who asks namespaces for a subsystem.
fn source_of(index: u32) -> SourceId {
    SourceId(token::source::SANITIZE | index)
}

/// One begins: what hosts were told of the one before is over, and no log says which blocks had errors.
pub(super) fn forget_events(shared: &mut Shared, index: u32) {
    for (_, association) in shared.associations.iter_mut() {
        if association.subsystem == Some(index) {
            association.events.sanitize = Default::default();
            association.errors.entries.iter_mut().for_each(|error| error.lba = 0.into());
        }
    }
}

/// A sanitize operation is known from before a power loss: it goes on, if it was not over. Nothing happens if there is no such
/// subsystem, or something is known of it: that is newer.
pub(crate) fn restore(
    target: &mut Target,
    nqn: &QualifiedName,
    record: SanitizeRecord,
    now: Time,
    actions: &mut Vec<Action>,
) {
    target.shared.now = now;
    let Some(index) = target.shared.subsystems.find(nqn) else { return };
    let subsystem = target.shared.subsystems.get_mut(index);
    // Where it does not live nothing is known of its namespaces: all of none would be erased at once.
    let is_here =
        subsystem.config.home == Home::Here || mutant!("nvmf: a sanitize is gone on with by all shards");
    if is_here && subsystem.sanitizing.restore(record, &subsystem.config) {
        mark!("nvmf: sanitize gone on with after a restart");
        target.shared.later.list_sanitizing(index);
        target.sweep(actions);
    }
}

/// What a subsystem has to do of a sanitize operation is looked at once more.
pub(crate) fn look_at(target: &mut Target, index: u32) {
    let sanitizing = &target.shared.subsystems.get(index).sanitizing;
    if sanitizing.goes_on() || sanitizing.is_to_be_marked() {
        target.shared.later.list_sanitizing(index);
    }
}

/// A change of a sanitize operation is durable, or could not be made so.
pub(crate) fn kept(target: &mut Target, answer: &KeptSanitize, actions: &mut Vec<Action>) {
    // Its subsystem may have gone, or changed its shard.
    let Some(index) = target.shared.subsystems.find(&answer.subsystem) else { return };
    let subsystem = target.shared.subsystems.get_mut(index);
    let Some(turn) = subsystem.sanitizing.kept(answer, &subsystem.config) else { return };
    match turn {
        Turn::Begins => target.shared.later.list_sanitizing(index),
        Turn::Ends => tell(target, index, actions),
        Turn::Rests => {}
    }
    let whose = Whose::Sanitize(answer.subsystem.clone());
    let over = target.shared.awaiting.kept(&whose, answer.version, answer.is_kept);
    reserving::answer(&mut target.connections, over, actions);
}

fn tell(target: &mut Target, index: u32, actions: &mut Vec<Action>) {
    mark!("nvmf: sanitize over");
    let mut told = Vec::new();
    for (number, association) in target.shared.associations.iter_mut() {
        if association.subsystem == Some(index) {
            association.sanitized();
            told.push(number);
        }
    }
    for number in told {
        target.tell_events(number, actions);
    }
}

/// Gives namespaces what they have to do next, where they have nothing of hosts any more.
#[cold]
pub(crate) fn go_on(target: &mut Target, actions: &mut Vec<Action>) {
    let listed = std::mem::take(&mut target.shared.later.sanitizing);
    for index in listed {
        let now = target.shared.now;
        let is_retired = target.shared.subsystems.is_retired(index);
        let Some(subsystem) = target.shared.subsystems.find_at_mut(index) else { continue };
        if is_retired || subsystem.passage() != Passage::None {
            continue;
        }
        if let Some(record) = subsystem.sanitizing.mark_of_write() {
            let keep = subsystem.sanitizing.keep(&subsystem.config.nqn, record);
            actions.push(Action::Keep(Box::new(Keep::Sanitize(keep))));
            continue;
        }
        if !subsystem.sanitizing.has_work() {
            continue;
        }
        // What hosts had begun before lands before.
        if !subsystem.traffic.busy.is_idle() && !mutant!("nvmf: a sanitize overtakes writes") {
            target.shared.later.list_sanitizing(index);
            continue;
        }
        let nqn = subsystem.config.nqn.clone();
        let Some((namespace, operation)) = subsystem.sanitizing.next() else {
            let record = subsystem.sanitizing.ended(SanitizeState::Completed);
            let keep = subsystem.sanitizing.keep(&nqn, record);
            actions.push(Action::Keep(Box::new(Keep::Sanitize(keep))));
            continue;
        };
        subsystem.traffic.busy.begin(now);
        let command = NamespaceCommand {
            token: sanitize_token(index),
            namespace,
            source: source_of(index),
            arrived: now,
            operation,
        };
        target.shared.watch(&command);
        actions.push(Action::Submit(command));
    }
}

/// A namespace answers what it was asked of a sanitize operation.
///
/// # Panics
/// If it was not asked.
#[cold]
pub(crate) fn complete(target: &mut Target, completion: &NamespaceCompletion, actions: &mut Vec<Action>) {
    let index = subsystem_of(completion.token);
    let now = target.shared.now;
    let subsystem = target.shared.subsystems.get_mut(index);
    subsystem.traffic.busy.end(now);
    let zones = completion.zones.as_ref();
    let goes_on = subsystem.sanitizing.answered(&completion.result, zones, &subsystem.config);
    if target.shared.subsystems.is_retired(index) {
        return target.free_subsystem_if_quiet(index);
    }
    let subsystem = target.shared.subsystems.get_mut(index);
    if goes_on {
        return target.shared.later.list_sanitizing(index);
    }
    mark!("nvmf: sanitize failed");
    let nqn = subsystem.config.nqn.clone();
    let state = match mutant!("nvmf: a sanitize that failed is completed") {
        true => SanitizeState::Completed,
        false => SanitizeState::Failed,
    };
    let record = subsystem.sanitizing.ended(state);
    let keep = subsystem.sanitizing.keep(&nqn, record);
    actions.push(Action::Keep(Box::new(Keep::Sanitize(keep))));
}

/// A subsystem is taken away: what a namespace has of its sanitize operation may be given up.
pub(crate) fn give_up(target: &mut Target, index: u32, actions: &mut Vec<Action>) {
    if target.shared.subsystems.get(index).sanitizing.is_under_way() {
        actions.push(Action::GiveUp(source_of(index), Some(sanitize_token(index))));
    }
}

/// How far the most recent sanitize operation of a subsystem that lives here is, and how much of it is done, in 65,536ths, while it goes on.
pub fn sanitize_status(target: &Target, nqn: &QualifiedName) -> Option<(SanitizeState, Option<u16>)> {
    let subsystems = &target.shared.subsystems;
    subsystems.get(subsystems.find(nqn)?).sanitizing.status()
}
