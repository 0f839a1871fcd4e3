//! Copies inside the device: how spans of zones become commands, and whether the device takes them.

use diecut_initiator::zoned::{CopyLimits, ZoneSpan};
use diecut_nvme::Status;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most logical blocks that the field of a source range can say.
const RANGE_FIELD_MAX: u32 = 1 << 16;

/// Most that one command copies, if the device takes more: its answer is waited for, with a bounded patience.
const COMMAND_MAX_IUS: u32 = 2048;

/// How a namespace copies.
pub(super) struct Copies {
    limits: CopyLimits,
    /// What is written is a multiple of it.
    unit_lbas: u32,
    are_taken: AtomicBool,
}

impl Copies {
    /// Of a namespace with such limits, to which whole units of so many logical blocks are written. Sources are whole IUs.
    pub fn new(are_offered: bool, limits: CopyLimits, unit_lbas: u32, iu_lbas: u32) -> Copies {
        let range_lbas_max = limits.range_lbas_max.min(RANGE_FIELD_MAX);
        let lbas_max = limits.lbas_max.min(COMMAND_MAX_IUS * iu_lbas);
        let limits = CopyLimits { range_lbas_max, lbas_max, ..limits };
        // A unit of which each IU lies elsewhere must fit into one command.
        let ranges_of_unit = iu_lbas.div_ceil(range_lbas_max.max(1)) * (unit_lbas / iu_lbas);
        let is_of_use =
            range_lbas_max > 0 && limits.lbas_max >= unit_lbas && limits.ranges_max >= ranges_of_unit;
        Copies { limits, unit_lbas, are_taken: AtomicBool::new(are_offered && is_of_use) }
    }

    /// Whether commands of this kind are worth a try.
    pub fn are_taken(&self) -> bool {
        self.are_taken.load(Ordering::Relaxed)
    }

    /// One failed. A device that does not take the command itself is not asked again; anything else may be the fault of a zone.
    pub fn note_failure(&self, status: Status) {
        let is_refusal = [Status::INVALID_OPCODE, Status::INVALID_FIELD, Status::COMMAND_SIZE_LIMIT_EXCEEDED];
        if is_refusal.iter().any(|refusal| status.same_code(*refusal)) {
            self.are_taken.store(false, Ordering::Relaxed);
        }
    }

    /// The sources of one command after the other: each writes whole units, and is within the limits.
    pub fn commands(&self, sources: impl IntoIterator<Item = ZoneSpan>) -> Vec<Vec<ZoneSpan>> {
        let mut sources = sources.into_iter();
        let mut left = None;
        let (mut commands, mut command) = (Vec::new(), Vec::new());
        let mut lbas = 0;
        loop {
            let unit = self.take_unit(&mut left, &mut sources);
            if unit.is_empty() {
                break;
            }
            let fits = lbas + self.unit_lbas <= self.limits.lbas_max
                && self.ranges_with(&command, &unit) <= self.limits.ranges_max as usize;
            if !fits {
                commands.push(std::mem::take(&mut command));
                lbas = 0;
            }
            unit.iter().for_each(|span| self.add(&mut command, *span));
            lbas += self.unit_lbas;
        }
        commands.extend(Some(command).filter(|last| !last.is_empty()));
        commands
    }

    /// The next unit, in ranges that are not too long.
    fn take_unit(
        &self,
        left: &mut Option<ZoneSpan>,
        sources: &mut impl Iterator<Item = ZoneSpan>,
    ) -> Vec<ZoneSpan> {
        let (mut unit, mut wanted) = (Vec::new(), self.unit_lbas);
        while wanted > 0 {
            let Some(span) = left.take().or_else(|| sources.next()) else { break };
            let count = span.count.min(wanted).min(self.limits.range_lbas_max);
            unit.push(ZoneSpan { count, ..span });
            if count < span.count {
                let first = span.first + u64::from(count);
                *left = Some(ZoneSpan { first, count: span.count - count, ..span });
            }
            wanted -= count;
        }
        assert!(wanted == 0 || unit.is_empty(), "copies write whole units");
        unit
    }

    fn joins(&self, last: Option<&ZoneSpan>, next: &ZoneSpan) -> bool {
        last.is_some_and(|last| {
            last.zone == next.zone
                && last.first + u64::from(last.count) == next.first
                && last.count + next.count <= self.limits.range_lbas_max
        })
    }

    /// At most so many ranges a command has with a unit more.
    fn ranges_with(&self, command: &[ZoneSpan], unit: &[ZoneSpan]) -> usize {
        command.len() + unit.len() - usize::from(self.joins(command.last(), &unit[0]))
    }

    fn add(&self, command: &mut Vec<ZoneSpan>, span: ZoneSpan) {
        if self.joins(command.last(), &span) {
            command.last_mut().expect("it joins the last one").count += span.count;
        } else {
            command.push(span);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_testing::Random;

    fn limits(range_lbas_max: u32, lbas_max: u32, ranges_max: u32) -> CopyLimits {
        CopyLimits { range_lbas_max, lbas_max, ranges_max }
    }

    fn span(zone: u32, first: u64, count: u32) -> ZoneSpan {
        ZoneSpan { zone, first, count }
    }

    /// Goal: commands write what the sources hold, in their order, and keep to every limit. Method: random sources under random limits,
    /// compared logical block by logical block.
    #[test]
    fn commands_are_within_limits_and_leave_nothing_out() {
        let mut random = Random::of(5);
        let mut several = 0;
        for _ in 0..2000 {
            let iu_lbas = [1, 8][random.below(2) as usize];
            let unit_lbas = iu_lbas * (1 + random.below(6) as u32);
            let range_max = 1 + random.below(40) as u32;
            let ranges_min = iu_lbas.div_ceil(range_max) * (unit_lbas / iu_lbas);
            let limits =
                limits(range_max, unit_lbas + random.below(50) as u32, ranges_min + random.below(9) as u32);
            let copies = Copies::new(true, limits, unit_lbas, iu_lbas);
            assert!(copies.are_taken(), "{limits:?}");
            let mut sources: Vec<ZoneSpan> = (0..random.below(12))
                .map(|_| {
                    let count = iu_lbas * (1 + random.below(20) as u32);
                    span(random.below(3) as u32, random.below(30) * u64::from(iu_lbas), count)
                })
                .collect();
            let lbas: u32 = sources.iter().map(|source| source.count).sum();
            if !lbas.is_multiple_of(unit_lbas) {
                sources.push(span(9, 0, unit_lbas - lbas % unit_lbas));
            }
            let each = |spans: &[ZoneSpan]| -> Vec<(u32, u64)> {
                let lbas = spans
                    .iter()
                    .flat_map(|one| (0..one.count).map(|at| (one.zone, one.first + u64::from(at))));
                lbas.collect()
            };
            let commands = copies.commands(sources.clone());
            assert_eq!(each(&commands.concat()), each(&sources));
            for command in &commands {
                let lbas: u32 = command.iter().map(|range| range.count).sum();
                assert!(lbas > 0 && lbas.is_multiple_of(unit_lbas) && lbas <= limits.lbas_max, "{command:?}");
                assert!(command.len() <= limits.ranges_max as usize, "{command:?}");
                assert!(command.iter().all(|range| range.count <= range_max), "{command:?}");
            }
            several += usize::from(commands.len() > 1);
        }
        assert!(several > 1000, "{several} had several commands");
    }

    #[test]
    fn what_lies_together_is_one_range() {
        let copies = Copies::new(true, limits(256, 512, 128), 8, 1);
        let commands = copies.commands([span(1, 0, 300), span(1, 300, 4), span(2, 0, 8)]);
        // A range of 256 is full; a command of 512 would have room for more.
        assert_eq!(commands, [[span(1, 0, 256), span(1, 256, 48), span(2, 0, 8)]]);
        assert_eq!(copies.commands([]), Vec::<Vec<ZoneSpan>>::new());
        let copies = Copies::new(true, limits(u32::MAX, u32::MAX, u32::MAX), 8, 1);
        assert_eq!(copies.commands([span(1, 0, 2056)]), [[span(1, 0, 2048)], [span(1, 2048, 8)]]);
    }

    /// Goal: a device that offers no copies of use is not asked, and one that refuses them not again.
    #[test]
    fn devices_without_copies_are_not_asked() {
        let taken = |are_offered, limits| Copies::new(are_offered, limits, 8, 1).are_taken();
        assert!(taken(true, limits(256, 256, 128)) && taken(true, limits(1, 8, 8)));
        assert!(!taken(false, limits(256, 256, 128)), "no Copy");
        for none in [limits(0, 0, 1), limits(0, 256, 128), limits(256, 7, 128), limits(256, 256, 7)] {
            assert!(!taken(true, none), "{none:?}");
        }
        let copies = Copies::new(true, limits(256, 256, 128), 8, 1);
        for fault in [Status::ZONE_IS_READ_ONLY, Status::UNRECOVERED_READ_ERROR, Status::ZONE_INVALID_WRITE] {
            copies.note_failure(fault);
            assert!(copies.are_taken(), "{fault}");
        }
        copies.note_failure(Status::INVALID_OPCODE.do_not_retry());
        assert!(!copies.are_taken());
    }
}
