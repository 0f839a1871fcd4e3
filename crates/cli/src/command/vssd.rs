use crate::client::{Client, ClientError};
use crate::command::Consent;
use crate::print;
use clap::Subcommand;
use diecut_api::problem::{Problem, ProblemKind};
use diecut_api::status::{RepairOutcome, RepairReport, Status, VssdStatus};
use diecut_api::{object, route};
use diecut_spec::{ReclaimGroups, Serves, VssdSpec};

#[derive(Subcommand)]
pub enum Vssd {
    /// Create a vSSD.
    Create(VssdSpec),
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
    /// Let hosts write a vSSD again that is fenced because the server failed at work for it (`diecut panics`).
    Unfence {
        /// Its name.
        name: String,
    },
    /// Say why a vSSD takes no writes, and let it take them again where nothing was lost. Ends with 1 if it still takes none.
    Repair {
        /// Its name.
        name: String,
        /// Let it take writes although something was lost: reads of lost ranges fail until they are written or deallocated, and
        /// where records of writes were lost, older data may show.
        #[arg(long)]
        accept_loss: bool,
        #[command(flatten)]
        consent: Consent,
    },
}

const HEADER: [&str; 11] = [
    "vssd",
    "tenant",
    "isolation",
    "use",
    "placement",
    "physical",
    "exported",
    "spare",
    "used",
    "WAF",
    "state",
];

impl Vssd {
    pub async fn run(self, client: &Client, json: bool) -> Result<(), ClientError> {
        match self {
            Vssd::Create(vssd) => {
                let changed = client.create(route::VSSDS, &vssd).await?;
                print::made(json, changed, "created", "vSSD", &vssd.name, "");
                Ok(())
            }
            Vssd::Delete { name, consent } => {
                let status = client.status().await?;
                let vssd = find(&status, &name)?;
                let loss = match vssd.vssd.serves {
                    Serves::Blocks => "all that an application keeps on its erase blocks is lost",
                    Serves::Volumes | Serves::Zones | Serves::OpenChannel => "its erase blocks are erased",
                };
                consent.ask(&format!("vSSD \"{name}\""), &format!("{} of flash, {loss}", vssd.physical))?;
                client.delete(&route::of(route::VSSDS, &name)).await?;
                print::done(json, "deleted", "vSSD", &name, "");
                Ok(())
            }
            Vssd::Unfence { name } => {
                client.unfence(&name).await?;
                print::done(json, "unfenced", "vSSD", &name, "");
                Ok(())
            }
            Vssd::Repair { name, accept_loss, consent } => {
                if accept_loss {
                    find(&client.status().await?, &name)?;
                    let loss = "what it lost is given up: reads of that fail until it is written or deallocated, and older data \
                                may show where records of writes were lost";
                    consent.ask_to("accept the loss of", &format!("vSSD \"{name}\""), loss)?;
                }
                let report = client.repair(&name, object::Repair { accept_loss }).await?;
                if json {
                    print::json(&report);
                } else {
                    print::line(&told(&report));
                }
                match report.reason {
                    None => Ok(()),
                    Some(reason) => {
                        let message = format!("vSSD \"{name}\" takes no writes: {reason}");
                        Err(ClientError::Refused(Problem::new(ProblemKind::Media, message)))
                    }
                }
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
                let vssd = find(&status, &name)?;
                if json {
                    print::json(vssd);
                } else {
                    print::table(&HEADER, vec![row(vssd)]);
                    print::fields("vSSD", &name, vssd.vssd.fields());
                }
                Ok(())
            }
        }
    }
}

fn find<'a>(status: &'a Status, name: &str) -> Result<&'a VssdStatus, ClientError> {
    let found = status.vssds.iter().find(|vssd| vssd.vssd.name == name);
    found.ok_or_else(|| super::not_found("vssd", name))
}

/// A repair for people.
fn told(report: &RepairReport) -> String {
    let mut lines = vec![match report.outcome {
        RepairOutcome::Good => format!("vSSD \"{}\" takes writes; there is nothing to repair", report.vssd),
        RepairOutcome::Mended => {
            format!("vSSD \"{}\" takes writes again: nothing was lost", report.vssd)
        }
        RepairOutcome::Accepted => {
            format!("vSSD \"{}\" takes writes again, without what is lost", report.vssd)
        }
        RepairOutcome::ReadOnly => {
            format!("vSSD \"{}\" takes no writes: something is lost. What is left can be read", report.vssd)
        }
        RepairOutcome::NotToBeRepaired => {
            format!("vSSD \"{}\" takes no writes, for a reason that no repair changes", report.vssd)
        }
    }];
    if let Some(reason) = report.reason.as_ref().or(report.reason_before.as_ref()) {
        let when = if report.reason.is_some() { "why" } else { "it took none before because" };
        lines.push(format!("    {when}: {reason}"));
    }
    if report.emptied_leaves > 0 {
        lines.push(format!(
            "    an older version had given back parts of maps that were empty ({}), and did not say so",
            report.emptied_leaves
        ));
    }
    if !report.missing.is_empty() {
        lines.push("missing:".to_owned());
        lines.extend(report.missing.iter().map(|missing| format!("    {missing}")));
        if report.missing_more > 0 {
            lines.push(format!("    and {} more", report.missing_more));
        }
    }
    if !report.lost.is_empty() {
        lines.push(format!(
            "reads fail of {} in all, until they are written or deallocated:",
            report.lost_size
        ));
        lines.extend(report.lost.iter().map(|range| {
            let end = range.offset_bytes + range.size_bytes;
            format!("    volume \"{}\", bytes {} to {end}", range.volume, range.offset_bytes)
        }));
        let listed: u64 = report.lost.iter().map(|range| range.size_bytes).sum();
        if listed < report.lost_size.bytes() {
            lines.push("    and other ranges".to_owned());
        }
    }
    if report.lost_records > 0 {
        lines.push(
            "records of writes are lost: somewhere in its volumes older data may show, and nobody knows where".to_owned(),
        );
    } else if report.accepted_records > 0 {
        lines.push(
            "records of writes were lost and that was accepted: older data may show since then".to_owned(),
        );
    }
    if report.outcome == RepairOutcome::ReadOnly {
        lines.push(format!(
            "If the cause can be put right (a device that comes back, a read that fails for a while), do that and repair again. Else copy \
             what can be read, or give up what is lost:\n    diecut vssd repair {} --accept-loss",
            report.vssd
        ));
    }
    lines.join("\n")
}

/// What a vSSD is for.
fn serves(vssd: &VssdSpec) -> String {
    match (vssd.placement_handles, vssd.reclaim_groups) {
        (0, _) => vssd.serves.name().to_owned(),
        (handles, ReclaimGroups::One) => format!("{}, {handles} handles", vssd.serves.name()),
        (handles, groups) => format!("{}, {handles} handles on each {}", vssd.serves.name(), groups.name()),
    }
}

/// One vSSD as a row under `HEADER`.
pub(super) fn row(vssd: &VssdStatus) -> Vec<String> {
    vec![
        vssd.vssd.name.clone(),
        vssd.vssd.tenant.clone(),
        vssd.vssd.isolation.name().to_string(),
        serves(&vssd.vssd),
        match &*vssd.vssd.device {
            [device] => format!("{device}: {}", vssd.placement.text()),
            _ => vssd.placement.text(),
        },
        vssd.physical.to_string(),
        vssd.exported.to_string(),
        vssd.effective_over_provisioning_permille
            .map_or("-".to_string(), |permille| format!("{}.{} %", permille / 10, permille % 10)),
        vssd.used.to_string(),
        vssd.waf_cleaner.map_or("-".to_string(), |waf| format!("{waf:.2}")),
        vssd.read_only_reason.clone().map_or("good".to_string(), |reason| format!("read-only: {reason}")),
    ]
}

/// Header of [`row`].
pub(super) const fn header() -> &'static [&'static str] {
    &HEADER
}
