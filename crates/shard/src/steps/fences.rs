//! Fences around vSSDs at which the server failed ([`crate::panics`]).

use crate::job::Progress;
use crate::notice::Notice;
use crate::owners::Owners;
use crate::panics::FENCED;
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;

/// Says which vSSDs that live here are fenced.
pub(crate) fn tell<M: Divide>(here: &mut Owners<M>) {
    for record in here.own_vssds() {
        if here.config.fenced.contains(&record.number) {
            let vssd = here.registry.name_of_vssd(diecut_vssd::VssdId(record.number));
            here.notices.push(Notice::ReadOnly { vssd, reason: FENCED });
        }
    }
}

/// Lifts the fence of a vSSD: every shard forgets it, for its tenant may move, and its home lets hosts write again.
pub(crate) fn lift<M: Divide>(here: &mut Owners<M>, name: &str) -> Progress {
    let state = &here.registry.state;
    let Some(record) = state.vssds.get(name) else { return Progress::Done };
    if here.config.fenced.remove(&record.number) {
        for volume in state.volumes.values().filter(|volume| volume.vssd == name) {
            let id = NamespaceId(volume.namespace);
            if here.plane.namespaces.is_open(id) {
                here.plane.namespaces.set_read_only(id, None);
            }
        }
    }
    Progress::Done
}
