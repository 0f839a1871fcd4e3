//! Where the medium had no room for a while, it has none once more, and every volume is written.

use super::{Action, Range, Runner};
use crate::oracle::Finding;
use diecut_units::{Span, Time, mark};

/// The medium has no room for so long in the calm: more than its writes take, and hosts that connect again.
const NO_ROOM_IN_CALM: Span = Span::from_secs(2);
/// Longest virtual time until a vSSD sees that there is room again when nobody writes.
const ROOM_SEEN_MAX: Span = Span::from_secs(3);

/// Where the medium had no room for a while, it has none once more, and every volume is written. When there is room again, vSSDs
/// see that although nobody writes, and then every volume takes writes.
pub(super) fn write_again(runner: &mut Runner<'_>) {
    if runner.no_room_until == Time::ZERO || runner.stop {
        return;
    }
    runner.no_room_until = runner.no_room_until.max(runner.now + NO_ROOM_IN_CALM);
    runner.system.lose_room(runner.no_room_until);
    write_parts(runner, &[0, 1, 2, 3, 4, 5, 6, 7], false);
    runner.until = Some(runner.no_room_until);
    runner.drive();
    if !runner.system.lacking_room().is_empty() {
        mark!("run: room comes back while nobody writes");
    }
    runner.until = Some(runner.no_room_until + ROOM_SEEN_MAX);
    runner.drive();
    runner.until = None;
    let lacking = runner.system.lacking_room();
    if !runner.stop && !lacking.is_empty() {
        let detail =
            format!("{lacking:?} lack room {ROOM_SEEN_MAX} after it came back\n{}", runner.system.describe());
        return runner.found(Finding::Liveness, detail);
    }
    write_parts(runner, &[0, 4], true);
    runner.drive();
}

/// Every volume is written at the start of these eighths of it.
fn write_parts(runner: &mut Runner<'_>, eighths: &[u64], fua: bool) {
    for (index, tenant) in runner.plan.tenants.iter().enumerate() {
        for volume in &tenant.volumes {
            for eighth in eighths {
                let first = volume.iu_count * eighth / 8;
                let count = 32.min(volume.iu_count - first) as u32;
                let range = Range { volume: volume.number, first, count };
                runner.lanes[index].steps.push_back(Action::Write { range, fua });
            }
        }
    }
}
