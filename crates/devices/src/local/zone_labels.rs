//! Labels on a drive that is written in zones, which are written past the page cache.

use super::contents::Contents;
use super::labels::LabelPlace;
use super::zones::{finish_zone, reset_zones, zone_at, zoning};
use diecut_drives::{Label, LabelCopy, LabelZones, Zoning};
use diecut_media::{Zone, ZoneCondition};
use diecut_units::IU_SIZE_BYTES;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Direct I/O is of whole blocks of any drive, from memory that is aligned to them.
const BLOCK_BYTES: usize = 4096;

/// A zoned drive, as labels need it. What its calls say went wrong is what the drive says.
#[allow(clippy::missing_errors_doc, reason = "all of them fail as the drive does")]
pub trait ZoneDrive {
    /// All zones, as they are now.
    fn zones(&self) -> io::Result<Vec<Zone>>;
    /// The zone that begins there, as it is now.
    fn zone_at(&self, offset: u64) -> io::Result<Zone>;
    /// Resets a zone.
    fn reset(&self, offset: u64, len_bytes: u64) -> io::Result<()>;
    /// Has a zone count as full.
    fn finish(&self, offset: u64, len_bytes: u64) -> io::Result<()>;
    /// Fills a buffer from an offset on.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes a buffer at an offset.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes durable what was written.
    fn flush(&self) -> io::Result<()>;
}

/// A block device that is open past the page cache.
pub(super) struct Direct(pub File);

impl ZoneDrive for Direct {
    fn zones(&self) -> io::Result<Vec<Zone>> {
        Ok(zoning(&self.0, 0, 0)?.zones)
    }
    fn zone_at(&self, offset: u64) -> io::Result<Zone> {
        zone_at(&self.0, offset)
    }
    fn reset(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        reset_zones(&self.0, offset, len_bytes)
    }
    fn finish(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        finish_zone(&self.0, offset, len_bytes)
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut aligned = Aligned::new(into.len());
        let bytes = aligned.bytes(into.len());
        self.0.read_exact_at(bytes, offset)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut aligned = Aligned::new(bytes.len());
        let own = aligned.bytes(bytes.len());
        own.copy_from_slice(bytes);
        self.0.write_all_at(own, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Memory that direct I/O takes.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new(len: usize) -> Aligned {
        Aligned(vec![0; len.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES])
    }

    fn bytes(&mut self, len: usize) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(BLOCK_BYTES);
        &mut self.0[skip..skip + len]
    }
}

/// The labels of a zoned drive. In its conventional zones copies lie as on a plain drive of their size. In sequential zones each has one for itself, and is its first
/// block: a change resets the zone, and finishes it after the write, so that it takes no place among those that are partly written. Whenever the
/// power goes, the other copy is whole. A chunk (Open-Channel) is not finished, because none limits how many are open.
pub struct InZones<D> {
    drive: D,
    size_bytes: u64,
    zoning: Zoning,
}

impl<D: ZoneDrive> InZones<D> {
    /// On a drive of so many bytes, with such zones.
    pub fn new(drive: D, size_bytes: u64, zoning: Zoning) -> InZones<D> {
        InZones { drive, size_bytes, zoning }
    }

    /// Where a copy begins, and the zone that it has for itself.
    fn place_of(&self, copy: LabelCopy) -> io::Result<(u64, Option<Zone>)> {
        match self.zoning.label_zones() {
            Some(LabelZones::Conventional { size_bytes }) => Ok((copy.offset(size_bytes), None)),
            Some(LabelZones::Sequential([first, second])) => {
                let zone = if copy == LabelCopy::First { first } else { second };
                Ok((zone.offset, Some(self.drive.zone_at(zone.offset)?)))
            }
            None => Err(io::Error::other("it has too few zones for a label")),
        }
    }

    /// A zone of an earlier life gives way, where all places are taken. None of them is written any more.
    fn make_place(&self) -> io::Result<()> {
        let Some(places) = self.zoning.places() else { return Ok(()) };
        let zones = self.drive.zones()?;
        let is_active = |zone: &&Zone| zone.condition == ZoneCondition::Active;
        if zones.iter().filter(is_active).count() < places as usize {
            return Ok(());
        }
        let active = zones.iter().find(is_active).expect("there are as many as places");
        self.drive.finish(active.offset, self.zoning.zone_size_bytes)
    }
}

impl<D: ZoneDrive> LabelPlace for InZones<D> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.drive.read(offset, into)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.drive.write(offset, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drive.flush()
    }

    fn read_copy(&self, copy: LabelCopy, into: &mut [u8]) -> io::Result<()> {
        let (offset, zone) = self.place_of(copy)?;
        let is_written = |zone: Zone| match zone.condition {
            ZoneCondition::Empty => false,
            ZoneCondition::Active | ZoneCondition::Closed => {
                zone.write_pointer >= zone.offset + Label::SIZE_BYTES as u64
            }
            _ => true,
        };
        if zone.is_none_or(is_written) {
            return self.read(offset, into);
        }
        into.fill(0);
        Ok(())
    }

    fn write_copy(&mut self, copy: LabelCopy, bytes: &[u8]) -> io::Result<()> {
        let (offset, zone) = self.place_of(copy)?;
        let Some(zone) = zone else { return self.write(offset, bytes) };
        let zone_bytes = self.zoning.zone_size_bytes;
        if zone.condition != ZoneCondition::Empty {
            self.drive.reset(offset, zone_bytes)?;
        }
        let Some(dies) = &self.zoning.dies else {
            self.make_place()?;
            self.write(offset, bytes)?;
            return self.drive.finish(offset, zone_bytes);
        };
        // A chunk is written by whole program units, and may stay open.
        let unit_bytes = dies.program_unit_pages as usize * IU_SIZE_BYTES;
        let mut unit = bytes.to_vec();
        unit.resize(bytes.len().next_multiple_of(unit_bytes), 0);
        self.write(offset, &unit)
    }

    /// Resets all zones; conventional ones have what is recognized zeroed.
    fn clear(&mut self, contents: &Contents) -> io::Result<()> {
        let conventional = u64::from(self.zoning.conventional()) * self.zoning.zone_size_bytes;
        for zone in &self.zoning.zones {
            let is_written = [ZoneCondition::Active, ZoneCondition::Closed, ZoneCondition::Full];
            if is_written.contains(&zone.condition) {
                self.drive.reset(zone.offset, self.zoning.zone_size_bytes)?;
            }
        }
        let at = contents.found.iter().flat_map(|found| &found.offsets).copied();
        let ends = [LabelCopy::First, LabelCopy::Second].map(|copy| copy.offset(conventional.max(3 << 20)));
        let block = BLOCK_BYTES as u64;
        for offset in at.chain(ends).map(|offset| offset / block * block) {
            if offset + block <= conventional {
                self.write(offset, &[0; BLOCK_BYTES])?;
            }
        }
        self.flush()
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::local::{Contents, change_label, format, read_label};
    use diecut_drives::{LabelDevice, Membership};
    use diecut_emulator::drive::{Drive, DriveProfile, ZoneProfile};
    use diecut_media::{Intent, IntentToken, IntentWork};
    use diecut_testing::planted::is_noticed;
    use diecut_units::{Buffer, BufferMut, Time};
    use std::cell::{Cell, RefCell};

    const ZONE_BYTES: u64 = 4 << 20;

    /// The model of a drive, whose power goes after so many commands.
    struct Model {
        drive: RefCell<Drive>,
        left: Cell<u32>,
    }

    impl Model {
        fn execute(&self, work: IntentWork) -> io::Result<Option<BufferMut>> {
            let left = self.left.get().checked_sub(1).ok_or_else(|| io::Error::other("no power"))?;
            self.left.set(left);
            let mut drive = self.drive.borrow_mut();
            drive.submit(Intent { token: IntentToken(1), work }, Time::ZERO);
            let (now, mut done) = (drive.next_event(), Vec::new());
            // The last one before the power goes may be carried out, or not, and is not answered.
            if left == 0 {
                return Err(io::Error::other("no power"));
            }
            drive.advance(now, &mut done);
            let done = done.remove(0);
            done.result.map(|()| done.buffer).map_err(io::Error::other)
        }
    }

    impl ZoneDrive for &Model {
        fn zones(&self) -> io::Result<Vec<Zone>> {
            Ok(self.drive.borrow().zones())
        }
        fn zone_at(&self, offset: u64) -> io::Result<Zone> {
            Ok(self.drive.borrow().zones()[(offset / ZONE_BYTES) as usize])
        }
        fn reset(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
            self.execute(IntentWork::ResetZone { offset, len_bytes }).map(drop)
        }
        fn finish(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
            self.execute(IntentWork::FinishZone { offset, len_bytes }).map(drop)
        }
        fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            let read = IntentWork::Read { offset, buffer: BufferMut::copy_from(&vec![9; into.len()]) };
            into.copy_from_slice(&self.execute(read)?.expect("a read gives its buffer"));
            Ok(())
        }
        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let parts = [Buffer::copy_from(bytes)].into_iter().collect();
            self.execute(IntentWork::Write { offset, parts, handle: 0 }).map(drop)
        }
        fn flush(&self) -> io::Result<()> {
            self.execute(IntentWork::Sync).map(drop)
        }
    }

    fn place(model: &Model) -> InZones<&Model> {
        let zones = model.drive.borrow().zones();
        let zoning = Zoning { zone_size_bytes: ZONE_BYTES, active_max: 14, open_max: 0, zones, dies: None };
        InZones::new(model, 32 * ZONE_BYTES, zoning)
    }

    /// Goal: whatever a change of the label is cut at, the old label or the new one is there and can be changed again; with conventional zones and without. Method:
    /// every command of two changes, with several ends that the drive may choose, while all places are taken by zones of an earlier life.
    #[test]
    fn a_label_is_there_after_any_cut() {
        cuts();
        is_noticed("devices: both copies of a label are written before a flush", cuts);
    }

    fn cuts() {
        for (conventional, seed) in
            [0, 1].into_iter().flat_map(|zones| (0..12).map(move |seed| (zones, seed)))
        {
            for cut_after in 1.. {
                let (size_bytes, capacity_bytes) = (ZONE_BYTES, ZONE_BYTES - 4096);
                let zones =
                    ZoneProfile { size_bytes, capacity_bytes, conventional, active_max: 14, unit_bytes: 512 };
                let profile = DriveProfile { zones: Some(zones), ..DriveProfile::nvme(32 * ZONE_BYTES) };
                let drive = RefCell::new(Drive::new(profile, seed));
                let model = Model { drive, left: Cell::new(u32::MAX) };
                let shape = place(&model).zoning.shape(None).unwrap();
                let label = |number| Label {
                    number,
                    server: [1; 16],
                    device: [2; 16],
                    epoch: 1,
                    view: [3; 8],
                    secret: [4; 16],
                    shape,
                    system: (0, 8),
                    devices: vec![LabelDevice { device: [2; 16], membership: Membership::There, since: 1 }],
                };
                format(&mut place(&model), &Contents::default(), &label(1), false, || Ok(())).unwrap();
                for zone in 8..22 {
                    (&model).write(zone * ZONE_BYTES, &[7; 4096]).unwrap();
                }
                model.left.set(cut_after);
                let changed =
                    (2..4).take_while(|number| change_label(&mut place(&model), &label(*number)).is_ok());
                let changed = changed.count() as u64;
                model.left.set(u32::MAX);
                model.drive.borrow_mut().cut();
                let found = read_label(&place(&model)).unwrap();
                assert!((1 + changed..=2 + changed).contains(&found.label.number), "{cut_after}: {found:?}");
                change_label(&mut place(&model), &label(9)).unwrap();
                model.drive.borrow_mut().cut();
                assert_eq!(read_label(&place(&model)).unwrap().label.number, 9);
                assert_eq!(model.drive.borrow().zone_statistics().out_of_order, 0);
                assert_eq!(model.drive.borrow().zone_statistics().too_many, 0);
                if changed == 2 {
                    break;
                }
            }
        }
    }
}
