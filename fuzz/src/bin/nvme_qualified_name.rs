//! Qualified names: fields of the wire, and text.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_nvme::{DISCOVERY_SUBSYSTEM_NQN, NQN_FIELD_SIZE_BYTES, NQN_LENGTH_MAX, QualifiedName};

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let longest = format!("nqn.{}", "x".repeat(NQN_LENGTH_MAX - 4));
    [DISCOVERY_SUBSYSTEM_NQN, "nqn.2026-11.example:tenant-a", "nqn.x", &longest]
        .into_iter()
        .map(|text| QualifiedName::new(text).expect("an NQN").encode().to_vec())
        .collect()
}

fn check(bytes: &[u8]) {
    let field: [u8; NQN_FIELD_SIZE_BYTES] = Input::new(bytes).array();
    if let Ok(name) = bounded(1024, || QualifiedName::decode(&field)) {
        assert!((1..=NQN_LENGTH_MAX).contains(&name.as_str().len()));
        assert!(name.as_str().bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(QualifiedName::decode(&name.encode()), Ok(name.clone()));
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(name) = bounded(1024, || text.parse::<QualifiedName>())
    {
        assert_eq!(name.as_str(), text);
        assert_eq!(QualifiedName::decode(&name.encode()), Ok(name));
    }
}
