//! Atomics of what threads share, which a model checker can step through.
//!
//! Built with `--cfg diecut_loom` they are loom's: tests named `interleavings` then run under every order of steps and every value that the
//! memory model lets a thread see (`cargo xtask interleavings`). Otherwise they are those of the standard library.

#[cfg(diecut_loom)]
pub use loom::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(diecut_loom))]
pub use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(diecut_loom)]
use loom::cell::UnsafeCell;
#[cfg(not(diecut_loom))]
use std::cell::UnsafeCell;

/// A word that one thread owns at a time, and that goes from one to the next by an atomic beside it. The model checker
/// sees an access without such a handover.
pub struct Owned<T>(UnsafeCell<T>);

impl<T: Copy> Owned<T> {
    /// Owned by who makes it.
    pub fn new(value: T) -> Owned<T> {
        Owned(UnsafeCell::new(value))
    }
    /// The value.
    ///
    /// # Safety
    /// Nobody writes it at the same time: it was handed to the caller, or to all who read it.
    #[inline(always)]
    pub unsafe fn get(&self) -> T {
        #[cfg(diecut_loom)]
        // SAFETY: by the contract; the checker looks at it.
        return self.0.with(|value| unsafe { *value });
        #[cfg(not(diecut_loom))]
        // SAFETY: by the contract.
        return unsafe { *self.0.get() };
    }
    /// Another value.
    ///
    /// # Safety
    /// Nobody else reads or writes it at the same time: it was handed to the caller.
    #[inline(always)]
    pub unsafe fn set(&self, value: T) {
        #[cfg(diecut_loom)]
        // SAFETY: by the contract; the checker looks at it.
        self.0.with_mut(|place| unsafe { *place = value });
        #[cfg(not(diecut_loom))]
        // SAFETY: by the contract.
        unsafe {
            *self.0.get() = value;
        }
    }
}
