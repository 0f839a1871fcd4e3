//! How much of the time is the stand-in for flash, which a real device would do by itself. A second thread looks now and
//! then whether the first is in it: a clock around calls as short as these would change what it measures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks: no whole part of anything that happens in the engine.
const LOOK_EACH: Duration = Duration::from_micros(487);

static IN_STAND_IN: AtomicBool = AtomicBool::new(false);
/// Looks, and those that found the engine in the stand-in.
static LOOKS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The engine is in the stand-in while this lives.
pub struct Inside;

impl Inside {
    #[inline]
    pub fn enter() -> Inside {
        IN_STAND_IN.store(true, Ordering::Relaxed);
        Inside
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        IN_STAND_IN.store(false, Ordering::Relaxed);
    }
}

/// Begins to look, until the process ends.
pub fn begin() {
    std::thread::spawn(|| {
        loop {
            LOOKS[1].fetch_add(IN_STAND_IN.load(Ordering::Relaxed).into(), Ordering::Relaxed);
            LOOKS[0].fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(LOOK_EACH);
        }
    });
}

/// Looks so far, and how many of them found the engine in the stand-in.
pub fn looks() -> [u64; 2] {
    [0, 1].map(|at| LOOKS[at].load(Ordering::Relaxed))
}
