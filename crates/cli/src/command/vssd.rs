use crate::client::{Client, ClientError};
use crate::command::Consent;
use crate::print;
use clap::{Args, Subcommand, ValueEnum};
use diecut_api::size::Size;
use diecut_api::status::VssdStatus;
use diecut_api::{object, route};

#[derive(Subcommand)]
pub enum Vssd {
    /// Create a vSSD.
    Create(Create),
    /// List all vSSDs.
    List,
    /// Show one vSSD.
    Show {
        /// Its name.
        name: String,
    },
    /// Delete a vSSD without volumes; its blocks are erased before anyone else gets them.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Args)]
pub struct Create {
    /// Its name.
    name: String,
    /// Tenant it belongs to.
    #[arg(long)]
    tenant: String,
    /// How it is kept apart from its neighbours.
    #[arg(long, value_enum)]
    isolation: Isolation,
    /// Erase blocks it holds at least, as in `64 GiB`.
    #[arg(long)]
    capacity: Size,
    /// Throughput level; the server's level table turns it into channels, dies or soft-planes.
    #[arg(long, default_value_t = object::default_throughput_level())]
    throughput_level: u32,
    /// Over-provisioning in parts per thousand: (physical - exported) / exported.
    #[arg(long, default_value_t = object::default_over_provisioning_permille())]
    over_provisioning_permille: u32,
    /// Weight among software-isolated vSSDs of the same dies; 200 gets twice the time of 100.
    #[arg(long, default_value_t = object::default_weight())]
    weight: u32,
    /// Bytes read and programmed on flash per second, the cleaner's included, as in `200 MiB`; 0 for no limit.
    #[arg(long, default_value = "0")]
    rate_limit: Size,
    /// What happens beyond the rate limit.
    #[arg(long, value_enum, default_value_t = Sharing::WorkConserving)]
    sharing: Sharing,
    /// What it is for: volumes, or erase blocks for an application.
    #[arg(long = "use", value_enum, default_value_t = Use::Volumes)]
    serves: Use,
    /// With `--use blocks`: the user that may attach, besides root and the server's own.
    #[arg(long)]
    uid: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Use {
    /// Volumes live on it.
    Volumes,
    /// An application uses its erase blocks, through the socket for blocks.
    Blocks,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sharing {
    /// Served where nobody within their limits waits: idle dies are used.
    WorkConserving,
    /// It waits, even beside idle dies.
    Strict,
}

#[derive(Clone, Copy, ValueEnum)]
enum Isolation {
    /// Whole channels of its own.
    Channel,
    /// Whole dies of its own; the channel bus is shared.
    Die,
    /// Shares of dies with fair sharing.
    Software,
    /// Shares of dies without fair sharing.
    None,
}

const HEADER: [&str; 9] =
    ["vssd", "tenant", "isolation", "placement", "physical", "exported", "used", "WAF", "state"];

impl Vssd {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        match self {
            Vssd::Create(create) => {
                let vssd = create.object();
                client.create(route::VSSDS, &vssd).await?;
                print::done(json, "created", "vSSD", &vssd.name, "");
                Ok(())
            }
            Vssd::Delete { name, consent } => {
                let status = client.status().await?;
                let vssd = status.vssds.iter().find(|vssd| vssd.vssd.name == name);
                let loss = match vssd.map(|vssd| vssd.vssd.serves) {
                    Some(object::Use::Blocks) => "all that an application keeps on its erase blocks is lost",
                    _ => "its erase blocks are erased",
                };
                let loss = vssd.map_or(loss.to_owned(), |vssd| format!("{} of flash, {loss}", vssd.physical));
                consent.ask(&format!("vSSD \"{name}\""), &loss)?;
                client.delete(&route::of(route::VSSDS, &name)).await?;
                print::done(json, "deleted", "vSSD", &name, "");
                Ok(())
            }
            Vssd::List => {
                let status = client.status().await?;
                if json {
                    print::json(&status.vssds);
                } else {
                    print::table(&HEADER, status.vssds.iter().map(row).collect());
                }
                Ok(())
            }
            Vssd::Show { name } => {
                let status = client.status().await?;
                let vssd = status
                    .vssds
                    .iter()
                    .find(|vssd| vssd.vssd.name == name)
                    .ok_or_else(|| super::not_found("vssd", &name))?;
                if json {
                    print::json(vssd);
                } else {
                    print::table(&HEADER, vec![row(vssd)]);
                }
                Ok(())
            }
        }
    }
}

impl Create {
    fn object(self) -> object::Vssd {
        object::Vssd {
            name: self.name,
            tenant: self.tenant,
            isolation: match self.isolation {
                Isolation::Channel => object::Isolation::Channel,
                Isolation::Die => object::Isolation::Die,
                Isolation::Software => object::Isolation::Software,
                Isolation::None => object::Isolation::None,
            },
            throughput_level: self.throughput_level,
            capacity: self.capacity,
            over_provisioning_permille: self.over_provisioning_permille,
            weight: self.weight,
            rate_limit: self.rate_limit,
            sharing: match self.sharing {
                Sharing::WorkConserving => object::Sharing::WorkConserving,
                Sharing::Strict => object::Sharing::Strict,
            },
            serves: match self.serves {
                Use::Volumes => object::Use::Volumes,
                Use::Blocks => object::Use::Blocks,
            },
            uid: self.uid,
        }
    }
}

/// One vSSD as a row under `HEADER`.
pub(super) fn row(vssd: &VssdStatus) -> Vec<String> {
    let isolation = match vssd.vssd.isolation {
        object::Isolation::Channel => "channel",
        object::Isolation::Die => "die",
        object::Isolation::Software => "software",
        object::Isolation::None => "none",
    };
    vec![
        vssd.vssd.name.clone(),
        vssd.vssd.tenant.clone(),
        isolation.to_string(),
        vssd.placement.clone(),
        vssd.physical.to_string(),
        vssd.exported.to_string(),
        vssd.used.to_string(),
        vssd.waf_cleaner.map_or("-".to_string(), |waf| format!("{waf:.2}")),
        vssd.read_only_reason.clone().map_or("good".to_string(), |reason| format!("read-only: {reason}")),
    ]
}

/// Header of [`row`].
pub(super) const fn header() -> &'static [&'static str] {
    &HEADER
}
