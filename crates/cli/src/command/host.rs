use crate::client::{Client, ClientError};
use crate::print;
use clap::Subcommand;
use diecut_api::{object, route};

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
                client.create(&route::list_within(&subsystem, "hosts"), &object::Host { nqn }).await
            }
            Host::Deny { nqn, subsystem } => client.delete(&route::within(&subsystem, "hosts", &nqn)).await,
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
                    print::json(&pairs);
                } else {
                    let rows = pairs.into_iter().map(|(host, nqn)| vec![host, nqn]).collect();
                    print::table(&["host", "subsystem"], rows);
                }
                Ok(())
            }
        }
    }
}
