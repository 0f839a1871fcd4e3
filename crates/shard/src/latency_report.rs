//! What is known of slow commands, with the names of today.

use crate::delays::{Delays, Record, cause_of};
use crate::qos;
use crate::registry::Registry;
use diecut_namespace::contract::NamespaceId;
use diecut_nvme::opcode::io as opcode;
use diecut_spec::latency::*;
use diecut_units::Span;
use diecut_vssd::{BusyShare, DieStretch, DieWork, IoClass, VssdId, WorkKind};

fn us(span: Span) -> u64 {
    span.0 / 1000
}

/// The word of an opcode.
pub(crate) fn operation_name(code: u8) -> &'static str {
    match code {
        opcode::READ => "read",
        opcode::WRITE => "write",
        opcode::FLUSH => "flush",
        opcode::DATASET_MANAGEMENT => "deallocate",
        opcode::WRITE_ZEROES => "write_zeroes",
        opcode::COMPARE => "compare",
        opcode::VERIFY => "verify",
        opcode::COPY => "copy",
        opcode::WRITE_UNCORRECTABLE => "write_uncorrectable",
        _ => "other",
    }
}

/// The word of a class.
pub(crate) fn class_name(class: IoClass) -> &'static str {
    match class {
        IoClass::HostRead => "host_read",
        IoClass::HostWrite => "host_write",
        IoClass::Cleaner => "cleaner",
        IoClass::Metadata => "metadata",
        IoClass::Migration => "migration",
    }
}

/// The word of a kind of work.
pub(crate) fn kind_name(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Read => "read",
        WorkKind::Program => "program",
        WorkKind::Erase => "erase",
    }
}

/// Names of what is numbered.
struct Names<'a> {
    registry: &'a Registry,
    shard: u16,
}

impl Names<'_> {
    /// Tenant and name of a vSSD; one that is gone has its number.
    fn of_vssd(&self, id: VssdId) -> (String, String) {
        let found = self.registry.state.vssds.values().find(|record| record.number == id.0);
        match found {
            Some(record) => (record.tenant.clone(), record.name.clone()),
            None => ("?".to_owned(), format!("number {}", id.0)),
        }
    }

    fn work(&self, work: DieWork, operations: u32) -> WorkFor {
        let (tenant, vssd) = self.of_vssd(work.owner);
        let (class, kind) = (class_name(work.class).to_owned(), kind_name(work.kind).to_owned());
        WorkFor { tenant, vssd, class, kind, operations }
    }

    fn part(&self, share: &BusyShare, own: VssdId) -> TimePart {
        let work = Some(self.work(share.work, share.operations));
        TimePart { cause: cause_of(share, own), us: us(share.time), work }
    }

    fn neighbour(&self, stretch: &DieStretch, record: &Record) -> Neighbour {
        let since = |time: diecut_units::Time| (time.0 as i64 - record.stamps.arrived.0 as i64) / 1000;
        Neighbour {
            work: self.work(stretch.work, stretch.operations),
            from_us: since(stretch.from),
            until_us: since(stretch.until),
        }
    }

    fn command(&self, record: &Record) -> SlowCommand {
        let NamespaceId(namespace) = record.namespace;
        let volumes = &self.registry.state.volumes;
        let volume = volumes.values().find(|volume| volume.namespace == namespace);
        let (name, vssd) = volume.map(|one| (one.name.clone(), one.vssd.clone())).unwrap_or_default();
        let tenant = self.registry.state.vssds.get(&vssd).map(|one| one.tenant.clone()).unwrap_or_default();
        let shows = |subsystem: &&diecut_spec::SubsystemSpec| {
            subsystem.namespaces.iter().any(|one| one.volume == name)
        };
        let subsystem = self.registry.state.subsystems.values().find(shows);
        let mut parts: Vec<TimePart> = Vec::new();
        if let (Some(delay), Some(operation)) = (&record.delay, &record.operation) {
            parts.extend(delay.shares().map(|share| self.part(share, operation.work.owner)));
        }
        // Those that are no work of a die.
        let of_die = [Cause::DieOwn, Cause::DieCleaner, Cause::DieNeighbour, Cause::DieMigration, Cause::Bus];
        let others = Cause::ALL.into_iter().filter(|cause| !of_die.contains(cause));
        let others = others.map(|cause| TimePart { cause, us: us(record.parts.of(cause)), work: None });
        parts.extend(others.filter(|part| part.us > 0));
        parts.sort_by_key(|part| std::cmp::Reverse(part.us));
        let channel_of =
            |die: u32| ((die / record.dies_per_channel) as u16, (die % record.dies_per_channel) as u16);
        let mut neighbours: Vec<Neighbour> =
            record.neighbours.iter().flatten().map(|one| self.neighbour(one, record)).collect();
        neighbours.reverse();
        SlowCommand {
            at_us: record.done.0 / 1000,
            took_us: us(record.took()),
            place: WhereItWas {
                tenant,
                vssd,
                qos_set: qos::set_of_volume(&self.registry.state, &name).map(str::to_owned),
                volume: name,
                shard: self.shard,
                die: record.operation.map(|operation| channel_of(operation.die)),
            },
            asked: asked(record, subsystem.map(|one| one.nqn.as_str())),
            parts,
            neighbours,
        }
    }
}

/// What the host of a command asked.
fn asked(record: &Record, subsystem: Option<&str>) -> WhatWasAsked {
    let facts = record.facts;
    WhatWasAsked {
        subsystem: subsystem.filter(|_| facts.is_some()).unwrap_or_default().to_owned(),
        nsid: facts.map_or(0, |facts| facts.nsid),
        operation: facts.map_or("other", |facts| operation_name(facts.opcode)).to_owned(),
        first_lba: facts.map_or(0, |facts| facts.first_lba),
        lba_count: facts.map_or(0, |facts| facts.lba_count),
        controller_id: facts.map_or(0, |facts| facts.controller_id),
        queue_id: facts.map_or(0, |facts| facts.queue_id),
        command_id: facts.map_or(0, |facts| facts.command_id),
    }
}

/// What a shard knows of slow commands.
pub(crate) fn report(delays: &Delays, registry: &Registry, shard: u16) -> LatencyReport {
    let names = Names { registry, shard };
    let causes = Cause::ALL.into_iter().zip(&delays.causes).filter(|(_, one)| one.commands > 0);
    let matrix = delays.matrix.iter().map(|((own, other), waited)| {
        let ((tenant, vssd), (for_tenant, for_vssd)) = (names.of_vssd(*own), names.of_vssd(*other));
        WaitedFor {
            tenant,
            vssd,
            for_tenant,
            for_vssd,
            reads_us: us(waited.reads),
            programs_us: us(waited.programs),
            erases_us: us(waited.erases),
            cleaner_us: us(waited.cleaner),
            migration_us: us(waited.migration),
            bus_us: us(waited.bus),
        }
    });
    let mut report = LatencyReport {
        threshold_us: us(delays.threshold),
        now_us: delays.now.0 / 1000,
        slow: delays.slow,
        explained: delays.explained,
        causes: causes
            .map(|(cause, one)| CauseFigures {
                cause,
                commands: one.commands,
                dominant: one.dominant,
                total_us: us(one.total),
                histogram: one.histogram,
            })
            .collect(),
        matrix: matrix.collect(),
        commands: delays.commands.iter().map(|record| names.command(record)).collect(),
    };
    report.sort();
    report
}
