//! Which requests of administrators can be carried out side by side.
//!
//! A request claims what it changes alone, and what it relies on together with others. Two requests whose claims meet nowhere
//! change different objects: each is planned against what exists, and puts its own changes into what exists when it is
//! written down ([`merged`]). One that waits for a vSSD holds up nobody else.

use crate::control::{ControlRequest, DeviceTurn};
use crate::placement_events;
use diecut_catalog::{PoolRecord, State};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Something that can be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Object {
    /// All there is: who claims it runs alone.
    Everything,
    /// Free dies, channels and parts of protected memory.
    Room,
    /// The move of a vSSD to other devices: one at a time.
    Moves,
    /// Settings of even wear.
    Wear,
    Tenant(String),
    Vssd(String),
    Volume(String),
    Subsystem(String),
    /// All QoS sets: a member is in one of them.
    QosSets,
    /// A UUID or NGUID that an administrator chose.
    Identity([u8; 16]),
}

/// Members of a QoS set, which stay while it is made.
fn members_of(volumes: &[String], vssds: &[String]) -> Vec<Object> {
    let volumes = volumes.iter().cloned().map(Object::Volume);
    volumes.chain(vssds.iter().cloned().map(Object::Vssd)).collect()
}

/// What a request claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    alone: Vec<Object>,
    shared: Vec<Object>,
}

impl Claims {
    /// Of who runs alone.
    pub fn everything() -> Claims {
        Claims { alone: vec![Object::Everything], shared: Vec::new() }
    }

    /// Of a request that concerns the server as a whole. That a device stays goes on beside the move of a vSSD that it ends.
    fn wide(request: &ControlRequest) -> Claims {
        match request {
            ControlRequest::Device { turn: DeviceTurn::Stays, .. } => Claims::default(),
            _ => Claims::everything(),
        }
    }

    /// Of a request, as things are.
    pub fn of(state: &State, request: &ControlRequest) -> Claims {
        let mut claims = Claims::default();
        let volumes_of = |nqn: &str| {
            let shown = state.subsystems.get(nqn).into_iter();
            shown.flat_map(|subsystem| subsystem.volumes().cloned().map(Object::Volume))
        };
        match request {
            ControlRequest::Within { request, .. } => return Claims::of(state, request),
            ControlRequest::CreateTenant(spec) => claims.alone.push(Object::Tenant(spec.name.clone())),
            ControlRequest::DeleteTenant(tenant) | ControlRequest::SetTenantWeight { tenant, .. } => {
                claims.alone.push(Object::Tenant(tenant.clone()));
            }
            ControlRequest::CreateVssd(spec) => {
                let (tenant, vssd) = (Object::Tenant(spec.tenant.clone()), Object::Vssd(spec.name.clone()));
                claims.alone.extend([Object::Room, tenant, vssd]);
            }
            ControlRequest::DeleteVssd(name) => {
                claims.alone.extend([Object::Room, Object::Vssd(name.clone())]);
                let vssd = state.vssds.get(name);
                claims.shared.extend(vssd.map(|vssd| Object::Tenant(vssd.tenant.clone())));
            }
            ControlRequest::CreateVolume(spec) => {
                claims.alone.extend([Object::Volume(spec.name.clone()), Object::Vssd(spec.vssd.clone())]);
                let chosen = [spec.uuid.map(Uuid::into_bytes), spec.nguid.map(|nguid| nguid.0)];
                claims.alone.extend(chosen.into_iter().flatten().map(Object::Identity));
            }
            ControlRequest::DeleteVolume(name) => {
                claims.alone.push(Object::Volume(name.clone()));
                // Its place in the store is free for another one only when it is gone.
                let volume = state.volumes.get(name);
                claims.alone.extend(volume.map(|volume| Object::Vssd(volume.vssd.clone())));
            }
            ControlRequest::RepairVssd { vssd, .. } => claims.alone.push(Object::Vssd(vssd.clone())),
            ControlRequest::UnfenceVssd(vssd) => {
                claims.alone.push(Object::Vssd(vssd.clone()));
                let shows =
                    |name: &String| state.volumes.get(name).is_some_and(|volume| volume.vssd == *vssd);
                let own = state
                    .subsystems
                    .iter()
                    .filter(|(_, one)| one.namespaces.iter().any(|namespace| shows(&namespace.volume)));
                claims.alone.extend(own.map(|(nqn, _)| Object::Subsystem(nqn.clone())));
            }
            ControlRequest::CreateSubsystem(spec) => {
                claims.alone.push(Object::Subsystem(spec.nqn.clone()));
                claims.alone.extend(spec.volumes().cloned().map(Object::Volume));
                claims.shared.push(Object::Tenant(spec.tenant.clone()));
            }
            ControlRequest::DeleteSubsystem(nqn) => {
                claims.alone.push(Object::Subsystem(nqn.clone()));
                claims.alone.extend(volumes_of(nqn));
                let subsystem = state.subsystems.get(nqn);
                claims.shared.extend(subsystem.map(|subsystem| Object::Tenant(subsystem.tenant.clone())));
            }
            ControlRequest::AllowHost { subsystem, .. }
            | ControlRequest::DenyHost { subsystem, .. }
            | ControlRequest::SetPath { subsystem, .. } => {
                claims.alone.push(Object::Subsystem(subsystem.clone()));
            }
            ControlRequest::AttachNamespace { subsystem, volume, .. } => {
                claims.alone.extend([Object::Subsystem(subsystem.clone()), Object::Volume(volume.clone())]);
            }
            ControlRequest::DetachNamespace { subsystem, .. } => {
                claims.alone.push(Object::Subsystem(subsystem.clone()));
                claims.alone.extend(volumes_of(subsystem));
            }
            ControlRequest::SetWear(_) => claims.alone.push(Object::Wear),
            ControlRequest::CreateQosSet(spec) => {
                claims.alone.push(Object::QosSets);
                claims.shared.extend(members_of(&spec.volumes, &spec.vssds));
            }
            ControlRequest::ChangeQosSet { change, .. } => {
                claims.alone.push(Object::QosSets);
                let named = |names: &Option<Vec<String>>| names.clone().unwrap_or_default();
                claims.shared.extend(members_of(&named(&change.volumes), &named(&change.vssds)));
            }
            ControlRequest::DeleteQosSet(_) => claims.alone.push(Object::QosSets),
            ControlRequest::MoveVssd(name) => {
                claims.alone.extend([Object::Moves, Object::Vssd(name.clone())]);
            }
            ControlRequest::MoveTenant { .. } | ControlRequest::Device { .. } | ControlRequest::Shutdown => {
                return Claims::wide(request);
            }
            ControlRequest::Status | ControlRequest::Latency => {}
        }
        claims
    }

    /// Whether the two cannot be carried out side by side.
    pub fn meet(&self, other: &Claims) -> bool {
        let is_all = |claims: &Claims| claims.alone.contains(&Object::Everything);
        let meets = |one: &[Object], other: &[Object]| one.iter().any(|object| other.contains(object));
        is_all(self)
            || is_all(other)
            || meets(&self.alone, &other.alone)
            || meets(&self.alone, &other.shared)
            || meets(&self.shared, &other.alone)
    }
}

/// What exists, with the changes from `base` to `next`: others have changed other objects since `base`.
pub(crate) fn merged(current: &State, base: &State, next: &State) -> State {
    let mut merged = State {
        pool: merged_pool(&current.pool, &base.pool, &next.pool),
        tenants: merged_map(&current.tenants, &base.tenants, &next.tenants),
        vssds: merged_map(&current.vssds, &base.vssds, &next.vssds),
        volumes: merged_map(&current.volumes, &base.volumes, &next.volumes),
        subsystems: merged_map(&current.subsystems, &base.subsystems, &next.subsystems),
        reservations: merged_map(&current.reservations, &base.reservations, &next.reservations),
        qos_sets: merged_map(&current.qos_sets, &base.qos_sets, &next.qos_sets),
        sanitizes: merged_map(&current.sanitizes, &base.sanitizes, &next.sanitizes),
        placements: merged_map(&current.placements, &base.placements, &next.placements),
    };
    // A host may have registered while its namespace was taken away: what no subsystem shows is nobody's.
    let volumes = merged.subsystems.values().flat_map(|subsystem| subsystem.volumes());
    let numbers = volumes.filter_map(|volume| Some(merged.volumes.get(volume)?.namespace));
    let shown: BTreeSet<u32> = numbers.collect();
    merged.reservations.retain(|namespace, _| shown.contains(namespace));
    let State { subsystems, sanitizes, .. } = &mut merged;
    sanitizes.retain(|nqn, _| subsystems.contains_key(nqn));
    let mut placements = std::mem::take(&mut merged.placements);
    placements.retain(|nqn, _| placement_events::is_placed(&merged, nqn));
    State { placements, ..merged }
}

fn merged_map<K: Clone + Ord, T: Clone + PartialEq>(
    current: &BTreeMap<K, T>,
    base: &BTreeMap<K, T>,
    next: &BTreeMap<K, T>,
) -> BTreeMap<K, T> {
    let mut merged = current.clone();
    merged.retain(|name, _| next.contains_key(name) || !base.contains_key(name));
    let changed = next.iter().filter(|(name, value)| base.get(name) != Some(*value));
    merged.extend(changed.map(|(name, value)| (name.clone(), value.clone())));
    merged
}

fn merged_pool(current: &PoolRecord, base: &PoolRecord, next: &PoolRecord) -> PoolRecord {
    fn pick<T: Copy + PartialEq>(current: T, base: T, next: T) -> T {
        if next == base { current } else { next }
    }
    PoolRecord {
        uuid: pick(current.uuid, base.uuid, next.uuid),
        starts: pick(current.starts, base.starts, next.starts),
        unclean_starts: pick(current.unclean_starts, base.unclean_starts, next.unclean_starts),
        closed: pick(current.closed, base.closed, next.closed),
        // Numbers are given when a request begins and never again.
        namespaces_given: current.namespaces_given.max(next.namespaces_given),
        wear: pick(current.wear, base.wear, next.wear),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::control::{NamespaceSpec, SubsystemSpec, TenantSpec, VolumeSpec};
    use diecut_spec::Size;

    fn volume(name: &str, vssd: &str) -> ControlRequest {
        let (uuid, nguid) = (None, None);
        ControlRequest::CreateVolume(VolumeSpec {
            name: name.to_owned(),
            vssd: vssd.to_owned(),
            size: Size(4096),
            uuid,
            nguid,
            zones: Default::default(),
            placement: Vec::new(),
        })
    }

    #[test]
    fn what_changes_the_same_object_meets() {
        let claims = |request: &ControlRequest| Claims::of(&State::default(), request);
        let meet = |one: &ControlRequest, other: &ControlRequest| {
            assert_eq!(claims(one).meet(&claims(other)), claims(other).meet(&claims(one)));
            claims(one).meet(&claims(other))
        };
        let tenant = ControlRequest::CreateTenant(TenantSpec::new("a"));
        let gone = ControlRequest::DeleteTenant("a".to_owned());
        assert!(meet(&tenant, &gone) && !meet(&tenant, &ControlRequest::DeleteTenant("b".to_owned())));
        // Two volumes of one vSSD could get the same place in its store.
        assert!(meet(&volume("x", "v"), &volume("y", "v")) && !meet(&volume("x", "v"), &volume("y", "w")));
        assert!(meet(&volume("x", "v"), &ControlRequest::DeleteVssd("v".to_owned())));
        // A volume is shown by one subsystem.
        let shows = |nqn: &str, volume: &str| {
            ControlRequest::CreateSubsystem(SubsystemSpec {
                nqn: nqn.to_owned(),
                tenant: "a".to_owned(),
                serial: None,
                model: None,
                allow_any_host: true,
                allowed_hosts: Vec::new(),
                paths: Vec::new(),
                namespaces: vec![NamespaceSpec::new(1, volume)],
            })
        };
        assert!(meet(&shows("m", "x"), &shows("n", "x")) && !meet(&shows("m", "x"), &shows("n", "y")));
        assert!(meet(&shows("m", "x"), &ControlRequest::DeleteVolume("x".to_owned())));
        assert!(meet(&shows("m", "x"), &gone), "its tenant stays meanwhile");
        assert!(meet(&tenant, &ControlRequest::Shutdown) && !meet(&tenant, &ControlRequest::Status));
    }

    #[test]
    fn changes_of_several_are_kept() {
        let names = |names: &[&str]| {
            let tenants = names.iter().map(|name| ((*name).to_owned(), TenantSpec::new(name)));
            State { tenants: tenants.collect(), ..State::default() }
        };
        let base = names(&["a", "b", "c"]);
        let one = merged(&base, &base, &names(&["a", "c", "d"]));
        let both = merged(&one, &base, &names(&["b", "c", "e"]));
        assert_eq!(both, names(&["c", "d", "e"]));
        let mut next = base.clone();
        next.pool.namespaces_given = 7;
        let mut current = base.clone();
        current.pool.namespaces_given = 9;
        assert_eq!(merged(&current, &base, &next).pool.namespaces_given, 9);
    }
}
