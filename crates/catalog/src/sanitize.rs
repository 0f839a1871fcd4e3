//! Sanitize operations of subsystems (NVMe Base 2.0 section 8.20), which go on over restarts.

use diecut_spec::SanitizeState;
use serde::{Deserialize, Serialize};

/// The most recent sanitize operation of a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SanitizeRecord {
    /// How far it is.
    pub state: SanitizeState,
    /// Dword 10 of the command that began it.
    pub cdw10: u32,
    /// It was completed, and no host has written since. Versions that did not know are not believed.
    #[serde(default)]
    pub is_erased: bool,
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::State;

    fn with(state: SanitizeState) -> State {
        let record = SanitizeRecord { state, cdw10: 10, is_erased: state == SanitizeState::Completed };
        State { sanitizes: [("nqn.x".to_owned(), record)].into(), ..State::default() }
    }

    /// Goal: a change leads from one state to the other, and what is written stays readable: its bytes are fixed here.
    #[test]
    fn records_lead_from_one_to_the_other() {
        use SanitizeState::{Completed, Failed, FailureLeft, InProgress};
        let mut states: Vec<State> = [InProgress, Completed, Failed, FailureLeft].map(with).into();
        states.push(State::default());
        for base in &states {
            for next in &states {
                let mut reached = base.clone();
                reached.apply_all(&base.changes_to(next).encode()).unwrap();
                assert_eq!(&reached, next);
            }
        }
        for (state, word) in states.iter().zip(["in-progress", "completed", "failed", "failure-left"]) {
            let is_erased = word == "completed";
            let value = format!(r#"{{"state":"{word}","cdw10":10,"is_erased":{is_erased}}}"#);
            let head = [9, 0, 2, 0, 5, 0, 0, 0, value.len() as u8, 0, 0, 0];
            let bytes = state.content().encode();
            assert!(bytes.ends_with(&[&head, &b"nqn.x"[..], value.as_bytes()].concat()), "{word}");
        }
    }
}
