use crate::client::{Client, ClientError};
use crate::command::Consent;
use crate::print;
use clap::Subcommand;
use diecut_api::route;
use diecut_spec::{Amount, QosSetChange, QosSetSpec, QosSetStatus, Size};

#[derive(Subcommand)]
pub enum Qos {
    /// Create a QoS set: volumes and vSSDs with a rate that is committed to them together.
    Create(QosSetSpec),
    /// Change a QoS set at once; what is not named stays.
    ///
    /// Volumes and vSSDs that are named are all that are in it from then on.
    Set {
        /// Its name.
        name: String,
        #[command(flatten)]
        change: QosSetChange,
    },
    /// List all QoS sets.
    List,
    /// Show one QoS set, with its tokens, its states and who waited.
    Show {
        /// Its name.
        name: String,
    },
    /// Delete a QoS set; its members are in none.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        consent: Consent,
    },
}

impl Qos {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        match self {
            Qos::Create(set) => {
                let changed = client.create(route::QOS, &set).await?;
                print::made(json, changed, "created", "QoS set", &set.name, "");
            }
            Qos::Set { name, change } => {
                client.create(&route::of(route::QOS, &name), &change).await?;
                // Only what was named.
                let said = serde_json::to_value(change).expect("a change is plain data");
                let said = said.as_object().expect("a struct is an object").iter();
                let said: Vec<String> = said.map(|(field, value)| format!("{field} = {value}")).collect();
                print::done(json, "set", "QoS set", &name, &said.join(", "));
            }
            Qos::List => {
                let sets = client.status().await?.qos_sets;
                if json {
                    print::json(&sets);
                } else {
                    print::table(&HEADER, sets.iter().map(row).collect());
                }
            }
            Qos::Show { name } => {
                let status = client.status().await?;
                let set = status.qos_sets.iter().find(|one| one.set.name == name);
                let set = set.ok_or_else(|| super::not_found("qos", &name))?;
                if json {
                    print::json(set);
                } else {
                    show(set);
                }
            }
            Qos::Delete { name, consent } => {
                let status = client.status().await?;
                // Nobody is asked about what does not exist.
                if !status.qos_sets.iter().any(|one| one.set.name == name) {
                    return Err(super::not_found("qos", &name));
                }
                consent.ask(&format!("QoS set \"{name}\""), "nothing is committed to its members then")?;
                client.delete(&route::of(route::QOS, &name)).await?;
                print::done(json, "deleted", "QoS set", &name, "");
            }
        }
        Ok(())
    }
}

const HEADER: [&str; 6] = ["QoS set", "rate", "second rate", "state", "tokens", "members"];

fn state(set: &QosSetStatus) -> &'static str {
    if set.is_committed { "committed" } else { "second" }
}

/// Units as the set counts them.
fn amount(set: &QosSetStatus, units: u64) -> String {
    match set.set.rate {
        Amount::Bytes(_) => Size(units).to_string(),
        Amount::Commands(_) => format!("{units} commands"),
    }
}

fn level(set: &QosSetStatus) -> String {
    let level = amount(set, set.level.unsigned_abs());
    if set.level < 0 { format!("-{level}") } else { level }
}

fn members(set: &QosSetSpec) -> Vec<String> {
    let volumes = set.volumes.iter().map(|name| format!("volume {name}"));
    volumes.chain(set.vssds.iter().map(|name| format!("vSSD {name}"))).collect()
}

fn row(set: &QosSetStatus) -> Vec<String> {
    let second = match set.set.second_rate {
        _ if set.set.threshold_in_force().units() == 0 => "never".to_owned(),
        None => "idle".to_owned(),
        Some(rate) => rate.to_string(),
    };
    let name = set.set.name.clone();
    let members = members(&set.set).join("\n");
    vec![name, set.set.rate.to_string(), second, state(set).to_owned(), level(set), members]
}

fn show(set: &QosSetStatus) {
    let mut rows = print::field_rows(set.set.fields());
    if set.set.threshold_in_force().units() == 0 {
        let second = rows.iter_mut().filter(|row| row[0] == "second_rate");
        second.for_each(|row| row[1] += " (never: the threshold is 0)");
    }
    let of = |commands: u64, units: u64| format!("{commands} commands, {}", amount(set, units));
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let mean = print::latency(set.waited_ns.checked_div(set.waits).unwrap_or(0));
    rows.extend(
        [
            ("state", state(set).to_owned()),
            ("tokens", level(set)),
            ("waiting", format!("{} volumes or applications", set.waiting)),
            ("granted, committed", of(set.committed_commands, set.committed_units)),
            ("granted, second", of(set.second_commands, set.second_units)),
            ("time, committed", seconds(set.committed_ns)),
            ("time, second", seconds(set.second_ns)),
            ("waits for tokens", format!("{}, {mean} on average", set.waits)),
        ]
        .map(|(what, value)| vec![what.to_owned(), value]),
    );
    print::table(&["QoS set", &set.set.name], rows);
}
