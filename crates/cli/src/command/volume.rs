use crate::client::{Client, ClientError};
use crate::command::Consent;
use crate::print;
use clap::Subcommand;
use diecut_api::route;
use diecut_api::status::VolumeStatus;
use diecut_spec::VolumeSpec;

#[derive(Subcommand)]
pub enum Volume {
    /// Create a volume on a vSSD.
    Create(VolumeSpec),
    /// List all volumes.
    List,
    /// Show one volume.
    Show {
        /// Its name.
        name: String,
    },
    /// Delete a volume that no subsystem shows. Its data is gone.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        consent: Consent,
    },
}

const HEADER: [&str; 9] =
    ["volume", "vssd", "size", "used", "reads", "writes", "read p50 / p99", "write p50 / p99", "uuid"];

impl Volume {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        match self {
            Volume::Create(volume) => {
                let changed = client.create(route::VOLUMES, &volume).await?;
                let mut detail = volume.size.to_string();
                if let Some(zones) = chosen_zones(client, &volume.name).await? {
                    detail += &format!(", {zones}");
                }
                print::made(json, changed, "created", "volume", &volume.name, &detail);
                Ok(())
            }
            Volume::Delete { name, consent } => {
                let status = client.status().await?;
                let volume = status
                    .volumes
                    .iter()
                    .find(|volume| volume.volume.name == name)
                    .ok_or_else(|| super::not_found("volume", &name))?;
                let loss = format!("{} of data (of {}) is lost", volume.used, volume.volume.size);
                consent.ask(&format!("volume \"{name}\""), &loss)?;
                client.delete(&route::of(route::VOLUMES, &name)).await?;
                print::done(json, "deleted", "volume", &name, "");
                Ok(())
            }
            Volume::List => {
                let status = client.status().await?;
                if json {
                    print::json(&status.volumes);
                } else {
                    print::table(&HEADER, status.volumes.iter().map(row).collect());
                }
                Ok(())
            }
            Volume::Show { name } => {
                let status = client.status().await?;
                let volume = status
                    .volumes
                    .iter()
                    .find(|volume| volume.volume.name == name)
                    .ok_or_else(|| super::not_found("volume", &name))?;
                if json {
                    print::json(volume);
                } else {
                    print::table(&HEADER, vec![row(volume)]);
                    print::fields("volume", &name, volume.volume.fields());
                }
                Ok(())
            }
        }
    }
}

/// The limits of a volume's zones, which the server chooses where nobody did; `None` without zones.
async fn chosen_zones(client: &Client, name: &str) -> Result<Option<String>, ClientError> {
    let status = client.status().await?;
    let volume = status.volumes.iter().find(|volume| volume.volume.name == name);
    let zones = volume.map(|volume| volume.volume.zones);
    Ok(zones.and_then(|zones| {
        let (active, open) = (zones.active?, zones.open?);
        Some(format!("zones: {active} active at once, {open} open"))
    }))
}

/// One volume as a row under `HEADER`.
pub(super) fn row(volume: &VolumeStatus) -> Vec<String> {
    let pair = |latency: diecut_api::status::Latency| {
        format!("{} / {}", print::latency(latency.p50_ns), print::latency(latency.p99_ns))
    };
    vec![
        volume.volume.name.clone(),
        volume.volume.vssd.clone(),
        volume.volume.size.to_string(),
        volume.used.to_string(),
        volume.reads.to_string(),
        volume.writes.to_string(),
        pair(volume.read_latency),
        pair(volume.write_latency),
        volume.volume.uuid.map_or("-".to_string(), |uuid| uuid.to_string()),
    ]
}

/// Header of [`row`].
pub(super) const fn header() -> &'static [&'static str] {
    &HEADER
}
