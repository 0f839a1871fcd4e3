use crate::client::{Client, ClientError};
use crate::print;
use clap::{Args, Subcommand};
use diecut_api::{route, status};
use diecut_spec::{ChannelWear, WearSettings};

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
    Set(WearSettings),
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
            Action::Pause => WearSettings { paused: Some(true), ..WearSettings::default() },
            Action::Resume => WearSettings { paused: Some(false), ..WearSettings::default() },
            Action::Set(settings) => settings,
        };
        client.create(route::WEAR, &change).await?;
        // Only what was named.
        let said = serde_json::to_value(change).expect("settings are plain data");
        let said = said.as_object().expect("a struct is an object").iter();
        let said: Vec<String> = said.map(|(name, value)| format!("{name} = {value}")).collect();
        print::done(json, "set", "even wear", "", &said.join(", "));
        Ok(())
    }
}

fn show(device: &status::DeviceStatus) {
    let wear = &device.wear;
    let header = ["channel", "erases", "vSSDs", "exchanges", "inside", "journal", "since it moved", "a day"];
    let row = |(number, channel): (usize, &ChannelWear)| {
        let causes =
            [channel.host_erases, channel.migration_erases, channel.inside_erases, channel.journal_erases];
        let mut row = vec![number.to_string(), channel.erases().to_string()];
        row.extend(causes.iter().map(u64::to_string));
        row.extend([channel.content_erases.to_string(), format!("{:.1}", channel.content_erases_per_day)]);
        row
    };
    print::line(&device.name);
    print::table(&header, wear.channels.iter().enumerate().map(row).collect());
    let rule = if wear.settings.literal_rule {
        "when a channel's content erased as many since it moved, the paper's literal rule"
    } else {
        "when hot content wears a channel so far ahead of the least worn quiet one"
    };
    let age = if wear.settings.follow_age {
        format!(
            ", following the device's age ({} cycles, {} thousandths ahead)",
            wear.settings.endurance_cycles, wear.settings.delta_permille
        )
    } else {
        String::new()
    };
    print::line(&format!(
        "swaps at a threshold of {} erases (of a single die: {}){age}: {rule}",
        wear.settings.channel_threshold_erases, wear.settings.die_threshold_erases
    ));
    let paused = if wear.settings.paused { ", paused" } else { "" };
    print::line(&format!(
        "{} exchanges of dies finished, {} wait{paused}; {} erase blocks moved, {} pages lost on the way, at most {} a second",
        wear.finished, wear.waiting, wear.moved_blocks, wear.lost_pages, wear.settings.rate
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
