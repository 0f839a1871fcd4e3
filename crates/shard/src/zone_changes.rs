//! Zones that the medium changed by itself, and what became known of chunks: hosts of all subsystems that show them are told.

use crate::owners::Owners;
use crate::registry::qualified;
use diecut_catalog::State;
use diecut_media::Divide;
use diecut_zoned::contract::ZoneSetIndex;

/// Tells of what changed in the namespaces of a subsystem since it was looked at last. The subsystem lives here.
pub(crate) fn tell<M: Divide>(here: &mut Owners<M>, nqn: &str) {
    let state = &here.registry.state;
    let plane = &mut here.plane;
    for namespace in &state.subsystems[nqn].namespaces {
        let Some(volume) = state.volumes.get(&namespace.volume) else { continue };
        let Some(store) = plane.store_of(state.vssds[&volume.vssd].number) else { continue };
        if plane.flash.kept(store).chunks().is_some() {
            let notices = plane.flash.kept_mut(store).chunks_mut().take_notices();
            if !notices.is_empty() {
                each_that_shows(state, &namespace.volume, |nqn, nsid| {
                    let nvme = &mut plane.nvme;
                    nvme.target.chunks_noticed(&qualified(nqn), nsid, &notices, &mut nvme.actions);
                });
            }
            continue;
        }
        if plane.flash.kept(store).zones().is_none() {
            continue;
        }
        let changed = plane.flash.kept_mut(store).zones_mut().take_changed(ZoneSetIndex(volume.index));
        if changed.is_empty() {
            continue;
        }
        each_that_shows(state, &namespace.volume, |nqn, nsid| {
            let nvme = &mut plane.nvme;
            nvme.target.zones_changed(&qualified(nqn), nsid, &changed, &mut nvme.actions);
        });
    }
}

/// Each subsystem that shows a volume, with the NSID there.
fn each_that_shows(state: &State, volume: &str, mut tell: impl FnMut(&str, u32)) {
    for (nqn, record) in &state.subsystems {
        for shown in record.namespaces.iter().filter(|shown| shown.volume == volume) {
            tell(nqn, shown.nsid);
        }
    }
}
