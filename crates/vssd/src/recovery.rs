//! Opening a pool: block states are taken over as they were, or refused with a reason. What cannot be told apart from
//! damage is set aside, never handed out.

use crate::blocks::{Block, Fill, Left, QuarantineReason, Use};
use crate::core::Core;
use crate::owners::resources::{DieUse, UnitPlace};
use crate::owners::{Unit, VSSD_NUMBERS_MAX, Vssd};
use crate::states::{BlockEntry, BlockState, BlockStates, Found, StateTable, UnitEntry, VssdEntry};
use crate::wear::Wear;
use crate::wear::swap::repeat_exchanges;
use crate::{LogicalBlock, OpenError};
use diecut_spec::Isolation;
use diecut_units::{mark, mutant};

/// Takes over what a table says; what cannot be told apart from damage is set aside. Writes where `states` says from then on.
///
/// # Errors
/// Says what is wrong; the pool is of no use then.
pub(crate) fn take_over(
    core: &mut Core,
    wear: &mut Wear,
    mut table: StateTable,
    states: impl FnOnce(StateTable) -> BlockStates,
) -> Result<(), OpenError> {
    let under_way = repeat_exchanges(core, &mut table)?;
    for entry in table.vssds()? {
        place_again(core, &entry, &under_way)?;
    }
    wear.resume_exchanges(core, &under_way)?;
    core.blocks.clear_free();
    // What belonged to a vSSD that was removed just before the process died, and was not given back yet.
    let mut left_over = Vec::new();
    for number in 0..core.blocks.count() {
        // Of a divided device, another pool's.
        if !table.holds_channel(core.address(number).channel.0) {
            continue;
        }
        if let Some(state) = take_block(core, number, &table)? {
            left_over.push((number, state));
        }
    }
    number_free_blocks(core);
    core.states = states(table);
    core.wear_again();
    wear.renew_thresholds(core);
    // Targets that a crash came before are written down before anything moves.
    for at in 0..core.vssds.len() {
        if core.vssds[at].units.iter().any(|unit| unit.destination.is_some()) {
            core.record_vssd(at);
        }
    }
    for (number, state) in left_over {
        mark!("vssd: block of a removed vSSD");
        core.blocks[number].left_over(state != BlockState::Held);
        core.recycle(number);
    }
    Ok(())
}

/// Takes over what a table says of a block. Gives its state if it belonged to a vSSD that is gone.
fn take_block(core: &mut Core, number: u32, table: &StateTable) -> Result<Option<BlockState>, OpenError> {
    let found = table.block(number);
    if core.blocks[number].use_of() == Use::Excluded {
        if let Found::Entry(BlockEntry {
            state: BlockState::Held | BlockState::HeldFailed | BlockState::HeldSuspect,
            ..
        }) = found
        {
            return Err(OpenError::Entry(format!(
                "erase block {number} is held, but it is marked bad or belongs to the system area"
            )));
        }
        return Ok(None);
    }
    let entry = match found {
        Found::New => {
            list_free(core, number);
            return Ok(None);
        }
        Found::Damaged => {
            mark!("vssd: damaged entry");
            core.set_aside(number, None, QuarantineReason::StateDamaged);
            return Ok(None);
        }
        Found::Entry(entry) => entry,
    };
    if entry.sequence >= u64::MAX / 2 || entry.erase_count >= u32::MAX / 2 {
        return Err(OpenError::Entry(format!("erase block {number} has a count that cannot be")));
    }
    let next = entry.sequence + u64::from(!mutant!("vssd: newest allocation sequence used twice"));
    core.blocks.skip_sequences(next);
    let die = core.blocks.die_of(number);
    core.blocks[number].erase_count = entry.erase_count;
    core.blocks.die_mut(die).erases += u64::from(entry.erase_count);
    match entry.state {
        BlockState::Held | BlockState::HeldFailed | BlockState::HeldSuspect => {
            if !hold_again(core, number, &entry, table)? {
                return Ok(Some(entry.state));
            }
        }
        BlockState::Retired => core.blocks.list_retired(number),
        BlockState::Free => list_free(core, number),
    }
    Ok(None)
}

fn list_free(core: &mut Core, number: u32) {
    if core.blocks[number].erase_count > 0 {
        // Whose content it holds was not written down.
        core.blocks[number].left = Left::Anybody;
    }
    // The process may have died before it could say that the content may go.
    core.blocks.list_free(number, core.states.change());
}

fn place_again(core: &mut Core, entry: &VssdEntry, under_way: &[[u32; 2]]) -> Result<(), OpenError> {
    let damaged = |what: String| Err(OpenError::Entry(format!("vSSD {} {what}", entry.id.0)));
    if entry.id.0 == 0 || entry.id.0 >= VSSD_NUMBERS_MAX {
        return damaged("has a number that was never given".to_owned());
    }
    core.next_vssd = core.next_vssd.max(entry.id.0 + 1);
    if !entry.placed {
        return Ok(());
    }
    let whole = matches!(entry.isolation, Isolation::Channel | Isolation::Die);
    let sound = |unit: &UnitEntry| {
        let UnitPlace { die, soft_plane } = unit.place;
        let plane = soft_plane.is_none_or(|plane| plane < core.config.soft_planes_per_die);
        die < core.geometry.dies() && plane && soft_plane.is_none() == whole
    };
    let is_exchanged = |die: u32| under_way.iter().any(|dies| dies.contains(&die));
    if entry.units.iter().any(|unit| unit.moves && !is_exchanged(unit.place.die)) {
        return damaged("moves between dies that are not exchanged".to_owned());
    }
    if entry.units.is_empty() || !entry.units.iter().all(sound) {
        return damaged("lies on a die that does not exist, or not as its isolation says".to_owned());
    }
    let places: Vec<UnitPlace> = entry.units.iter().map(|unit| unit.place).collect();
    if let Err(place) = core.resources.take(entry.id, &places) {
        let reason = match core.resources.dies[place.die as usize] {
            DieUse::Dead => "has too few good erase blocks",
            _ => "belongs to another vSSD",
        };
        return damaged(format!("lies on die {}, which {reason}", place.die));
    }
    core.place(entry.id, entry.isolation, &places);
    let vssd = core.vssds.of(entry.id);
    vssd.read_only = entry.read_only;
    for (unit, was) in vssd.units.iter_mut().zip(&entry.units) {
        unit.lost_blocks = was.lost_blocks;
    }
    Ok(())
}

/// Says whether somebody holds the block.
fn hold_again(
    core: &mut Core,
    number: u32,
    entry: &BlockEntry,
    table: &StateTable,
) -> Result<bool, OpenError> {
    let die = core.die_of(number) as u32;
    let LogicalBlock { unit, index } = entry.logical;
    let is_there =
        |vssd: &Vssd| vssd.units.get(usize::from(unit.0)).is_some_and(|unit| unit.place.die == die);
    let at = match mutant!("vssd: owner not checked") {
        true => core.vssds.iter().position(is_there),
        false => core.at_of(entry.owner),
    };
    let Some(at) = at else { return Ok(false) };
    let vssd = &mut core.vssds[at];
    let owner = vssd.id;
    // While it moves a unit lies on two dies; what was set aside stayed behind.
    let stayed = entry.state == BlockState::HeldSuspect;
    let lies = |unit: &&mut Unit| {
        unit.place.die == die
            || unit.destination.as_ref().is_some_and(|destination| destination.die == die)
            || stayed
    };
    let own = vssd.units.get_mut(usize::from(unit.0)).filter(lies);
    match own.and_then(|unit| unit.map.get_mut(index as usize)) {
        Some(cell) if *cell == u32::MAX => *cell = number,
        _ => {
            let id = entry.owner.0;
            return Err(OpenError::Entry(format!(
                "erase block {number} claims to be block {index} of unit {} of vSSD {id}",
                unit.0
            )));
        }
    }
    let pages = table.pages(number, entry.sequence);
    let suspect = if entry.state == BlockState::HeldSuspect {
        Some(QuarantineReason::Before)
    } else {
        pages.is_none().then_some(QuarantineReason::PagesDamaged)
    };
    if let Some(reason) = suspect {
        core.set_aside(number, Some((owner, entry.logical)), reason);
    }
    let all = core.shape.pages;
    let pages = if mutant!("vssd: incomplete block wins") { all } else { pages.unwrap_or(all).min(all) };
    let fill = match entry.state {
        _ if suspect.is_some() => Fill::Suspect,
        BlockState::HeldFailed => Fill::Failed,
        // Where blocks have headers nobody here knows how much of one is programmed.
        _ if pages < all || core.header_pages > 0 => Fill::Sealed,
        _ => Fill::Open,
    };
    let block = &mut core.blocks[number];
    *block = Block::held(fill, pages, block.erase_count);
    (block.owner, block.logical, block.purpose) = (owner, entry.logical, entry.purpose);
    block.sequence = entry.sequence;
    block.lost_pages = entry.lost_pages;
    if pages == 0 {
        // The end may have come before its erase was done: it may hold what it held before.
        block.left = Left::Anybody;
    }
    Ok(true)
}

/// Free numbers of each unit: those not held, less those lost with worn blocks.
fn number_free_blocks(core: &mut Core) {
    for unit in core.vssds.iter_mut().flat_map(|vssd| &mut vssd.units) {
        let free = (0..unit.map.len() as u32).rev().filter(|index| unit.map[*index as usize] == u32::MAX);
        // The highest numbers go: they are the first in the list, which is taken from its end.
        unit.free_indices = free.skip(usize::from(unit.lost_blocks)).collect();
    }
}

#[cfg(test)]
mod test;
