//! What media did for a subsystem, and its debug log: what the target asks. A host is told of its neighbours that they are there and what they
//! did, never who they are.

use crate::data_plane::DataPlane;
use crate::delays::{Record, cause_of};
use crate::latency_report::{class_name, kind_name, operation_name};
use crate::reclaim::{self, Updates};
use crate::registry::Registry;
use diecut_media::Media;
use diecut_namespace::contract::NamespaceId;
use diecut_nvmf::{MediaFigures, Question, Tidings};
use diecut_spec::latency::Cause;
use diecut_units::{Span, Time, mark};
use diecut_vssd::{DieWork, MediaUse, VssdId};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Commands before the one in question that a debug log tells of.
const COMMANDS_BEFORE: usize = 7;

/// What belongs to a subsystem.
struct Parts {
    namespaces: BTreeSet<NamespaceId>,
    vssds: BTreeSet<VssdId>,
    tenant: String,
}

fn parts_of(registry: &Registry, subsystem: &str) -> Parts {
    let Some(record) = registry.state.subsystems.get(subsystem) else {
        return Parts { namespaces: BTreeSet::new(), vssds: BTreeSet::new(), tenant: String::new() };
    };
    let volumes = record.namespaces.iter().filter_map(|one| registry.state.volumes.get(&one.volume));
    let vssds = volumes.clone().filter_map(|volume| registry.state.vssds.get(&volume.vssd));
    Parts {
        namespaces: volumes.map(|volume| NamespaceId(volume.namespace)).collect(),
        vssds: vssds.map(|record| VssdId(record.number)).collect(),
        tenant: record.tenant.clone(),
    }
}

/// Answers a question of the target.
pub(crate) fn answer<M: Media>(
    plane: &mut DataPlane<M>,
    registry: &Registry,
    question: Question,
    now: Time,
) -> Tidings {
    mark!("shard: the target asks what media did");
    let Question { subsystem, waits, updates, namespace } = question;
    let parts = parts_of(registry, subsystem.as_str());
    let updates = Updates { targets: &updates, namespace };
    let placement = reclaim::answer(plane, registry, &parts.vssds, &updates, now);
    let figures = figures(plane, registry, &parts);
    let debug_log = debug_log(plane, registry, &parts);
    Tidings { subsystem, waits, figures, placement, debug_log }
}

fn percent(part: u64, all: u64) -> u8 {
    (part * 100).checked_div(all).unwrap_or(100).min(100) as u8
}

fn figures<M: Media>(plane: &DataPlane<M>, registry: &Registry, parts: &Parts) -> MediaFigures {
    let mut media = MediaUse::default();
    for vssd in parts.vssds.iter().filter(|vssd| plane.flash.devices.find(**vssd).is_some()) {
        media.add(plane.flash.devices.media_use_of(*vssd));
    }
    let statistics = parts.namespaces.iter().filter_map(|id| plane.namespaces.statistics(*id));
    let (retired, reserve) = media.retired;
    assert!(media.blocks.1 <= media.blocks.0, "I-S31: a vSSD has its free blocks among its own");
    assert!(media.erases.1 <= media.erases.0, "I-S31: figures of media agree");
    let starts = registry.state.pool.unclean_starts;
    MediaFigures {
        written_bytes: media.programmed_bytes,
        read_bytes: media.read_bytes,
        bad_blocks: retired,
        spare_percent: percent(reserve.saturating_sub(retired), reserve),
        erases_max: media.erases.0,
        erases_min: media.erases.1,
        erases_average: media.erases.2.checked_div(media.held_blocks).unwrap_or(0) as u32,
        free_percent: percent(media.blocks.1, media.blocks.0),
        dies: media.dies.len() as u16,
        uncorrectable_reads: statistics.map(|one| one.media_errors).sum(),
        incomplete_shutdowns: u32::try_from(starts).unwrap_or(u32::MAX),
    }
}

/// What a die did, in words for a host of `tenant`.
fn work(registry: &Registry, tenant: &str, work: DieWork) -> String {
    let owner = registry.state.vssds.values().find(|record| record.number == work.owner.0);
    let whose = if owner.is_some_and(|record| record.tenant == tenant) { "own" } else { "neighbour" };
    format!("{whose} {} for {}", kind_name(work.kind), class_name(work.class))
}

/// What is known of slow commands of a subsystem, the latest last.
fn debug_log<M: Media>(plane: &DataPlane<M>, registry: &Registry, parts: &Parts) -> Vec<u8> {
    let own =
        plane.delays.commands.iter().rev().filter(|record| parts.namespaces.contains(&record.namespace));
    let mut latest: Vec<&Record> = own.take(COMMANDS_BEFORE + 1).collect();
    assert!(latest.len() <= COMMANDS_BEFORE + 1, "I-S31: a debug log is bounded");
    latest.reverse();
    let mut text = String::from("diecut latency debug log, version 1\n");
    for record in latest {
        describe(&mut text, record, registry, &parts.tenant);
    }
    text.into_bytes()
}

fn describe(text: &mut String, record: &Record, registry: &Registry, tenant: &str) {
    let us = |span: Span| span.0 / 1000;
    let arrived_us = record.stamps.arrived.0 / 1000;
    let mut line = |words: std::fmt::Arguments<'_>| {
        let written = text.write_fmt(words).and_then(|()| text.write_char('\n'));
        assert!(written.is_ok(), "a string takes what is written to it");
    };
    match record.facts {
        Some(facts) => line(format_args!(
            "command {} nsid {} lba {} +{} controller {} queue {} id {} at {arrived_us} us took {} us",
            operation_name(facts.opcode),
            facts.nsid,
            facts.first_lba,
            facts.lba_count,
            facts.controller_id,
            facts.queue_id,
            facts.command_id,
            us(record.took()),
        )),
        None => line(format_args!("command at {arrived_us} us took {} us", us(record.took()))),
    }
    for cause in Cause::ALL {
        let time = record.parts.of(cause);
        if time > Span::ZERO {
            line(format_args!("  {} us {}", us(time), cause.text()));
        }
    }
    let Some(operation) = &record.operation else { return };
    let (channel, die) = (operation.die / record.dies_per_channel, operation.die % record.dies_per_channel);
    line(format_args!("  die {channel}.{die}: {}", work(registry, tenant, operation.work)));
    for share in record.delay.iter().flat_map(|delay| delay.shares()) {
        let cause = cause_of(share, operation.work.owner).text();
        let whose = work(registry, tenant, share.work);
        line(format_args!(
            "    waited {} us, {cause}: {whose}, {} operations",
            us(share.time),
            share.operations
        ));
    }
    for stretch in record.neighbours.iter().rev().flatten() {
        let since = |time: diecut_units::Time| (time.0 / 1000) as i64 - arrived_us as i64;
        let whose = work(registry, tenant, stretch.work);
        line(format_args!(
            "    from {} to {} us: {whose}, {} operations",
            since(stretch.from),
            since(stretch.until),
            stretch.operations
        ));
    }
}
