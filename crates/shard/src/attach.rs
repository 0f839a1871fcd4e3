//! Who may attach to which vSSD.

use crate::blocks::{BlockAction, BlockEvent, BlockSession};
use crate::owners::Owners;
use crate::panics::FENCED;
use crate::seat::ShardIndex;
use diecut_blockspace::wire::Status;
use diecut_media::Divide;
use diecut_spec::Serves;
use diecut_units::Time;
use diecut_vssd::VssdId;

pub(crate) fn blocks_event<M: Divide>(
    here: &mut Owners<M>,
    failure: Option<&str>,
    event: BlockEvent,
    now: Time,
) {
    match event {
        BlockEvent::Attach { session, vssd, uid, is_privileged } => {
            let action = attach_blocks(here, failure, session, &vssd, uid, is_privileged, now);
            here.plane.blocks.actions.push(action);
        }
        BlockEvent::Submitted { session, command } => here.plane.blocks.submit(session, command),
        BlockEvent::Adopted { session, state } => here.plane.blocks.adopt(session, *state),
        BlockEvent::Closed { session } => here.plane.blocks.close(session),
    }
}

fn attach_blocks<M: Divide>(
    here: &mut Owners<M>,
    failure: Option<&str>,
    session: BlockSession,
    name: &str,
    uid: u32,
    is_privileged: bool,
    now: Time,
) -> BlockAction {
    let refuse = |status, message| BlockAction::Refused { session, status, message };
    if let Some(failure) = failure {
        return refuse(Status::Refused, failure.to_owned());
    }
    let record = here.registry.state.vssds.get(name);
    let allowed = record.and_then(|record| match record.serves {
        Serves::Volumes | Serves::Zones | Serves::OpenChannel => None,
        Serves::Blocks => (is_privileged || record.uid == Some(uid)).then_some(VssdId(record.number)),
    });
    // Whoever may not attach learns no more than that.
    let Some(vssd) = allowed else {
        let message = format!(
            "there is no vSSD \"{name}\" that serves erase blocks to user {uid}; see `diecut vssd list`, and make one with \
             `--use blocks --uid {uid}`"
        );
        return refuse(Status::Refused, message);
    };
    let home = if here.placement.is_member() {
        here.placement.index
    } else {
        ShardIndex(here.placement.ledger.shard_of(vssd.0))
    };
    if home != here.placement.index {
        return BlockAction::Elsewhere { session, to: home };
    }
    if here.plane.flash.devices.find(vssd).is_none() {
        return refuse(Status::Held, format!("vSSD \"{name}\" is being deleted, or moved; try again"));
    }
    if here.config.fenced.contains(&vssd.0) {
        return refuse(Status::Refused, format!("vSSD \"{name}\" is {FENCED}"));
    }
    if here.placement.duties.leaving.contains(&vssd.0) {
        return refuse(Status::Held, format!("vSSD \"{name}\" is being moved; try again"));
    }
    here.plane.blocks.attach(session, name, vssd, &mut here.plane.flash, now)
}
