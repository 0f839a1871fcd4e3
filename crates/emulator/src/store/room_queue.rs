//! Room that a thread of its own takes and gives back, so that whoever drives the device never waits for the file system.
//!
//! To allocate an erase block of 16 MiB takes 4 ms on a file system in memory, whose pages cost a fault each on top, and to give
//! one back takes as long as a disk takes that is told of it at once: a shard that waits for that serves nobody.

use super::room::{self, Allocator};
use crate::mapping::Mapping;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What is taken or given back in one step. Others of the file wait for a step, and so does who takes a core.
const PIECE_BYTES: u64 = 256 << 10;

/// A place of an erase block ([`super::places`]) whose room is taken or given back.
#[derive(Clone, Debug)]
struct Job {
    place: u64,
    /// Where in the file its OOB areas and its pages lie.
    parts: [Range<u64>; 2],
    /// Bytes of its pages that are done.
    done_bytes: u64,
}

#[derive(Default)]
struct Jobs {
    takes: VecDeque<Job>,
    gives: VecDeque<Job>,
    /// The place that a step is at work on.
    at_work: Option<u64>,
    /// What is at work is not to be given back any further.
    stays: bool,
    /// Places that were asked for: whether they have their room. Whoever asked takes it out.
    ended: BTreeMap<u64, bool>,
    /// Parts of the device that use this.
    users: u32,
}

/// What parts of a device and the thread share.
pub(crate) struct RoomQueue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
    /// Places that ended, ever: a look at it costs no lock.
    ended: AtomicU64,
    file: Arc<File>,
    allocator: Allocator,
    /// Where OOB areas and pages are mapped, and what of the file that is.
    mapped: Option<[(Mapping, u64); 2]>,
}

impl RoomQueue {
    pub(crate) fn new(
        file: Arc<File>,
        allocator: Allocator,
        mapped: Option<[(Mapping, u64); 2]>,
    ) -> RoomQueue {
        RoomQueue {
            jobs: Mutex::default(),
            changed: Condvar::new(),
            ended: AtomicU64::new(0),
            file,
            allocator,
            mapped,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many places ended: [`RoomQueue::take_ended`] has something new when it changed.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Asks for a place's room.
    pub(crate) fn take(&self, place: u64, parts: [Range<u64>; 2]) {
        let mut jobs = self.lock();
        jobs.keep(place);
        jobs.takes.push_back(Job { place, parts, done_bytes: 0 });
        self.changed.notify_all();
    }

    /// Places whose room was asked for, by whichever part, and is not taken yet.
    pub(crate) fn asked_places(&self) -> u64 {
        let jobs = self.lock();
        jobs.takes.len() as u64 + u64::from(jobs.at_work.is_some())
    }

    /// Whether a place that was asked for has its room; `None` while that is not known.
    pub(crate) fn take_ended(&self, place: u64) -> Option<bool> {
        self.lock().ended.remove(&place)
    }

    /// The room of a place can go.
    pub(crate) fn give_back(&self, place: u64, parts: [Range<u64>; 2]) {
        self.lock().gives.push_back(Job { place, parts, done_bytes: 0 });
        self.changed.notify_all();
    }

    /// The room of a place does not go after all; nothing is at work on it when this returns.
    pub(crate) fn keep(&self, place: u64) {
        let mut jobs = self.lock();
        jobs.keep(place);
        while jobs.at_work == Some(place) {
            jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives back the room of one place of those that are waiting for it, and waits for that. `false` if there was none.
    pub(crate) fn give_back_now(&self) -> bool {
        let mut jobs = self.lock();
        let given = jobs.gives.front().map(|job| job.place).or(jobs.at_work);
        let Some(place) = given else { return false };
        while jobs.at_work == Some(place) || jobs.gives.iter().any(|job| job.place == place) {
            jobs = match jobs.at_work {
                Some(_) => self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                None => {
                    let job = jobs.gives.pop_front().expect("one waits");
                    self.work(jobs, job, false)
                }
            };
        }
        true
    }

    /// Waits until it is known whether a place that was asked for has its room.
    pub(crate) fn wait(&self, place: u64) -> bool {
        let mut jobs = self.lock();
        loop {
            if let Some(has_room) = jobs.ended.remove(&place) {
                return has_room;
            }
            jobs = match jobs.at_work {
                Some(_) => self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                // Whoever waits lends a hand: the thread may be gone.
                None => {
                    let at = jobs.takes.iter().position(|job| job.place == place);
                    let job = at.and_then(|at| jobs.takes.remove(at)).expect("it was asked for");
                    self.work(jobs, job, true)
                }
            };
        }
    }

    /// Does the next piece; places that are wanted come first. `false` if there is nothing to do.
    fn step(&self) -> bool {
        let mut jobs = self.lock();
        if jobs.at_work.is_some() {
            return false;
        }
        let (job, is_taken) = match jobs.takes.pop_front() {
            Some(job) => (job, true),
            None => match jobs.gives.pop_front() {
                Some(job) => (job, false),
                None => return false,
            },
        };
        drop(self.work(jobs, job, is_taken));
        true
    }

    /// Does the next piece of a job, without the lock.
    fn work<'a>(
        &'a self,
        mut jobs: MutexGuard<'a, Jobs>,
        mut job: Job,
        is_taken: bool,
    ) -> MutexGuard<'a, Jobs> {
        (jobs.at_work, jobs.stays) = (Some(job.place), false);
        drop(jobs);
        let [oob, pages] = job.parts.clone();
        let piece = pages.start + job.done_bytes..pages.end.min(pages.start + job.done_bytes + PIECE_BYTES);
        job.done_bytes += PIECE_BYTES;
        let mut is_done = piece.end == pages.end;
        let worked = if is_taken {
            let is_first = piece.start == pages.start;
            (!is_first || self.allocate(0, oob)) && self.allocate(1, piece)
        } else {
            self.allocator.give_back(&self.file, piece.clone());
            true
        };
        let mut jobs = self.lock();
        jobs.at_work = None;
        is_done |= !worked || (!is_taken && jobs.stays);
        match (is_done, is_taken) {
            (true, true) => {
                jobs.ended.insert(job.place, worked);
                self.ended.fetch_add(1, Ordering::Release);
            }
            (true, false) => {}
            (false, true) => jobs.takes.push_front(job),
            (false, false) => jobs.gives.push_front(job),
        }
        self.changed.notify_all();
        jobs
    }

    /// Allocates a part of the file, of OOB areas (0) or pages (1), and has the processor know its pages, so that who stores there takes
    /// no faults.
    fn allocate(&self, nth: usize, part: Range<u64>) -> bool {
        let allocated = room::allocate(&self.file, part.clone()).is_ok();
        if let (true, Some(mapped)) = (allocated, &self.mapped) {
            let (mapping, start) = &mapped[nth];
            mapping.touch((part.start - start) as usize, (part.end - part.start) as usize);
        }
        allocated
    }
}

impl Jobs {
    fn keep(&mut self, place: u64) {
        self.gives.retain(|job| job.place != place);
        self.stays |= self.at_work == Some(place);
    }
}

/// A part's use of the queue: when the last one is dropped, the thread ends.
pub(crate) struct RoomUser(Arc<RoomQueue>);

impl RoomUser {
    pub(crate) fn new(queue: Arc<RoomQueue>) -> RoomUser {
        queue.lock().users += 1;
        RoomUser(queue)
    }
}

impl Clone for RoomUser {
    fn clone(&self) -> RoomUser {
        RoomUser::new(Arc::clone(&self.0))
    }
}

impl std::ops::Deref for RoomUser {
    type Target = RoomQueue;
    fn deref(&self) -> &RoomQueue {
        &self.0
    }
}

impl Drop for RoomUser {
    fn drop(&mut self) {
        self.0.lock().users -= 1;
        self.0.changed.notify_all();
    }
}

/// Takes room on the file system under a device's file, and gives it back, for whoever has a thread for that; see
/// [`crate::Device::room_worker`].
#[derive(Clone)]
pub struct RoomWorker(Arc<RoomQueue>);

impl std::fmt::Debug for RoomWorker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("RoomWorker").finish()
    }
}

impl RoomWorker {
    pub(crate) fn new(queue: Arc<RoomQueue>) -> RoomWorker {
        RoomWorker(queue)
    }

    /// Does the next piece of what the device asked for: a quarter of a MiB. `false` if there is nothing to do.
    pub fn step(&self) -> bool {
        self.0.step()
    }

    /// Does what the device asks for until all its parts are gone. What they gave back last is left to the next process.
    pub fn run(&self) {
        loop {
            while self.0.step() {
                if self.0.lock().users == 0 {
                    return;
                }
                // Where cores are few: who serves hosts comes first.
                std::thread::yield_now();
            }
            let mut jobs = self.0.lock();
            while jobs.users > 0
                && (jobs.at_work.is_some() || (jobs.takes.is_empty() && jobs.gives.is_empty()))
            {
                jobs = self.0.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
            if jobs.users == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn job(place: u64) -> Job {
        Job { place, parts: [0..1, 1..2], done_bytes: 0 }
    }

    /// Goal: room that somebody wants after all stays, wherever it is on its way. Method: of three places that are to go one is at work
    /// and one waits; both are kept, and the third one goes.
    #[test]
    fn room_that_is_wanted_after_all_stays() {
        let mut jobs = Jobs { gives: [job(2), job(3)].into(), at_work: Some(1), ..Jobs::default() };
        jobs.keep(2);
        assert!(!jobs.stays, "that is another one's");
        jobs.keep(1);
        assert!(jobs.stays, "the step under way is the last one");
        jobs.keep(3);
        assert!(jobs.stays && jobs.gives.is_empty());
        let mut jobs = Jobs { gives: [job(2), job(3)].into(), ..Jobs::default() };
        jobs.keep(2);
        assert_eq!(jobs.gives.iter().map(|job| job.place).collect::<Vec<_>>(), [3]);
    }
}
