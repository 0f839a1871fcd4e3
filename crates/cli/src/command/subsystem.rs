use crate::client::{Client, ClientError};
use crate::command::Consent;
use crate::print;
use clap::Subcommand;
use diecut_api::route;
use diecut_api::status::SubsystemStatus;
use diecut_spec::{NamespaceSpec, PathSpec, PathState, SubsystemSpec};
use std::net::SocketAddr;

#[derive(Subcommand)]
pub enum Subsystem {
    /// Create a subsystem.
    Create(SubsystemSpec),
    /// List all subsystems.
    List,
    /// Show one subsystem.
    Show {
        /// Its NQN.
        nqn: String,
    },
    /// Delete a subsystem; its hosts are disconnected.
    Delete {
        /// Its NQN.
        nqn: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Show a volume as a namespace; connected hosts are told.
    Attach {
        /// NQN of the subsystem.
        nqn: String,
        /// Namespace identifier, 1 to 1024.
        #[arg(long)]
        nsid: u32,
        /// Name of the volume.
        #[arg(long)]
        volume: String,
    },
    /// Say how good the path over an address is (asymmetric namespace access); connected hosts are told.
    Path {
        /// NQN of the subsystem.
        nqn: String,
        /// Address and port that hosts connect to.
        #[arg(long)]
        address: SocketAddr,
        /// How good it is.
        #[arg(long)]
        state: PathState,
    },
    /// Take a namespace away; connected hosts are told.
    Detach {
        /// NQN of the subsystem.
        nqn: String,
        /// Namespace identifier.
        #[arg(long)]
        nsid: u32,
    },
}

const HEADER: [&str; 6] = ["subsystem", "tenant", "hosts", "namespaces", "paths", "connected"];

impl Subsystem {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        match self {
            Subsystem::Create(subsystem) => {
                let changed = client.create(route::SUBSYSTEMS, &subsystem).await?;
                print::made(json, changed, "created", "subsystem", &subsystem.nqn, "");
                Ok(())
            }
            Subsystem::Delete { nqn, consent } => {
                let status = client.status().await?;
                let found = status.subsystems.iter().find(|one| one.subsystem.nqn == nqn);
                let found = found.ok_or_else(|| super::not_found("subsystem", &nqn))?;
                let (hosts, volumes) = (found.controllers.len(), found.subsystem.namespaces.len());
                let loss = format!(
                    "{hosts} controllers of hosts are disconnected, {volumes} volumes stay but are shown no longer"
                );
                consent.ask(&format!("subsystem {nqn}"), &loss)?;
                client.delete(&route::of(route::SUBSYSTEMS, &nqn)).await?;
                print::done(json, "deleted", "subsystem", &nqn, "");
                Ok(())
            }
            Subsystem::Attach { nqn, nsid, volume } => {
                let detail = format!("namespace {nsid} is volume \"{volume}\"");
                let changed = client
                    .create(&route::list_within(&nqn, "namespaces"), &NamespaceSpec { nsid, volume })
                    .await?;
                print::made(json, changed, "attached", "subsystem", &nqn, &detail);
                Ok(())
            }
            Subsystem::Path { nqn, address, state } => {
                let path = PathSpec { address, state };
                let changed = client.create(&route::list_within(&nqn, "paths"), &path).await?;
                let detail = format!("path {address} is {}", state.name());
                print::made(json, changed, "set", "subsystem", &nqn, &detail);
                if json {
                    return Ok(());
                }
                let listen = client.status().await?.listen;
                // A state can be said before the server listens there; more often the address has a slip.
                if !is_listened_on(address, &listen) {
                    print::line(&format!("nobody listens on {address}: hosts connect to {listen}"));
                }
                Ok(())
            }
            Subsystem::Detach { nqn, nsid } => {
                client.delete(&route::within(&nqn, "namespaces", &nsid.to_string())).await?;
                print::done(json, "detached", "subsystem", &nqn, &format!("namespace {nsid} is gone"));
                Ok(())
            }
            Subsystem::List => {
                let status = client.status().await?;
                if json {
                    print::json(&status.subsystems);
                } else {
                    print::table(&HEADER, status.subsystems.iter().map(row).collect());
                }
                Ok(())
            }
            Subsystem::Show { nqn } => {
                let status = client.status().await?;
                let subsystem = status
                    .subsystems
                    .iter()
                    .find(|subsystem| subsystem.subsystem.nqn == nqn)
                    .ok_or_else(|| super::not_found("subsystem", &nqn))?;
                if json {
                    print::json(subsystem);
                } else {
                    print::table(&HEADER, vec![row(subsystem)]);
                    if let Some(sanitize) = &subsystem.sanitize {
                        print::line(&format!("most recent sanitize: {}", sanitize.describe()));
                    }
                }
                Ok(())
            }
        }
    }
}

/// Whether hosts can come over an address of a server that listens there: all addresses of a machine are meant by `0.0.0.0` and `[::]`.
fn is_listened_on(address: SocketAddr, listen: &str) -> bool {
    let all = listen.split([',', ' ']).filter_map(|one| one.parse::<SocketAddr>().ok());
    let mut all = all.filter(|one| one.port() == address.port());
    all.any(|one| one.ip().is_unspecified() || one.ip() == address.ip())
}

/// One subsystem as a row under `HEADER`.
pub(super) fn row(status: &SubsystemStatus) -> Vec<String> {
    let subsystem = &status.subsystem;
    let hosts = if subsystem.allow_any_host { "any".to_string() } else { subsystem.allowed_hosts.join("\n") };
    let namespaces: Vec<String> = subsystem
        .namespaces
        .iter()
        .map(|namespace| format!("{}={}", namespace.nsid, namespace.volume))
        .collect();
    let paths: Vec<String> =
        subsystem.paths.iter().map(|path| format!("{} {}", path.address, path.state.name())).collect();
    let controllers: Vec<String> = status
        .controllers
        .iter()
        .map(|controller| {
            let host = if controller.host_nqn.is_empty() { "no name" } else { &controller.host_nqn };
            format!("{host} (controller {}, {} queues)", controller.controller_id, controller.io_queues)
        })
        .collect();
    vec![
        subsystem.nqn.clone(),
        subsystem.tenant.clone(),
        hosts,
        namespaces.join("\n"),
        paths.join("\n"),
        controllers.join("\n"),
    ]
}

/// Header of [`row`].
pub(super) const fn header() -> &'static [&'static str] {
    &HEADER
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn addresses_that_nobody_listens_on_are_known() {
        let is = |address: &str, listen| is_listened_on(address.parse().unwrap(), listen);
        assert!(is("192.0.2.1:4420", "192.0.2.1:4420") && is("192.0.2.1:4420", "0.0.0.0:4420"));
        assert!(is("192.0.2.2:4421", "192.0.2.1:4420, 192.0.2.2:4421"));
        assert!(!is("192.0.2.1:4421", "192.0.2.1:4420") && !is("192.0.2.2:4420", "192.0.2.1:4420"));
    }
}
