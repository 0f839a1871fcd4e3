use crate::client::{Client, ClientError};
use crate::print;
use clap::Subcommand;
use diecut_api::route;
use diecut_spec::HostSpec;

#[derive(Subcommand)]
pub enum Host {
    /// Let a host connect to a subsystem.
    Allow {
        /// NQN of the host.
        nqn: String,
        /// NQN of the subsystem.
        #[arg(long)]
        subsystem: String,
    },
    /// Take the permission back and disconnect the host.
    Deny {
        /// NQN of the host.
        nqn: String,
        /// NQN of the subsystem.
        #[arg(long)]
        subsystem: String,
    },
    /// List who may connect where.
    List,
}

impl Host {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        match self {
            Host::Allow { nqn, subsystem } => {
                let host = HostSpec { nqn };
                let changed = client.create(&route::list_within(&subsystem, "hosts"), &host).await?;
                print::made(
                    json,
                    changed,
                    "allowed",
                    "host",
                    &host.nqn,
                    &format!("at subsystem {subsystem}"),
                );
                Ok(())
            }
            Host::Deny { nqn, subsystem } => {
                client.delete(&route::within(&subsystem, "hosts", &nqn)).await?;
                let status = client.status().await?;
                let lets_any = |of: &diecut_api::status::SubsystemStatus| {
                    of.subsystem.nqn == subsystem && of.subsystem.allow_any_host
                };
                let note = match status.subsystems.iter().any(lets_any) {
                    true => format!(
                        "at subsystem {subsystem}, which lets any host in, and so this one too: it was made with --allow-any-host"
                    ),
                    false => format!("at subsystem {subsystem}"),
                };
                print::done(json, "denied", "host", &nqn, &note);
                Ok(())
            }
            Host::List => {
                let status = client.status().await?;
                let pairs: Vec<(String, String)> = status
                    .subsystems
                    .iter()
                    .flat_map(|status| {
                        let any = status.subsystem.allow_any_host.then(|| "any".to_string());
                        let nqn = &status.subsystem.nqn;
                        any.into_iter()
                            .chain(status.subsystem.allowed_hosts.iter().cloned())
                            .map(move |host| (host, nqn.clone()))
                    })
                    .collect();
                if json {
                    let object = |(host, subsystem): &(String, String)| serde_json::json!({ "host": host, "subsystem": subsystem });
                    print::json(&pairs.iter().map(object).collect::<Vec<_>>());
                } else {
                    let rows = pairs.into_iter().map(|(host, nqn)| vec![host, nqn]).collect();
                    print::table(&["host", "subsystem"], rows);
                }
                Ok(())
            }
        }
    }
}
