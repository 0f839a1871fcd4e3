//! Reservations of namespaces that persist through power loss (NVMe Base 2.0 section 8.19).

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The reservation of a namespace, with all registrations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservationRecord {
    /// GEN.
    pub generation: u32,
    /// In the order of host identifiers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registrants: Vec<RegistrantRecord>,
    /// RTYPE, 1 to 6; absent where nobody holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<u8>,
    /// Who acquired it, by host identifier; there with `kind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<[u8; 16]>,
}

/// A host that registered: its identifier and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrantRecord(pub [u8; 16], pub u64);

/// The first type that all registrants hold together.
const FIRST_OF_ALL: u8 = 5;

impl ReservationRecord {
    fn check(&self) -> Result<(), &'static str> {
        let hosts: BTreeSet<[u8; 16]> = self.registrants.iter().map(|one| one.0).collect();
        if hosts.len() < self.registrants.len() {
            return Err("names a host twice");
        }
        match (self.kind, self.holder) {
            (None, None) => Ok(()),
            (Some(FIRST_OF_ALL..=6), Some(_)) if !hosts.is_empty() => Ok(()),
            (Some(1..FIRST_OF_ALL), Some(holder)) if hosts.contains(&holder) => Ok(()),
            (Some(1..=6), Some(_)) => Err("is held by a host that is not registered"),
            _ => Err("has a type that does not exist, or a type without a holder"),
        }
    }
}

/// Whether each reservation can be.
pub(crate) fn check(all: &BTreeMap<u32, ReservationRecord>) -> Result<(), String> {
    for (namespace, record) in all {
        record.check().map_err(|wrong| format!("the reservation of namespace {namespace} {wrong}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::State;

    fn record(kind: Option<u8>, holder: Option<u8>) -> ReservationRecord {
        let registrants = vec![RegistrantRecord([1; 16], u64::MAX), RegistrantRecord([2; 16], 20)];
        ReservationRecord { generation: 7, registrants, kind, holder: holder.map(|one| [one; 16]) }
    }

    fn with(record: &ReservationRecord) -> State {
        State { reservations: [(9, record.clone())].into(), ..State::default() }
    }

    fn json(host: [u8; 16]) -> String {
        format!("{host:?}").replace(' ', "")
    }

    /// Goal: a change leads from one state to the other, and what is written stays readable: its bytes are fixed here.
    #[test]
    fn records_lead_from_one_to_the_other() {
        let empty = ReservationRecord::default();
        let states =
            [State::default(), with(&empty), with(&record(None, None)), with(&record(Some(1), Some(2)))];
        for base in &states {
            for next in &states {
                let mut reached = base.clone();
                reached.apply_all(&base.changes_to(next).encode()).unwrap();
                assert_eq!(&reached, next);
            }
        }
        let bytes = states[3].content().encode();
        let (ones, twos) = (json([1; 16]), json([2; 16]));
        let value = format!(
            r#"{{"generation":7,"registrants":[[{ones},18446744073709551615],[{twos},20]],"kind":1,"holder":{twos}}}"#
        );
        let record =
            [&[7, 0, 1, 0, 1, 0, 0, 0][..], &(value.len() as u32).to_le_bytes(), b"9", value.as_bytes()];
        assert!(bytes.ends_with(&record.concat()), "{}", String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn what_cannot_be_is_damage() {
        for (kind, holder, words) in [
            (Some(1), Some(3), "not registered"),
            (Some(7), Some(1), "does not exist"),
            (Some(1), None, "without a holder"),
            (None, Some(1), "without a holder"),
        ] {
            let error = with(&record(kind, holder)).check().unwrap_err();
            assert!(error.contains("namespace 9") && error.contains(words), "{error}");
        }
        with(&record(Some(5), Some(3))).check().expect("all registrants hold it, whoever acquired it");
        with(&record(Some(6), Some(1))).check().unwrap();
        let mut twice = record(None, None);
        twice.registrants[1].0 = [1; 16];
        assert!(with(&twice).check().unwrap_err().contains("twice"));
        let mut nobody = record(Some(5), Some(3));
        nobody.registrants.clear();
        assert!(with(&nobody).check().unwrap_err().contains("not registered"));
    }
}
