//! What earlier versions of records say, in those of today.

use crate::record::{Kind, Record};
use diecut_spec::older;
use serde_json::{Map, Value, json};

/// The value of a record of an earlier version as today's has it: the specification in the words of today, under `spec` where the server
/// adds something.
pub(crate) fn upgraded(record: &Record<'_>, mut value: Value) -> Value {
    // A later version than these only lacks fields, and a specification says what a field is where nothing is said. So a new field needs
    // nothing here.
    if record.version > 1 {
        return value;
    }
    let mut named = |name: &str| {
        if let Some(object) = value.as_object_mut() {
            object.insert(name.to_owned(), json!(record.key));
        }
    };
    match record.kind {
        Kind::Pool => {
            if let Some(wear) = value.get_mut("wear") {
                older::wear(wear);
            }
            value
        }
        Kind::Tenant => {
            named("name");
            value
        }
        Kind::Vssd => {
            named("name");
            let added = ["number", "staging_slot", "staging_slot_count", "exported_ius"];
            let mut value = apart(value, &added, older::vssd);
            if let Some(object) = value.as_object_mut() {
                object.entry("staging_slot_count").or_insert(json!(1));
            }
            value
        }
        Kind::Volume => {
            named("name");
            apart(value, &["index", "namespace"], older::volume)
        }
        Kind::Subsystem => {
            named("nqn");
            older::subsystem(&mut value);
            value
        }
        Kind::Namespaces | Kind::Reservation | Kind::QosSet | Kind::Sanitize | Kind::Placement => value,
    }
}

/// Puts all but these fields under `spec`, in the words of today.
fn apart(value: Value, added: &[&str], upgrade: fn(&mut Value)) -> Value {
    let Value::Object(fields) = value else { return value };
    let is_added = |(name, _): &(String, Value)| added.contains(&name.as_str());
    let (mut object, spec): (Map<String, Value>, Map<String, Value>) = fields.into_iter().partition(is_added);
    let mut spec = Value::Object(spec);
    upgrade(&mut spec);
    object.insert("spec".to_owned(), spec);
    Value::Object(object)
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: who gives a specification a new field, and its record a new version, changes nothing here. Method: values as they have been
    /// since version 2 stay as they are.
    #[test]
    fn what_is_later_than_version_1_stays() {
        for kind in [Kind::Pool, Kind::Tenant, Kind::Vssd, Kind::Volume, Kind::Subsystem, Kind::Namespaces] {
            let value = json!({ "spec": { "name": "x", "weight": 7 }, "number": 1 });
            for version in [2, 3, 9] {
                let record = Record { kind, version, key: "x", value: None };
                assert_eq!(upgraded(&record, value.clone()), value, "{kind:?} in version {version}");
            }
        }
    }
}
