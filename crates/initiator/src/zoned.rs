//! Zones of a namespace (ZNS 1.1): reads what it is and how its zones are, and makes commands for zones by their number.
//!
//! It sends nothing and remembers no zone: a [`ZoneCommand`] goes to [`crate::Admin::submit_entry`] or
//! [`crate::QueuePair::submit_entry`], and who asked for a report keeps what it says.

use crate::command::{self, LbaSpan};
use diecut_nvme::admin::Identify;
use diecut_nvme::identify::{IDENTIFY_SIZE_BYTES, IdentifyNamespace, NSFEAT_IO_OPTIMIZATION, cns};
use diecut_nvme::io::LbaRange;
use diecut_nvme::zns::{
    CSI_ZONED, IdentifyZonedNamespace, ReportHeader, ZA_EXTENSION, ZoneDescriptor, ZoneManagementReceive,
    opcode, receive_action, send_action,
};
use diecut_nvme::{DecodeError, SubmissionEntry, opcode::admin, opcode::io};
use diecut_units::Buffer;
use zerocopy::FromBytes;

/// A command to be sent.
#[derive(Clone, Debug)]
pub struct ZoneCommand {
    /// The entry without id and descriptor.
    pub entry: SubmissionEntry,
    /// The data that it carries.
    pub data: Option<Buffer>,
    /// Bytes that it brings.
    pub expected_bytes: u32,
}

/// A zone as a report tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneFacts {
    /// Its number.
    pub zone: u32,
    /// See [`diecut_nvme::zns::zone_state`].
    pub state: u8,
    /// Logical blocks that can be written.
    pub capacity_lbas: u64,
    /// Logical blocks before the write pointer; means nothing for a zone that is full, read-only or offline.
    pub written_lbas: u64,
    /// Its descriptor extension, where it has one.
    pub extension: Option<Vec<u8>>,
}

/// Logical blocks of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSpan {
    /// Its number.
    pub zone: u32,
    /// The first, counted from the start of the zone.
    pub first: u64,
    /// How many, 1 to 65536.
    pub count: u32,
}

/// What one Copy may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// MSSRL: logical blocks of a source range.
    pub range_lbas_max: u32,
    /// MCL: logical blocks in all.
    pub lbas_max: u32,
    /// MSRC: source ranges.
    pub ranges_max: u32,
}

/// What a zoned namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedNamespace {
    /// NSID.
    pub nsid: u32,
    /// Bytes of a logical block.
    pub lba_bytes: u32,
    /// ZSZE: logical blocks from the start of a zone to that of the next one.
    pub zone_size_lbas: u64,
    /// How many zones there are.
    pub zones: u32,
    /// Bytes of a zone descriptor extension; 0 without one.
    pub extension_size_bytes: u32,
    /// NPWG: writes are a multiple of it, where the medium wants whole program units.
    pub write_min_lbas: u32,
    /// Zones that may be active at once; `None` without a limit.
    pub active_max: Option<u32>,
    /// Zones that may be open at once; `None` without a limit.
    pub open_max: Option<u32>,
    /// Means nothing where [`crate::Takes::copies`] is not set.
    pub copy_limits: CopyLimits,
}

impl ZonedNamespace {
    /// The admin commands that ask for both pages of a namespace, in the order of [`ZonedNamespace::new`]: 4096 bytes each.
    pub fn ask_pages(nsid: u32) -> [ZoneCommand; 2] {
        [(cns::NAMESPACE, 0), (cns::COMMAND_SET_NAMESPACE, CSI_ZONED)].map(|(structure, command_set)| {
            let mut entry =
                SubmissionEntry { opcode: admin::IDENTIFY, nsid: nsid.into(), ..SubmissionEntry::default() };
            Identify { cns: structure, controller_id: 0, command_set, specific_id: 0 }.encode(&mut entry);
            ZoneCommand { entry, data: None, expected_bytes: IDENTIFY_SIZE_BYTES as u32 }
        })
    }

    /// From both pages.
    ///
    /// # Errors
    /// They are no pages of a zoned namespace: too short, with a logical block of less than 512 or more than 65536 bytes, without a zone
    /// size, or with more than 2^24 zones.
    pub fn new(nsid: u32, namespace: &[u8], zoned: &[u8]) -> Result<ZonedNamespace, DecodeError> {
        let wrong = |field, value: u64| DecodeError::Field { field, value };
        let short =
            |got| DecodeError::Short { structure: "Identify Namespace", needed: IDENTIFY_SIZE_BYTES, got };
        let page = IdentifyNamespace::read_from_bytes(namespace).map_err(|_| short(namespace.len()))?;
        let zoned_page = IdentifyZonedNamespace::read_from_bytes(zoned).map_err(|_| short(zoned.len()))?;
        let number = usize::from(page.flbas & 0xF);
        let (format, extension) = (page.lbaf[number], zoned_page.lbafe[number]);
        if !(9..=16).contains(&format.lba_size_log2) {
            return Err(wrong("LBADS", format.lba_size_log2.into()));
        }
        let zone_size_lbas = extension.zone_size.get();
        let zones = page.nsze.get().checked_div(zone_size_lbas).unwrap_or(0);
        if zones == 0 || zones > 1 << 24 {
            return Err(wrong("ZSZE", zone_size_lbas));
        }
        let limit = |field: u32| (field != u32::MAX).then(|| field + 1);
        let has_granularity = page.nsfeat & NSFEAT_IO_OPTIMIZATION != 0;
        Ok(ZonedNamespace {
            nsid,
            lba_bytes: 1 << format.lba_size_log2,
            zone_size_lbas,
            zones: zones as u32,
            extension_size_bytes: u32::from(extension.extension_size_64) * 64,
            write_min_lbas: if has_granularity { u32::from(page.npwg.get()) + 1 } else { 1 },
            active_max: limit(zoned_page.mar.get()),
            open_max: limit(zoned_page.mor.get()),
            copy_limits: CopyLimits {
                range_lbas_max: page.mssrl.get().into(),
                lbas_max: page.mcl.get(),
                ranges_max: u32::from(page.msrc) + 1,
            },
        })
    }

    fn entry(&self, code: u8) -> SubmissionEntry {
        SubmissionEntry { opcode: code, nsid: self.nsid.into(), ..SubmissionEntry::default() }
    }

    fn start(&self, zone: u32) -> u64 {
        u64::from(zone) * self.zone_size_lbas
    }

    fn descriptor_size_bytes(&self) -> usize {
        ZoneDescriptor::SIZE_BYTES + self.extension_size_bytes as usize
    }

    /// Most zones that a report of so many bytes can tell.
    pub fn zones_per_report(&self, length_bytes: u32) -> u32 {
        (length_bytes.saturating_sub(ReportHeader::SIZE_BYTES as u32)) / self.descriptor_size_bytes() as u32
    }

    /// Asks how `count` zones from the `first` on are.
    ///
    /// # Panics
    /// If no zone is asked for.
    pub fn report(&self, first: u32, count: u32) -> ZoneCommand {
        assert!(count > 0, "a report is of zones");
        assert!(first < self.zones, "zone {first} of {}", self.zones);
        let length = ReportHeader::SIZE_BYTES + self.descriptor_size_bytes() * count as usize;
        let has_extensions = self.extension_size_bytes > 0;
        let mut entry = self.entry(opcode::ZONE_MANAGEMENT_RECEIVE);
        let request = ZoneManagementReceive {
            lba: self.start(first),
            length_bytes: length as u64,
            action: if has_extensions { receive_action::EXTENDED_REPORT } else { receive_action::REPORT },
            filter: 0,
            partial: true,
        };
        request.encode(&mut entry);
        ZoneCommand { entry, data: None, expected_bytes: length as u32 }
    }

    /// The zones of a report. What a controller says of zones that are not there is left out.
    pub fn zones_of(&self, report: &[u8]) -> Vec<ZoneFacts> {
        let Ok((header, rest)) = ReportHeader::read_from_prefix(report) else { return Vec::new() };
        let descriptors = rest.chunks_exact(self.descriptor_size_bytes());
        let count = usize::try_from(header.zones.get()).unwrap_or(usize::MAX);
        let facts = descriptors.take(count).filter_map(|bytes| {
            let (descriptor, extension) = ZoneDescriptor::read_from_prefix(bytes).ok()?;
            let start = descriptor.start.get();
            let zone = u32::try_from(start / self.zone_size_lbas).ok().filter(|zone| *zone < self.zones)?;
            let has_extension = descriptor.attributes & ZA_EXTENSION != 0 && !extension.is_empty();
            Some(ZoneFacts {
                zone,
                state: descriptor.state >> 4,
                capacity_lbas: descriptor.capacity.get().min(self.zone_size_lbas),
                written_lbas: descriptor.write_pointer.get().saturating_sub(start).min(self.zone_size_lbas),
                extension: has_extension.then(|| extension.to_vec()),
            })
        });
        facts.collect()
    }

    fn send(&self, zone: u32, action: u8) -> ZoneCommand {
        assert!(zone < self.zones, "zone {zone} of {}", self.zones);
        let entry = command::act_on_zone(self.nsid, self.start(zone), action);
        ZoneCommand { entry, data: None, expected_bytes: 0 }
    }

    /// Makes a zone empty.
    pub fn reset(&self, zone: u32) -> ZoneCommand {
        self.send(zone, send_action::RESET)
    }

    /// Makes a zone full.
    pub fn finish(&self, zone: u32) -> ZoneCommand {
        self.send(zone, send_action::FINISH)
    }

    /// Sets the descriptor extension of an empty zone, which is active after it. Bytes that are missing are zero.
    ///
    /// # Panics
    /// If it is longer than extensions of this namespace.
    pub fn set_extension(&self, zone: u32, bytes: &[u8]) -> ZoneCommand {
        let size = self.extension_size_bytes as usize;
        assert!(bytes.len() <= size, "an extension has {size} bytes");
        let mut extension = bytes.to_vec();
        extension.resize(size, 0);
        let command = self.send(zone, send_action::SET_DESCRIPTOR_EXTENSION);
        ZoneCommand { data: Some(Buffer::copy_from(&extension)), ..command }
    }

    /// Writes whole logical blocks from the `first` of a zone on, which must be at its write pointer.
    pub fn write(&self, zone: u32, first: u64, content: &[u8]) -> ZoneCommand {
        let count = content.len() as u32 / self.lba_bytes;
        let mut entry = self.entry(io::WRITE);
        LbaRange::plain(self.start(zone) + first, count).encode(&mut entry);
        ZoneCommand { entry, data: Some(Buffer::copy_from(content)), expected_bytes: 0 }
    }

    /// Writes what `sources` hold, one behind the other, from the `first` logical block of a zone on, which must be at its write pointer. The
    /// controller copies by itself.
    ///
    /// # Panics
    /// If there are no sources.
    pub fn copy(&self, zone: u32, first: u64, sources: &[ZoneSpan]) -> ZoneCommand {
        assert!(!sources.is_empty(), "a copy has sources");
        let span = |source: &ZoneSpan| LbaSpan {
            nsid: self.nsid,
            first: self.start(source.zone) + source.first,
            count: source.count,
        };
        let spans: Vec<LbaSpan> = sources.iter().map(span).collect();
        let (entry, data, expected_bytes) = command::copy(&spans, self.start(zone) + first, false);
        ZoneCommand { entry, data, expected_bytes }
    }

    /// Reads logical blocks of a zone.
    pub fn read(&self, zone: u32, first: u64, count: u32) -> ZoneCommand {
        let mut entry = self.entry(io::READ);
        LbaRange::plain(self.start(zone) + first, count).encode(&mut entry);
        ZoneCommand { entry, data: None, expected_bytes: count * self.lba_bytes }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_nvme::zns::{LbaFormatExtension, zone_state};
    use zerocopy::IntoBytes;

    fn pages(zone_size: u64) -> (IdentifyNamespace, IdentifyZonedNamespace) {
        let mut namespace = IdentifyNamespace {
            nsze: 0x4000.into(),
            nsfeat: NSFEAT_IO_OPTIMIZATION,
            npwg: 7.into(),
            mssrl: 0x100.into(),
            mcl: 0x400.into(),
            msrc: 127,
            ..IdentifyNamespace::default()
        };
        namespace.lbaf[0].lba_size_log2 = 12;
        let mut zoned = IdentifyZonedNamespace { mar: 13.into(), mor: u32::MAX.into(), ..Default::default() };
        zoned.lbafe[0] = LbaFormatExtension::new(zone_size, 1);
        (namespace, zoned)
    }

    fn namespace() -> ZonedNamespace {
        let (namespace, zoned) = pages(0x1000);
        ZonedNamespace::new(3, namespace.as_bytes(), zoned.as_bytes()).expect("both are pages")
    }

    #[test]
    fn pages_say_what_it_is() {
        let expected = ZonedNamespace {
            nsid: 3,
            lba_bytes: 4096,
            zone_size_lbas: 0x1000,
            zones: 4,
            extension_size_bytes: 64,
            write_min_lbas: 8,
            active_max: Some(14),
            open_max: None,
            copy_limits: CopyLimits { range_lbas_max: 0x100, lbas_max: 0x400, ranges_max: 128 },
        };
        assert_eq!(namespace(), expected);
        let (plain, none) = pages(0);
        assert!(ZonedNamespace::new(3, plain.as_bytes(), none.as_bytes()).is_err(), "no zone size");
        assert!(ZonedNamespace::new(3, &[0; 100], &[0; 4096]).is_err(), "a short page");
        assert!(ZonedNamespace::new(3, &[0; 4096], &[0; 4096]).is_err(), "a page of zeros");
    }

    /// Goal: dwords are those of the figures. Method: by hand, as `nvme zns` sends them.
    #[test]
    fn commands_name_zones_by_their_start() {
        let zoned = namespace();
        let write = zoned.write(2, 8, &[1; 8192]);
        assert_eq!(
            (write.entry.opcode, write.entry.nsid.get(), write.entry.cdw10.get(), write.entry.cdw12.get()),
            (0x01, 3, 0x2008, 1)
        );
        let read = zoned.read(1, 3, 5);
        assert_eq!(
            (read.entry.opcode, read.entry.cdw10.get(), read.expected_bytes),
            (0x02, 0x1003, 5 * 4096)
        );
        let span = |zone, first, count| ZoneSpan { zone, first, count };
        let copy = zoned.copy(2, 8, &[span(0, 5, 2), span(3, 0, 256)]);
        assert_eq!(
            (copy.entry.opcode, copy.entry.nsid.get(), copy.entry.cdw10.get(), copy.entry.cdw12.get()),
            (0x19, 3, 0x2008, 1)
        );
        let ranges = copy.data.expect("it carries its source ranges");
        assert_eq!((ranges.len(), ranges[8], ranges[16]), (64, 5, 1));
        assert_eq!((&ranges[40..44], ranges[48], copy.expected_bytes), (&[0, 0x30, 0, 0][..], 255, 0));
        let reset = zoned.reset(3);
        assert_eq!((reset.entry.opcode, reset.entry.cdw10.get(), reset.entry.cdw13.get()), (0x79, 0x3000, 4));
        assert_eq!(zoned.finish(0).entry.cdw13.get(), 2);
        let extension = zoned.set_extension(1, b"log");
        assert_eq!(extension.entry.cdw13.get(), 0x10);
        let bytes = extension.data.expect("it carries the extension");
        assert_eq!((bytes.len(), &bytes[..4]), (64, &b"log\0"[..]));
        let report = zoned.report(1, 2);
        assert_eq!((report.entry.opcode, report.entry.cdw13.get()), (0x7A, 0x1_0001));
        assert_eq!((report.expected_bytes, report.entry.cdw12.get()), (64 + 256, 320 / 4 - 1));
        assert_eq!(zoned.zones_per_report(320), 2);
    }

    #[test]
    fn reports_say_how_zones_are() {
        let zoned = namespace();
        let mut report = ReportHeader::new(3).as_bytes().to_vec();
        let open = ZoneDescriptor::new(zone_state::CLOSED, ZA_EXTENSION, 0xC00, 0x1000, 0x1010);
        report.extend_from_slice(open.as_bytes());
        report.extend_from_slice(&[7; 64]);
        report.extend_from_slice(ZoneDescriptor::new(zone_state::EMPTY, 0, 0xC00, 0x2000, 0x2000).as_bytes());
        report.extend_from_slice(&[0; 64]);
        // Not one of this namespace.
        report.extend_from_slice(ZoneDescriptor::new(zone_state::EMPTY, 0, 0xC00, 0x9000, 0x9000).as_bytes());
        report.extend_from_slice(&[0; 64]);
        let facts = zoned.zones_of(&report);
        let closed = ZoneFacts {
            zone: 1,
            state: 4,
            capacity_lbas: 0xC00,
            written_lbas: 0x10,
            extension: Some(vec![7; 64]),
        };
        let empty = ZoneFacts { zone: 2, state: 1, capacity_lbas: 0xC00, written_lbas: 0, extension: None };
        assert_eq!(facts, [closed, empty]);
        assert_eq!(zoned.zones_of(&report[..100]), [], "a report that is cut");
        assert_eq!(zoned.zones_of(&[1]), []);
    }
}
