//! `diecut device show`: a device of a running server, what lies on it, and what the drive under it is.

use super::super::not_found;
use super::list::state;
use super::{Facts, Local, called, remote};
use crate::client::{Client, ClientError};
use crate::print;
use diecut_api::place::Place;
use diecut_api::status::{DeviceStatus, MissingDevice, Status, VssdStatus};
use diecut_devices::local::{Access, LocalDevice};
use serde::Serialize;

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    device: Option<&'a DeviceStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a MissingDevice>,
    /// vSSDs that lie on it, or have a part there.
    vssds: Vec<&'a str>,
    /// Of a drive that can be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    drive: Option<Facts>,
}

/// vSSDs that lie on a device. Where a server has one only, all do.
fn lying<'a>(status: &'a Status, name: &str) -> Vec<&'a VssdStatus> {
    let is_only = status.devices.len() == 1 && status.missing_devices.is_empty();
    let lies = |vssd: &&VssdStatus| match &*vssd.vssd.device {
        [] => is_only,
        on => on.iter().any(|device| device == name),
    };
    status.vssds.iter().filter(lies).collect()
}

/// Where a vSSD lies on a device: its units there, as `channel/die`.
fn units(vssd: &VssdStatus, name: &str) -> String {
    let on = &vssd.placement.unit_devices;
    let is_here = |at: &usize| on.get(*at).is_none_or(|device| device == name);
    let dies = vssd.placement.dies.iter().enumerate().filter(|(at, _)| is_here(at));
    let dies: Vec<String> = dies.map(|(_, [channel, die])| format!("{channel}/{die}")).collect();
    dies.join(" ")
}

/// What the drive is, if it can be looked at. A target that is away is not waited for, and one that does not know this host says nothing.
fn look(device: &DeviceStatus) -> Option<Facts> {
    match device.path.as_ref()?.parse().ok()? {
        Place::Path(path) => {
            let local = LocalDevice::open(&path, Access::Look).ok()?;
            // An image of an emulated device has no label, and is no drive.
            local.label().ok()?;
            let mut own = Local::of(&local);
            // Who may not ask the drive is told what the server knows.
            own.health = own.health.or_else(|| device.health.clone());
            Some(Facts::Local(Box::new(own)))
        }
        Place::Namespace(_) if device.is_away => None,
        Place::Namespace(wanted) => {
            let facts = remote::Facts::of(&remote::connect(&wanted).ok()?);
            Some(Facts::Remote(Box::new(facts)))
        }
    }
}

fn rows(device: &DeviceStatus, status: &Status) -> Vec<(&'static str, String)> {
    let erases = &device.erases_per_channel;
    let (least, most) = (erases.iter().min().copied(), erases.iter().max().copied());
    let mut rows = vec![
        ("state", state(device, status)),
        ("path", device.path.clone().unwrap_or_else(|| "memory".to_owned())),
        ("channels x dies", format!("{} x {}", device.channels, device.dies_per_channel)),
        ("raw", device.raw_capacity.to_string()),
        ("free channels / dies", format!("{} / {}", device.free_channels, device.free_dies)),
        ("bad erase blocks", device.bad_erase_blocks.to_string()),
        ("channel erases min / max", format!("{} / {}", least.unwrap_or(0), most.unwrap_or(0))),
    ];
    rows.extend(device.damage.iter().map(|damage| ("damage", format!("the drive {damage}"))));
    rows.extend(device.quarantined.iter().map(|one| ("set aside", one.clone())));
    rows
}

/// Prints one.
///
/// # Errors
/// What asking the server brings, and that it has no such device.
pub async fn show(client: &Client, name: &str, json: bool) -> Result<(), ClientError> {
    let status = client.status().await?;
    let name = &*called(&status, name);
    let device = status.devices.iter().find(|device| device.name == name);
    let missing = status.missing_devices.iter().find(|device| device.name == name);
    if device.is_none() && missing.is_none() {
        return Err(not_found("device", name));
    }
    let vssds = lying(&status, name);
    let drive = device.and_then(look);
    if json {
        let vssds = vssds.iter().map(|vssd| vssd.vssd.name.as_str()).collect();
        print::json(&Shown { device, missing, vssds, drive });
        return Ok(());
    }
    let mut fields = match (device, missing) {
        (Some(device), _) => rows(device, &status),
        (None, missing) => {
            let missing = missing.into_iter();
            missing.flat_map(|one| [("state", "not there".to_owned()), ("why", one.reason.clone())]).collect()
        }
    };
    fields.extend(drive.iter().flat_map(Facts::rows));
    print::table(&["device", name], print::field_rows(fields));
    let row = |vssd: &&VssdStatus| {
        let (spec, placement) = (&vssd.vssd, units(vssd, name));
        vec![
            spec.name.clone(),
            spec.tenant.clone(),
            placement,
            vssd.physical.to_string(),
            vssd.used.to_string(),
        ]
    };
    if vssds.is_empty() {
        print::line("No vSSD lies on it.");
    } else {
        let header = ["vssd", "tenant", "channel/die here", "physical, all parts", "used"];
        print::table(&header, vssds.iter().map(row).collect());
    }
    Ok(())
}
