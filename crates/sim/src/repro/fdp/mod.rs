//! Flexible Data Placement: one device with and without reclaim unit handles, under loads whose data die in different ways.

mod cache;
mod tail;
mod tenants;

pub(super) use cache::{CACHELIB, ISOLATION};
pub(super) use tail::EXPERIMENT as TAIL;
pub(super) use tenants::EXPERIMENT as TENANTS;

use super::loads::{Order, Pace, Plain};
use super::stage::{Ground, Kind, Part, Stage, Workload};
use diecut_spec::{Isolation, PlacementIsolation};
use diecut_units::Span;

/// IUs of the writes that fill volumes.
const FILL_LBAS: u32 = 32;

/// How a drive places what is written to its namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placing {
    /// All together.
    Together,
    /// Each namespace has a handle of its own.
    Handles(PlacementIsolation),
}

/// A drive: 2 channels as one vSSD, with as many segments whatever their size.
#[derive(Clone, Copy, Debug)]
struct Drive {
    placing: Placing,
    over_provisioning_permille: u32,
    namespaces: u16,
    seed: u64,
    quick: bool,
}

impl Drive {
    fn stage(self) -> Result<Stage, String> {
        let (placement_handles, placement_isolation) = match self.placing {
            Placing::Together => (0, PlacementIsolation::default()),
            Placing::Handles(isolation) => (self.namespaces, isolation),
        };
        let part = Part {
            over_provisioning_permille: self.over_provisioning_permille,
            placement_handles,
            placement_isolation,
            ..Part::new(Isolation::Channel, 2)
        };
        Stage::new(&self.ground(), &[part])
    }

    /// Drives with handles program a word line at once. Where pages of one are programmed apart, data wait in protected memory until the units
    /// behind them are programmed, for each handle, and eight handles need more of it than there is.
    fn ground(self) -> Ground {
        Ground::of_profile("tlc", 2, if self.quick { 96 } else { 512 }, 6, self.seed)
    }

    /// Logical blocks that it exports.
    fn exported_lbas(self) -> Result<u64, String> {
        Ok(self.stage()?.exported_lbas()[0])
    }

    /// With a namespace of each of these sizes, all of them written once.
    fn filled(self, namespaces_lbas: &[u64]) -> Result<Stage, String> {
        let mut stage = self.stage()?;
        for lbas in namespaces_lbas {
            stage.create_volume(0, *lbas)?;
        }
        for (at, lbas) in namespaces_lbas.iter().enumerate() {
            let mut loads: Vec<Plain> = namespaces_lbas.iter().map(|_| Plain::idle()).collect();
            loads[at] = Plain::new(Kind::Write, FILL_LBAS, Order::Sequential, Pace::Depth(32), *lbas, 0);
            while loads[at].blocks_done < lbas / u64::from(FILL_LBAS) * u64::from(FILL_LBAS) {
                run_for(&mut stage, &mut loads, Span::from_millis(5));
            }
            stage.settle();
        }
        Ok(stage)
    }
}

/// Logical blocks that each of these drives exports: namespaces have the same sizes on all of them.
fn least_exported_lbas(drives: impl Iterator<Item = Drive>) -> Result<u64, String> {
    drives.map(Drive::exported_lbas).try_fold(u64::MAX, |least, lbas| Ok(least.min(lbas?)))
}

fn run_for(stage: &mut Stage, loads: &mut [Plain], span: Span) {
    let until = stage.now + span;
    let mut loads: Vec<&mut dyn Workload> = loads.iter_mut().map(|load| load as &mut dyn Workload).collect();
    stage.run(&mut loads, until);
}

/// Lets loads work until hosts have written so many logical blocks. Write amplification of the cleaner meanwhile.
fn write(stage: &mut Stage, loads: &mut [Plain], lbas: u64) -> f64 {
    let before = stage.written()[0];
    loop {
        run_for(stage, loads, Span::from_millis(5));
        let after = stage.written()[0];
        if after.host_bytes - before.host_bytes >= lbas * 4096 {
            return after.waf_since(before);
        }
    }
}
