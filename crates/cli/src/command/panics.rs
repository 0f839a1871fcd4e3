//! `diecut panics`: inner checks of the server that failed, and what followed.

use crate::client::{Client, ClientError, get};
use crate::print;
use clap::Args;
use diecut_api::panics::{Panic, PanicReport};
use diecut_api::route;

#[derive(Args)]
pub struct Panics {
    /// Show so many of the last ones.
    #[arg(long, value_name = "N", default_value_t = 3)]
    last: usize,
}

impl Panics {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        let report: PanicReport = get(client, route::PANICS).await?;
        match json {
            true => print::json(&report),
            false => print::line(&self.text(&report)),
        }
        Ok(())
    }

    fn text(&self, report: &PanicReport) -> String {
        if report.count == 0 {
            return "no inner check of the server failed".to_owned();
        }
        let mut lines =
            vec![format!("{} panics; what each shard held was recovered from the device", report.count)];
        lines.extend(report.fenced.iter().map(|fence| {
            format!(
                "vSSD \"{0}\" is fenced since panic {1}: hosts write it no more. To let them: diecut vssd unfence {0}",
                fence.vssd, fence.panic
            )
        }));
        report.panics.iter().rev().take(self.last).for_each(|panic| lines.extend(about(panic)));
        lines.join("\n")
    }
}

fn about(panic: &Panic) -> Vec<String> {
    let vssd = panic.vssd.as_ref().map_or("no single vSSD".to_owned(), |name| format!("vSSD \"{name}\""));
    let mut lines = vec![
        format!(
            "panic {} (id {}, {} ms since 1970) of shard {}, at work for {vssd}",
            panic.number, panic.id, panic.at_ms, panic.shard
        ),
        format!("    {}", panic.location),
        format!("    {}", panic.message),
    ];
    for (title, told) in [("commands", &panic.commands), ("notices", &panic.notices)] {
        if !told.is_empty() {
            lines.push(format!("    last {title}:"));
            lines.extend(told.iter().map(|line| format!("        {line}")));
        }
    }
    lines
}
