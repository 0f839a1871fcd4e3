//! What pages of a controller say of chunks, where a namespace of its subsystem has them.

use super::Surroundings;
use diecut_nvme::identify::CSI_NVM;
use diecut_nvme::log_page::{
    CommandEffects, EFFECT_LOGICAL_BLOCK_CONTENT, EFFECT_SCOPE_NAMESPACE, EFFECT_SUPPORTED,
    FEATURE_SCOPE_NAMESPACE, FEATURE_SUPPORTED, FeatureEffects,
};
use diecut_nvme::openchannel::{fid, opcode};

/// Whether the subsystem shows any.
pub(super) fn are_there(around: &Surroundings<'_>) -> bool {
    let mut namespaces = around.subsystem.into_iter().flat_map(|subsystem| subsystem.namespaces.values());
    namespaces.any(|namespace| namespace.properties.chunks.is_some())
}

/// Adds commands of chunks, which belong to the NVM command set.
pub(super) fn tell_commands(command_set: u8, around: &Surroundings<'_>, effects: &mut CommandEffects) {
    if command_set != CSI_NVM || !are_there(around) {
        return;
    }
    let plain = EFFECT_SUPPORTED | EFFECT_SCOPE_NAMESPACE;
    effects.admin[usize::from(opcode::GEOMETRY)] = plain.into();
    effects.io[usize::from(opcode::VECTOR_READ)] = plain.into();
    for code in [opcode::VECTOR_RESET, opcode::VECTOR_WRITE, opcode::VECTOR_COPY] {
        effects.io[usize::from(code)] = (plain | EFFECT_LOGICAL_BLOCK_CONTENT).into();
    }
}

/// Adds features of chunks.
pub(super) fn tell_features(around: &Surroundings<'_>, effects: &mut FeatureEffects) {
    if are_there(around) {
        let namespace = FEATURE_SUPPORTED | FEATURE_SCOPE_NAMESPACE;
        effects.features[usize::from(fid::MEDIA_FEEDBACK)] = namespace.into();
    }
}
