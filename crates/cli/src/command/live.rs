//! `diecut status --live`: what each tenant does right now, from the difference of two answers of the server.

use crate::print;
use diecut_api::status::{Latency, Status, VolumeStatus, VssdStatus};
use serde::Serialize;
use std::time::Duration;

/// What happened between two moments.
#[derive(Debug, PartialEq, Serialize)]
pub struct Live {
    /// Time between the moments, in seconds.
    pub interval_s: f64,
    /// Tenants, by name.
    pub tenants: Vec<TenantLive>,
    /// Devices.
    pub devices: Vec<DeviceLive>,
}

/// One tenant.
#[derive(Debug, PartialEq, Serialize)]
pub struct TenantLive {
    pub name: String,
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    pub read_mb_per_s: f64,
    pub write_mb_per_s: f64,
    /// The worst of its volumes, since the server started.
    pub read_latency: Latency,
    pub write_latency: Latency,
    /// Bytes programmed for each byte written, in the interval; absent without writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waf: Option<f64>,
    /// The same since the server started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waf_since_start: Option<f64>,
    pub erases_per_s: f64,
    pub used_bytes: u64,
    pub exported_bytes: u64,
    /// Free erase blocks of each of its vSSDs.
    pub vssds: Vec<VssdLive>,
    /// Its vSSDs that take no writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<String>,
}

/// One vSSD of a tenant: how much its cleaner has in hand.
#[derive(Debug, PartialEq, Serialize)]
pub struct VssdLive {
    pub name: String,
    pub erase_blocks: u64,
    pub free_erase_blocks: u64,
}

/// One device.
#[derive(Debug, PartialEq, Serialize)]
pub struct DeviceLive {
    pub name: String,
    pub free_channels: u16,
    pub free_dies: u32,
    pub erases_per_s: f64,
    /// Erases of the channel with the fewest and the most, since the device was made.
    pub channel_erases_min: u64,
    pub channel_erases_max: u64,
}

impl VssdLive {
    fn text(&self) -> String {
        format!("{}: {} of {}", self.name, self.free_erase_blocks, self.erase_blocks)
    }
}

fn rate(before: u64, now: u64, interval_s: f64) -> f64 {
    // A server that was started again counts from zero: what it did since is all there is.
    let count = now.checked_sub(before).unwrap_or(now);
    if interval_s > 0.0 { count as f64 / interval_s } else { 0.0 }
}

fn programmed_bytes(vssd: &VssdStatus) -> u64 {
    vssd.programmed_user.bytes() + vssd.programmed_cleaner.bytes() + vssd.programmed_metadata.bytes()
}

fn worst(one: Latency, other: Latency) -> Latency {
    Latency {
        p50_ns: one.p50_ns.max(other.p50_ns),
        p99_ns: one.p99_ns.max(other.p99_ns),
        p99_9_ns: one.p99_9_ns.max(other.p99_9_ns),
        p99_99_ns: one.p99_99_ns.max(other.p99_99_ns),
    }
}

impl Live {
    /// What happened from `before` to `now`.
    pub fn between(before: &Status, now: &Status, interval: Duration) -> Live {
        let interval_s = interval.as_secs_f64();
        let tenants = now.tenants.iter().map(|tenant| tenant_live(&tenant.name, before, now, interval_s));
        let devices = now.devices.iter().enumerate().map(|(index, device)| {
            let sum = |erases: &[u64]| erases.iter().sum::<u64>();
            let erased_before = before.devices.get(index).map_or(0, |device| sum(&device.erases_per_channel));
            DeviceLive {
                name: device.name.clone(),
                free_channels: device.free_channels,
                free_dies: device.free_dies,
                erases_per_s: rate(erased_before, sum(&device.erases_per_channel), interval_s),
                channel_erases_min: device.erases_per_channel.iter().copied().min().unwrap_or(0),
                channel_erases_max: device.erases_per_channel.iter().copied().max().unwrap_or(0),
            }
        });
        Live { interval_s, tenants: tenants.collect(), devices: devices.collect() }
    }

    /// Tables for people.
    pub fn text(&self) -> String {
        let ratio = |waf: Option<f64>| waf.map_or("-".to_owned(), |waf| format!("{waf:.2}"));
        let rows = self.tenants.iter().map(|tenant| {
            let percentiles = |latency: &Latency| {
                [latency.p50_ns, latency.p99_ns, latency.p99_9_ns].map(print::latency).join(" / ")
            };
            let full = if tenant.exported_bytes > 0 {
                format!("{:.0} %", tenant.used_bytes as f64 / tenant.exported_bytes as f64 * 100.0)
            } else {
                "-".to_owned()
            };
            vec![
                tenant.name.clone(),
                format!("{:.0} / {:.0}", tenant.reads_per_s, tenant.writes_per_s),
                format!("{:.1} / {:.1}", tenant.read_mb_per_s, tenant.write_mb_per_s),
                percentiles(&tenant.read_latency),
                percentiles(&tenant.write_latency),
                format!("{} / {}", ratio(tenant.waf), ratio(tenant.waf_since_start)),
                format!("{:.0}", tenant.erases_per_s),
                full,
                tenant.vssds.iter().map(VssdLive::text).collect::<Vec<_>>().join("\n"),
            ]
        });
        let header = [
            "tenant",
            "IOPS read / write",
            "MB/s read / write",
            "read p50 / p99 / p99.9",
            "write p50 / p99 / p99.9",
            "WAF now / in all",
            "erases/s",
            "full",
            "free erase blocks",
        ];
        let mut text = print::table_text(&header, rows.collect());
        for tenant in &self.tenants {
            for vssd in &tenant.read_only {
                text += &format!(
                    "\nwarning: vSSD {vssd} of tenant {} takes no writes; see `diecut status`",
                    tenant.name
                );
            }
        }
        for device in &self.devices {
            text += &format!(
                "\ndevice {}: {} channels and {} dies free, {:.0} erases/s, channel erases min {} max {}",
                device.name,
                device.free_channels,
                device.free_dies,
                device.erases_per_s,
                device.channel_erases_min,
                device.channel_erases_max
            );
        }
        text
    }
}

fn tenant_live(name: &str, before: &Status, now: &Status, interval_s: f64) -> TenantLive {
    let vssds: Vec<&VssdStatus> = now.vssds.iter().filter(|vssd| vssd.vssd.tenant == name).collect();
    let owns = |volume: &&VolumeStatus| vssds.iter().any(|vssd| vssd.vssd.name == volume.volume.vssd);
    let volumes: Vec<&VolumeStatus> = now.volumes.iter().filter(owns).collect();
    // One made since the last look did everything since.
    let vssd_before = |vssd: &VssdStatus| before.vssds.iter().find(|other| other.vssd.name == vssd.vssd.name);
    let volume_before =
        |volume: &VolumeStatus| before.volumes.iter().find(|other| other.volume.name == volume.volume.name);
    let of_volumes = |figure: fn(&VolumeStatus) -> u64| -> f64 {
        let one = |volume: &&VolumeStatus| {
            rate(volume_before(volume).map_or(0, figure), figure(volume), interval_s)
        };
        volumes.iter().map(one).sum()
    };
    let of_vssds = |figure: fn(&VssdStatus) -> u64| -> f64 {
        let one = |vssd: &&VssdStatus| rate(vssd_before(vssd).map_or(0, figure), figure(vssd), interval_s);
        vssds.iter().map(one).sum()
    };
    let (written, programmed) = (of_vssds(|vssd| vssd.host_written.bytes()), of_vssds(programmed_bytes));
    let in_all = |figure: fn(&VssdStatus) -> u64| vssds.iter().map(|vssd| figure(vssd)).sum::<u64>();
    let written_in_all = in_all(|vssd| vssd.host_written.bytes());
    let latency = |figure: fn(&VolumeStatus) -> Latency| {
        volumes.iter().map(|volume| figure(volume)).fold(Latency::default(), worst)
    };
    TenantLive {
        name: name.to_owned(),
        reads_per_s: of_volumes(|volume| volume.reads),
        writes_per_s: of_volumes(|volume| volume.writes),
        read_mb_per_s: of_volumes(|volume| volume.read_bytes) / 1e6,
        write_mb_per_s: of_volumes(|volume| volume.written_bytes) / 1e6,
        read_latency: latency(|volume| volume.read_latency),
        write_latency: latency(|volume| volume.write_latency),
        waf: (written > 0.0).then(|| programmed / written),
        waf_since_start: (written_in_all > 0)
            .then(|| in_all(programmed_bytes) as f64 / written_in_all as f64),
        erases_per_s: of_vssds(|vssd| vssd.erases),
        used_bytes: in_all(|vssd| vssd.used.bytes()),
        exported_bytes: in_all(|vssd| vssd.exported.bytes()),
        vssds: vssds
            .iter()
            .map(|vssd| VssdLive {
                name: vssd.vssd.name.clone(),
                erase_blocks: vssd.erase_blocks,
                free_erase_blocks: vssd.free_erase_blocks,
            })
            .collect(),
        read_only: vssds
            .iter()
            .filter(|vssd| vssd.read_only_reason.is_some())
            .map(|vssd| vssd.vssd.name.clone())
            .collect(),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use serde_json::json;

    fn status(writes: u64, cleaned: u64) -> Status {
        let latency = json!({ "p50_ns": 0, "p99_ns": 7, "p99_9_ns": 0, "p99_99_ns": 0 });
        let written = writes * 4096;
        serde_json::from_value(json!({
            "listen": "127.0.0.1:4420",
            "devices": [{
                "name": "tiny", "channels": 2, "dies_per_channel": 1, "raw_capacity": 4096, "free_channels": 1,
                "free_dies": 1, "bad_erase_blocks": 0, "erases_per_channel": [3, 5 + writes],
            }],
            "tenants": [{ "name": "a" }, { "name": "idle" }],
            "vssds": [{
                "name": "v", "tenant": "a", "isolation": "channel", "throughput_level": 1, "capacity": 4096,
                "over_provisioning_permille": 280, "weight": 100, "rate_limit": 0, "sharing": "work-conserving",
                "placement": { "channels": [0], "dies": [[0, 0]] }, "units": 1, "physical": 8192, "exported": 8192, "used": 4096,
                "host_written": written, "programmed_user": written, "programmed_cleaner": cleaned,
                "programmed_metadata": 0, "erases": writes, "erase_blocks": 70, "free_erase_blocks": 9,
            }],
            "volumes": [{
                "volume": { "name": "w", "vssd": "v", "size": 4096 }, "used": 4096, "reads": 0, "writes": writes,
                "read_bytes": 0, "written_bytes": written, "read_latency": latency, "write_latency": latency,
            }],
            "subsystems": [],
        }))
        .unwrap()
    }

    #[test]
    fn rates_are_what_happened_in_between() {
        let live = Live::between(&status(100, 0), &status(300, 200 * 4096), Duration::from_secs(2));
        let tenant = &live.tenants[0];
        assert_eq!((tenant.writes_per_s, tenant.reads_per_s, tenant.erases_per_s), (100.0, 0.0, 100.0));
        assert_eq!(tenant.write_mb_per_s, 0.4096);
        assert_eq!((tenant.waf, tenant.waf_since_start), (Some(2.0), Some(500.0 / 300.0)));
        assert_eq!(tenant.write_latency.p99_ns, 7);
        let device = &live.devices[0];
        assert_eq!((device.channel_erases_min, device.channel_erases_max), (3, 305));
        assert_eq!(live.tenants[1].writes_per_s, 0.0);
        assert_eq!(live.tenants[1].waf, None);
        assert!(live.text().contains("2.00 / 1.67"), "{}", live.text());
        assert!(live.text().contains("v: 9 of 70"), "{}", live.text());
    }

    #[test]
    fn a_server_that_was_started_again_counts_from_zero() {
        let live = Live::between(&status(300, 0), &status(10, 0), Duration::from_secs(1));
        assert_eq!(live.tenants[0].writes_per_s, 10.0);
    }
}
