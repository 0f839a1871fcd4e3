//! Goal: a slab has one owner at a time, its bytes go with it, and memory is freed once, whatever order threads take their steps in. Method:
//! loom runs each test under all of them, bounded by preemptions (`cargo xtask interleavings`); it reports accesses without a handover,
//! and what is not freed at the end.

use super::*;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

const LEN: usize = 100;

impl crate::BufferMut {
    /// Writes what stands for the bytes.
    fn set_content(&mut self, value: u8) {
        // SAFETY: this is the only handle to its range, and tests of interleavings take the whole slab.
        unsafe { self.slab.as_ref().content.set(value) };
    }
}

impl crate::Buffer {
    /// Reads what stands for the bytes.
    fn content(&self) -> u8 {
        // SAFETY: nobody writes while a `Buffer` exists.
        unsafe { self.slab.as_ref().content.get() }
    }
}

/// A thread, and a flag that it raises at its end, without handing anything over.
///
/// Loom reorders a step only against the last step before it at the same atomic. A thread that loads before it exchanges hides the steps of
/// others that way, and nobody would ever come after it. Who looks at the flag may come after all of it.
struct Other(JoinHandle<()>, Arc<AtomicU32>);

impl Other {
    fn spawn(work: impl FnOnce() + 'static) -> Other {
        let done = Arc::new(AtomicU32::new(0));
        let raised = Arc::clone(&done);
        let thread = thread::spawn(move || {
            work();
            raised.store(1, Ordering::Relaxed);
        });
        Other(thread, done)
    }
    /// A step that may come before or after the end.
    fn look(&self) {
        self.1.load(Ordering::Relaxed);
    }
    fn join(self) {
        self.0.join().unwrap();
    }
}

/// A buffer whose content is `value`.
fn filled(pool: &mut BufferPool, value: u8) -> crate::Buffer {
    let mut buffer = pool.take(LEN);
    buffer.set_content(value);
    buffer.freeze()
}

/// Readers on two threads are done before the next owner writes.
#[test]
fn the_next_owner_writes_after_the_last_reader() {
    loom::model(|| {
        let mut pool = BufferPool::new();
        let first = filled(&mut pool, 1);
        let second = first.slice(1..);
        let reader = Other::spawn(move || assert_eq!(second.content(), 1));
        reader.look();
        assert_eq!(first.content(), 1);
        drop(first);
        // It may be the same slab: that depends on whether the reader is done.
        let next = filled(&mut pool, 2);
        assert_eq!(next.content(), 2);
        reader.join();
        assert!(pool.size_bytes() <= 2 * BufferPool::slab_bytes(LEN));
    });
}

/// Slabs that come back from two threads at once are all found by the owner, and none twice.
#[test]
fn slabs_come_back_from_two_threads_while_the_owner_takes() {
    loom::model(|| {
        let mut pool = BufferPool::new();
        let others = [1, 2].map(|value| {
            let buffer = filled(&mut pool, value);
            Other::spawn(move || drop(buffer))
        });
        others.iter().for_each(Other::look);
        let third = filled(&mut pool, 3);
        others.into_iter().for_each(Other::join);
        let (fourth, fifth) = (filled(&mut pool, 4), filled(&mut pool, 5));
        assert_eq!([&third, &fourth, &fifth].map(crate::Buffer::content), [3, 4, 5]);
        assert_eq!(pool.size_bytes(), 3 * BufferPool::slab_bytes(LEN), "what came back is used again");
    });
}

/// The pool goes while its buffers come back: whoever is last frees the place, once.
#[test]
fn a_pool_goes_while_buffers_come_back() {
    loom::model(|| {
        let mut pool = BufferPool::new();
        let others = [1, 2].map(|value| {
            let buffer = filled(&mut pool, value);
            Other::spawn(move || drop(buffer))
        });
        others.iter().for_each(Other::look);
        drop(pool);
        others.into_iter().for_each(Other::join);
    });
}

/// The owner of a loan gets the whole back when the lent parts are gone, and not before.
#[test]
fn a_loan_comes_back_after_its_parts() {
    loom::model(|| {
        let mut pool = BufferPool::new();
        let (loan, mut part) = pool.take(LEN).lend();
        let writer = Other::spawn(move || part.set_content(7));
        writer.look();
        match loan.try_reclaim() {
            Ok(mut whole) => whole.set_content(8),
            Err(loan) => drop(loan),
        }
        writer.join();
    });
}
