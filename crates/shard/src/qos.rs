//! QoS sets as they are written down, in the admission of this shard. A set whose members live on several shards has its rates and its
//! bucket divided among these, by members: what one shard does not use is not lent to another one.

use crate::admission::{BucketSize, SecondRate, SetDefinition, SetState, TokenUnit};
use crate::control::{QosSetSpec, QosSetStatus};
use crate::data_plane::DataPlane;
use crate::registry::Registry;
use diecut_catalog::{State, VssdRecord};
use diecut_media::Media;
use diecut_namespace::contract::NamespaceId;
use diecut_spec::Amount;
use diecut_units::{Time, mutant};
use diecut_vssd::VssdId;

/// What a set's tokens are.
pub(crate) fn unit_of(set: &QosSetSpec) -> TokenUnit {
    match set.rate {
        Amount::Bytes(_) => TokenUnit::Bytes(u32::try_from(set.token.bytes()).unwrap_or(u32::MAX)),
        Amount::Commands(_) => TokenUnit::Command,
    }
}

/// The part of a set for `here` of its `all` members.
fn definition(set: &QosSetSpec, here: u64, all: u64) -> SetDefinition {
    let part = |amount: Amount| (u128::from(amount.units()) * u128::from(here) / u128::from(all)) as u64;
    SetDefinition {
        unit: unit_of(set),
        bucket: BucketSize { rate_per_second: part(set.rate).max(1), size: part(set.bucket_in_force()) },
        threshold: part(set.threshold_in_force()),
        second_rate: match set.second_rate {
            None => SecondRate::Idle,
            Some(rate) if part(rate) == 0 => SecondRate::Nothing,
            Some(rate) => SecondRate::Limited(part(rate)),
        },
    }
}

/// The set that a volume is in by itself, or with its vSSD.
pub(crate) fn set_of_volume<'a>(state: &'a State, name: &String) -> Option<&'a str> {
    let vssd = state.volumes.get(name).map(|volume| &volume.vssd);
    let has_it =
        |set: &&QosSetSpec| set.volumes.contains(name) || vssd.is_some_and(|vssd| set.vssds.contains(vssd));
    state.qos_sets.values().find(has_it).map(|set| set.name.as_str())
}

fn set_of_vssd<'a>(state: &'a State, name: &String) -> Option<&'a str> {
    state.qos_sets.values().find(|set| set.vssds.contains(name)).map(|set| set.name.as_str())
}

/// Gives admission the sets of which something lives here, and the parts of them that are due here.
fn define<M: Media>(plane: &mut DataPlane<M>, state: &State, now: Time) {
    let admission = &mut plane.admission;
    let held: Vec<u32> = plane.flash.devices.vssd_ids().map(|id| id.0).collect();
    let is_here = |vssd: &String| state.vssds.get(vssd).is_some_and(|record| held.contains(&record.number));
    let mut wanted = Vec::new();
    for set in state.qos_sets.values() {
        let volumes = set.volumes.iter().filter_map(|name| state.volumes.get(name));
        let parts = volumes.map(|volume| &volume.vssd).chain(&set.vssds).filter(|vssd| is_here(vssd)).count();
        if parts > 0 {
            let members = set.volumes.len() + set.vssds.len();
            let all = if mutant!("shard: each shard has all of a QoS set") { parts } else { members };
            admission.define_set(&set.name, definition(set, parts as u64, all as u64), now);
            wanted.push(set.name.as_str());
        }
    }
    admission.keep_sets(|name| wanted.contains(&name));
}

/// Has all that lives here be in its set, or in none.
pub(crate) fn apply<M: Media>(plane: &mut DataPlane<M>, registry: &Registry, now: Time) {
    let state = &registry.state;
    define(plane, state, now);
    let admission = &mut plane.admission;
    for (name, volume) in &state.volumes {
        admission.put_namespace(NamespaceId(volume.namespace), set_of_volume(state, name));
    }
    for (name, vssd) in &state.vssds {
        admission.put_blocks(VssdId(vssd.number), set_of_vssd(state, name));
    }
}

/// A group of tenants is gone: what their sets had here is due elsewhere.
pub(crate) fn group_left<M: Media>(plane: &mut DataPlane<M>, registry: &Registry) {
    let now = plane.admission.latest();
    define(plane, &registry.state, now);
}

/// A namespace was opened here.
pub(crate) fn seat_namespace<M: Media>(plane: &mut DataPlane<M>, registry: &Registry, id: NamespaceId) {
    if registry.state.qos_sets.is_empty() {
        return;
    }
    let now = plane.admission.latest();
    define(plane, &registry.state, now);
    let state = &registry.state;
    let volume = state.volumes.iter().find(|(_, volume)| volume.namespace == id.0);
    let set = volume.and_then(|(name, _)| set_of_volume(state, name));
    let set = if mutant!("shard: what opens at a start is in no QoS set") { None } else { set };
    plane.admission.put_namespace(id, set);
}

/// Erase blocks of a vSSD were opened here.
pub(crate) fn seat_blocks<M: Media>(plane: &mut DataPlane<M>, registry: &Registry, vssd: &VssdRecord) {
    if registry.state.qos_sets.is_empty() {
        return;
    }
    let now = plane.admission.latest();
    define(plane, &registry.state, now);
    let set = set_of_vssd(&registry.state, &vssd.spec.name);
    plane.admission.put_blocks(VssdId(vssd.number), set);
}

/// All sets, with what this shard knows of them.
pub(crate) fn status<M: Media>(plane: &DataPlane<M>, registry: &Registry) -> Vec<QosSetStatus> {
    let now = plane.admission.latest();
    let one = |set: &QosSetSpec| {
        let status = QosSetStatus::new(set.clone());
        let Some(standing) = plane.admission.standing_of(&set.name, now) else { return status };
        let figures = standing.figures;
        QosSetStatus {
            level: standing.level,
            is_committed: standing.state == SetState::Committed,
            waiting: standing.waiting,
            committed_commands: figures.committed.commands,
            committed_units: figures.committed.units,
            second_commands: figures.second.commands,
            second_units: figures.second.units,
            committed_ns: figures.committed_time.0,
            second_ns: figures.second_time.0,
            waits: figures.waits,
            waited_ns: figures.waited.0,
            ..status
        }
    };
    registry.state.qos_sets.values().map(one).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_spec::Size;

    /// Goal: parts of a set are no more than the whole. Method: a set of 3 members over shards.
    #[test]
    fn parts_are_no_more_than_the_whole() {
        let set = QosSetSpec {
            second_rate: Some(Amount::Bytes(Size(2))),
            ..QosSetSpec::new("a", Amount::Bytes(Size(10 << 20)))
        };
        let whole = definition(&set, 3, 3);
        assert_eq!(whole.bucket, BucketSize { rate_per_second: 10 << 20, size: 1 << 20 });
        let parts = [definition(&set, 1, 3), definition(&set, 2, 3)];
        assert_eq!(parts.map(|part| part.bucket.rate_per_second), [3_495_253, 6_990_506]);
        assert_eq!(parts.map(|part| part.threshold), [174_762, 349_525]);
        assert_eq!(parts.map(|part| part.second_rate), [SecondRate::Nothing, SecondRate::Limited(1)]);
    }
}
