//! Specifications as they were spelled before, turned into today's spelling: catalogs and recordings hold them.
//!
//! Each function takes the JSON of one object and leaves what it does not know as it is.

use crate::Nguid;
use serde_json::{Map, Value, json};

fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

/// A word that may be spelled as a variant in code is (`WorkConserving`), as all surfaces spell it (`work-conserving`).
fn word(text: &str) -> String {
    let mut word = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

/// Of a vSSD: `capacity_bytes`, `rate_limit_bytes_per_second`; `serves`, which held the user, too; words spelled as variants.
pub fn vssd(value: &mut Value) {
    let Some(object) = value.as_object_mut() else { return };
    rename(object, "capacity_bytes", "capacity");
    rename(object, "rate_limit_bytes_per_second", "rate_limit");
    for field in ["isolation", "sharing"] {
        if let Some(Value::String(text)) = object.get_mut(field) {
            *text = word(text);
        }
    }
    match object.remove("serves") {
        Some(Value::String(text)) => {
            object.insert("use".to_owned(), Value::String(word(&text)));
        }
        Some(Value::Object(one)) => {
            for (serves, of) in one {
                object.insert("use".to_owned(), Value::String(word(&serves)));
                if let Some(uid) = of.get("uid").filter(|uid| !uid.is_null()) {
                    object.insert("uid".to_owned(), uid.clone());
                }
            }
        }
        _ => {}
    }
}

/// Of a volume: `size_bytes`, identities as lists of bytes.
pub fn volume(value: &mut Value) {
    let Some(object) = value.as_object_mut() else { return };
    rename(object, "size_bytes", "size");
    for field in ["uuid", "nguid"] {
        let bytes = object.get(field).and_then(|list| serde_json::from_value::<[u8; 16]>(list.clone()).ok());
        if let Some(bytes) = bytes {
            let text = match field {
                "uuid" => uuid::Uuid::from_bytes(bytes).to_string(),
                _ => Nguid(bytes).to_string(),
            };
            object.insert(field.to_owned(), Value::String(text));
        }
    }
}

/// Of a subsystem: namespaces as pairs of NSID and volume, or volumes by NSID.
pub fn subsystem(value: &mut Value) {
    let Some(namespaces) = value.get_mut("namespaces") else { return };
    let namespace = |nsid: Value, volume: Value| json!({ "nsid": nsid, "volume": volume });
    let list: Vec<Value> = match namespaces.take() {
        Value::Array(list) => {
            let one = |one: Value| match one {
                Value::Array(pair) if pair.len() == 2 => namespace(pair[0].clone(), pair[1].clone()),
                other => other,
            };
            list.into_iter().map(one).collect()
        }
        Value::Object(by_nsid) => {
            let number = |text: &str| text.parse::<u32>().map_or(json!(text), |nsid| json!(nsid));
            let mut list: Vec<Value> =
                by_nsid.into_iter().map(|(nsid, volume)| namespace(number(&nsid), volume)).collect();
            list.sort_by_key(|one| one["nsid"].as_u64());
            list
        }
        other => {
            *namespaces = other;
            return;
        }
    };
    *namespaces = Value::Array(list);
}

/// Of settings of even wear: `rate_bytes_per_second`.
pub fn wear(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        rename(object, "rate_bytes_per_second", "rate");
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::{
        Isolation, NamespaceSpec, Serves, Sharing, Size, SubsystemSpec, VolumeSpec, VssdSpec, WearSettings,
    };
    use serde::de::DeserializeOwned;

    fn read<T: DeserializeOwned>(upgrade: fn(&mut Value), text: &str) -> T {
        let mut value = serde_json::from_str(text).unwrap();
        upgrade(&mut value);
        let read = serde_json::from_value(value.clone()).unwrap();
        upgrade(&mut value);
        assert!(serde_json::from_value::<T>(value).is_ok(), "what is of today stays");
        read
    }

    /// Goal: what exists is read. Method: each older spelling, as recordings and catalogs have it.
    #[test]
    fn vssds_of_before_are_read() {
        let spec = VssdSpec {
            capacity: Size(64 << 20),
            rate_limit: Size(1 << 20),
            sharing: Sharing::Strict,
            ..VssdSpec::new("a", "t", Isolation::Software, 280)
        };
        let text = |words: &str| {
            format!(
                r#"{{"name":"a","tenant":"t","throughput_level":1,"capacity_bytes":67108864,"over_provisioning_permille":280,
                    "weight":100,"rate_limit_bytes_per_second":1048576,{words}}}"#
            )
        };
        for words in [
            r#""isolation":"software","sharing":"strict","serves":"volumes""#,
            r#""isolation":"Software","sharing":"Strict","serves":"Volumes""#,
            r#""isolation":"software","sharing":"strict""#,
        ] {
            assert_eq!(read::<VssdSpec>(vssd, &text(words)), spec);
        }
        let conserving = r#""isolation":"None","sharing":"WorkConserving","serves":{"Blocks":{"uid":7}}"#;
        let found = read::<VssdSpec>(vssd, &text(conserving));
        assert_eq!((found.isolation, found.sharing), (Isolation::None, Sharing::WorkConserving));
        assert_eq!((found.serves, found.uid), (Serves::Blocks, Some(7)));
        let open = r#""isolation":"die","sharing":"strict","serves":{"blocks":{"uid":null}}"#;
        let found = read::<VssdSpec>(vssd, &text(open));
        assert_eq!((found.serves, found.uid), (Serves::Blocks, None));
    }

    #[test]
    fn volumes_subsystems_and_wear_of_before_are_read() {
        let found = read::<VolumeSpec>(
            volume,
            r#"{"name":"v","vssd":"a","size_bytes":4096,"uuid":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15],"nguid":null}"#,
        );
        assert_eq!(found.size, Size(4096));
        assert_eq!(found.uuid.unwrap().to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(found.nguid, None);
        let namespaces = [(2, "b"), (10, "a")]
            .map(|(nsid, volume)| NamespaceSpec { nsid, volume: volume.to_owned() })
            .to_vec();
        for shown in [r#"[[2,"b"],[10,"a"]]"#, r#"{"10":"a","2":"b"}"#] {
            let text = format!(
                r#"{{"nqn":"n","tenant":"t","serial":null,"allow_any_host":true,"allowed_hosts":[],"namespaces":{shown}}}"#
            );
            assert_eq!(read::<SubsystemSpec>(subsystem, &text).namespaces, namespaces);
        }
        let found = read::<WearSettings>(wear, r#"{"paused":null,"rate_bytes_per_second":7}"#);
        assert_eq!(found, WearSettings { rate: Some(Size(7)), ..WearSettings::default() });
    }
}
