//! `diecut device add`: adds a drive to a pool.

use super::format::{Made, check_size, options, tables};
use super::{Cut, or_stopped, own_path, remote, serves};
use crate::client::{Client, ClientError};
use crate::print;
use clap::Args;
use diecut_api::object::{AddedDevice, NewDevice};
use diecut_api::place::{Place, quoted};
use diecut_api::route;
use diecut_daemon::add::add;
use diecut_spec::Size;

#[derive(Args)]
pub struct Add {
    /// Block device, file, or namespace of a target (HOST:PORT/NQN/NSID).
    #[arg(required_unless_present = "address", value_parser = clap::value_parser!(Place))]
    drive: Option<Place>,
    #[command(flatten)]
    remote: remote::Wanted,
    /// A drive of the pool, in the same words; all of them are to be named, each with --to, where its server is stopped. Without it the server that
    /// runs adds the drive.
    #[arg(long, value_name = "DRIVE", value_parser = clap::value_parser!(Place))]
    to: Vec<Place>,
    /// What a server that runs calls it from now on; its path, if nothing is said.
    #[arg(long)]
    name: Option<String>,
    /// Also where something else was recognized on it, which is lost then.
    #[arg(long)]
    force: bool,
    /// Make a new file of this size, which takes room on its file system as it fills.
    #[arg(long)]
    size: Option<Size>,
    #[command(flatten)]
    cut: Cut,
}

impl Add {
    /// Carries it out, and prints what came of it.
    ///
    /// # Errors
    /// What the server says, or what speaks against the drive.
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        let Add { drive, remote, to, name, force, size, cut } = self;
        let drive = remote.only(drive.as_ref());
        let drive = drive.and_then(|one| check_size(size, std::slice::from_ref(&one)).map(|()| one));
        let drive = drive.map_err(ClientError::Usage)?;
        let to: Vec<Place> = to.into_iter().map(|place| remote.known_as(place)).collect();
        let made = if serves(client, &to).await {
            let wanted = NewDevice {
                path: own_path(&drive)?,
                name: name.clone(),
                force,
                lanes: cut.lanes,
                erase_block: cut.erase_block,
                size,
            };
            let added: AddedDevice =
                client.ask(route::DEVICES, &wanted).await.map_err(|error| or_stopped(error, "--to"))?;
            Made::from(added)
        } else {
            if name.is_some() {
                let text =
                    "--name is for a server that runs: the set-up of one that is stopped names its devices";
                return Err(ClientError::Usage(text.to_owned()));
            }
            let added = add(&drive, &to, options(force, &cut, size));
            Made::from(added.map_err(|error| ClientError::Usage(error.to_string()))?)
        };
        if json {
            print::json(&made);
            return Ok(());
        }
        print::line(&made.words());
        let text = match to.is_empty() {
            true => {
                "The server has it. Its next start needs this in its set-up, beside the others (docs/setup.md):\n"
            }
            false => {
                "The server of its pool serves it with this in its set-up, beside the others (docs/setup.md):\n"
            }
        };
        print::line(text);
        let name = name.map(|name| format!("\nname = {}", quoted(&name))).unwrap_or_default();
        print::line(&(tables(&[made], "[[device]]") + &name));
        Ok(())
    }
}
