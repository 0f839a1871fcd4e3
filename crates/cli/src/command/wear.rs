use crate::client::{Client, ClientError};
use crate::print;
use clap::{Args, Subcommand};
use diecut_api::object::WearChange;
use diecut_api::size::Size;
use diecut_api::{route, status};

#[derive(Args)]
pub struct Wear {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Show erases by channel and cause, and what is being exchanged.
    Show,
    /// Stop exchanges after the pair of erase blocks under way.
    Pause,
    /// Let exchanges go on.
    Resume,
    /// Change settings; they survive restarts.
    Set(Set),
}

#[derive(Args)]
#[group(required = true, multiple = true)]
struct Set {
    /// How many erases a channel with hot content may be ahead of the least worn quiet one; 0: none is ever swapped.
    #[arg(long, value_name = "ERASES")]
    channel_threshold: Option<u64>,
    /// The same of a die, where vSSDs hold single dies.
    #[arg(long, value_name = "ERASES")]
    die_threshold: Option<u64>,
    /// Let thresholds that are not 0 follow the device's age: small at first and towards its end. They do unless a threshold was set.
    #[arg(long, value_name = "true|false")]
    follow_age: Option<bool>,
    /// Cycles of an erase block, for thresholds that follow the age; the profile's without.
    #[arg(long, value_name = "CYCLES")]
    endurance: Option<u32>,
    /// How far the most worn part may be ahead of the average, in thousandths, for the same; 100 without.
    #[arg(long, value_name = "PERMILLE")]
    delta: Option<u32>,
    /// Bytes that exchanges may copy per second, such as 80M; 0: no limit.
    #[arg(long)]
    rate: Option<Size>,
    /// Which channels are swapped: hot content to the least worn of the quiet ones, or the paper's literal rule.
    #[arg(long, value_parser = ["quiet", "literal"])]
    rule: Option<String>,
}

impl Wear {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        let change = match self.action.unwrap_or(Action::Show) {
            Action::Show => {
                let devices = client.status().await?.devices;
                if json {
                    print::json(&devices.iter().map(|device| &device.wear).collect::<Vec<_>>());
                } else {
                    devices.iter().for_each(show);
                }
                return Ok(());
            }
            Action::Pause => WearChange { paused: Some(true), ..WearChange::default() },
            Action::Resume => WearChange { paused: Some(false), ..WearChange::default() },
            Action::Set(set) => WearChange {
                paused: None,
                rate: set.rate,
                channel_threshold_erases: set.channel_threshold,
                die_threshold_erases: set.die_threshold,
                follow_age: set.follow_age,
                endurance_cycles: set.endurance,
                delta_permille: set.delta,
                literal_rule: set.rule.map(|rule| rule == "literal"),
            },
        };
        client.create(route::WEAR, &change).await?;
        // Only what was named.
        let said = serde_json::to_value(change).expect("settings are plain data");
        let said =
            said.as_object().expect("a struct is an object").iter().filter(|(_, value)| !value.is_null());
        let said: Vec<String> = said.map(|(name, value)| format!("{name} = {value}")).collect();
        print::done(json, "set", "even wear", "", &said.join(", "));
        Ok(())
    }
}

fn show(device: &status::Device) {
    let wear = &device.wear;
    let header = ["channel", "erases", "vSSDs", "exchanges", "inside", "journal", "since it moved", "a day"];
    let row = |(number, channel): (usize, &status::ChannelWear)| {
        let causes =
            [channel.host_erases, channel.migration_erases, channel.inside_erases, channel.journal_erases];
        let mut row = vec![number.to_string(), causes.iter().sum::<u64>().to_string()];
        row.extend(causes.iter().map(u64::to_string));
        row.extend([channel.content_erases.to_string(), format!("{:.1}", channel.content_erases_per_day)]);
        row
    };
    print::line(&device.name);
    print::table(&header, wear.channels.iter().enumerate().map(row).collect());
    let rule = if wear.literal_rule {
        "when a channel's content erased as many since it moved, the paper's literal rule"
    } else {
        "when hot content wears a channel so far ahead of the least worn quiet one"
    };
    let age = if wear.follow_age {
        format!(
            ", following the device's age ({} cycles, {} thousandths ahead)",
            wear.endurance_cycles, wear.delta_permille
        )
    } else {
        String::new()
    };
    print::line(&format!(
        "swaps at a threshold of {} erases (of a single die: {}){age}: {rule}",
        wear.channel_threshold_erases, wear.die_threshold_erases
    ));
    let paused = if wear.paused { ", paused" } else { "" };
    print::line(&format!(
        "{} exchanges of dies finished, {} wait{paused}; {} erase blocks moved, {} pages lost on the way, at most {} a second",
        wear.finished, wear.waiting, wear.moved_blocks, wear.lost_pages, wear.rate
    ));
    for one in &wear.exchanges {
        match &one.trouble {
            Some(trouble) => {
                print::line(&format!("warning: the exchange of dies {} does not go on: {trouble}", one.dies));
            }
            None => print::line(&format!(
                "dies {} are being exchanged: {} erase blocks to move",
                one.dies, one.blocks_left
            )),
        }
    }
}
