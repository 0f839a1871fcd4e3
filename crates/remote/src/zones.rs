//! Zones of a namespace, as a report of it tells them after each claim: only the target knows where write pointers are.

use diecut_initiator::zoned::{ZoneFacts, ZonedNamespace};
use diecut_media::{Zone, ZoneCondition};
use diecut_nvme::SubmissionEntry;
use diecut_nvme::zns::zone_state;
use diecut_units::Buffer;

/// A report that is asked for piece by piece.
#[derive(Debug)]
pub(crate) struct Report {
    namespace: ZonedNamespace,
    zones: Vec<Zone>,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    /// The next piece; see [`Report::ask`].
    Ask,
    /// All zones are told.
    Done,
    /// A piece tells no zone, or others than were asked for.
    Nonsense,
}

impl Report {
    pub fn new(namespace: ZonedNamespace) -> Report {
        Report { namespace, zones: Vec::new() }
    }

    /// The command of the next piece: the entry, what it carries, and what it brings at most.
    pub fn ask(&self, transfer_bytes_max: u32) -> (SubmissionEntry, Option<Buffer>, u32) {
        let first = self.zones.len() as u32;
        let count =
            self.namespace.zones_per_report(transfer_bytes_max).clamp(1, self.namespace.zones - first);
        let command = self.namespace.report(first, count);
        (command.entry, command.data, command.expected_bytes)
    }

    /// A piece came.
    pub fn take(&mut self, bytes: &[u8]) -> More {
        let told = self.namespace.zones_of(bytes);
        let numbers = self.zones.len() as u32..;
        if told.is_empty() || !told.iter().zip(numbers).all(|(zone, number)| zone.zone == number) {
            return More::Nonsense;
        }
        let namespace = self.namespace;
        self.zones.extend(told.iter().map(|zone| known(&namespace, zone)));
        if self.zones.len() as u32 >= namespace.zones { More::Done } else { More::Ask }
    }

    /// All of them, from the first one on.
    pub fn into_zones(self) -> Vec<Zone> {
        self.zones
    }
}

fn known(namespace: &ZonedNamespace, zone: &ZoneFacts) -> Zone {
    let lba = u64::from(namespace.lba_bytes);
    let offset = u64::from(zone.zone) * namespace.zone_size_lbas * lba;
    Zone {
        offset,
        capacity_bytes: zone.capacity_lbas * lba,
        write_pointer: offset + zone.written_lbas * lba,
        condition: match zone.state {
            zone_state::EMPTY => ZoneCondition::Empty,
            zone_state::IMPLICITLY_OPEN | zone_state::EXPLICITLY_OPEN | zone_state::CLOSED => {
                ZoneCondition::Active
            }
            zone_state::FULL => ZoneCondition::Full,
            zone_state::READ_ONLY => ZoneCondition::ReadOnly,
            _ => ZoneCondition::Offline,
        },
    }
}
