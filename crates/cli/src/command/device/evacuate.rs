//! `diecut device evacuate`: what lies on a device of a running server moves to others.

use super::list::state;
use crate::client::{Client, ClientError};
use crate::print;
use clap::Args;
use diecut_api::route;
use diecut_api::status::{DeviceStatus, DeviceTurning, Status};
use serde::Serialize;
use std::time::Duration;

#[derive(Args)]
pub struct Evacuate {
    /// Its name, as `diecut device list` has it.
    name: String,
    /// Return when it has begun; `diecut device list` says how far it is.
    #[arg(long)]
    no_wait: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    device: &'a str,
    evacuated: bool,
}

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);

impl Evacuate {
    /// Carries it out, and prints what came of it.
    ///
    /// # Errors
    /// What the server says.
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        let Evacuate { name, no_wait } = self;
        client.create(&route::evacuate(&name), &serde_json::json!({})).await?;
        let mut told = String::new();
        let is_evacuated = loop {
            if no_wait {
                break false;
            }
            let status = client.status().await?;
            let Some(device) = status.devices.iter().find(|device| device.name == name) else {
                return Err(ClientError::Usage(format!("device \"{name}\" is there no more")));
            };
            if !lies(&status, &name) {
                break true;
            }
            if device.turning != Some(DeviceTurning::Drains) {
                return Err(ClientError::Usage(reason(device)));
            }
            let state = state(device);
            if !json && state != told {
                print::line(&format!("{name}: {state}"));
                told = state;
            }
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        };
        if json {
            print::json(&Report { device: &name, evacuated: is_evacuated });
        } else if is_evacuated {
            print::line(&format!(
                "Nothing lies on {name} any more: `diecut device remove {name}` takes it out."
            ));
        } else {
            print::line(&format!(
                "What lies on {name} moves to other devices: `diecut device list` says how far it is."
            ));
        }
        Ok(())
    }
}

fn lies(status: &Status, name: &str) -> bool {
    status.vssds.iter().any(|vssd| vssd.vssd.device.iter().any(|on| on == name))
}

fn reason(device: &DeviceStatus) -> String {
    let why = device.evacuation_error.as_deref().unwrap_or("somebody ended it");
    format!("device \"{}\" is not evacuated, and what did not move stays: {why}", device.name)
}
