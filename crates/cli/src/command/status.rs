use crate::client::{Client, ClientError};
use crate::command::live::Live;
use crate::command::{subsystem, volume, vssd};
use crate::print;
use clap::Args;
use diecut_api::status;
use diecut_sim::say;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Args)]
pub struct Status {
    /// Show what tenants do right now, again every so many seconds until Ctrl-C; with --json one object per line.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = clap::value_parser!(u64).range(1..))]
    live: Option<u64>,
}

impl Status {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        if let Some(seconds) = self.live {
            return live(client, Duration::from_secs(seconds), json).await;
        }
        let status = client.status().await?;
        if json {
            print::json(&status);
        } else {
            show(&status);
        }
        Ok(())
    }
}

/// Until Ctrl-C, or until what is printed cannot be written.
async fn live(client: &Client, every: Duration, json: bool) -> Result<(), ClientError> {
    let (mut before, mut then) = (client.status().await?, Instant::now());
    loop {
        tokio::time::sleep_until(then + every).await;
        let (status, now) = (client.status().await?, Instant::now());
        let live = Live::between(&before, &status, now - then);
        (before, then) = (status, now);
        if json {
            print::json_line(&live);
        } else {
            let title = format!("{}, every {} s; Ctrl-C ends", before.listen, every.as_secs());
            print::again(&format!("{title}\n{}\n", live.text()));
        }
    }
}

fn show(status: &status::Status) {
    print::line(&format!("hosts connect to {}", status.listen));
    if let Some(pacing) = status.pacing {
        print::line(&format!("timing: {}", status::timing(pacing)));
    }
    if let Some(durability) = status.durability {
        let volatile_cache = status.volatile_cache.unwrap_or(false);
        print::line(&format!("durability: {}", status::durability(durability, volatile_cache)));
    }
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
    for one in &status.missing_devices {
        say!("warning: device {} is not there: {}", one.name, one.reason);
    }
    for file in status.devices.iter().filter_map(|device| device.file.as_ref()) {
        say!(
            "{}: takes {} now and grows to {}; its file system has {} free",
            file.path,
            file.taken,
            file.grows_to,
            file.free
        );
    }
    if let (Some(count), Some(last)) = (status.panics, &status.last_panic) {
        say!(
            "warning: {count} panics of the server so far (`diecut panics` says more); the last one: {last}"
        );
    }
    for vssd in &status.vssds {
        if let Some(reason) = &vssd.read_only_reason {
            say!("warning: vSSD {} takes no writes: {reason}", vssd.vssd.name);
        }
    }
    for (vssd, loss) in status.vssds.iter().filter_map(|one| Some((&one.vssd.name, one.accepted_loss?))) {
        print::line(&format!("warning: vSSD {vssd}: loss was accepted: {}", loss.text()));
    }
    for vssd in status.vssds.iter().filter(|vssd| vssd.provisioned > vssd.exported) {
        print::line(&format!(
            "vSSD {}: volumes of {} in all are provisioned on {}; when that is full, writes fail",
            vssd.vssd.name, vssd.provisioned, vssd.exported
        ));
    }
    for device in status.devices.iter().filter(|device| device.is_away) {
        print::line(&format!(
            "warning: device {} is away: its target does not answer, and commands of hosts are not ready until it does. See to the target; the server \
             goes on by itself",
            device.name
        ));
    }
    super::device::health::print_warnings(status);
    print::table(vssd::header(), status.vssds.iter().map(vssd::row).collect());
    // Identities make it too wide; `diecut volume list` has them.
    let columns = volume::header().len() - 1;
    let volumes = status.volumes.iter().map(|volume| volume::row(volume)[..columns].to_vec());
    print::table(&volume::header()[..columns], volumes.collect());
    print::table(subsystem::header(), status.subsystems.iter().map(subsystem::row).collect());
}
