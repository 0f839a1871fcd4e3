use crate::client::{Client, ClientError};
use clap::Args;
use diecut_api::object::WearChange;
use diecut_api::problem::Problem;
use diecut_api::route;
use diecut_api::setup::Setup;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
pub struct Apply {
    /// Set-up file (TOML).
    file: PathBuf,
}

impl Apply {
    pub async fn run(self, client: &Client) -> Result<(), ClientError> {
        let name = self.file.display();
        let text = std::fs::read_to_string(&self.file)
            .map_err(|error| ClientError::Usage(format!("{name} cannot be read: {error}")))?;
        let setup =
            Setup::from_toml(&text).map_err(|error| ClientError::Usage(format!("{name}: {error}")))?;
        if setup.wear != WearChange::default() {
            client.create(route::WEAR, &setup.wear).await?;
        }
        // In the order in which one needs the other.
        for tenant in &setup.tenants {
            create(client, route::TENANTS, "tenant", &tenant.name, tenant).await?;
        }
        for vssd in &setup.vssds {
            create(client, route::VSSDS, "vssd", &vssd.name, vssd).await?;
        }
        for volume in &setup.volumes {
            create(client, route::VOLUMES, "volume", &volume.name, volume).await?;
        }
        for subsystem in &setup.subsystems {
            create(client, route::SUBSYSTEMS, "subsystem", &subsystem.nqn, subsystem).await?;
        }
        Ok(())
    }
}

async fn create(
    client: &Client,
    path: &str,
    kind: &str,
    name: &str,
    object: &impl Serialize,
) -> Result<(), ClientError> {
    client.create(path, object).await.map_err(|error| match error {
        ClientError::Refused(problem) => ClientError::Refused(Problem {
            kind: problem.kind,
            message: format!("{kind} `{name}`: {}", problem.message),
        }),
        other => other,
    })
}
