use crate::client::{Client, ClientError};
use crate::print;
use clap::Args;
use diecut_api::difference::{Difference, differences};
use diecut_api::lacking::{Lacking, lacking};
use diecut_api::problem::{Problem, ProblemKind};
use diecut_api::route;
use diecut_api::setup::Setup;
use diecut_spec::HostSpec;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Create what a set-up file declares and the server lacks, and name what differs; what exists is left as it is.
///
/// The server is the one of the file, unless --socket or DIECUT_SOCKET names another.
#[derive(Args)]
pub struct Apply {
    /// Set-up file (TOML).
    file: PathBuf,
}

/// What came of it.
#[derive(Serialize)]
struct Outcome {
    created: Vec<String>,
    refused: Vec<Problem>,
    /// What is not as declared afterwards.
    differences: Vec<Difference>,
}

impl Apply {
    /// Asks the server at the socket that was told, or at the file's.
    pub async fn run(
        self,
        told_socket: Option<PathBuf>,
        timeout_s: Option<u64>,
        json: bool,
    ) -> Result<(), ClientError> {
        let name = self.file.display().to_string();
        let text = std::fs::read_to_string(&self.file)
            .map_err(|error| ClientError::Usage(format!("{name} cannot be read: {error}")))?;
        let mut setup =
            Setup::from_toml(&text).map_err(|error| ClientError::Usage(format!("{name}: {error}")))?;
        setup.relative_to(self.file.parent().unwrap_or(Path::new("")));
        let socket = told_socket.unwrap_or_else(|| setup.server.socket_path());
        let client = &Client::new(socket.clone(), timeout_s);
        let status = client.status().await?;
        let (mut created, mut refused) = (Vec::new(), Vec::new());
        for what in lacking(&setup, &status) {
            match create(client, what).await {
                Ok(_) => {
                    if !json {
                        print::line(&format!("created {what}"));
                    }
                    created.push(what.to_string());
                }
                Err(ClientError::Refused(Problem { kind, message })) => {
                    let message = format!("{what}: {message}");
                    if !json {
                        eprintln!("error: {message}");
                    }
                    refused.push(Problem { kind, message });
                }
                Err(other) => return Err(other),
            }
        }
        let differences = differences(&setup, &client.status().await?, &name, &socket);
        let is_as_declared = refused.is_empty() && differences.is_empty();
        let outcome = Outcome { created, refused, differences };
        if json {
            print::json(&outcome);
        } else {
            // What was refused was told already.
            outcome
                .differences
                .iter()
                .filter(|one| one.field.is_some())
                .for_each(|one| eprintln!("warning: {one}"));
            if is_as_declared {
                print::line(&format!("everything is as {name} declares it"));
            }
        }
        if is_as_declared {
            return Ok(());
        }
        let count = outcome.differences.len();
        let message =
            format!("{count} things are not as {name} declares them; what exists was left as it is");
        Err(ClientError::Refused(Problem::new(ProblemKind::Exists, message)))
    }
}

async fn create(client: &Client, what: Lacking<'_>) -> Result<bool, ClientError> {
    match what {
        Lacking::Wear(change) => client.create(route::WEAR, change).await,
        Lacking::Tenant(tenant) => client.create(route::TENANTS, tenant).await,
        Lacking::Vssd(vssd) => client.create(route::VSSDS, vssd).await,
        Lacking::Volume(volume) => client.create(route::VOLUMES, volume).await,
        Lacking::Subsystem(subsystem) => client.create(route::SUBSYSTEMS, subsystem).await,
        Lacking::QosSet(set) => client.create(route::QOS, set).await,
        Lacking::Host { subsystem, host } => {
            client.create(&route::list_within(subsystem, "hosts"), &HostSpec { nqn: host.to_owned() }).await
        }
        Lacking::Namespace { subsystem, namespace } => {
            client.create(&route::list_within(subsystem, "namespaces"), namespace).await
        }
    }
}
