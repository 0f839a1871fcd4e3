//! Settings of even wear.

use crate::job::Progress;
use crate::owners::Owners;
use diecut_media::Divide;
use diecut_spec::Size;
use diecut_vssd::{SwapRule, WearConfig};

/// The step that changes settings.
pub(crate) fn apply<M: Divide>(here: &mut Owners<M>) -> Progress {
    apply_wear(here);
    Progress::Done
}

/// Gives the pool the settings of even wear: what administrators said, and what the server was started with for the rest.
pub(crate) fn apply_wear<M: Divide>(here: &mut Owners<M>) {
    let said = here.registry.state.pool.wear;
    let own = here.config.pool.wear;
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
    let wear = WearConfig {
        rate_bytes_per_second: said.rate.map_or(own.rate_bytes_per_second, Size::bytes),
        channel_threshold_erases: said.channel_threshold_erases.unwrap_or(own.channel_threshold_erases),
        die_threshold_erases: said.die_threshold_erases.unwrap_or(own.die_threshold_erases),
        follow_age: said.follow_age.unwrap_or(own.follow_age && !is_fixed),
        endurance_cycles: said.endurance_cycles.unwrap_or(own.endurance_cycles),
        delta_permille: said.delta_permille.unwrap_or(own.delta_permille),
        rule,
        ..own
    };
    here.placement.evenness.thresholds_erases = None;
    here.plane.flash.pool.set_wear(wear);
    here.plane.flash.pool.pause_migration(said.paused.unwrap_or(false));
}
