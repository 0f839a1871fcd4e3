//! What exists, as plain data, and how it becomes records and comes back from them.

use crate::older;
use crate::placement::{self, PlacementRecord};
use crate::record::{Changes, Content, Kind, Record, RecordError, take_record};
use crate::reservation::{self, ReservationRecord};
use crate::sanitize::SanitizeRecord;
use crate::vssd_record::VssdRecord;
use diecut_spec::{NamespaceSpec, QosSetSpec, SubsystemSpec, TenantSpec, VolumeSpec, WearSettings};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Deref;

/// The pool itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolRecord {
    /// Identity; other identities are derived from it.
    pub uuid: [u8; 16],
    /// Times the pool was opened.
    pub starts: u64,
    /// Times it was opened without having been closed.
    pub unclean_starts: u64,
    /// Whether it was closed.
    pub closed: bool,
    /// Namespace ids given so far; they are not used again.
    pub namespaces_given: u32,
    /// Settings of even wear; absent where none was ever changed.
    #[serde(default, skip_serializing_if = "WearSettings::is_empty")]
    pub wear: WearSettings,
}

/// A volume: what was asked for, and what the server adds. It reads as its specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRecord {
    /// What was asked for, with both identities.
    pub spec: VolumeSpec,
    /// Its index in the vSSD's store.
    pub index: u16,
    /// Its namespace.
    pub namespace: u32,
}

impl Deref for VolumeRecord {
    type Target = VolumeSpec;
    fn deref(&self) -> &VolumeSpec {
        &self.spec
    }
}

impl VolumeRecord {
    /// UUID and NGUID of its namespace.
    ///
    /// # Panics
    /// If the record was made without.
    pub fn identities(&self) -> [[u8; 16]; 2] {
        let uuid = self.spec.uuid.expect("I-C8: a volume that exists has its UUID");
        let nguid = self.spec.nguid.expect("I-C8: a volume that exists has its NGUID");
        [uuid.into_bytes(), nguid.0]
    }
}

/// So many neighbouring NSIDs share a record.
const NSIDS_OF_A_RECORD: u32 = 32;

/// The first NSID of the record that holds this one.
fn first_of(nsid: u32) -> u32 {
    nsid.saturating_sub(1) / NSIDS_OF_A_RECORD * NSIDS_OF_A_RECORD + 1
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data can be written as JSON")
}

/// The records of a subsystem. Its namespaces have records of their own: a change of one does not write all of them.
fn records_of(nqn: &str, subsystem: &SubsystemSpec) -> Changes {
    let mut groups: BTreeMap<u32, BTreeMap<u32, &String>> = BTreeMap::new();
    for NamespaceSpec { nsid, volume } in &subsystem.namespaces {
        groups.entry(first_of(*nsid)).or_default().insert(*nsid, volume);
    }
    let alone = SubsystemSpec { namespaces: Vec::new(), ..subsystem.clone() };
    let groups = groups.into_iter();
    let namespaces =
        groups.map(|(first, group)| ((Kind::Namespaces, format!("{first} {nqn}")), Some(json(&group))));
    Changes(namespaces.chain([((Kind::Subsystem, nqn.to_owned()), Some(json(&alone)))]).collect())
}

/// Everything that exists, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The pool.
    pub pool: PoolRecord,
    /// Tenants by name.
    pub tenants: BTreeMap<String, TenantSpec>,
    /// vSSDs by name.
    pub vssds: BTreeMap<String, VssdRecord>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, VolumeRecord>,
    /// Subsystems by NQN, with serial and model number; their namespaces in the order of NSIDs.
    pub subsystems: BTreeMap<String, SubsystemSpec>,
    /// Reservations that persist through power loss, by the numbers of namespaces.
    pub reservations: BTreeMap<u32, ReservationRecord>,
    /// QoS sets by name.
    pub qos_sets: BTreeMap<String, QosSetSpec>,
    /// The most recent sanitize operations of subsystems, by NQN.
    pub sanitizes: BTreeMap<String, SanitizeRecord>,
    /// Events of placement of subsystems, and which of them are kept, by NQN.
    pub placements: BTreeMap<String, PlacementRecord>,
}

/// A value of a record.
fn read<T: DeserializeOwned>(record: &Record<'_>, value: &[u8]) -> Result<T, RecordError> {
    let read = if record.version == record.kind.version() {
        serde_json::from_slice(value)
    } else {
        serde_json::from_slice(value).and_then(|value| serde_json::from_value(older::upgraded(record, value)))
    };
    read.map_err(|error| nonsense(record, error.to_string()))
}

fn nonsense(record: &Record<'_>, reason: String) -> RecordError {
    RecordError::Nonsense { kind: record.kind, key: record.key.to_owned(), reason }
}

/// The key, where it is a number.
fn number_of(record: &Record<'_>) -> Result<u32, RecordError> {
    record.key.parse().map_err(|_| nonsense(record, "the key is no number".to_owned()))
}

/// Puts an object into its map, or takes it out.
fn keep<K: Ord, T: DeserializeOwned>(
    all: &mut BTreeMap<K, T>,
    key: K,
    record: &Record<'_>,
) -> Result<(), RecordError> {
    match record.value {
        Some(value) => all.insert(key, read(record, value)?),
        None => all.remove(&key),
    };
    Ok(())
}

impl State {
    /// The records that make `next` of this state.
    pub fn changes_to(&self, next: &State) -> Changes {
        fn one<K: ToString, T: Serialize>(kind: Kind) -> impl Fn(&K, &T) -> Changes {
            move |name, value| Changes([((kind, name.to_string()), Some(json(value)))].into())
        }
        let mut changes = Changes::default();
        if self.pool != next.pool {
            changes.0.insert((Kind::Pool, String::new()), Some(json(&next.pool)));
        }
        changes.compare(&self.tenants, &next.tenants, one(Kind::Tenant));
        changes.compare(&self.vssds, &next.vssds, one(Kind::Vssd));
        changes.compare(&self.volumes, &next.volumes, one(Kind::Volume));
        changes.compare(&self.subsystems, &next.subsystems, |nqn, one| records_of(nqn, one));
        changes.compare(&self.reservations, &next.reservations, one(Kind::Reservation));
        changes.compare(&self.qos_sets, &next.qos_sets, one(Kind::QosSet));
        changes.compare(&self.sanitizes, &next.sanitizes, one(Kind::Sanitize));
        changes.compare(&self.placements, &next.placements, one(Kind::Placement));
        changes
    }

    /// All records of the state.
    pub(crate) fn content(&self) -> Content {
        let mut content = Content::default();
        let mut changes = State::default().changes_to(self);
        changes.0.insert((Kind::Pool, String::new()), Some(json(&self.pool)));
        content.apply(changes);
        content
    }

    /// Changes what the records say.
    pub(crate) fn apply_all(&mut self, mut records: &[u8]) -> Result<(), RecordError> {
        while let Some(record) = take_record(&mut records) {
            self.apply(&record?)?;
        }
        Ok(())
    }

    pub(crate) fn apply(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        let key = record.key.to_owned();
        match record.kind {
            Kind::Pool => {
                let value = record.value.ok_or_else(|| nonsense(record, "it is taken away".to_owned()))?;
                self.pool = read(record, value)?;
            }
            Kind::Tenant => keep(&mut self.tenants, key, record)?,
            Kind::Vssd => keep(&mut self.vssds, key, record)?,
            Kind::Volume => keep(&mut self.volumes, key, record)?,
            Kind::Subsystem => {
                let shown =
                    self.subsystems.get_mut(record.key).map(|before| std::mem::take(&mut before.namespaces));
                keep(&mut self.subsystems, key, record)?;
                if let (Some(subsystem), Some(shown)) = (self.subsystems.get_mut(record.key), shown) {
                    subsystem.namespaces.extend(shown);
                }
            }
            Kind::Namespaces => self.apply_namespaces(record)?,
            Kind::Reservation => keep(&mut self.reservations, number_of(record)?, record)?,
            Kind::QosSet => keep(&mut self.qos_sets, key, record)?,
            Kind::Sanitize => keep(&mut self.sanitizes, key, record)?,
            Kind::Placement => keep(&mut self.placements, key, record)?,
        }
        Ok(())
    }

    fn apply_namespaces(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        let key = record.key.split_once(' ').and_then(|(first, nqn)| Some((first.parse::<u32>().ok()?, nqn)));
        let (first, nqn) = key.ok_or_else(|| nonsense(record, "the key is no NSID and NQN".to_owned()))?;
        let subsystem = self.subsystems.get_mut(nqn);
        let Some(value) = record.value else {
            // The subsystem may have gone with them.
            subsystem.into_iter().for_each(|one| one.namespaces.retain(|one| first_of(one.nsid) != first));
            return Ok(());
        };
        let subsystem = subsystem.ok_or_else(|| nonsense(record, "there is no such subsystem".to_owned()))?;
        let shown: BTreeMap<u32, String> = read(record, value)?;
        if shown.keys().any(|nsid| first_of(*nsid) != first) {
            return Err(nonsense(record, "an NSID belongs into another record".to_owned()));
        }
        subsystem.namespaces.retain(|one| first_of(one.nsid) != first);
        subsystem.namespaces.extend(shown.into_iter().map(|(nsid, volume)| NamespaceSpec { nsid, volume }));
        subsystem.namespaces.sort_by_key(|one| one.nsid);
        Ok(())
    }

    /// Whether every name that an object refers to exists; a catalog that says otherwise is damaged.
    ///
    /// # Errors
    /// Names the object and what it misses.
    pub fn check(&self) -> Result<(), String> {
        if self.pool.starts >= u64::MAX / 2 || self.pool.unclean_starts >= u64::MAX / 2 {
            return Err("the pool was started more often than can be".to_owned());
        }
        self.pool.wear.check().map_err(|error| format!("settings of even wear: {error}"))?;
        self.check_names()?;
        for (name, vssd) in &self.vssds {
            if !self.tenants.contains_key(&vssd.tenant) {
                return Err(format!(
                    "vSSD \"{name}\" belongs to tenant \"{}\", which does not exist",
                    vssd.tenant
                ));
            }
        }
        for (name, volume) in &self.volumes {
            if !self.vssds.contains_key(&volume.vssd) {
                return Err(format!(
                    "volume \"{name}\" lies on vSSD \"{}\", which does not exist",
                    volume.vssd
                ));
            }
            if !self.vssds[&volume.vssd].serves.has_volumes() {
                return Err(format!(
                    "volume \"{name}\" lies on vSSD \"{}\", which serves blocks",
                    volume.vssd
                ));
            }
        }
        for (name, subsystem) in &self.subsystems {
            if !self.tenants.contains_key(&subsystem.tenant) {
                let tenant = &subsystem.tenant;
                return Err(format!("subsystem {name} serves tenant \"{tenant}\", which does not exist"));
            }
            for NamespaceSpec { nsid, volume } in &subsystem.namespaces {
                if *nsid == 0 || !self.volumes.contains_key(volume) {
                    return Err(format!(
                        "namespace {nsid} of {name} shows volume \"{volume}\", which does not exist"
                    ));
                }
            }
        }
        self.check_qos_sets()
    }

    /// Whether members of QoS sets exist, and the numbers of sets can be.
    fn check_qos_sets(&self) -> Result<(), String> {
        for (name, set) in &self.qos_sets {
            set.check_slips()?;
            if let Some(volume) = set.volumes.iter().find(|volume| !self.volumes.contains_key(*volume)) {
                return Err(format!("QoS set \"{name}\" has volume \"{volume}\", which does not exist"));
            }
            if let Some(vssd) = set.vssds.iter().find(|vssd| !self.vssds.contains_key(*vssd)) {
                return Err(format!("QoS set \"{name}\" has vSSD \"{vssd}\", which does not exist"));
            }
        }
        Ok(())
    }

    /// Whether each object has the name that it is found by, and what the server fills in.
    fn check_names(&self) -> Result<(), String> {
        let tenants = self.tenants.iter().map(|(name, tenant)| (name, &tenant.name));
        let vssds = self.vssds.iter().map(|(name, vssd)| (name, &vssd.spec.name));
        let volumes = self.volumes.iter().map(|(name, volume)| (name, &volume.spec.name));
        let subsystems = self.subsystems.iter().map(|(name, subsystem)| (name, &subsystem.nqn));
        let sets = self.qos_sets.iter().map(|(name, set)| (name, &set.name));
        let mut all = tenants.chain(vssds).chain(volumes).chain(subsystems).chain(sets);
        if let Some((name, other)) = all.find(|(name, other)| name != other) {
            return Err(format!("what is kept as \"{name}\" calls itself \"{other}\""));
        }
        for (name, VolumeSpec { uuid, nguid, .. }) in self.volumes.iter().map(|(name, one)| (name, &one.spec))
        {
            if uuid.is_none() || nguid.is_none() {
                return Err(format!("volume \"{name}\" has no UUID or no NGUID"));
            }
        }
        for (name, SubsystemSpec { serial, model, .. }) in &self.subsystems {
            if serial.is_none() || model.is_none() {
                return Err(format!("subsystem {name} has no serial or no model number"));
            }
        }
        reservation::check(&self.reservations)?;
        placement::check(&self.placements)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_spec::{Amount, Nguid, Size};

    fn subsystem(namespaces: &[(u32, &str)]) -> SubsystemSpec {
        let namespace =
            |(nsid, volume): &(u32, &str)| NamespaceSpec { nsid: *nsid, volume: (*volume).to_owned() };
        SubsystemSpec {
            nqn: String::new(),
            tenant: "t".to_owned(),
            serial: Some("S".to_owned()),
            model: Some("M".to_owned()),
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            paths: Vec::new(),
            namespaces: namespaces.iter().map(namespace).collect(),
        }
    }

    fn with(nqn: &str, spec: SubsystemSpec) -> State {
        let mut state = State::default();
        state.subsystems.insert(nqn.to_owned(), SubsystemSpec { nqn: nqn.to_owned(), ..spec });
        state
    }

    /// Goal: a change writes its own records and leads from one state to the other. Method: all pairs of states of a subsystem.
    #[test]
    fn changes_lead_from_any_state_to_any_other() {
        let states = [
            State::default(),
            with("nqn", subsystem(&[])),
            with("nqn", subsystem(&[(1, "a"), (32, "b"), (33, "c"), (1024, "d")])),
            with("nqn", subsystem(&[(2, "a"), (33, "c")])),
            with("nqn", SubsystemSpec { allow_any_host: false, ..subsystem(&[(33, "c")]) }),
            with("other", subsystem(&[(1, "a")])),
            State {
                qos_sets: [("s".to_owned(), QosSetSpec::new("s", Amount::Commands(10)))].into(),
                ..State::default()
            },
        ];
        for base in &states {
            for next in &states {
                let changes = base.changes_to(next);
                assert_eq!(changes.is_empty(), base == next);
                let mut reached = base.clone();
                reached.apply_all(&changes.encode()).unwrap();
                assert_eq!(&reached, next);
                let mut content = base.content();
                content.apply(changes);
                assert_eq!(content, next.content());
            }
        }
        assert_eq!(
            states[2].changes_to(&states[3]).0.len(),
            2,
            "33 stays in its record, and so does the subsystem"
        );
    }

    /// Goal: a record that a later program filled with more is refused by name, not read in part.
    #[test]
    fn a_field_that_is_not_known_is_named() {
        let changes =
            Changes([((Kind::Tenant, "a".to_owned()), Some(br#"{"colour":"red"}"#.to_vec()))].into());
        let error = State::default().apply_all(&changes.encode()).unwrap_err().to_string();
        assert!(error.contains("a tenant (\"a\")") && error.contains("colour"), "{error}");
    }

    #[test]
    fn a_state_without_sense_is_refused() {
        let mut state = State::default();
        let spec = VolumeSpec {
            name: "v".to_owned(),
            vssd: "nowhere".to_owned(),
            size: Size(4096),
            uuid: Some(Default::default()),
            nguid: Some(Nguid([0; 16])),
            zones: Default::default(),
            placement: Vec::new(),
        };
        state.volumes.insert("v".to_owned(), VolumeRecord { spec: spec.clone(), index: 0, namespace: 1 });
        let error = state.check().unwrap_err();
        assert!(error.contains("\"v\"") && error.contains("\"nowhere\""), "{error}");
        for (spec, words) in [
            (VolumeSpec { name: "w".to_owned(), ..spec.clone() }, "calls itself \"w\""),
            (VolumeSpec { uuid: None, ..spec }, "no UUID"),
        ] {
            state.volumes.insert("v".to_owned(), VolumeRecord { spec, index: 0, namespace: 1 });
            let error = state.check().unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        state = State::default();
        let set =
            QosSetSpec { volumes: vec!["nowhere".to_owned()], ..QosSetSpec::new("s", Amount::Commands(10)) };
        state.qos_sets.insert("s".to_owned(), set);
        let error = state.check().unwrap_err();
        assert!(error.contains("\"s\"") && error.contains("volume \"nowhere\""), "{error}");
        state = State::default();
        state.pool.wear.delta_permille = Some(0);
        assert!(state.check().unwrap_err().contains("delta_permille"));
    }
}
