//! Copies: the sources are read as a read is, and what came is written as a write is. Few are under way at once, because what was read is
//! held until it is written; others wait.

use crate::contract::{VolumeCompletion, VolumeCopy, VolumeError, VolumeToken};
use diecut_units::{BufferLoan, BufferMut, mark, mutant};
use std::collections::VecDeque;

/// IUs that copies may hold together; one alone may hold more.
const HELD_IUS_MAX: u32 = 1024;

/// A copy that waits for others.
pub(crate) struct CopyRequest {
    pub token: VolumeToken,
    pub volume: u16,
    pub copy: Box<VolumeCopy>,
}

/// What a read is for that belongs to a copy: where it is written.
pub(crate) struct Reading {
    pub loan: BufferLoan,
    pub request: CopyRequest,
}

/// Copies that are not with the changes yet.
#[derive(Default)]
pub(crate) struct Copies {
    waiting: VecDeque<CopyRequest>,
    /// All of their sources was read.
    read: Vec<(CopyRequest, BufferMut)>,
    /// IUs that are being read, or were.
    reading_ius: u32,
}

impl Copies {
    pub fn push(&mut self, request: CopyRequest) {
        self.waiting.push_back(request);
    }

    /// Whether there is none.
    pub fn are_done(&self) -> bool {
        self.waiting.is_empty() && self.read.is_empty() && self.reading_ius == 0
    }

    /// Whether [`crate::copying::go_on`] has something to do. `written_ius` are with the changes.
    #[inline]
    pub fn can_go_on(&self, written_ius: u32) -> bool {
        !self.read.is_empty() || self.waiting.front().is_some_and(|next| self.fits(next, written_ius))
    }

    fn fits(&self, next: &CopyRequest, written_ius: u32) -> bool {
        let held_ius = self.reading_ius + written_ius;
        held_ius == 0 || held_ius + next.copy.iu_count() <= HELD_IUS_MAX
    }

    /// The next copy to begin with, if there is room for it.
    pub fn next(&mut self, written_ius: u32) -> Option<CopyRequest> {
        let next = self.waiting.front()?;
        if !self.fits(next, written_ius) {
            mark!("volume: copy waits for others");
            return None;
        }
        self.reading_ius += next.copy.iu_count();
        self.waiting.pop_front()
    }

    /// All of a copy's sources was read, or nothing more of it will be. What is answered, if it is over.
    pub fn ended(&mut self, reading: Reading, error: Option<VolumeError>) -> Option<VolumeCompletion> {
        let Reading { loan, request } = reading;
        let error = error.filter(|_| !mutant!("volume: copy takes lost blocks for zeros"));
        match error {
            None => {
                self.read.push((request, loan.reclaim()));
                None
            }
            Some(error) => {
                self.reading_ius -= request.copy.iu_count();
                Some(VolumeCompletion { token: request.token, result: Err(error), destination: None })
            }
        }
    }

    /// Takes those of which all was read.
    pub fn take_read(&mut self) -> Vec<(CopyRequest, BufferMut)> {
        let read = std::mem::take(&mut self.read);
        self.reading_ius -= read.iter().map(|(request, _)| request.copy.iu_count()).sum::<u32>();
        read
    }

    /// None of them will be made; those whose sources are being read end by themselves.
    pub fn drain(&mut self) -> Vec<VolumeToken> {
        let read = self.take_read().into_iter().map(|(request, _)| request);
        read.chain(self.waiting.drain(..)).map(|request| request.token).collect()
    }
}
