//! Where the parts of a file are.

use diecut_blockspace::LogicalBlock;
use std::collections::BTreeMap;

/// An IU on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Erase block.
    pub block: LogicalBlock,
    /// IU within it.
    pub iu: u32,
}

/// Consecutive IUs of a file that are consecutive on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many.
    pub count: u32,
    /// The first.
    pub place: Place,
}

impl Extent {
    /// Without its first ones.
    pub fn skip(self, ius: u64) -> Extent {
        let place = Place { block: self.place.block, iu: self.place.iu + ius as u32 };
        Extent { count: self.count - ius as u32, place }
    }
}

/// Extents by their first IU in the file; they do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map(BTreeMap<u64, Extent>);

impl Map {
    /// All extents, in order.
    pub fn extents(&self) -> impl Iterator<Item = (u64, Extent)> {
        self.0.iter().map(|(first, extent)| (*first, *extent))
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Where an IU is and how many follow it there; `Err` with the IUs to the next one that is anywhere.
    pub fn find(&self, iu: u64) -> Result<Extent, u64> {
        if let Some((first, extent)) = self.0.range(..=iu).next_back()
            && iu < first + u64::from(extent.count)
        {
            return Ok(extent.skip(iu - first));
        }
        Err(self.0.range(iu..).next().map_or(u64::MAX, |(first, _)| first - iu))
    }
    /// Takes IUs out; `freed` is told what is not needed any more.
    pub fn cut(&mut self, first: u64, end: u64, freed: &mut impl FnMut(LogicalBlock, u32)) {
        let before = self.0.range(..first).next_back().map(|(at, extent)| (*at, *extent));
        let mut touched: Vec<_> = before.into_iter().collect();
        touched.extend(self.0.range(first..end).map(|(at, extent)| (*at, *extent)));
        for (at, extent) in touched {
            let extent_end = at + u64::from(extent.count);
            let (from, to) = (at.max(first), extent_end.min(end));
            if from >= to {
                continue;
            }
            self.0.remove(&at);
            freed(extent.place.block, (to - from) as u32);
            if at < from {
                self.0.insert(at, Extent { count: (from - at) as u32, ..extent });
            }
            if to < extent_end {
                self.0.insert(to, extent.skip(to - at));
            }
        }
    }
    /// Puts an extent in, over what was there; joins it with its neighbour before.
    pub fn insert(&mut self, first: u64, extent: Extent, freed: &mut impl FnMut(LogicalBlock, u32)) {
        self.cut(first, first + u64::from(extent.count), freed);
        if let Some((at, before)) = self.0.range_mut(..first).next_back()
            && at + u64::from(before.count) == first
            && before.place.block == extent.place.block
            && before.place.iu + before.count == extent.place.iu
        {
            before.count += extent.count;
            return;
        }
        self.0.insert(first, extent);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_blockspace::UnitIndex;

    #[test]
    fn extents_are_cut_and_joined_as_single_ius_would_be() {
        let block = |index| LogicalBlock { unit: UnitIndex(0), index };
        let mut random = diecut_testing::Random::of(7);
        let mut random = |below: u64| random.below(below);
        let (mut map, mut model) = (Map::default(), BTreeMap::new());
        let mut live = 0i64;
        for step in 0..5000u64 {
            let (first, count) = (random(60), random(12) + 1);
            let mut freed = 0;
            if random(3) == 0 {
                map.cut(first, first + count, &mut |_, ius| freed += i64::from(ius));
                model.retain(|iu, _| *iu < first || *iu >= first + count);
            } else {
                let place = Place { block: block(step as u32 % 7), iu: random(4) as u32 * 12 };
                map.insert(first, Extent { count: count as u32, place }, &mut |_, ius| {
                    freed += i64::from(ius)
                });
                live += count as i64;
                for at in 0..count {
                    model.insert(first + at, Place { block: place.block, iu: place.iu + at as u32 });
                }
            }
            live -= freed;
            assert_eq!(live, model.len() as i64, "step {step}");
            for iu in 0..80 {
                assert_eq!(
                    map.find(iu).ok().map(|extent| extent.place),
                    model.get(&iu).copied(),
                    "step {step}"
                );
            }
        }
    }
}
