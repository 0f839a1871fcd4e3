//! Documents: what frames of version 1 hold.

use crate::State;
use crate::record::{Kind, Record, RecordError};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The state of a frame of version 1. Each object in it is what version 1 of its record is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    pool: Value,
    tenants: BTreeMap<String, Value>,
    vssds: BTreeMap<String, Value>,
    volumes: BTreeMap<String, Value>,
    subsystems: BTreeMap<String, Value>,
}

/// Reads the document of a frame of version 1.
pub(crate) fn read_document(text: &[u8]) -> Result<State, RecordError> {
    let nonsense = |error: serde_json::Error| RecordError::Nonsense {
        kind: Kind::Pool,
        key: String::new(),
        reason: error.to_string(),
    };
    let Document { pool, tenants, vssds, volumes, subsystems } =
        serde_json::from_slice(text).map_err(nonsense)?;
    let mut state = State::default();
    let pool = BTreeMap::from([(String::new(), pool)]);
    for (kind, all) in [
        (Kind::Pool, pool),
        (Kind::Tenant, tenants),
        (Kind::Vssd, vssds),
        (Kind::Volume, volumes),
        (Kind::Subsystem, subsystems),
    ] {
        for (key, value) in all {
            let value = serde_json::to_vec(&value).map_err(nonsense)?;
            state.apply(&Record { kind, version: 1, key: &key, value: Some(&value) })?;
        }
    }
    Ok(state)
}
