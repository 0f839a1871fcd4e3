//! Zones of a block device, as the kernel has them: reports, resets, finishes. These calls wait for the drive.

#![allow(unsafe_code, reason = "the kernel tells of zones by ioctl only")]

use diecut_drives::Zoning;
use diecut_media::{Zone, ZoneCondition};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};
use std::ffi::c_void;
use std::fs::File;
use std::io;

const SECTOR_BYTES: u64 = 512;
/// Zones that are asked for with one call.
const REPORT_ZONES: usize = 256;
/// BLK_ZONE_REP_CAPACITY: the kernel says what of a zone can be written. Linux before 5.9 does not.
const HAS_CAPACITY: u32 = 1;
const CONVENTIONAL: u8 = 1;

/// `struct blk_zone_range` of linux/blkzoned.h.
#[repr(C)]
struct ZoneRange {
    sector: u64,
    sector_count: u64,
}

/// `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ReportedZone {
    start: u64,
    len: u64,
    write_pointer: u64,
    kind: u8,
    condition: u8,
    non_sequential: u8,
    reset: u8,
    reserved: [u8; 4],
    capacity: u64,
    reserved_too: [u8; 24],
}

/// `struct blk_zone_report`, with its zones.
#[repr(C)]
struct Report {
    sector: u64,
    zone_count: u32,
    flags: u32,
    zones: [ReportedZone; REPORT_ZONES],
}

const _: () = assert!(size_of::<ReportedZone>() == 64 && size_of::<Report>() == 16 + 64 * REPORT_ZONES);

struct ReportZones<'a>(&'a mut Report);

// SAFETY: `BLKREPORTZONE` reads and writes such a report, with as many zones as it says that there is room for.
unsafe impl Ioctl for ReportZones<'_> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<[u64; 2]>(0x12, 130)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Zones from one on, until there are no more or so many were asked for.
fn report(file: &File, from_bytes: u64, count: usize) -> io::Result<(Vec<Zone>, u64)> {
    let (mut zones, mut sector, mut zone_sectors) = (Vec::new(), from_bytes / SECTOR_BYTES, 0);
    while zones.len() < count {
        let zone_count = (count - zones.len()).min(REPORT_ZONES) as u32;
        let mut report =
            Box::new(Report { sector, zone_count, flags: 0, zones: [ReportedZone::default(); REPORT_ZONES] });
        // SAFETY: see `ReportZones`.
        unsafe { ioctl(file, ReportZones(&mut report))? };
        let found = &report.zones[..(report.zone_count as usize).min(REPORT_ZONES)];
        let Some(last) = found.last() else { break };
        let has_capacity = report.flags & HAS_CAPACITY != 0;
        zone_sectors = zone_sectors.max(found[0].len);
        sector = last.start + last.len;
        zones.extend(found.iter().map(|zone| zone.known(has_capacity)));
    }
    Ok((zones, zone_sectors * SECTOR_BYTES))
}

impl ReportedZone {
    fn known(&self, has_capacity: bool) -> Zone {
        let capacity = if has_capacity { self.capacity } else { self.len };
        Zone {
            offset: self.start * SECTOR_BYTES,
            capacity_bytes: capacity * SECTOR_BYTES,
            write_pointer: self.write_pointer.saturating_mul(SECTOR_BYTES),
            condition: match (self.kind, self.condition) {
                (CONVENTIONAL, _) => ZoneCondition::Conventional,
                (_, 1) => ZoneCondition::Empty,
                // Opened by a write, opened by command, closed.
                (_, 2..=4) => ZoneCondition::Active,
                (_, 0xe) => ZoneCondition::Full,
                (_, 0xd) => ZoneCondition::ReadOnly,
                _ => ZoneCondition::Offline,
            },
        }
    }
}

/// All zones of a block device.
pub(super) fn zoning(file: &File, active_max: u32, open_max: u32) -> io::Result<Zoning> {
    let (zones, zone_size_bytes) = report(file, 0, usize::MAX)?;
    Ok(Zoning { zone_size_bytes, active_max, open_max, zones, dies: None })
}

/// The zone that begins there, as it is now.
pub(super) fn zone_at(file: &File, offset: u64) -> io::Result<Zone> {
    let (zones, _) = report(file, offset, 1)?;
    zones.first().copied().ok_or_else(|| io::Error::other("the drive has no such zone"))
}

/// Resets whole zones, one behind the other.
///
/// # Errors
/// What the kernel says.
pub fn reset_zones(file: &File, offset: u64, len_bytes: u64) -> io::Result<()> {
    const BLKRESETZONE: Opcode = opcode::write::<ZoneRange>(0x12, 131);
    let range = ZoneRange { sector: offset / SECTOR_BYTES, sector_count: len_bytes / SECTOR_BYTES };
    // SAFETY: the request reads one such range.
    let request = unsafe { Setter::<BLKRESETZONE, ZoneRange>::new(range) };
    // SAFETY: as above; it changes what lies on the drive and nothing of this process.
    Ok(unsafe { ioctl(file, request) }?)
}

/// Has a zone count as full.
///
/// # Errors
/// What the kernel says.
pub fn finish_zone(file: &File, offset: u64, len_bytes: u64) -> io::Result<()> {
    const BLKFINISHZONE: Opcode = opcode::write::<ZoneRange>(0x12, 136);
    let range = ZoneRange { sector: offset / SECTOR_BYTES, sector_count: len_bytes / SECTOR_BYTES };
    // SAFETY: the request reads one such range.
    let request = unsafe { Setter::<BLKFINISHZONE, ZoneRange>::new(range) };
    // SAFETY: as above; it changes what lies on the drive and nothing of this process.
    Ok(unsafe { ioctl(file, request) }?)
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: requests are those of linux/blkzoned.h, and a file has no zones.
    #[test]
    fn requests_are_those_of_linux() {
        assert_eq!(opcode::read_write::<[u64; 2]>(0x12, 130), 0xc010_1282);
        assert_eq!(opcode::write::<ZoneRange>(0x12, 131), 0x4010_1283);
        assert_eq!(opcode::write::<ZoneRange>(0x12, 136), 0x4010_1288);
        let file = tempfile::tempfile().unwrap();
        assert!(zoning(&file, 0, 0).is_err());
        assert!(reset_zones(&file, 0, 4096).is_err() && finish_zone(&file, 0, 4096).is_err());
    }

    #[test]
    fn what_the_kernel_says_of_a_zone() {
        let zone = ReportedZone {
            start: 8,
            len: 8,
            write_pointer: 11,
            kind: 2,
            condition: 4,
            capacity: 6,
            ..ReportedZone::default()
        };
        let known = zone.known(true);
        assert_eq!((known.offset, known.capacity_bytes, known.write_pointer), (4096, 3072, 5632));
        assert_eq!(known.condition, ZoneCondition::Active);
        assert_eq!(zone.known(false).capacity_bytes, 4096, "Linux before 5.9 knows no capacity");
        let of = |kind, condition| ReportedZone { kind, condition, ..zone }.known(true).condition;
        assert_eq!(of(1, 0), ZoneCondition::Conventional);
        assert_eq!([1, 14, 13, 15].map(|condition| of(2, condition)), {
            use ZoneCondition::{Empty, Full, Offline, ReadOnly};
            [Empty, Full, ReadOnly, Offline]
        });
    }
}
