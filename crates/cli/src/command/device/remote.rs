//! `diecut device` on namespaces of NVMe/TCP targets.

use super::identified::{Identified, Looked};
use super::{Cut, complain, yes};
use crate::print;
use clap::Args;
use diecut_api::setup::RemoteDevice;
use diecut_daemon::error::ServeError;
use diecut_daemon::remote::{Remote, RemoteHost, release};
use diecut_remote::{ClaimKind, RemoteFacts};
use diecut_spec::Size;
use serde::Serialize;
use std::process::ExitCode;

/// A namespace of a target.
#[derive(Args)]
pub struct Wanted {
    /// A namespace of the NVMe/TCP target at HOST:PORT.
    #[arg(long, value_name = "HOST:PORT", requires = "subsystem")]
    address: Option<String>,
    /// NQN of its subsystem.
    #[arg(long, value_name = "NQN", requires = "address")]
    subsystem: Option<String>,
    /// Number of the namespace in the subsystem.
    #[arg(long, default_value_t = 1, requires = "address", value_parser = clap::value_parser!(u32).range(1..))]
    nsid: u32,
    /// NQN that the target knows this host by; a new one, if nothing is said.
    #[arg(long, value_name = "NQN", requires = "address")]
    host_nqn: Option<String>,
}

impl Wanted {
    /// The namespace, if one is named.
    pub fn device(&self) -> Option<RemoteDevice> {
        Some(RemoteDevice {
            address: self.address.clone()?,
            subsystem: self.subsystem.clone()?,
            nsid: self.nsid,
            host_nqn: self.host_nqn.clone(),
            patience_ms: None,
            name: None,
        })
    }

    /// It in a set-up.
    pub fn table(&self) -> String {
        let text = |key: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!("{key} = \"{value}\"\n")).unwrap_or_default()
        };
        format!(
            "kind = \"remote\"\n{}{}nsid = {}{}",
            text("address", &self.address),
            text("subsystem", &self.subsystem),
            self.nsid,
            text("\nhost_nqn", &self.host_nqn).trim_end()
        )
    }
}

#[derive(Args)]
pub struct Release {
    #[command(flatten)]
    wanted: Wanted,
}

impl Release {
    /// Carries it out, and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        let Some(wanted) = self.wanted.device() else {
            return complain("name the namespace: --address HOST:PORT --subsystem NQN --nsid N", json);
        };
        match release(&wanted) {
            Ok(()) if json => print::json(&serde_json::json!({ "released": wanted.place() })),
            Ok(()) => print::line(&format!("{} is nobody's now", wanted.place())),
            Err(error) => return complain(&error.to_string(), json),
        }
        ExitCode::SUCCESS
    }
}

/// What a namespace says of itself.
#[derive(Serialize)]
struct Facts {
    model: String,
    serial: String,
    nguid: String,
    size_bytes: u64,
    block_bytes: u32,
    has_volatile_cache: bool,
    takes_discard: bool,
}

impl Facts {
    fn rows(&self) -> Vec<(&'static str, String)> {
        vec![
            ("is a", "namespace of an NVMe/TCP target".to_owned()),
            ("model", self.model.clone()),
            ("serial", self.serial.clone()),
            ("nguid", self.nguid.clone()),
            ("size", format!("{} ({} bytes)", Size(self.size_bytes), self.size_bytes)),
            ("block", format!("{} bytes", self.block_bytes)),
            ("volatile cache", yes(self.has_volatile_cache)),
            ("discards", yes(self.takes_discard)),
        ]
    }
}

fn look(wanted: &RemoteDevice, cut: &Cut) -> Result<Identified<Facts>, ServeError> {
    let host = RemoteHost::new(wanted.host_nqn.as_deref())?;
    let remote = Remote::connect(wanted, host, ClaimKind::Look)?;
    let RemoteFacts {
        size_bytes, lba_bytes, has_volatile_cache, takes_discard, model, serial, nguid, ..
    } = remote.facts().clone();
    let holder = |key: u64| format!("a server holds its reservation, under the key {key:#x}");
    let looked = Looked {
        users: remote.held_by().map(holder).into_iter().collect(),
        contents: remote.contents(),
        against: remote.refusals(),
        label: remote.label().map_err(|error| error.to_string()),
    };
    let nguid = nguid.iter().map(|byte| format!("{byte:02x}")).collect();
    let block_bytes = lba_bytes;
    let facts = Facts { model, serial, nguid, size_bytes, block_bytes, has_volatile_cache, takes_discard };
    let shape = cut.shape(size_bytes).map_err(|error| error.to_string());
    Ok(Identified::new(wanted.place(), facts, looked, shape))
}

/// Says what a namespace is, and what lies on it.
pub fn identify(wanted: &RemoteDevice, cut: &Cut, json: bool) -> ExitCode {
    let one = match look(wanted, cut) {
        Ok(one) => one,
        Err(error) => return complain(&error.to_string(), json),
    };
    if json {
        print::json(&[one]);
        return ExitCode::SUCCESS;
    }
    one.print(one.facts.rows());
    print::line("Nothing was written. `diecut device format` with the same words makes it a device.");
    ExitCode::SUCCESS
}
