//! `diecut device list`: the devices of a running server.

use crate::client::{Client, ClientError};
use crate::print;
use diecut_api::status::{DeviceStatus, DeviceTurning, MissingDevice, Status};
use serde::Serialize;

/// A device, there or not.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed<'a> {
    There(&'a DeviceStatus),
    Missing(&'a MissingDevice),
}

const HEADER: [&str; 7] =
    ["device", "state", "path", "channels x dies", "raw", "free channels / dies", "bad blocks"];

/// How it is, in words.
pub fn state(device: &DeviceStatus, status: &Status) -> String {
    match device.turning {
        _ if device.is_away => "does not answer",
        None if device.damage.is_some() => "damaged",
        None => "there",
        Some(DeviceTurning::Drains) => return drains(device, lies(status, &device.name)),
        Some(DeviceTurning::Joins) => "joins",
        Some(DeviceTurning::Leaves) => "leaves",
    }
    .to_owned()
}

/// Whether a vSSD lies on a device, or has a part there.
pub fn lies(status: &Status, name: &str) -> bool {
    status.vssds.iter().any(|vssd| vssd.vssd.device.iter().any(|on| on == name))
}

fn drains(device: &DeviceStatus, lies: bool) -> String {
    let Some(moving) = &device.moving else {
        return if lies { "evacuating" } else { "evacuated" }.to_owned();
    };
    let all = moving.all.bytes().max(1);
    let done = all.saturating_sub(moving.left.bytes()) * 100 / all;
    format!("evacuating: vSSD {} {done} %", moving.vssd)
}

fn row(device: &DeviceStatus, status: &Status) -> Vec<String> {
    vec![
        device.name.clone(),
        state(device, status),
        device.path.clone().unwrap_or_else(|| "memory".to_owned()),
        format!("{} x {}", device.channels, device.dies_per_channel),
        device.raw_capacity.to_string(),
        format!("{} / {}", device.free_channels, device.free_dies),
        device.bad_erase_blocks.to_string(),
    ]
}

fn missing_row(device: &MissingDevice) -> Vec<String> {
    let none = || "-".to_owned();
    let path = device.path.clone().unwrap_or_else(none);
    vec![device.name.clone(), "not there".to_owned(), path, none(), none(), none(), none()]
}

/// Prints them.
///
/// # Errors
/// What asking the server brings.
pub async fn list(client: &Client, json: bool) -> Result<(), ClientError> {
    let status = client.status().await?;
    if json {
        let there = status.devices.iter().map(Listed::There);
        let all: Vec<Listed<'_>> = there.chain(status.missing_devices.iter().map(Listed::Missing)).collect();
        print::json(&all);
        return Ok(());
    }
    let rows = status
        .devices
        .iter()
        .map(|device| row(device, &status))
        .chain(status.missing_devices.iter().map(missing_row));
    print::table(&HEADER, rows.collect());
    for (name, damage) in status.devices.iter().filter_map(|one| Some((&one.name, one.damage.as_ref()?))) {
        print::line(&format!("{name} is damaged: the drive {damage}"));
    }
    for one in &status.missing_devices {
        print::line(&format!("{} is not there: {}", one.name, one.reason));
    }
    Ok(())
}
