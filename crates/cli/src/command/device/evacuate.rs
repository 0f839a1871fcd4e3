//! `diecut device evacuate`: what lies on a device of a running server moves to others.

use super::called;
use super::list::{lies, state};
use crate::client::{Client, ClientError};
use crate::print;
use clap::Args;
use diecut_api::route;
use diecut_api::status::{DeviceStatus, DeviceTurning};
use serde::Serialize;
use std::time::Duration;

#[derive(Args)]
pub struct Evacuate {
    /// Its name, as `diecut device list` has it, or the path of its drive.
    name: String,
    /// Return when it has begun; `diecut device list` says how far it is.
    #[arg(long)]
    no_wait: bool,
    /// Call an evacuation off: what moved lies where it went, what did not stays, and the device takes new vSSDs again.
    #[arg(long, conflicts_with = "no_wait")]
    cancel: bool,
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
        let Evacuate { name, no_wait, cancel } = self;
        let name = called(&client.status().await?, &name);
        if cancel {
            client.delete(&route::evacuate(&name)).await?;
            if json {
                print::json(&Report { device: &name, evacuated: false });
            } else {
                print::line(&format!(
                    "{name} is not evacuated any more: what lies there stays, and it takes new vSSDs again."
                ));
            }
            return Ok(());
        }
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
            let state = state(device, &status);
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

fn reason(device: &DeviceStatus) -> String {
    let why = device.evacuation_error.as_deref().unwrap_or("it was called off");
    format!("device \"{}\" is not evacuated, and what did not move stays: {why}", device.name)
}
