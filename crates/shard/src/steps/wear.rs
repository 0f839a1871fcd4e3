//! Settings of even wear.

use crate::job::Progress;
use crate::owners::Owners;
use diecut_media::Divide;
use diecut_spec::{Size, WearSettings};
use diecut_vssd::{SwapRule, WearConfig};

/// The step that changes settings.
pub(crate) fn apply<M: Divide>(here: &mut Owners<M>) -> Progress {
    apply_wear(here);
    Progress::Done
}

/// Gives the pools the settings of even wear: what administrators said, and what the server was started with for the rest.
pub(crate) fn apply_wear<M: Divide>(here: &mut Owners<M>) {
    let said = here.registry.state.pool.wear;
    here.placement.evenness.thresholds_erases = None;
    for own in here.plane.flash.devices.iter_mut() {
        own.pool.set_wear(in_force(&said, own.config.pool.wear));
        own.pool.pause_migration(said.paused.unwrap_or(false));
    }
}

/// What was said over what the device has otherwise.
fn in_force(said: &WearSettings, own: WearConfig) -> WearConfig {
    // Who said a threshold means that one, unless it is said too that it shall follow the age.
    let is_fixed = [said.channel_threshold_erases, said.die_threshold_erases]
        .into_iter()
        .flatten()
        .any(|erases| erases > 0);
    let rule = match said.literal_rule {
        Some(true) => SwapRule::Literal,
        Some(false) => SwapRule::Quiet,
        None => own.rule,
    };
    WearConfig {
        rate_bytes_per_second: said.rate.map_or(own.rate_bytes_per_second, Size::bytes),
        channel_threshold_erases: said.channel_threshold_erases.unwrap_or(own.channel_threshold_erases),
        die_threshold_erases: said.die_threshold_erases.unwrap_or(own.die_threshold_erases),
        follow_age: said.follow_age.unwrap_or(own.follow_age && !is_fixed),
        endurance_cycles: said.endurance_cycles.unwrap_or(own.endurance_cycles),
        delta_permille: said.delta_permille.unwrap_or(own.delta_permille),
        rule,
        ..own
    }
}
