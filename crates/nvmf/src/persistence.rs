//! Feature 83h: whether a namespace's reservation outlives a power loss (Base 2.0 section 5.27.1.27). The setting outlives one with it. Setting it
//! is in `persisting`.

use crate::controller::Answer;
use crate::shared::Shared;
use diecut_nvme::feature::{GetFeatures, Select, fid};
use diecut_nvme::opcode::admin as opcode;
use diecut_nvme::{Status, SubmissionEntry};

const NO_NAMESPACE: Status = Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry();

/// Get Features, if it asks for the value; what can be done with the feature is known where all features are.
pub(crate) fn execute(shared: &Shared, number: u32, entry: &SubmissionEntry) -> Option<Answer> {
    let index = shared.associations.kept(number).subsystem?;
    let get = GetFeatures::decode(entry);
    if entry.opcode != opcode::GET_FEATURES || get.feature != fid::RESERVATION_PERSISTENCE {
        return None;
    }
    let subsystem = shared.subsystems.get(index);
    let nsid = entry.nsid.get();
    if !subsystem.config.namespaces.contains_key(&nsid) {
        return Some(Answer::Fail(NO_NAMESPACE));
    }
    let persists = subsystem.reservations.get(nsid).is_some_and(|one| one.persists);
    match get.select {
        Select::Current => Some(Answer::Result(persists.into())),
        // Nothing is saved beside the current value, and at first nothing persists.
        Select::Default | Select::Saved => Some(Answer::Result(0)),
        Select::Capabilities | Select::Reserved(_) => None,
    }
}
