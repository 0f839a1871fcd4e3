use crate::client::{Client, ClientError};
use crate::command::Consent;
use crate::print;
use clap::Subcommand;
use diecut_api::{object, route};
use diecut_spec::TenantSpec;

#[derive(Subcommand)]
pub enum Tenant {
    /// Create a tenant.
    Create(TenantSpec),
    /// Change what a tenant gets of its core beside others.
    Set {
        /// Its name.
        name: String,
        /// Weight among the tenants of a core, 1 to 1000; 200 gets twice the time of 100.
        #[arg(long)]
        weight: u32,
    },
    /// List all tenants.
    List,
    /// Show one tenant and what it owns.
    Show {
        /// Its name.
        name: String,
    },
    /// Bring a tenant, and all that shares channels with it, to another shard while it is served.
    ///
    /// Its hosts notice a delay only. Homes are chosen anew when the server starts.
    Move {
        /// Its name.
        name: String,
        /// The shard, from 0; `diecut status` says who lives where.
        #[arg(long)]
        shard: u16,
    },
    /// Delete a tenant that owns nothing.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        consent: Consent,
    },
}

impl Tenant {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        match self {
            Tenant::Create(tenant) => {
                let changed = client.create(route::TENANTS, &tenant).await?;
                print::made(json, changed, "created", "tenant", &tenant.name, "");
                Ok(())
            }
            Tenant::Delete { name, consent } => {
                let status = client.status().await?;
                // Nobody is asked about what does not exist.
                if !status.tenants.iter().any(|tenant| tenant.name == name) {
                    return Err(super::not_found("tenant", &name));
                }
                consent.ask(&format!("tenant \"{name}\""), "it must own nothing, so no data is lost")?;
                client.delete(&route::of(route::TENANTS, &name)).await?;
                print::done(json, "deleted", "tenant", &name, "");
                Ok(())
            }
            Tenant::Set { name, weight } => {
                let path = format!("{}/weight", route::of(route::TENANTS, &name));
                client.create(&path, &object::Weight { weight }).await?;
                print::done(json, "set", "tenant", &name, &format!("weight = {weight}"));
                Ok(())
            }
            Tenant::Move { name, shard } => {
                let path = format!("{}/home", route::of(route::TENANTS, &name));
                client.create(&path, &object::Home { shard }).await?;
                print::done(json, "moved", "tenant", &name, &format!("to shard {shard}"));
                Ok(())
            }
            Tenant::List => {
                let status = client.status().await?;
                if json {
                    print::json(&status.tenants);
                } else {
                    let rows = status.tenants.iter().map(|tenant| row(&status, tenant)).collect();
                    print::table(&HEADER, rows);
                }
                Ok(())
            }
            Tenant::Show { name } => {
                let status = client.status().await?;
                let tenant = status
                    .tenants
                    .iter()
                    .find(|tenant| tenant.name == name)
                    .ok_or_else(|| super::not_found("tenant", &name))?;
                if json {
                    print::json(tenant);
                } else {
                    print::table(&HEADER, vec![row(&status, tenant)]);
                }
                Ok(())
            }
        }
    }
}

const HEADER: [&str; 4] = ["tenant", "weight", "vssds", "subsystems"];

fn row(status: &diecut_api::status::Status, tenant: &TenantSpec) -> Vec<String> {
    let vssds: Vec<&str> = status
        .vssds
        .iter()
        .filter(|vssd| vssd.vssd.tenant == tenant.name)
        .map(|vssd| vssd.vssd.name.as_str())
        .collect();
    let subsystems: Vec<&str> = status
        .subsystems
        .iter()
        .filter(|subsystem| subsystem.subsystem.tenant == tenant.name)
        .map(|subsystem| subsystem.subsystem.nqn.as_str())
        .collect();
    vec![tenant.name.clone(), tenant.weight.to_string(), vssds.join("\n"), subsystems.join("\n")]
}
