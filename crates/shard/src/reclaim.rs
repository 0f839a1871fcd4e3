//! Reclaim unit handles and reclaim groups of vSSDs (Flexible Data Placement): what their stores have, which of them a volume has, and what hosts ask of them.

use crate::data_plane::DataPlane;
use crate::registry::Registry;
use diecut_catalog::{VolumeRecord, VssdRecord};
use diecut_media::Media;
use diecut_namespace::StoreIndex;
use diecut_namespace::contract::{
    NamespaceId, PlacementHandle, PlacementHandles, PlacementProperties, PlacementTarget, ReclaimGroup,
};
use diecut_nvmf::PlacementFigures;
use diecut_spec::{PlacementIsolation, ReclaimGroups, VssdSpec};
use diecut_units::{Geometry, IU_SIZE_BYTES, Time};
use diecut_volume::contract::VolumeIndex;
use diecut_volume::{Placement, PlacementIsolation as LogIsolation, ReclaimUnit};
use diecut_vssd::VssdId;
use std::collections::BTreeSet;

/// What the store of a vSSD on so many units has: one handle for all data, where hosts choose none. Units of a channel follow each other.
pub(crate) fn placement_of(spec: &VssdSpec, units: u16, geometry: &Geometry) -> Placement {
    let isolation = match spec.placement_isolation {
        PlacementIsolation::Initial => LogIsolation::Initially,
        PlacementIsolation::Persistent => LogIsolation::Persistently,
    };
    let groups = match spec.reclaim_groups {
        ReclaimGroups::One => 1,
        ReclaimGroups::Channel => units / geometry.dies_per_channel,
        ReclaimGroups::Die => units,
    };
    Placement { handles: spec.placement_handles.max(1), isolation, groups: groups.max(1) }
}

/// Handles of a volume on a vSSD that has some: those that were chosen, or one that is given by the place of the volume in its store, so that
/// volumes take turns.
fn handles_of(volume: &VolumeRecord, vssd: &VssdSpec) -> Vec<PlacementHandle> {
    if volume.placement.is_empty() {
        return vec![PlacementHandle(volume.index % vssd.placement_handles)];
    }
    volume.placement.iter().map(|handle| PlacementHandle(*handle)).collect()
}

/// What the namespace of a volume says of placement; nothing where its vSSD has no handles.
pub(crate) fn properties_of(
    volume: &VolumeRecord,
    vssd: &VssdRecord,
    groups: u16,
    unit_ius: u64,
) -> Option<PlacementProperties> {
    (vssd.placement_handles > 0).then(|| PlacementProperties {
        handles: PlacementHandles::new(&handles_of(volume, vssd)),
        is_given: volume.placement.is_empty(),
        vssd_handles: vssd.placement_handles,
        groups,
        is_persistent: vssd.placement_isolation == PlacementIsolation::Persistent,
        unit_bytes: unit_ius * IU_SIZE_BYTES as u64,
    })
}

/// The store behind the endurance group of a subsystem: that of the one vSSD with handles among its own.
fn group_of<M: Media>(
    plane: &DataPlane<M>,
    registry: &Registry,
    vssds: &BTreeSet<VssdId>,
) -> Option<StoreIndex> {
    let mut own = registry.state.vssds.values();
    let record = own.find(|one| one.placement_handles > 0 && vssds.contains(&VssdId(one.number)))?;
    plane.store_of(record.number).filter(|store| plane.flash.kept(*store).is_ready())
}

/// The reclaim unit that an IU of a volume of a store that is open here lies in, if it holds data.
pub(crate) fn unit_of<M: Media>(
    plane: &DataPlane<M>,
    vssd: VssdId,
    volume: u16,
    iu: u64,
) -> Option<ReclaimUnit> {
    let store = plane.store_of(vssd.0).filter(|store| plane.flash.kept(*store).is_ready())?;
    plane.flash.kept(store).volumes()?.reclaim_unit_of(VolumeIndex(volume), iu)
}

/// Handles that a host wants to have a fresh reclaim unit.
pub(crate) struct Updates<'a> {
    pub targets: &'a [PlacementTarget],
    /// Whose host it is.
    pub namespace: Option<NamespaceId>,
}

/// Reclaim groups of a vSSD whose store of volumes is open here.
pub(crate) fn groups_of<M: Media>(plane: &DataPlane<M>, vssd: VssdId) -> Option<u16> {
    let store = plane.store_of(vssd.0).filter(|store| plane.flash.kept(*store).is_ready())?;
    Some(plane.flash.kept(store).volumes()?.placement().groups)
}

/// Gives handles a fresh reclaim unit, and tells what is known of all of them.
pub(crate) fn answer<M: Media>(
    plane: &mut DataPlane<M>,
    registry: &Registry,
    vssds: &BTreeSet<VssdId>,
    updates: &Updates<'_>,
    now: Time,
) -> PlacementFigures {
    let Some(index) = group_of(plane, registry, vssds) else { return PlacementFigures::default() };
    let bytes = |ius: u64| ius.saturating_mul(IU_SIZE_BYTES as u64);
    let (partly_written, unused_ius) = plane.flash.update_reclaim_units(index, updates.targets, now);
    if let Some(namespace) = updates.namespace.filter(|_| unused_ius > 0) {
        plane.admission.charge_unused(namespace, bytes(unused_ius), now);
    }
    let (figures, erase_block_bytes) = plane.flash.endurance_of(index, now);
    let store = plane.flash.kept(index).expect_volumes();
    let Placement { handles, groups, .. } = store.placement();
    let places = (0..groups).flat_map(|group| (0..handles).map(move |handle| (group, handle)));
    PlacementFigures {
        host_written_bytes: bytes(figures.host_written_ius),
        media_written_bytes: bytes(figures.media_written_ius),
        erased_bytes: figures.erases.saturating_mul(erase_block_bytes),
        available_lbas: places
            .map(|(group, handle)| store.remaining_ius(ReclaimGroup(group), PlacementHandle(handle)))
            .collect(),
        partly_written,
    }
}
