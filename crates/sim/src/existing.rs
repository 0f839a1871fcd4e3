//! What exists, by the administrators' book: which requests must work, which must be refused, and what is there
//! afterwards. Kept outside the system, and compared with what the system tells.

use diecut_shard::control::{ControlErrorKind, ControlRequest, QosSetSpec};
use std::collections::{BTreeMap, BTreeSet};

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The vSSD it lives on.
    pub vssd: String,
    /// Its size.
    pub size_bytes: u64,
    /// UUID and NGUID; not known until the system told them once, and never changed afterwards.
    pub identity: Option<([u8; 16], [u8; 16])>,
}

/// A subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subsystem {
    /// The tenant it serves.
    pub tenant: String,
    /// Hosts that may connect.
    pub hosts: BTreeSet<String>,
    /// What it shows: NSID and volume.
    pub namespaces: BTreeMap<u32, String>,
}

/// Everything an administrator made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// Tenants.
    pub tenants: BTreeSet<String>,
    /// vSSDs and their tenants.
    pub vssds: BTreeMap<String, String>,
    /// Volumes.
    pub volumes: BTreeMap<String, Volume>,
    /// Subsystems by NQN.
    pub subsystems: BTreeMap<String, Subsystem>,
    /// QoS sets.
    pub qos_sets: BTreeMap<String, QosSetSpec>,
}

impl Existing {
    /// Whether this host sees this namespace.
    pub fn shows(&self, nqn: &str, host: &str, nsid: u32) -> bool {
        self.subsystems
            .get(nqn)
            .is_some_and(|shown| shown.hosts.contains(host) && shown.namespaces.contains_key(&nsid))
    }

    /// Whether this host may connect.
    pub fn lets_in(&self, nqn: &str, host: &str) -> bool {
        self.subsystems.get(nqn).is_some_and(|shown| shown.hosts.contains(host))
    }

    /// Whether the system tells the same. Identities that were not known are whatever it tells.
    pub fn agrees_with(&self, told: &Existing) -> bool {
        let mut known = self.clone();
        for (name, volume) in &mut known.volumes {
            if volume.identity.is_none() {
                volume.identity = told.volumes.get(name).and_then(|volume| volume.identity);
            }
        }
        known == *told
    }

    /// What exists after the request, or why it must be refused.
    ///
    /// # Errors
    /// The kind of refusal.
    pub fn after(&self, request: &ControlRequest) -> Result<Existing, ControlErrorKind> {
        use ControlErrorKind::{Exists, InUse, NotFound};
        let mut next = self.clone();
        match request {
            ControlRequest::CreateTenant(spec) => drop(next.tenants.insert(spec.name.clone())),
            ControlRequest::DeleteTenant(name) => {
                let used = self.vssds.values().any(|tenant| tenant == name)
                    || self.subsystems.values().any(|subsystem| subsystem.tenant == *name);
                removed(next.tenants.remove(name), used)?;
            }
            ControlRequest::CreateVssd(spec) => {
                found(self.tenants.contains(&spec.tenant))?;
                next.vssds.insert(spec.name.clone(), spec.tenant.clone());
            }
            ControlRequest::DeleteVssd(name) => {
                let used = self.volumes.values().any(|volume| volume.vssd == *name)
                    || self.qos_sets.values().any(|set| set.vssds.contains(name));
                removed(next.vssds.remove(name).is_some(), used)?;
            }
            ControlRequest::CreateVolume(spec) => {
                found(self.vssds.contains_key(&spec.vssd))?;
                let (vssd, size_bytes) = (spec.vssd.clone(), spec.size.bytes());
                let volume = Volume { vssd, size_bytes, identity: None };
                next.volumes.entry(spec.name.clone()).or_insert(volume);
            }
            ControlRequest::DeleteVolume(name) => {
                let mut shown = self.subsystems.values().flat_map(|subsystem| subsystem.namespaces.values());
                let used = shown.any(|volume| volume == name)
                    || self.qos_sets.values().any(|set| set.volumes.contains(name));
                removed(next.volumes.remove(name).is_some(), used)?;
            }
            ControlRequest::CreateSubsystem(spec) => {
                let made = Subsystem { tenant: spec.tenant.clone(), ..Subsystem::default() };
                match self.subsystems.get(&spec.nqn) {
                    Some(other) if *other != made => return Err(Exists),
                    _ => found(self.tenants.contains(&spec.tenant))?,
                }
                next.subsystems.insert(spec.nqn.clone(), made);
            }
            ControlRequest::DeleteSubsystem(nqn) => found(next.subsystems.remove(nqn).is_some())?,
            ControlRequest::AllowHost { subsystem, host } => {
                let shown = next.subsystems.get_mut(subsystem).ok_or(NotFound)?;
                shown.hosts.insert(host.clone());
            }
            ControlRequest::DenyHost { subsystem, host } => {
                let shown = next.subsystems.get_mut(subsystem).ok_or(NotFound)?;
                found(shown.hosts.remove(host))?;
            }
            ControlRequest::AttachNamespace { subsystem, nsid, volume } => {
                found(self.volumes.contains_key(volume))?;
                let shown = next.subsystems.get_mut(subsystem).ok_or(NotFound)?;
                if shown.namespaces.insert(*nsid, volume.clone()).is_some_and(|other| other != *volume) {
                    return Err(Exists);
                }
                if shown.namespaces.iter().any(|(other, shown)| other != nsid && shown == volume) {
                    return Err(InUse);
                }
            }
            ControlRequest::DetachNamespace { subsystem, nsid } => {
                let shown = next.subsystems.get_mut(subsystem).ok_or(NotFound)?;
                found(shown.namespaces.remove(nsid).is_some())?;
            }
            ControlRequest::SetPath { subsystem, .. } => found(self.subsystems.contains_key(subsystem))?,
            ControlRequest::MoveTenant { tenant, .. } | ControlRequest::SetTenantWeight { tenant, .. } => {
                found(self.tenants.contains(tenant))?;
            }
            ControlRequest::RepairVssd { vssd, .. } | ControlRequest::UnfenceVssd(vssd) => {
                found(self.vssds.contains_key(vssd))?;
            }
            ControlRequest::CreateQosSet(spec) => {
                found(spec.vssds.iter().all(|name| self.vssds.contains_key(name)))?;
                found(spec.volumes.iter().all(|name| self.volumes.contains_key(name)))?;
                next.qos_sets.insert(spec.name.clone(), spec.clone());
            }
            ControlRequest::ChangeQosSet { set, change } => {
                let before = next.qos_sets.remove(set).ok_or(NotFound)?;
                next.qos_sets.insert(set.clone(), change.clone().over(before));
            }
            ControlRequest::DeleteQosSet(name) => found(next.qos_sets.remove(name).is_some())?,
            ControlRequest::SetWear(_)
            | ControlRequest::Device { .. }
            | ControlRequest::MoveVssd(_)
            | ControlRequest::Status
            | ControlRequest::Latency
            | ControlRequest::Shutdown => {}
            ControlRequest::Within { request, .. } => return self.after(request),
        }
        fn found(there: bool) -> Result<(), ControlErrorKind> {
            if there { Ok(()) } else { Err(NotFound) }
        }
        fn removed(there: bool, used: bool) -> Result<(), ControlErrorKind> {
            found(there)?;
            if used { Err(InUse) } else { Ok(()) }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_shard::control::TenantSpec;

    #[test]
    fn what_is_used_stays_and_what_is_not_there_is_not_found() {
        let mut existing = Existing::default();
        let create = ControlRequest::CreateTenant(TenantSpec::new("a"));
        let delete = ControlRequest::DeleteTenant("a".to_owned());
        assert_eq!(existing.after(&delete), Err(ControlErrorKind::NotFound));
        existing = existing.after(&create).unwrap();
        existing.vssds.insert("v".to_owned(), "a".to_owned());
        assert_eq!(existing.after(&delete), Err(ControlErrorKind::InUse));
        let empty = existing.after(&ControlRequest::DeleteVssd("v".to_owned())).unwrap();
        assert_eq!(empty.after(&delete), Ok(Existing::default()));
    }

    #[test]
    fn an_identity_is_learned_once_and_must_stay() {
        let volume = |identity| Volume { vssd: "v".to_owned(), size_bytes: 4096, identity };
        let with = |identity| Existing {
            volumes: [("x".to_owned(), volume(identity))].into(),
            ..Existing::default()
        };
        let (one, other) = (Some(([1; 16], [1; 16])), Some(([2; 16], [1; 16])));
        assert!(with(None).agrees_with(&with(one)));
        assert!(with(one).agrees_with(&with(one)));
        assert!(!with(one).agrees_with(&with(other)));
        assert!(!with(None).agrees_with(&Existing::default()));
    }
}
