//! Numbers that the server gives.

use crate::state::State;
use std::collections::BTreeMap;

/// Whether numbers that the server gives are given once.
pub(crate) fn check(state: &State) -> Result<(), String> {
    let mut vssds = BTreeMap::new();
    for (name, vssd) in &state.vssds {
        if let Some(other) = vssds.insert(vssd.number, name) {
            let number = vssd.number;
            return Err(format!("vSSDs \"{other}\" and \"{name}\" both have the number {number}"));
        }
    }
    let mut namespaces = BTreeMap::new();
    for (name, volume) in &state.volumes {
        let number = volume.namespace;
        if let Some(other) = namespaces.insert(number, name) {
            return Err(format!("volumes \"{other}\" and \"{name}\" both have the namespace {number}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::state::VolumeRecord;
    use diecut_spec::{Nguid, Size, VolumeSpec};

    #[test]
    fn numbers_are_given_once() {
        let mut state = State::default();
        let mut insert = |name: &str, namespace| {
            let spec = VolumeSpec {
                name: name.to_owned(),
                vssd: "here".to_owned(),
                size: Size(4096),
                uuid: Some(Default::default()),
                nguid: Some(Nguid([0; 16])),
                zones: Default::default(),
                placement: Vec::new(),
            };
            state.volumes.insert(name.to_owned(), VolumeRecord { spec, index: 0, namespace });
            check(&state)
        };
        assert_eq!(insert("a", 1), Ok(()));
        assert!(insert("b", 1).unwrap_err().contains("both have the namespace 1"));
        assert_eq!(insert("b", 2), Ok(()));
    }
}
