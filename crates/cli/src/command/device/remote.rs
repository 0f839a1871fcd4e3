//! `diecut device` on namespaces of NVMe/TCP targets.

use super::{Cut, ISOLATION, Labelled, Shape, complain, holds, labelled, yes};
use crate::print;
use clap::Args;
use diecut_api::setup::RemoteDevice;
use diecut_daemon::error::ServeError;
use diecut_daemon::remote::{Remote, RemoteHost, release};
use diecut_devices::local::Contents;
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

/// What is known of a namespace.
#[derive(Serialize)]
struct Identified {
    path: String,
    model: String,
    serial: String,
    nguid: String,
    size_bytes: u64,
    block_bytes: u32,
    has_volatile_cache: bool,
    takes_discard: bool,
    contents: Contents,
    /// Who uses it.
    users: Vec<String>,
    label: Option<Labelled>,
    /// How it would be cut.
    shape: Option<Shape>,
    /// Whether it could be made a device of diecut without force.
    fits: bool,
    /// What speaks against it.
    refusals: Vec<String>,
    isolation: &'static str,
}

fn look(wanted: &RemoteDevice, cut: &Cut) -> Result<Identified, ServeError> {
    let host = RemoteHost::new(wanted.host_nqn.as_deref())?;
    let remote = Remote::connect(wanted, host, ClaimKind::Look)?;
    let RemoteFacts {
        size_bytes, lba_bytes, has_volatile_cache, takes_discard, model, serial, nguid, ..
    } = remote.facts().clone();
    let holder = |key: u64| format!("a server holds its reservation, under the key {key:#x}");
    let users: Vec<String> = remote.held_by().map(holder).into_iter().collect();
    let contents = remote.contents();
    let mut refusals = users.clone();
    refusals.extend(contents.words().into_iter().map(|what| format!("it holds {what}")));
    refusals.extend(remote.refusals());
    let shape = cut.shape(size_bytes);
    refusals.extend(shape.as_ref().err().map(ToString::to_string));
    let has_label = contents.found.iter().any(|found| found.kind == "diecut_label");
    let label = match remote.label() {
        Ok(found) => Some(labelled(&found)),
        Err(error) => {
            refusals.extend(has_label.then(|| error.to_string()));
            None
        }
    };
    Ok(Identified {
        path: wanted.place(),
        model,
        serial,
        nguid: nguid.iter().map(|byte| format!("{byte:02x}")).collect(),
        size_bytes,
        block_bytes: lba_bytes,
        has_volatile_cache,
        takes_discard,
        contents,
        users,
        label,
        shape: shape.ok().map(Shape::from),
        fits: refusals.is_empty(),
        refusals,
        isolation: ISOLATION,
    })
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
    let mut rows = vec![
        ("is a", "namespace of an NVMe/TCP target".to_owned()),
        ("model", one.model.clone()),
        ("serial", one.serial.clone()),
        ("nguid", one.nguid.clone()),
        ("size", format!("{} ({} bytes)", Size(one.size_bytes), one.size_bytes)),
        ("block", format!("{} bytes", one.block_bytes)),
        ("volatile cache", yes(one.has_volatile_cache)),
        ("discards", yes(one.takes_discard)),
        ("holds", holds(&one.contents)),
    ];
    if let Some(label) = &one.label {
        rows.push(("label", label.words()));
    }
    if let Some(shape) = &one.shape {
        rows.push(("would be cut into", shape.words()));
    }
    rows.push(("isolation", one.isolation.to_owned()));
    let taken = if one.fits { yes(true) } else { format!("no: {}", one.refusals.join("; ")) };
    rows.push(("would be taken", taken));
    print::table(&["device", &one.path], print::field_rows(rows));
    print::line("Nothing was written. `diecut device format` with the same words makes it a device.");
    ExitCode::SUCCESS
}
