//! Events of placement (FDP, NVMe Base 2.1 section 5.1.12.1.31) of a subsystem's endurance group, and which of them are kept.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which events of an endurance group are kept, and the last of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementRecord {
    /// Types of events that are kept, by reclaim unit handle of the vSSD, in ascending order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub enabled: BTreeMap<u16, Vec<u8>>,
    /// Oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<PlacementEventRecord>,
}

/// An event: type, flags, placement identifier, timestamp, NSID, reclaim group and reclaim unit handle, each as log page 23h has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementEventRecord(pub u8, pub u8, pub u16, pub u64, pub u32, pub u16, pub u16);

impl PlacementRecord {
    /// Events that a log page holds.
    pub const EVENTS_MAX: usize = 63;
    /// Reclaim unit handles of a vSSD.
    pub const HANDLES_MAX: u16 = 16;
    /// Types of events that there can be: a reclaim unit not fully written, an invalid placement identifier.
    pub const KINDS: [u8; 2] = [0, 3];

    fn check(&self) -> Result<(), &'static str> {
        let is_known = |kind: &u8| PlacementRecord::KINDS.contains(kind);
        for kinds in self.enabled.values() {
            if kinds.is_empty() || !kinds.is_sorted_by(|one, next| one < next) {
                return Err("have no types for a handle, or not in ascending order");
            }
        }
        let mut kinds = self.enabled.values().flatten();
        if !kinds.all(is_known) || !self.events.iter().all(|event| is_known(&event.0)) {
            return Err("are of a type that does not exist");
        }
        let mut handles = self.enabled.keys().copied().chain(self.events.iter().map(|event| event.6));
        if handles.any(|handle| handle >= PlacementRecord::HANDLES_MAX) {
            return Err("are of a handle that does not exist");
        }
        if self.events.len() > PlacementRecord::EVENTS_MAX {
            return Err("are more than a log page holds");
        }
        Ok(())
    }
}

/// Whether all of it can be.
pub(crate) fn check(all: &BTreeMap<String, PlacementRecord>) -> Result<(), String> {
    for (nqn, record) in all {
        record.check().map_err(|wrong| format!("events of placement of subsystem {nqn} {wrong}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::State;

    fn record() -> PlacementRecord {
        let events = vec![
            PlacementEventRecord(3, 7, 0x0103, 4000, 1, 0, 3),
            PlacementEventRecord(0, 3, 1, u64::MAX, u32::MAX, 0, 15),
        ];
        PlacementRecord { enabled: [(0, vec![0, 3]), (15, vec![3])].into(), events }
    }

    fn with(record: PlacementRecord) -> State {
        State { placements: [("nqn.x".to_owned(), record)].into(), ..State::default() }
    }

    /// Goal: a change leads from one state to the other, and what is written stays readable: its bytes are fixed here.
    #[test]
    fn records_lead_from_one_to_the_other() {
        let enabled = PlacementRecord { events: Vec::new(), ..record() };
        let states = [State::default(), with(PlacementRecord::default()), with(enabled), with(record())];
        for base in &states {
            for next in &states {
                let mut reached = base.clone();
                reached.apply_all(&base.changes_to(next).encode()).unwrap();
                assert_eq!(&reached, next);
            }
        }
        let enabled = r#""enabled":{"0":[0,3],"15":[3]}"#;
        let events = r#""events":[[3,7,259,4000,1,0,3],[0,3,1,18446744073709551615,4294967295,0,15]]"#;
        for (state, value) in states[1..].iter().zip([
            "{}".to_owned(),
            format!("{{{enabled}}}"),
            format!("{{{enabled},{events}}}"),
        ]) {
            let head = [10, 0, 1, 0, 5, 0, 0, 0, value.len() as u8, 0, 0, 0];
            let bytes = state.content().encode();
            let expected = [&head, &b"nqn.x"[..], value.as_bytes()].concat();
            assert!(bytes.ends_with(&expected), "{}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn what_cannot_be_is_damage() {
        with(record()).check().expect("it can be");
        let event = |kind, handle| PlacementEventRecord(kind, 7, 1, 2, 3, 0, handle);
        let enabled = |handle, kinds: &[u8]| PlacementRecord {
            enabled: [(handle, kinds.to_vec())].into(),
            ..PlacementRecord::default()
        };
        let events = |events: Vec<_>| PlacementRecord { events, ..PlacementRecord::default() };
        for (record, words) in [
            (enabled(0, &[]), "no types"),
            (enabled(0, &[3, 0]), "ascending"),
            (enabled(0, &[3, 3]), "ascending"),
            (enabled(0, &[0, 4]), "type that does not exist"),
            (enabled(16, &[0]), "handle that does not exist"),
            (events(vec![event(0, 0), event(0x80, 0)]), "type that does not exist"),
            (events(vec![event(3, 16)]), "handle that does not exist"),
            (events(vec![event(3, 0); 64]), "more than a log page"),
        ] {
            let error = with(record).check().unwrap_err();
            assert!(error.contains("nqn.x") && error.contains(words), "{error}");
        }
        with(events(vec![event(3, 15); 63])).check().unwrap();
    }

    /// Goal: a record that is no such record is named, and nothing of it counts.
    #[test]
    fn what_cannot_be_read_is_named() {
        for value in [
            r#"{"enabled":{"x":[0]}}"#,
            r#"{"enabled":{"65536":[0]}}"#,
            r#"{"events":[[3,7,259,4000,1,0]]}"#,
            r#"{"events":[[3,7,259,4000,1,0,3,1]]}"#,
            r#"{"events":[[256,7,259,4000,1,0,3]]}"#,
            r#"{"colour":"red"}"#,
            "7",
        ] {
            let head = [10, 0, 1, 0, 5, 0, 0, 0, value.len() as u8, 0, 0, 0];
            let bytes = [&head, &b"nqn.x"[..], value.as_bytes()].concat();
            let mut state = State::default();
            let error = state.apply_all(&bytes).unwrap_err().to_string();
            assert!(error.contains("events of placement (\"nqn.x\")"), "{value}: {error}");
            assert_eq!(state, State::default());
        }
    }
}
