//! What a drive says of its health, for people.

use crate::print;
use diecut_api::status::{DriveHealth, Status};

/// What a drive says of its health, in words.
pub fn rows(health: &DriveHealth) -> Vec<(&'static str, String)> {
    let DriveHealth { spare_percent, spare_threshold_percent, used_percent, written, read, .. } = health;
    let hours = health.power_on_hours;
    let mut rows = vec![(
        "health",
        if health.warnings.is_empty() { "warns of nothing".to_owned() } else { health.warnings.join("; ") },
    )];
    rows.extend(
        health.temperature_celsius.map(|degrees| ("temperature", format!("{degrees} degrees Celsius"))),
    );
    rows.push(("spare left", format!("{spare_percent} %, and it warns below {spare_threshold_percent} %")));
    rows.push(("life used", format!("{used_percent} %, in {hours} hours with power")));
    rows.push(("written / read in its life", format!("{written} / {read}")));
    rows.push(("errors of its media", health.media_errors.to_string()));
    rows.push(("unsafe shutdowns", health.unsafe_shutdowns.to_string()));
    rows
}

/// Says what the drives of a server warn of, and what was set aside on its devices.
pub fn print_warnings(status: &Status) {
    for device in &status.devices {
        if let Some(damage) = &device.damage {
            print::line(&format!("warning: the drive of device {} {damage}", device.name));
        }
        for warning in device.health.iter().flat_map(|health| &health.warnings) {
            print::line(&format!(
                "warning: the drive of device {} says: {warning} (`diecut device show {}` says more)",
                device.name, device.name
            ));
        }
        device.quarantined.iter().for_each(|reason| print::line(&format!("warning: {reason}")));
    }
}
