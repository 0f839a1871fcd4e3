//! How much of the time is the stand-in for flash, which a real device would do by itself. A second thread looks now and
//! then whether the first is in it: a clock around calls as short as these would change what it measures.

use super::space::CompactSpace;
use diecut_units::BufferMut;
use diecut_vssd::space::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks: no whole part of anything that happens in the engine.
const LOOK_EACH: Duration = Duration::from_micros(487);

#[derive(Default)]
struct Seen {
    in_stand_in: AtomicBool,
    looks: AtomicU64,
    looks_in_stand_in: AtomicU64,
}

/// The stand-in, and how often somebody was seen in it.
pub struct Metered {
    pub space: CompactSpace,
    seen: Arc<Seen>,
}

impl Metered {
    #[expect(clippy::disallowed_methods, reason = "a second thread that only looks")]
    pub fn new(space: CompactSpace) -> Metered {
        let seen = Arc::new(Seen::default());
        let looked_at = Arc::downgrade(&seen);
        std::thread::spawn(move || {
            while let Some(seen) = looked_at.upgrade() {
                let inside = seen.in_stand_in.load(Ordering::Relaxed);
                seen.looks_in_stand_in.fetch_add(inside.into(), Ordering::Relaxed);
                seen.looks.fetch_add(1, Ordering::Relaxed);
                drop(seen);
                std::thread::sleep(LOOK_EACH);
            }
        });
        Metered { space, seen }
    }

    /// Looks so far, and how many of them found the engine in the stand-in.
    pub fn looks(&self) -> [u64; 2] {
        [&self.seen.looks, &self.seen.looks_in_stand_in].map(|count| count.load(Ordering::Relaxed))
    }

    #[inline]
    fn inside<T>(&mut self, call: impl FnOnce(&mut CompactSpace) -> T) -> T {
        self.seen.in_stand_in.store(true, Ordering::Relaxed);
        let result = call(&mut self.space);
        self.seen.in_stand_in.store(false, Ordering::Relaxed);
        result
    }
}

impl EraseBlockSpace for Metered {
    fn shape(&self) -> &BlockShape {
        self.space.shape()
    }
    fn unit_count(&self) -> u16 {
        self.space.unit_count()
    }
    fn blocks_of_unit(&self, unit: UnitIndex) -> u32 {
        self.space.blocks_of_unit(unit)
    }
    fn is_read_only(&self) -> bool {
        self.space.is_read_only()
    }
    fn free_blocks(&self, unit: UnitIndex) -> u32 {
        self.space.free_blocks(unit)
    }
    fn allocate(&mut self, unit: UnitIndex, purpose: Purpose) -> Result<LogicalBlock, SpaceError> {
        self.inside(|space| space.allocate(unit, purpose))
    }
    fn append(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        parts: PayloadParts,
        oob: BufferMut,
        class: IoClass,
    ) {
        self.inside(|space| space.append(token, block, parts, oob, class));
    }
    fn read(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        first_iu: u32,
        iu_count: u32,
        destination: BufferMut,
        oob: Option<BufferMut>,
        class: IoClass,
    ) {
        self.inside(|space| space.read(token, block, first_iu, iu_count, destination, oob, class));
    }
    fn read_oob(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        first_page: u32,
        oob: BufferMut,
        class: IoClass,
    ) {
        self.inside(|space| space.read_oob(token, block, first_page, oob, class));
    }
    fn free(&mut self, block: LogicalBlock) -> Result<(), SpaceError> {
        self.inside(|space| space.free(block))
    }
    fn sync(&mut self, token: SpaceToken) {
        self.space.sync(token);
    }
    fn held_blocks(&self) -> Vec<HeldBlock> {
        self.space.held_blocks()
    }
}
