//! What a vSSD's flash has been through, in the words of a SMART log.

use crate::VssdId;
use crate::pool::Pool;

/// The worst of the dies that a vSSD lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What is left of the reserve for blocks that go bad, in thousandths.
    pub spare_permille: u32,
    /// How much of its life a die has used, in thousandths: the average of what its blocks were erased, of the endurance that
    /// settings of even wear go by. It may be more than all.
    pub used_permille: u32,
}

impl Condition {
    /// That of flash which nobody used.
    pub const NEW: Condition = Condition { spare_permille: 1000, used_permille: 0 };

    /// The worse one of two, in each figure.
    #[must_use]
    pub fn worst(self, other: Condition) -> Condition {
        Condition {
            spare_permille: self.spare_permille.min(other.spare_permille),
            used_permille: self.used_permille.max(other.used_permille),
        }
    }

    /// That of a vSSD; as new if there is none.
    pub fn of(pool: &Pool, id: VssdId) -> Condition {
        let core = &pool.core;
        let Some(at) = core.at_of(id) else { return Condition::NEW };
        let reserve = core.blocks.reserve().max(1);
        let blocks = u64::from(core.geometry.erase_blocks_per_die());
        assert!(reserve <= core.geometry.erase_blocks_per_die(), "a reserve is a part of a die");
        let life = (blocks * u64::from(core.config.wear.endurance_cycles)).max(1);
        let dies = core.vssds[at].units.iter().map(|unit| core.blocks.die(unit.place.die));
        dies.fold(Condition::NEW, |worst, die| {
            let spare = reserve - die.retired.min(reserve);
            let used = u128::from(die.erases) * 1000 / u128::from(life);
            worst.worst(Condition {
                spare_permille: (u64::from(spare) * 1000 / u64::from(reserve)) as u32,
                used_permille: u32::try_from(used).unwrap_or(u32::MAX),
            })
        })
    }
}
