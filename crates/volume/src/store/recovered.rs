//! What recovery found, taken over by its store: what is missing is accepted, or ends all writing.

use super::Store;
use crate::contract::VolumeIndex;
use crate::loss::{AcceptedLoss, Findings, LostRange, Missing, Recovery};
use diecut_log::{Format, LogAddress};
use diecut_vssd::space::{EraseBlockSpace, LogicalBlock};
use std::ops::Range;

impl Store {
    /// Takes over what recovery found, when it is done. Whether it is.
    pub(super) fn end_opening(&mut self, space: &dyn EraseBlockSpace) -> bool {
        let Some(opening) = self.opening.take_if(|opening| opening.is_done()) else { return false };
        let found = opening.into_found();
        (self.findings, self.accepted) = (found.findings, found.accepted);
        self.endurance.begin_with(found.figures);
        // Until its first anchor of the new format holds, a store of the one of before goes on with that.
        let format = if found.is_renewed { Format::Two } else { found.format };
        self.log.begin_life(format, space);
        if found.is_renewed {
            self.anchoring.begin_renewing(&mut self.log);
        }
        self.conclude(found.unmarked);
        true
    }

    /// What is missing is accepted, or ends all writing.
    fn conclude(&mut self, unmarked: Vec<LogicalBlock>) {
        let Some(first) = self.findings.missing.first() else {
            if self.findings.emptied_leaves > 0 {
                self.anchoring.begin_mending(Vec::new(), &mut self.log);
            }
            return;
        };
        if self.config.recovery == Recovery::Accept && !self.findings.is_of_other_version() {
            diecut_units::mark!("volume: loss accepted");
            self.log.drop_damaged_staging();
            self.accepted.records += self.findings.records;
            self.accepted.ius = self.lost_ranges(None, 0).1;
            for volume in self.maps.volumes.iter_mut().filter(|volume| volume.exists) {
                for part in volume.written_parts() {
                    for leaf in volume.kind().leaves_with(part) {
                        volume.mark_dirty(volume.kind().ius_of(leaf).start);
                    }
                }
            }
            return self.anchoring.begin_mending(unmarked, &mut self.log);
        }
        // The worst first: what the lost records said cannot be known, and no write may build on that.
        let records = self.findings.missing.iter().find(|missing| missing.is_record());
        let reason = records.unwrap_or(first).reason();
        self.log.keep_all(reason);
    }

    /// Whether it takes no writes because something is missing, and has changed nothing on the medium since: it can be opened again.
    pub fn is_kept(&self) -> bool {
        self.log.is_kept()
    }

    /// What recovery missed.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Whether a repair is still to be written down. Until then a restart meets what this one met.
    pub fn is_mending(&self) -> bool {
        self.anchoring.is_mending(&self.log)
    }

    /// What was accepted as lost since the store was made.
    pub fn accepted_loss(&self) -> AcceptedLoss {
        self.accepted
    }

    /// A volume that was made, and of which recovery found nothing: the medium lost it. Reads of it fail, and the store takes
    /// no writes unless loss is accepted.
    ///
    /// # Panics
    /// If recovery is not done, or the volume exists.
    pub fn volume_lost(&mut self, volume: VolumeIndex, size_ius: u64) {
        assert!(self.opening.is_none(), "I-M2: recovery tells what there is");
        self.rest.end();
        let missing = Missing::Volume { volume };
        self.findings.miss(missing);
        let map = self.maps.volume(volume.0);
        assert!(!map.exists, "I-M11: what was found is not lost");
        map.exists = true;
        // No leaf says so yet: an anchor waits for all of them.
        map.resize(size_ius, 0);
        map.entries.fill(LogAddress::LOST.into());
        let kind = map.kind();
        (0..map.leaves.len()).for_each(|leaf| map.mark_dirty(kind.ius_of(leaf).start));
        self.maps.open_group = None;
        if self.config.recovery == Recovery::Accept && !self.findings.is_of_other_version() {
            self.accepted.ius = self.lost_ranges(None, 0).1;
            self.anchoring.begin_mending(Vec::new(), &mut self.log);
        } else {
            self.log.keep_all(missing.reason());
        }
    }

    /// Ranges whose reads fail because what lay there is lost, or because a host wanted so, the first `ranges_max` of them, and how many IUs there are in all: of
    /// these IUs of a volume, or of the whole map, which takes a while.
    pub fn lost_ranges(
        &self,
        of: Option<(VolumeIndex, Range<u64>)>,
        ranges_max: usize,
    ) -> (Vec<LostRange>, u64) {
        let mut ranges: Vec<LostRange> = Vec::new();
        let mut lost_ius = 0;
        let is_asked = |number: usize| of.as_ref().is_none_or(|(of, _)| usize::from(of.0) == number);
        let volumes = self.maps.volumes.iter().enumerate();
        for (number, volume) in volumes.filter(|(number, volume)| volume.exists && is_asked(*number)) {
            let number = VolumeIndex(number as u16);
            let parts = match &of {
                Some((_, ius)) => std::iter::once(ius.start as usize..ius.end as usize).collect(),
                None => volume.written_parts(),
            };
            let lost = parts.into_iter().flatten();
            for iu in lost.filter(|iu| volume.entries[*iu].get() == LogAddress::LOST) {
                let iu = iu as u64;
                lost_ius += 1;
                let is_full = ranges.len() == ranges_max;
                match ranges.last_mut() {
                    Some(last) if last.volume == number && last.first_iu + last.iu_count == iu => {
                        last.iu_count += 1;
                    }
                    _ if is_full => {}
                    _ => ranges.push(LostRange { volume: number, first_iu: iu, iu_count: 1 }),
                }
            }
        }
        (ranges, lost_ius)
    }
}
