use crate::client::{Client, ClientError};
use crate::command::{subsystem, volume, vssd};
use crate::print;
use clap::Args;
use diecut_api::status;
use std::time::Duration;

#[derive(Args)]
pub struct Status {
    /// Show it again every so many seconds until interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    live: Option<u64>,
}

impl Status {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        loop {
            let status = client.status().await?;
            if json {
                print::json(&status);
            } else {
                if self.live.is_some() {
                    // Clear the terminal and go home, so that the tables stay in place.
                    print!("\x1b[2J\x1b[H");
                }
                show(&status);
            }
            match self.live {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds.max(1))).await,
                None => return Ok(()),
            }
        }
    }
}

fn show(status: &status::Status) {
    println!("hosts connect to {}", status.listen);
    let devices = status
        .devices
        .iter()
        .map(|device| {
            let (least, most) = device
                .erases_per_channel
                .iter()
                .fold((u64::MAX, 0), |(least, most), &erases| (least.min(erases), most.max(erases)));
            vec![
                device.name.clone(),
                format!("{} x {}", device.channels, device.dies_per_channel),
                device.raw_capacity.to_string(),
                format!("{} / {}", device.free_channels, device.free_dies),
                device.bad_erase_blocks.to_string(),
                format!("{} / {most}", if least == u64::MAX { 0 } else { least }),
            ]
        })
        .collect();
    print::table(
        &[
            "device",
            "channels x dies",
            "raw",
            "free channels / dies",
            "bad blocks",
            "channel erases min / max",
        ],
        devices,
    );
    for reason in status.devices.iter().flat_map(|device| &device.quarantined) {
        println!("warning: {reason}");
    }
    print::table(vssd::header(), status.vssds.iter().map(vssd::row).collect());
    print::table(volume::header(), status.volumes.iter().map(volume::row).collect());
    print::table(subsystem::header(), status.subsystems.iter().map(subsystem::row).collect());
}
