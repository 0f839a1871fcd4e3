//! Which namespace is wanted, and what it is.

use crate::claim::{ClaimKind, Key};
use crate::error::RemoteError;
use crate::look::Look;
use diecut_initiator::openchannel::ChunkedNamespace;
use diecut_initiator::zoned::ZonedNamespace;
use diecut_initiator::{ControllerFacts, NamespaceFacts};
use diecut_media::{DieTimes, Zone, ZoneDies};
use diecut_nvme::QualifiedName;
use diecut_nvme::identify::CSI_NVM;
use diecut_nvme::log_page::SmartLog;
use diecut_nvme::zns::CSI_ZONED;
use diecut_units::{IU_SIZE_BYTES, Span, Time};

/// Which namespace, and as whom.
#[derive(Clone, Debug)]
pub struct RemoteParameters {
    /// NQN of this server as a host.
    pub host: QualifiedName,
    /// This server, of all that may want the namespace; not 0. The upper half of its keys, and of what it is called as a host.
    pub server: u32,
    /// This process: what a server is called as a host is another one for each connection.
    pub life: u64,
    /// Which of those that this server has the namespace with at a time, from 1 to [`PART_MAX`](crate::PART_MAX). 0: it is alone, and all others of this server
    /// are of before.
    pub part: u16,
    /// NQN of the subsystem.
    pub subsystem: QualifiedName,
    /// NSID.
    pub nsid: u32,
    /// What is wanted of it.
    pub kind: ClaimKind,
    /// What it was when it was opened, if it was: it is to be the same.
    pub known: Option<RemoteFacts>,
    /// Commands under way at a time.
    pub depth: u16,
    /// KATO: a target that says nothing for so long is not there.
    pub keep_alive: Span,
    /// How long is waited for a target that is not there, until the drive is gone; for ever if absent.
    pub patience: Option<Span>,
    /// How long is waited between two tries at first. Each one doubles it.
    pub pause: Span,
    /// And at most.
    pub pause_max: Span,
}

impl RemoteParameters {
    /// I-Q5. HOSTID of a connection, by its number: nobody had it before.
    pub(crate) fn host_id(&self, connection: u32) -> [u8; 16] {
        let of_part = Key::new(self.server, self.part, connection).0 as u32;
        let all = u128::from(self.server) << 96 | u128::from(self.life) << 32 | u128::from(of_part);
        all.to_be_bytes()
    }

    /// Its key.
    pub(crate) fn key(&self, connection: u32) -> Key {
        Key::new(self.server, self.part, (self.life as u32).wrapping_add(connection))
    }

    /// When a target that says nothing since then is not waited for any more.
    pub(crate) fn gives_up_at(&self, lost_since: Option<Time>) -> Time {
        match (lost_since, self.patience) {
            (Some(since), Some(patience)) => since + patience,
            _ => Time::NEVER,
        }
    }
}

/// What a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFacts {
    /// Its size.
    pub size_bytes: u64,
    /// Its LBAs.
    pub lba_bytes: u32,
    /// Whether only a flush makes writes durable.
    pub has_volatile_cache: bool,
    /// Whether it takes deallocations.
    pub takes_discard: bool,
    /// Model number of the controller.
    pub model: String,
    /// Serial number of the subsystem.
    pub serial: String,
    /// NGUID; zeros if it has none.
    pub nguid: [u8; 16],
    /// EUI64; zeros if it has none.
    pub eui64: [u8; 8],
    /// Whether it takes reservations.
    pub takes_reservations: bool,
    /// Whether it takes no writes.
    pub is_write_protected: bool,
    /// What its zones are, if it is zoned.
    pub zones: Option<RemoteZones>,
    /// Placement handles that it has, as it was up last; 0: it places nothing.
    pub handles: u16,
    /// What its controller says of its health, where it is only looked at.
    pub health: Option<SmartLog>,
}

/// What the zones of a namespace are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteZones {
    /// From the start of a zone to that of the next one.
    pub zone_size_bytes: u64,
    /// How many there are.
    pub count: u32,
    /// Zones that may be partly written at once; 0: all.
    pub active_max: u32,
    /// Zones that may be open at once; 0: all.
    pub open_max: u32,
    /// As they were when the namespace was up last; none before.
    pub zones: Vec<Zone>,
    /// The chunks that they are, and their dies, if it has chunks (Open-Channel).
    pub dies: Option<ZoneDies>,
}

impl RemoteZones {
    fn of(namespace: &ZonedNamespace) -> RemoteZones {
        let ZonedNamespace { zone_size_lbas, lba_bytes, zones: count, active_max, open_max, .. } = *namespace;
        RemoteZones {
            zone_size_bytes: zone_size_lbas * u64::from(lba_bytes),
            count,
            active_max: active_max.unwrap_or(0),
            open_max: open_max.unwrap_or(0),
            zones: Vec::new(),
            dies: None,
        }
    }

    /// Chunks are zones that lie one behind the other, though their addresses need not.
    fn of_chunks(namespace: &ChunkedNamespace, lba_bytes: u32) -> RemoteZones {
        let ChunkedNamespace { groups, units, chunks, chunk_lbas, .. } = *namespace;
        let pages =
            |lbas: u32| (u64::from(lbas) * u64::from(lba_bytes)).div_ceil(IU_SIZE_BYTES as u64) as u32;
        let [read_ns, write_ns, reset_ns] = namespace.times_ns.map(u64::from);
        let times = DieTimes {
            read_page_ns: read_ns,
            program_unit_ns: write_ns,
            erase_ns: reset_ns,
            iu_transfer_ns: 0,
        };
        RemoteZones {
            zone_size_bytes: u64::from(chunk_lbas) * u64::from(lba_bytes),
            count: namespace.all_chunks(),
            active_max: 0,
            open_max: namespace.open_max.into_iter().filter(|max| *max > 0).min().unwrap_or(0),
            zones: Vec::new(),
            dies: Some(ZoneDies {
                channels: groups,
                dies_per_channel: units,
                die_zones: chunks,
                program_unit_pages: pages(namespace.write_min_lbas),
                cached_pages: pages(namespace.cached_lbas),
                times: (read_ns > 0 && write_ns > 0 && reset_ns > 0).then_some(times),
            }),
        }
    }

    /// Bytes of all of them.
    fn size_bytes(&self) -> u64 {
        u64::from(self.count) * self.zone_size_bytes
    }
}

/// What a connection finds.
pub(crate) struct Learned {
    pub facts: RemoteFacts,
    /// RESCAP, where it takes reservations.
    pub reservations: Option<u8>,
    /// What is asked of it before it is written to.
    pub look: Look,
}

impl Learned {
    /// Looks for the namespace among those of a controller.
    ///
    /// # Errors
    /// If it is not there, or nothing that can be a drive.
    pub fn of(controller: &ControllerFacts, wanted: &RemoteParameters) -> Result<Learned, RemoteError> {
        let nsid = wanted.nsid;
        let namespace = controller.namespaces.iter().find(|namespace| namespace.nsid == nsid);
        let namespace = *namespace.ok_or(RemoteError::NoNamespace(nsid))?;
        let NamespaceFacts { lba_bytes, metadata_bytes, has_protection, command_set, zoned, chunked, .. } =
            namespace;
        if command_set != CSI_NVM && (command_set, zoned.is_some()) != (CSI_ZONED, true) {
            return Err(RemoteError::CommandSet { nsid, command_set });
        }
        if metadata_bytes > 0 || has_protection {
            return Err(RemoteError::Metadata { nsid, metadata_bytes, has_protection });
        }
        let only_looks = wanted.kind == ClaimKind::Look;
        if namespace.is_write_protected && !only_looks {
            return Err(RemoteError::WriteProtected(nsid));
        }
        if !matches!(lba_bytes, 512 | 4096) {
            return Err(RemoteError::LbaSize { nsid, lba_bytes });
        }
        let capabilities = namespace.reservation_capabilities;
        let reservations = Some(capabilities).filter(|of| controller.takes.reservations && *of != 0);
        if reservations.is_none() && !only_looks {
            return Err(RemoteError::NoReservations(nsid));
        }
        let chunks = chunked.as_ref().map(|chunked| RemoteZones::of_chunks(chunked, lba_bytes));
        // Addresses of chunks have holes: what the namespace has is what its chunks have.
        let whole_bytes = namespace.size_lbas.saturating_mul(lba_bytes.into());
        let facts = RemoteFacts {
            size_bytes: chunks.as_ref().map_or(whole_bytes, RemoteZones::size_bytes),
            lba_bytes,
            has_volatile_cache: controller.has_volatile_cache,
            takes_discard: controller.takes.deallocations && chunked.is_none(),
            model: controller.model.clone(),
            serial: controller.serial.clone(),
            nguid: namespace.nguid,
            eui64: namespace.eui64,
            takes_reservations: reservations.is_some(),
            is_write_protected: namespace.is_write_protected,
            zones: chunks.or(zoned.as_ref().map(RemoteZones::of)),
            handles: 0,
            health: None,
        };
        let may_place = controller.takes.placement && chunked.is_none();
        Ok(Learned { facts, reservations, look: Look { zoned, chunked, may_place } })
    }
}

impl RemoteFacts {
    /// What of them is not as in others, in words.
    pub(crate) fn differences(&self, before: &RemoteFacts) -> String {
        let mut words = Vec::new();
        let mut say = |what: &str, before: String, now: String| {
            if before != now {
                words.push(format!("{what} {now}, and was {before}"));
            }
        };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        say("size", before.size_bytes.to_string(), self.size_bytes.to_string());
        say("block size", before.lba_bytes.to_string(), self.lba_bytes.to_string());
        say("serial number", before.serial.clone(), self.serial.clone());
        say("NGUID", hex(&before.nguid), hex(&self.nguid));
        say("EUI64", hex(&before.eui64), hex(&self.eui64));
        let zones = |facts: &RemoteFacts| match &facts.zones {
            Some(RemoteZones { count, zone_size_bytes, dies: Some(dies), .. }) => format!(
                "{count} of {zone_size_bytes} on {}x{} dies, written by {} pages",
                dies.channels, dies.dies_per_channel, dies.program_unit_pages
            ),
            Some(zones) => format!("{} of {}", zones.count, zones.zone_size_bytes),
            None => "none".to_owned(),
        };
        say("zones", zones(before), zones(self));
        // A cache that comes or goes changes what a flush is for.
        say("volatile cache", before.has_volatile_cache.to_string(), self.has_volatile_cache.to_string());
        words.join("; ")
    }
}
